"""`ibpulse overlap check` as a command: text, JSON, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ibpulse.cli import main
from tests.docs.pages import ROOT, blocks

SCRIPT = (
    "pretrain_gpt.py --overlap-moe-expert-parallel-comm --num-experts 8 --expert-model-parallel-size 8 --bf16 \\\n"
    "  --moe-token-dispatcher-type {dispatcher} --no-gradient-accumulation-fusion\n"
)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "run.sh"
    path.write_text(SCRIPT.format(dispatcher="alltoall"))
    return path


def test_violated_rules_fail_and_say_what_to_change(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.write_text(SCRIPT.format(dispatcher="allgather"))
    assert main(["overlap", "check", str(script)], {}) == 1
    output = capsys.readouterr().out
    assert output.startswith(
        "FAILED: 1 rule violated, with which the run stops or an overlap is switched off\n"
        f"{script}: checked by the rules of 2026-08-22; other versions of Megatron may have other rules\n"
        "51 rules of Megatron-LM: 1 violated, 1 unknown, "
    )
    assert (
        "  ep-overlap-dispatcher: overlap_moe_expert_parallel_comm\n"
        "    needs: moe_token_dispatcher_type is alltoall or flex\n"
        "    found: overlap_moe_expert_parallel_comm true (line 1); moe_token_dispatcher_type allgather (line 2)\n"
        "    change: set moe_token_dispatcher_type to alltoall or flex\n"
        "    effect: the run stops at its start\n"
        "    source: Megatron-LM@d98e8a64 megatron/core/transformer/transformer_config.py, "
    ) in output
    assert "\n  torch: ep-overlap-torch\n" in output


def test_unknown_rules_fail_only_a_strict_check(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["overlap", "check", str(script)], {}) == 0
    assert capsys.readouterr().out.startswith("passed: no rule is known to be violated that matters, but 1 unknown\n")
    assert main(["overlap", "check", str(script), "--strict"], {}) == 1
    words = ["overlap", "check", str(script), "--strict", "--set=torch=2.7.0"]
    capsys.readouterr()
    assert main(words, {}) == 0
    assert capsys.readouterr().out.startswith("passed: no rule is violated")


def test_json_has_every_rule(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["overlap", "check", str(script), "--format=json"], {}) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["snapshot_date"], found["program"], found["failed"]) == ("2026-08-22", "Megatron-LM", False)
    rules = {rule["id"]: rule for rule in found["rules"]}
    assert len(rules) == 67
    torch = rules["ep-overlap-torch"]
    assert (torch["status"], torch["applies"], torch["missing"]) == ("unknown", True, ["torch"])
    assert torch["given"] == [{"option": "overlap_moe_expert_parallel_comm", "value": True, "place": f"{script}:1"}]
    assert rules["delay-wgrad-fusion"]["applies"] is False
    assert rules["data-parallel-bucket"]["checked_by_program"] is False


def test_a_file_that_cannot_be_used_ends_with_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["overlap", "check", str(tmp_path / "none.yaml")], {}) == 2
    assert "cannot be read: No such file or directory" in capsys.readouterr().err


EXAMPLE = """\
export CUDA_DEVICE_MAX_CONNECTIONS=32
torchrun --nnodes 8 --nproc_per_node 8 pretrain_gpt.py \\
    --expert-model-parallel-size 8 --num-experts 64 --bf16 \\
    --moe-token-dispatcher-type alltoall \\
    --recompute-granularity selective --recompute-modules moe \\
    --overlap-moe-expert-parallel-comm --delay-wgrad-compute
"""


def test_the_example_of_the_documentation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("moe.sh").write_text(EXAMPLE)
    assert main(["overlap", "check", "moe.sh", "--set", "torch=2.7.0"], {}) == 1
    assert capsys.readouterr().out in blocks(ROOT / "docs/overlap.md")
