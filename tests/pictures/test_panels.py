"""Captions and headings, and the marks of events."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from ibpulse.workbench.pictures.panels import SEPARATOR, gather_marks, head_lines, run_parts
from ibpulse.workbench.pictures.run import PictureRun
from tests.pictures.runs import event, take


def describe_run(run: PictureRun) -> str:
    return SEPARATOR.join(run_parts(run))


def test_caption_has_host_date_span_interval_and_missing_share() -> None:
    run = take(np.zeros((2, 500)))
    assert describe_run(run) == "node7 · 2025-11-21 00:00:00 UTC · 5 s at 10 ms"
    assert describe_run(replace(run, host="", interval_ns=10**10)) == "2025-11-21 00:00:00 UTC · 83.33 min at 10 s"
    rates = np.zeros((1, 100_000))
    rates[0, 7] = np.nan
    assert describe_run(take(rates)).endswith("0.1 % missing per port")


def test_lines_break_between_parts_only() -> None:
    rates = np.zeros((1, 1000))
    rates[0, 7:12] = np.nan
    run = take(rates)
    for width in np.arange(1.6, 8.0, 0.1):
        lines = head_lines(run, float(width))
        assert " · ".join(lines) == describe_run(run)
        assert any(line.endswith("0.5 % missing per port") for line in lines)
        assert max(map(len, lines)) <= width / (8 * 0.0082)


def run_with(*events: object, seconds: int = 20) -> PictureRun:
    return take(np.zeros((2, seconds * 100)), events=sorted(events, key=lambda one: one.time_ns))


def test_events_have_marks_with_time_and_text() -> None:
    marks = gather_marks(run_with(event(2, uncertainty=5), event(12.346, "mlx5_1:1", "link-up", 0.5)), 5.0, 8)
    assert marks.places == [2.0, pytest.approx(12.346)]
    assert marks.lines == (
        "1  2.00\u00a0s  mlx5_0:1: link-down in words",
        "2  12.35\u00a0s  mlx5_1:1: link-up in words",
    )
    assert marks.times.tolist() == [2.0, pytest.approx(12.346)]
    # it cannot have happened before the recording
    assert marks.earliest.tolist() == [0.0, pytest.approx(11.846)]
    assert not gather_marks(run_with(), 5.0, 8)
    together = [event(5 + n / 1000, f"mlx5_{n}:1", "link-up" if n == 3 else "link-down") for n in range(5)]
    marks = gather_marks(run_with(*together, event(15)), 7.0, 8)
    assert marks.lines[0].replace("\u00a0", " ") == (
        "1  5.00 s  5 events: 4 link-down, 1 link-up (mlx5_0:1, mlx5_1:1, mlx5_2:1 and 2 more)"
    )
    marks = gather_marks(run_with(event(1, "a-device-with-a-very-long-name-" * 9)), 4.0, 8)
    assert len(marks.lines) == 2
    assert max(map(len, marks.lines)) <= 4.0 / (8 * 0.007)


@pytest.mark.parametrize("count", [1, 9, 500])
@pytest.mark.parametrize("inches", [2.0, 8.0])
def test_many_events_share_marks(count: int, inches: float) -> None:
    times = np.random.default_rng(count).uniform(0, 20, count)
    run = run_with(*(event(time, f"mlx5_{number % 2}:1", "link-flap") for number, time in enumerate(times.tolist())))
    marks = gather_marks(run, inches, 6)
    assert [one for group in marks.groups for one in group] == list(run.events)
    assert len(marks.groups) <= 6
    assert len(marks.lines) <= 12
    told = [int(number) for number in re.findall("([0-9]+) events:", " ".join(marks.lines))]
    assert sum(told) + sum(len(group) == 1 for group in marks.groups) == count
    places = np.array(marks.places) * inches / 20
    assert (np.diff(places) > 0.2).all()
