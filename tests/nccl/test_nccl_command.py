"""`ibpulse nccl` as a command: its table, its JSON, and its refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ibpulse.cli import main
from ibpulse.commands.options.explain import ALGORITHMS, COLLECTIVES, UNITS
from ibpulse.workbench.nccl import wire_factors
from ibpulse.workbench.nccl.perftest import UNITS as KNOWN_UNITS
from tests.nccl.benchmark_writers import nccl_json, nccl_text, perftest


def test_the_table_has_bound_share_tier_and_grade(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.txt"
    path.write_text(nccl_text(ranks=32, nodes=4))
    assert main(["nccl", str(path), "--rails=8", "--rate=50GB/s", "--gpu-rate=450GB/s", "--algorithm=ring"], {}) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{path}, nccl-tests text version 2.19.6, 32 ranks, 4 nodes:"
    assert lines[1] == "  compared with rails 8, rate 50.00 GB/s, GPU links 450.0 GB/s, algorithm ring"
    last = lines[-1].split("  ")
    assert [cell.strip() for cell in last if cell.strip()] == [
        "all_reduce", "2.147 GB", "in-place", "11.6 ms", "360.0 GB/s", "400.0 GB/s", "90.0 %", "network", "good", "0"
    ]  # fmt: skip


def test_unknown_inputs_are_named_and_nothing_is_guessed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.json"
    path.write_text(nccl_json())
    assert main(["nccl", str(path)], {}) == 0
    text = capsys.readouterr().out
    assert "Unknown, so bounds are missing or uncertain: --rails, --rate" in text
    assert "(bound unknown)" in text


def test_json_has_null_for_what_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "perf.json"
    path.write_text(perftest())
    assert main(["nccl", str(path), "--format=json", "--rate=50GB/s"], {}) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["nccl_report_version"] == 1
    (run,) = document["runs"]
    (row,) = run["rows"]
    assert (run["ranks"], run["wire"], row["seconds"], row["grade"], row["tier"]) == (None, None, None, "good", "port")
    assert row["achieved_ratio"] == pytest.approx([385 / 400] * 2, rel=1e-4)


def test_wrong_arguments_are_all_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nccl", "x", "--rate=400", "--ranks=0", "--mtu=-1"], {}) == 2
    assert capsys.readouterr().err.count("\n") == 3
    assert main(["nccl", "x", "--ranks=9", "--nodes=2"], {}) == 2
    assert "9 is not a multiple of 2 nodes" in capsys.readouterr().err


def test_a_missing_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nccl", str(tmp_path / "none")], {}) == 1
    assert capsys.readouterr().err == (
        f"ibpulse: benchmark file {tmp_path / 'none'} cannot be read: No such file or directory; "
        "check its name and its permissions\n"
    )


def test_the_choices_are_those_that_are_known() -> None:
    assert set(COLLECTIVES) <= set(wire_factors.COLLECTIVES)
    assert tuple(KNOWN_UNITS) == UNITS
    assert set(ALGORITHMS) | {"direct"} == {name for names in wire_factors.ALGORITHMS.values() for name in names}
