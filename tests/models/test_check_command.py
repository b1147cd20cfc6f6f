"""`ibpulse model check` as a command: text, JSON, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ibpulse.cli import main
from tests.docs.pages import ROOT, blocks

JOB = """\
MODEL_ARGS:
  --overlap-moe-expert-parallel-comm: true
  --num-experts: 8
  --expert-model-parallel-size: 8
  --bf16: true
  --no-gradient-accumulation-fusion: true
  --moe-token-dispatcher-type: {dispatcher}
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(JOB.format(dispatcher="alltoall"))
    return path


def test_violated_rules_fail_and_say_what_to_change(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(JOB.format(dispatcher="allgather"))
    assert main(["model", "check", str(job)], {}) == 1
    output = capsys.readouterr().out
    assert output.startswith(
        "FAILED: 1 rule violated, with which the run stops or an overlap is switched off\n"
        f"{job}: checked by the rules of 2026-08-22; other versions of Megatron may have other rules\n"
        "51 rules of Megatron-LM: 1 violated, 1 unknown, "
    )
    assert (
        "  ep-overlap-dispatcher: overlap_moe_expert_parallel_comm\n"
        '    needs: moe_token_dispatcher_type in ("alltoall", "flex")\n'
        "    found: overlap_moe_expert_parallel_comm true (line 2); moe_token_dispatcher_type allgather (line 7)\n"
        "    change: set moe_token_dispatcher_type to alltoall or flex\n"
        "    effect: the run stops at its start\n"
        "    source: https://github.com/NVIDIA/Megatron-LM/blob/d98e8a64/megatron/core/transformer/transformer_config.py\n"
    ) in output
    assert "\n  torch: ep-overlap-torch\n" in output


def test_unknown_rules_fail_only_a_strict_check(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "check", str(job)], {}) == 0
    assert capsys.readouterr().out.startswith("passed: no rule is known to be violated that matters, but 1 unknown\n")
    assert main(["model", "check", str(job), "--strict"], {}) == 1
    words = ["model", "check", str(job), "--strict", "--set=torch=2.7.0"]
    capsys.readouterr()
    assert main(words, {}) == 0
    assert capsys.readouterr().out.startswith("passed: no rule is violated")


def test_json_has_every_rule_of_the_program(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "check", str(job), "--format=json"], {}) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["snapshot_date"], found["program"], found["failed"]) == ("2026-08-22", "Megatron-LM", False)
    rules = {rule["id"]: rule for rule in found["rules"]}
    assert len(rules) == 51
    torch = rules["ep-overlap-torch"]
    assert (torch["status"], torch["applies"], torch["missing"]) == ("unknown", True, ["torch"])
    assert torch["given"] == [{"option": "overlap_moe_expert_parallel_comm", "value": True, "place": f"{job}:2"}]
    assert rules["delay-wgrad-fusion"]["applies"] is False


def test_a_file_that_cannot_be_used_ends_with_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "check", str(tmp_path / "none.yaml")], {}) == 2
    assert "cannot be read: No such file or directory" in capsys.readouterr().err


def test_the_example_of_the_documentation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = blocks(ROOT / "docs/overlap.md")
    at = next(at for at, block in enumerate(page) if "MODEL_ARGS" in block)
    job, _, result = page[at : at + 3]
    Path("moe.yaml").write_text(job)
    assert main(["model", "check", "moe.yaml", "--set", "torch=2.7.0"], {}) == 1
    assert capsys.readouterr().out == result
