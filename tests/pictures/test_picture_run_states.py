"""Link states, line rates in force and events of a recording, as they are drawn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ibpulse.core.events import Event
from ibpulse.core.model import PortState
from ibpulse.core.recordings import Recording
from ibpulse.workbench.pictures.picture_run import PictureNode, PictureRun, reduce, take_run
from tests.pictures.runs import START_NS, TICK_NS, record

UP = PortState("ACTIVE", "LinkUp", True, 50e9, True)
DOWN = PortState("DOWN", "Polling", False, 50e9, True)
SLOW = replace(UP, rate_bytes_per_second=25e9)
UNREADABLE = replace(UP, problem="unreadable")
BLIND = replace(DOWN, problem="unreadable")


def change(tick: int, before: PortState | None, after: PortState | None, subject: str = "mlx5_0:1") -> Event:
    """A change that is in force from the sample at index `tick` on."""
    return Event(START_NS + (tick + 1) * TICK_NS, "any", subject, "words", 0, before, after)


def take(rates: np.ndarray, *events: Event) -> PictureRun:
    made = record(np.stack([rates, rates], axis=1))
    ports = tuple(replace(port, state="ACTIVE") for port in made.meta.ports)
    meta = replace(made.meta, ports=ports, events=events)
    recording = Recording(meta, made.start_ns, made.bytes_per_second, made.seconds)
    return take_run("a", recording, [str(port.id) for port in ports], PictureNode(rates[0], rates[0], rates[0]))


def marked(values: np.ndarray) -> list[list[int]]:
    return [row.nonzero()[0].tolist() for row in values]


def test_samples_without_traffic_are_down_while_the_link_is() -> None:
    rates = np.zeros((2, 10))
    rates[0, 3], rates[0, 4] = 1e9, np.nan
    run = take(rates, change(2, UP, DOWN), change(7, DOWN, UP))
    # traffic shows that the link was still ACTIVE at sample 3
    assert marked(run.down) == [[2, 4, 5, 6], []]
    assert (run.down_ratio, run.missing_ratio) == (0.2, 0.0)


def test_a_link_is_up_from_the_first_traffic_before_the_event_that_says_so() -> None:
    rates = np.zeros((1, 20))
    rates[0, [4, 13]] = 1e9
    up = replace(change(16, DOWN, UP), uncertainty_ns=6 * TICK_NS)
    assert marked(take(rates, change(2, UP, DOWN), up).down) == [[2, 3, *range(5, 13)]]
    # the first traffic is earlier than the link can have come up
    up = replace(up, uncertainty_ns=2 * TICK_NS)
    assert marked(take(rates, change(2, UP, DOWN), up).down) == [[2, 3, *range(5, 13), 14, 15]]


@pytest.mark.parametrize("state", [UNREADABLE, BLIND, None])
def test_a_port_of_which_nothing_is_known_is_missing_and_not_down(state: PortState | None) -> None:
    rates = np.full((1, 10), 1e9)
    rates[0, 5:] = np.nan
    run = take(rates, change(5, UP, state))
    assert not run.down.any()
    assert run.missing_ratio == 0.5


def test_the_line_rate_is_the_one_in_force_or_the_last_one() -> None:
    never = replace(DOWN, rate_bytes_per_second=None)
    run = take(np.ones((1, 8)), change(2, UP, SLOW), change(4, SLOW, None), change(6, None, UP))
    # of both directions together
    assert run.lines.tolist() == [[100e9] * 2 + [50e9] * 4 + [100e9] * 2]
    run = take(np.ones((1, 6)), change(2, UP, never), change(4, never, SLOW))
    assert run.lines.tolist() == [[100e9] * 4 + [50e9] * 2]


def test_a_line_rate_that_is_not_known_yet_is_the_first_one() -> None:
    run = take(np.ones((1, 6)), change(3, None, SLOW))
    assert run.lines.tolist() == [[50e9] * 6]


def test_the_events_are_those_of_the_node_and_of_the_drawn_ports_within_the_time() -> None:
    told = [change(tick, None, None, subject) for tick, subject in ((4, ""), (3, "mlx5_0"), (2, "mlx5_0:1"))]
    other = [change(-5, None, None), change(30, None, None), change(3, None, None, "mlx5_7:1")]
    run = take(np.ones((1, 10)), *other, *told)
    assert [event.subject for event in run.events] == ["mlx5_0:1", "mlx5_0", ""]


def test_a_column_is_down_if_it_has_no_traffic_and_the_link_was_down_in_it() -> None:
    down = np.zeros((1, 8), dtype=np.bool_)
    down[0, 1:6] = True
    values = np.array([[1.0, 0.0, 0.0, 0.0, np.nan, np.nan, 0.0, 0.0]])
    assert marked(reduce(values, np.ones((1, 8)), 4, down).down) == [[1, 2]]
    assert marked(reduce(values, np.ones((1, 8)), 4).down) == [[]]


def test_a_run_of_a_simulated_recording_is_simulated() -> None:
    recording = record(np.full((1, 2, 10), 1e9))
    node = PictureNode(np.zeros(10), np.zeros(10), np.full(10, 1e11))
    assert not take_run("a", recording, ["mlx5_0:1"], node).simulated
    simulated = replace(recording, meta=replace(recording.meta, simulated=True))
    assert take_run("a", simulated, ["mlx5_0:1"], node).simulated
