"""The report bounds exposed communication from the wire, and never gives one number for it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ibpulse.cli import main
from ibpulse.core.recordings import Recording, save
from ibpulse.workbench.reports.formats import render_text
from ibpulse.workbench.reports.span import ReportOptions
from tests.reports.recordings import LINE, record, report_of, run_of, wave

BOUNDS = ("wire_seconds_lower", "exposed_seconds_lower", "exposed_seconds_upper")


@pytest.fixture(scope="module")
def half() -> Recording:
    """Steps of 0.5 s: 0.2 s at half of the line rate, 0.3 s of silence."""
    rates = wave(LINE / 2, 20, 30, 60, ports=2)
    rates[:, 1] /= 2
    return record(rates)


def test_the_bounds_follow_from_bytes_line_rate_and_silence(half: Recording) -> None:
    run = run_of(half)
    assert run.values["step_silent_ratio"] == pytest.approx(0.6)
    # 0.2 s at half of the line rate in the busier direction
    assert [run.values[key] for key in BOUNDS] == pytest.approx([0.1, 0.0, 0.2])


@pytest.mark.parametrize(
    ("computing", "low", "high"), [(0.0, 0.2, 0.2), (0.3, 0.05, 0.2), (0.7, 0.0, 0.15), (1.0, 0.0, 0.0)]
)
def test_a_known_activity_of_the_gpus_narrows_them(half: Recording, computing: float, low: float, high: float) -> None:
    run = run_of(half, ReportOptions(gpu_active=(computing,)))
    assert [run.values[key] for key in BOUNDS[1:]] == pytest.approx([low, high], abs=1e-9)


def test_bounds_are_rows_of_their_own_and_no_change_of_them_is_marked(half: Recording) -> None:
    text = render_text(report_of(half, half))
    section = text[text.index("Overlap, bounds from the wire") :].splitlines()[1:4]
    assert [line.split("  ")[1] for line in section] == [
        "wire time, low bound",
        "exposed, low bound",
        "exposed, high bound",
    ]
    assert not set(BOUNDS) & set(report_of(half, half).changes[0].by_key)


def test_without_steps_or_samples_there_are_no_bounds(half: Recording) -> None:
    steady = run_of(record(np.full((1, 2, 3000), 1e9)))
    assert {steady.values[key] for key in BOUNDS} == {None}


def test_the_flag_is_checked_and_taken_by_each_recording(
    half: Recording, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "half.parquet")
    save(Path(path), half)
    assert main(["report", path, path, "--gpu-active=0.3", "--gpu-active=0.7", "--format=json"], {}) == 0
    runs = json.loads(capsys.readouterr().out)["recordings"]
    highs = [run["values"]["exposed_seconds_upper"] for run in runs]
    assert highs == pytest.approx([0.2, 0.15])
    assert main(["report", path, "--gpu-active=1.5", "--gpu-active=0.5"], {}) == 2
    faults = capsys.readouterr().err
    assert "flag --gpu-active: 1.5 is out of bounds; choose 0 to 1" in faults
    assert "flag --gpu-active: given 2 times for 1 recordings; give it once, or once for each" in faults
