import re

import numpy as np
import pytest

from ibpulse.workbench.pictures.event_marks import gather_marks
from ibpulse.workbench.pictures.picture_run import PictureRun
from tests.pictures.runs import event, take


def run_with(*events: object, seconds: int = 20) -> PictureRun:
    return take(np.zeros((2, seconds * 100)), events=sorted(events, key=lambda one: one.time_ns))


def test_each_event_has_a_mark_with_its_time_and_text() -> None:
    marks = gather_marks(run_with(event(2, uncertainty=5), event(12.346, "mlx5_1:1", "link-up", 0.5)), 5.0, 8)
    assert marks.places == [2.0, pytest.approx(12.346)]
    assert marks.lines == (
        "1  2.00\u00a0s  mlx5_0:1: link-down in words",
        "2  12.35\u00a0s  mlx5_1:1: link-up in words",
    )
    assert marks.times.tolist() == [2.0, pytest.approx(12.346)]
    # it cannot have happened before the recording
    assert marks.earliest.tolist() == [0.0, pytest.approx(11.846)]


def test_without_events_there_are_no_marks() -> None:
    assert not gather_marks(run_with(), 5.0, 8)


@pytest.mark.parametrize("count", [1, 9, 500])
@pytest.mark.parametrize("inches", [2.0, 8.0])
def test_many_events_share_few_marks_and_all_are_counted(count: int, inches: float) -> None:
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


def test_events_at_one_time_are_told_by_kind_and_port() -> None:
    together = [event(5 + n / 1000, f"mlx5_{n}:1", "link-up" if n == 3 else "link-down") for n in range(5)]
    marks = gather_marks(run_with(*together, event(15)), 7.0, 8)
    assert marks.lines[0].replace("\u00a0", " ") == (
        "1  5.00 s  5 events: 4 link-down, 1 link-up (mlx5_0:1, mlx5_1:1, mlx5_2:1 and 2 more)"
    )


def test_a_long_text_takes_two_lines() -> None:
    marks = gather_marks(run_with(event(1, "a-device-with-a-very-long-name-" * 9)), 4.0, 8)
    assert len(marks.lines) == 2
    assert max(map(len, marks.lines)) <= 4.0 / (8 * 0.007)


def test_a_long_recording_has_times_in_its_unit() -> None:
    assert gather_marks(run_with(event(1200), seconds=3000), 7.0, 8).lines[0].startswith("1  20.00\u00a0min  ")
