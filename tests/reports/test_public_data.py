"""Public traces, which are not part of the project: imported and reported by the commands of the documentation."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ibpulse.cli import main
from tests.statistics.test_public_data import find_file

DOCS = Path(__file__).parents[2] / "docs/record.md"


def report(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["report", *words, "--format=json"], {}) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found["recordings"][0]


def test_imported_log_loses_only_the_gap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of sixteen switch ports, sampled every 0.57 s or so."""
    log, path, name = find_file("zhejianglab_16ports_0p57s.csv.gz"), tmp_path / "switch.parquet", "Leaf-5_3_1"
    words = ["--time=SaveTimeUTC", "--port=port", "--transmit=InOctets", "--receive=OutOctets", "--since-before"]
    assert main(["import", str(log), "-o", str(path), *words, "--line-rate=25GB/s"], {}) == 0
    capsys.readouterr()
    rows = pd.read_csv(log)
    rows = rows[rows.port == name]
    # the first row has no beginning, and that at the end of the hole is not laid on the grid
    inside = rows.SaveTimeUTC.diff() < 10_000
    moved = float((rows.InOctets + rows.OutOctets)[inside].sum())
    values = report(capsys, str(path), f"--port={name}")["values"]
    seconds = values["window_seconds"] * values["observed_ratio"]
    # what lies in the parts of ticks at the ends and at the hole
    assert values["mean_bytes_per_second"] * seconds == pytest.approx(moved, rel=2e-3)


def test_step_of_a_real_run_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = find_file("straggler_trace_ST.parquet")
    script, log, recording = (tmp_path / name for name in ("operations.py", "trace.csv", "trace-log.parquet"))
    script.write_text(DOCS.read_text().split("```python\n")[1].split("```")[0])
    monkeypatch.setattr(sys, "argv", [str(script), str(trace), str(log)])
    runpy.run_path(str(script), run_name="__main__")
    assert main(["import", str(log), "-o", str(recording), "--time=seconds", "--transmit={port}_sent"], {}) == 0
    assert "8 ports" in capsys.readouterr().out
    found = report(capsys, str(recording))
    assert found["recorded"] == ["transmit"]
    assert found["values"]["step_period_seconds"] == pytest.approx(2.214, rel=5e-3)
    assert found["values"]["step_seconds"] == pytest.approx(2.214, rel=5e-3)
    low, high = found["intervals"]["step_seconds"]
    assert low <= 2.214 <= high
    assert found["values"]["step_spread_seconds"] == pytest.approx(0.051, abs=0.03)
