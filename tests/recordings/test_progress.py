"""The progress of a recording as text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ibpulse.recordings.session import Progress, say_end, say_progress, say_ratio, say_seconds, say_size

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
    whole = "run.parquet: 30.0s of 8 ports, 3000 ticks read, 100 % of their samples kept, 2.0 kB"
    assert say_end(path, HALF, 2000, 0.0) == whole
    assert say_end(path, HALF, 2000, 10.0) == whole.replace("30.0s", "20.0s") + "; 10.0s of silence cut off"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0s"), (59.4, "59.4s"), (59.6, "1m00s"), (61, "1m01s"), (3599.6, "1h00m00s"), (90_061, "25h01m01s")],
)
def test_times_are_short(seconds: float, text: str) -> None:
    assert say_seconds(seconds) == text


def test_sizes_are_decimal_and_a_ratio_never_says_all_when_it_is_not() -> None:
    assert [say_size(size) for size in (999, 1e3, 1.26e6, 7.6e9)] == ["999 B", "1.0 kB", "1.3 MB", "7.6 GB"]
    assert [say_ratio(ratio) for ratio in (1.0, 0.999999, 0.5, 0)] == ["100 %", "99.99 %", "50.00 %", "0.00 %"]
