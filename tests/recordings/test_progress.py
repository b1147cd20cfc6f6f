"""The progress of a recording as text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ibpulse.workbench.recorder.session import Progress, say_end, say_missing, say_progress

HALF = Progress(30.0, 3000, 8, 1.0, 213.44e9, 1_234_000, 30.0)


def test_a_line_tells_time_rate_size_and_what_is_left() -> None:
    assert say_progress(HALF) == "30.0s of 8 ports, 213.4 GB/s, 1.2 MB (41.1 kB/s), 30.0s left"


def test_a_line_without_a_bound_says_nothing_of_its_end() -> None:
    open_end = replace(HALF, remaining_seconds=None, kept_ratio=0.99999, bandwidth_bytes_per_second=None)
    assert say_progress(open_end) == "30.0s of 8 ports, nothing measured, 1.2 MB (41.1 kB/s), 99.99 % kept"


def test_a_line_before_the_first_tick() -> None:
    assert say_progress(Progress(0.0, 0, 8, 1.0, None, 0, 5.0)) == "0.0s of 8 ports, nothing measured, 0 B, 5.0s left"


def test_the_end_tells_what_was_cut_off() -> None:
    path = Path("run.parquet")
    whole = "run.parquet: 30.0s of 8 ports, 3000 samples per port, 100 % captured, 2.0 kB"
    assert say_end(path, HALF, 2000, 0.0) == whole
    assert say_end(path, HALF, 2000, 10.0) == whole.replace("30.0s", "20.0s") + "; 10.0s of silence cut off"


def test_missing_samples_end_with_a_warning() -> None:
    assert say_missing(replace(HALF, kept_ratio=0.95)) == ""
    assert say_missing(replace(HALF, kept_ratio=0.57)).startswith("43.00 % of the samples are missing: bursts, gaps")
