"""The drawn part of a recording: columns, scale, states of links, captions and marks of events."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.core.events import Event
from ibpulse.core.model import PortState
from ibpulse.workbench.pictures.panels import SEPARATOR, gather_marks, head_lines, run_parts
from ibpulse.workbench.pictures.run import PictureNode, PictureRun, choose_scale, reduce, round_up, take_run
from tests.pictures.runs import STILL, event, take
from tests.reports.recordings import START_NS, TICK_NS, record


@given(st.integers(1, 60), st.integers(1, 70), st.integers(0, 2**32))
def test_columns_keep_maximum_and_mean(ticks: int, most: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values, seconds = rng.random((3, ticks)), rng.random((3, ticks)) + 0.5
    columns = reduce(values, seconds, most)
    assert columns.count <= most
    assert (columns.highest.max(axis=1) == values.max(axis=1)).all()
    weights = np.add.reduceat(seconds, np.arange(0, ticks, columns.ticks), axis=1)
    expected = (values * seconds).sum(axis=1) / seconds.sum(axis=1)
    np.testing.assert_allclose((columns.mean * weights).sum(axis=1) / weights.sum(axis=1), expected)


def test_columns_have_missing_samples_and_links_that_are_down() -> None:
    values = np.array([[1.0, 3.0, np.nan, 5.0, np.nan, np.nan]])
    columns = reduce(values, np.where(np.isnan(values), 0.0, 1.0), 3)
    np.testing.assert_array_equal(columns.highest, [[3.0, 5.0, np.nan]])
    np.testing.assert_array_equal(columns.mean, [[2.0, 5.0, np.nan]])
    assert columns.partly.tolist() == [[False, True, True]]
    down = np.zeros((1, 8), dtype=np.bool_)
    down[0, 1:6] = True
    values = np.array([[1.0, 0.0, 0.0, 0.0, np.nan, np.nan, 0.0, 0.0]])
    assert marked(reduce(values, np.ones((1, 8)), 4, down).down) == [[1, 2]]
    assert marked(reduce(values, np.ones((1, 8)), 4).down) == [[]]


def test_the_scale_ends_at_the_line_rate() -> None:
    rates = np.full((2, 5), 81e9)
    scale = choose_scale([take(rates, line=97e9)], STILL)
    assert (scale.port, scale.node, scale.exceeded) == (97.0, 200.0, "")
    rates[0, 3] = 97.2e9
    # as exact as a rate is
    assert choose_scale([take(rates, line=97e9)], STILL).exceeded == ""
    rates[0, 3] = 98e9
    scale = choose_scale([take(rates, line=97e9)], STILL)
    assert (scale.port, scale.exceeded) == (97.0, "▲ above the line rate: up to 98 GB/s")
    assert choose_scale([take(rates, line=float("nan"))], STILL).port == 100.0


def test_utilisation_is_of_the_line_rate_in_force() -> None:
    run = take(np.full((2, 4), 10e9), line=100e9)
    run.lines[0, 2:] = 20e9
    run.node.lines[2:] = 120e9
    scale = choose_scale([run], replace(STILL, unit="utilization"))
    np.testing.assert_allclose(scale.of_ports(run), [[10, 10, 50, 50], [10] * 4])
    np.testing.assert_allclose(scale.of_node(run), [10, 10, 100 / 6, 100 / 6])


@pytest.mark.parametrize(("value", "rounded"), [(0, 1), (96, 100), (100, 100), (101, 120), (0.031, 0.04), (656, 700)])
def test_a_scale_ends_at_a_round_number(value: float, rounded: float) -> None:
    assert round_up(value) == pytest.approx(rounded)


UP = PortState("ACTIVE", "LinkUp", True, 50e9, True)
DOWN = PortState("DOWN", "Polling", False, 50e9, True)
SLOW = replace(UP, rate_bytes_per_second=25e9)
UNREADABLE = replace(UP, problem="unreadable")
BLIND = replace(DOWN, problem="unreadable")


def change(tick: int, before: PortState | None, after: PortState | None, subject: str = "mlx5_0:1") -> Event:
    """A change that is in force from the sample at index `tick` on."""
    return Event(START_NS + (tick + 1) * TICK_NS, "any", subject, "words", 0, before, after)


def played(rates: np.ndarray, *events: Event) -> PictureRun:
    recording = record(np.stack([rates, rates], axis=1), events=events)
    names = [str(port.id) for port in recording.meta.ports]
    return take_run("a", recording, names, PictureNode(rates[0], rates[0], rates[0]))


def marked(values: np.ndarray) -> list[list[int]]:
    return [row.nonzero()[0].tolist() for row in values]


def test_silent_samples_are_down_while_link_is() -> None:
    rates = np.zeros((2, 10))
    rates[0, 3], rates[0, 4] = 1e9, np.nan
    run = played(rates, change(2, UP, DOWN), change(7, DOWN, UP))
    # traffic shows that the link was still ACTIVE at sample 3
    assert marked(run.down) == [[2, 4, 5, 6], []]
    assert (run.down_ratio, run.missing_ratio) == (0.2, 0.0)


def test_link_is_up_from_its_first_traffic() -> None:
    rates = np.zeros((1, 20))
    rates[0, [4, 13]] = 1e9
    up = replace(change(16, DOWN, UP), uncertainty_ns=6 * TICK_NS)
    assert marked(played(rates, change(2, UP, DOWN), up).down) == [[2, 3, *range(5, 13)]]
    # the first traffic is earlier than the link can have come up
    up = replace(up, uncertainty_ns=2 * TICK_NS)
    assert marked(played(rates, change(2, UP, DOWN), up).down) == [[2, 3, *range(5, 13), 14, 15]]


@pytest.mark.parametrize("state", [UNREADABLE, BLIND, None])
def test_unreadable_port_is_missing_not_down(state: PortState | None) -> None:
    rates = np.full((1, 10), 1e9)
    rates[0, 5:] = np.nan
    run = played(rates, change(5, UP, state))
    assert not run.down.any()
    assert run.missing_ratio == 0.5


def test_line_rate_follows_the_link_state() -> None:
    never = replace(DOWN, rate_bytes_per_second=None)
    run = played(np.ones((1, 8)), change(2, UP, SLOW), change(4, SLOW, None), change(6, None, UP))
    # of both directions together
    assert run.lines.tolist() == [[100e9] * 2 + [50e9] * 4 + [100e9] * 2]
    run = played(np.ones((1, 6)), change(2, UP, never), change(4, never, SLOW))
    assert run.lines.tolist() == [[100e9] * 4 + [50e9] * 2]
    run = played(np.ones((1, 6)), change(3, None, SLOW))
    assert run.lines.tolist() == [[50e9] * 6]


def test_events_of_node_and_drawn_ports_are_kept() -> None:
    told = [change(tick, None, None, subject) for tick, subject in ((4, ""), (3, "mlx5_0"), (2, "mlx5_0:1"))]
    other = [change(-5, None, None), change(30, None, None), change(3, None, None, "mlx5_7:1")]
    run = played(np.ones((1, 10)), *other, *told)
    assert [event.subject for event in run.events] == ["mlx5_0:1", "mlx5_0", ""]


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
