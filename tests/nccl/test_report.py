"""`ibpulse nccl` as a command, as far as `tests/contract` does not hold it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ibpulse.cli import main
from ibpulse.commands.options.explain import ALGORITHMS, COLLECTIVES, UNITS
from ibpulse.workbench.nccl import results
from ibpulse.workbench.nccl.formats import UNITS as KNOWN_UNITS
from tests.nccl.benchmark_writers import perftest


def test_unknown_values_are_null_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "perf.json"
    path.write_text(perftest())
    assert main(["nccl", str(path), "--format=json", "--rate=50GB/s"], {}) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["nccl_report_version"] == 1
    (run,) = document["runs"]
    (row,) = run["rows"]
    assert (run["ranks"], run["wire"], row["seconds"], row["grade"], row["tier"]) == (None, None, None, "good", "port")
    assert row["achieved_ratio"] == pytest.approx([385 / 400] * 2, rel=1e-4)


def test_ranks_are_a_multiple_of_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nccl", "x", "--ranks=9", "--nodes=2"], {}) == 2
    assert "9 is not a multiple of 2 nodes" in capsys.readouterr().err


def test_the_choices_are_those_that_are_known() -> None:
    assert set(COLLECTIVES) <= set(results.COLLECTIVES)
    assert tuple(KNOWN_UNITS) == UNITS
    assert set(ALGORITHMS) | {"direct"} == {name for names in results.ALGORITHMS.values() for name in names}
