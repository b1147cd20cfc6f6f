"""Statistics of the past use the states of the past: a summary does not depend on when it is asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ibpulse.agent.aggregator import Aggregator, AggregatorOptions, summarize
from ibpulse.core.answers.summary import Summary
from ibpulse.core.events import PortHistory
from ibpulse.core.jobs import JobPorts
from ibpulse.core.model import Port, PortState
from tests.aggregator.rings import RATE, Ring, constant, port, update

SECONDS = 30
UP = PortState("ACTIVE", "LinkUp", True, RATE, True)
DOWN = replace(UP, state="DOWN", physical="Polling", active=False)
NAMES = [f"mlx5_{number}:1" for number in range(4)]
IDLE = constant(0.0)


def tick_of(second: float) -> int:
    """The first tick that belongs to a second."""
    return round(second * 100) + 1


@pytest.fixture
def ring(tmp_path: Path) -> Ring:
    """Four rails at 20 GB/s; rail 2 stops at 12 s, as a rail does whose link goes down."""
    made = Ring.create(tmp_path, *(port(name) for name in NAMES))
    for name in NAMES:
        end = tick_of(12) if name == "mlx5_2:1" else tick_of(SECONDS) + 100
        made.write(name, (lambda tick, end=end: 20e9 if tick < end else 0.0, IDLE), 1, tick_of(SECONDS) + 100)
    return made


@pytest.fixture
def history() -> PortHistory:
    made = PortHistory()
    for name in NAMES:
        made.begin(name, UP)
    return made


def ask(ring: Ring, history: PortHistory, seconds: int, end: int, ports: tuple[Port, ...] | None = None) -> Summary:
    chosen = ring.fabric.ports if ports is None else ports
    return summarize(
        ring.reader, chosen, history, AggregatorOptions(), seconds, end * 1_000_000_000, SECONDS * 1_000_000_000
    )


@pytest.mark.parametrize("after", [DOWN, replace(UP, rate_bytes_per_second=RATE / 2), replace(UP, rail=False), None])
def test_a_summary_of_the_past_stays_the_same_after_an_incident(
    ring: Ring, history: PortHistory, after: PortState | None
) -> None:
    before = ask(ring, history, 8, 11)
    history.change("mlx5_2:1", tick_of(12), UP, after)
    state = after or DOWN
    now = replace(
        ring.fabric.ports[2],
        active=state.active,
        rail=state.rail,
        rate_bytes_per_second=state.rate_bytes_per_second if state.active else None,
        state=state.state,
    )
    ports = (*ring.fabric.ports[:2], now, *ring.fabric.ports[3:])
    assert ask(ring, history, 8, 11, ports) == before
    # the states of now would say something else
    assert ask(ring, PortHistory(), 8, 11, ports) != before


def test_a_rail_that_went_down_was_busy_before_and_is_idle_after(ring: Ring, history: PortHistory) -> None:
    history.change("mlx5_2:1", tick_of(12), UP, DOWN)
    busy, idle = (ask(ring, history, 8, end).ports[2] for end in (11, 25))
    assert (busy.state, busy.rail_idle, busy.transmit.mean_bytes_per_second) == ("ACTIVE", False, pytest.approx(20e9))
    assert (idle.state, idle.rail_idle, idle.transmit.mean_bytes_per_second) == ("DOWN", True, None)
    assert (ask(ring, history, 8, 11).node.active_rails, ask(ring, history, 8, 25).node.active_rails) == (4, 3)


def test_a_window_with_the_change_has_the_traffic_before_it(ring: Ring, history: PortHistory) -> None:
    history.change("mlx5_2:1", tick_of(12.5), UP, DOWN)
    found = ask(ring, history, 4, 14).ports[2]
    # seconds 10 and 11 at 20 GB/s, and second 12, in which the link was up at first; then nothing was observed
    assert found.observed_seconds == pytest.approx(3.0)
    assert found.transmit.mean_bytes_per_second == pytest.approx(2 * 20e9 / 3)


def test_a_port_that_did_not_exist_yet_is_not_in_a_summary(ring: Ring, history: PortHistory) -> None:
    history = PortHistory()
    for name in NAMES[:3]:
        history.begin(name, UP)
    history.change("mlx5_3:1", tick_of(20), None, UP)
    assert [each.port for each in ask(ring, history, 8, 15).ports] == NAMES[:3]
    assert [each.port for each in ask(ring, history, 8, 25).ports] == NAMES


def test_a_port_that_disappeared_stays_in_the_seconds_in_which_it_existed(ring: Ring, history: PortHistory) -> None:
    history.change("mlx5_2:1", tick_of(12), UP, None)
    within, later = ask(ring, history, 8, 15), ask(ring, history, 8, 25)
    assert [each.port for each in within.ports] == NAMES
    assert within.ports[2].state == "disappeared"
    assert [each.port for each in later.ports] == [NAMES[0], NAMES[1], NAMES[3]]
    assert later.node.rails == 3


def test_a_job_on_a_port_that_is_not_sampled_has_no_numbers(ring: Ring, history: PortHistory) -> None:
    had = JobPorts({"mlx5_9:1": [(tick_of(5), tick_of(10))]})
    found = summarize(ring.reader, ring.fabric.ports, history, AggregatorOptions(), 8, 11 * 10**9, None, had=had)
    assert (found.ports, found.node.rails, found.node.observed_seconds) == ([], 0, 0.0)


def test_the_running_totals_count_the_seconds_before_a_change_as_they_were(tmp_path: Path) -> None:
    """The aggregator comes late: when it counts second 1, the link is already down."""
    ring = Ring.create(tmp_path, port("mlx5_0:1"))
    history = PortHistory()
    history.begin("mlx5_0:1", UP)
    aggregator = Aggregator(ring.reader, AggregatorOptions(), history)
    ring.write("mlx5_0:1", (constant(20e9), IDLE), 1, tick_of(5))
    update(ring, aggregator, 1)
    history.change("mlx5_0:1", tick_of(3), UP, DOWN)
    ring.change(port("mlx5_0:1", active=False))
    found = update(ring, aggregator, 4).ports[0]
    # seconds 1 and 2; in second 3 the link was down
    assert found.observed_seconds == pytest.approx(2.0 + 0.99)
    assert found.directions[0].moments is not None
    assert found.directions[0].moments.utilization_seconds == pytest.approx(0.4 * found.observed_seconds)
