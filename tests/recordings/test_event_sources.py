"""The events of a recording from the log of its ring, and from a daemon."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ibpulse.agent.sampler.temporary_sampler import TemporarySampler
from ibpulse.core.client.connection import DaemonConnection
from ibpulse.core.events import Event, EventLog
from ibpulse.core.model import Fabric, PortState
from ibpulse.core.recordings import RecordedPort
from ibpulse.core.recordings.from_ring import LogEvents, RecordedTicks, ports_at_begin
from ibpulse.core.ring.layout import H_CREATED_WALL_NS
from ibpulse.workbench.recorder.from_daemon import DaemonEvents, describe_answer
from ibpulse.workbench.recorder.sampler_source import follow_sampler
from tests.aggregator.rings import MS, Ring, constant, port
from tests.client.servers import Canned, canned
from tests.fleet.small_answers import events_of, port_of, read_ports, state_of

UP = PortState("ACTIVE", "LinkUp", True, 50e9, True)
DOWN = PortState("DOWN", "Polling", False, 50e9, True)
PORTS = (RecordedPort("mlx5_0", 1),)


@pytest.fixture
def ring(tmp_path: Path) -> Ring:
    made = Ring.create(tmp_path, port("mlx5_0"), port("mlx5_1"))
    for name in ("mlx5_0:1", "mlx5_1:1"):
        made.write(name, (constant(1e9), constant(1e9)), 1, 300)
    return made


def change(ring: Ring, tick: int, before: PortState | None, after: PortState | None, subject: str) -> Event:
    created = ring.file.words[H_CREATED_WALL_NS]
    return Event(tick * 10 * MS + 1, "link-down", subject, "A", 0, before, after, {}, tick, created)


async def test_a_log_gives_the_events_since_the_first_sample_once(ring: Ring) -> None:
    log = EventLog()
    log.add(change(ring, 99, UP, DOWN, "mlx5_0:1"))
    log.add(change(ring, 100, DOWN, UP, "mlx5_0:1"))
    source = LogEvents(log, ring.reader, RecordedTicks(100, 2**62, 1000 * MS), PORTS)
    assert [event.tick for event in await source.read()] == [100]
    assert await source.read() == []
    log.add(change(ring, 105, UP, DOWN, "mlx5_0:1"))
    # noticed earlier, and reported later
    log.add(change(ring, 103, None, UP, "mlx5_7:1"))
    assert [event.tick for event in await source.read()] == [105, 103]


async def test_a_port_that_appeared_is_said_not_to_be_recorded(ring: Ring) -> None:
    log = EventLog()
    source = LogEvents(log, ring.reader, RecordedTicks(100, 2**62, 1000 * MS), PORTS)
    for name in ("mlx5_0:1", "mlx5_7:1"):
        log.add(replace(change(ring, 103, None, UP, name), kind="appeared", text=f"{name} appeared"))
    texts = [event.text for event in await source.read()]
    assert texts == ["mlx5_0:1 appeared", "mlx5_7:1 appeared; it is not recorded"]


def sampler_of(ring: Ring, fabric: Fabric, events: EventLog) -> TemporarySampler:
    """A sampler that has sampled this ring and goes on."""
    supervisor: Any = SimpleNamespace(fabric=fabric, slots=ring.file.slots(), events=events)
    task: Any = SimpleNamespace(done=lambda: False)
    return TemporarySampler(supervisor, ring.reader, task)


async def test_the_ports_of_a_ring_are_those_of_the_first_sample(ring: Ring) -> None:
    log = EventLog()
    first = ring.file.latest_tick() + 1
    log.history.begin("mlx5_0:1", DOWN)
    log.add(change(ring, first + 5, DOWN, UP, "mlx5_0:1"))
    source = await follow_sampler(sampler_of(ring, ring.fabric, log))
    simulated = await follow_sampler(sampler_of(ring, replace(ring.fabric, simulated=True), EventLog()))
    assert (source.meta.simulated, simulated.meta.simulated) == (False, True)
    assert source.meta.ports[0].first_state == DOWN
    assert source.meta.ports[1].first_state.active
    assert [event.tick for event in await source.read_events()] == [first + 5]


def test_a_change_at_the_first_sample_is_an_event_and_not_the_beginning() -> None:
    log = EventLog()
    log.history.change("mlx5_0:1", 100, UP, DOWN)
    found = [ports_at_begin(PORTS, log.history, RecordedTicks(tick, 2**62, 0))[0].first_state for tick in (100, 101)]
    assert found == [UP, DOWN]


@pytest.fixture
def server() -> Iterator[Canned]:
    with canned() as state:
        yield state


@pytest.fixture
def connection(server: Canned) -> Iterator[DaemonConnection]:
    made = DaemonConnection(server.url)
    yield made
    made.close()


def answer(server: Canned, *times_ms: int, **changes: Any) -> None:
    """From now on the daemon has a link that went down at each of these times."""
    down = {"text": "down", "before": state_of(state="ACTIVE", active=True), "after": state_of(state="DOWN"), **changes}
    server.answer("/api/v1/events", events_of(*({"time_ms": time_ms, **down} for time_ms in times_ms)))


async def test_a_daemon_gives_the_events_since_the_first_sample_once(
    server: Canned, connection: DaemonConnection
) -> None:
    follower: Any = SimpleNamespace(begin_ns=None)
    source = DaemonEvents(connection, follower, PORTS)
    answer(server, 100_000)
    assert await source.read() == []
    follower.begin_ns = 90_000 * MS
    (event,) = await source.read()
    assert (event.time_ns, event.uncertainty_ns, event.kind) == (100_000 * MS, 1000 * MS, "link-down")
    assert (event.before, event.after) == (PortState("ACTIVE", active=True), PortState("DOWN"))
    assert "from=30000" in server.asked[-1][0]
    answer(server, 99_000, 100_000, 200_000)
    assert [event.time_ns // MS for event in await source.read()] == [99_000, 200_000]
    assert await source.read() == []
    assert "from=140000" in server.asked[-1][0]


async def test_a_daemon_that_does_not_answer_is_asked_again(server: Canned, connection: DaemonConnection) -> None:
    follower: Any = SimpleNamespace(begin_ns=1)
    source = DaemonEvents(connection, follower, PORTS)
    server.answer("/api/v1/events", b"", 503)
    assert await source.read() == []
    answer(server, 100_000, kind="appeared", subject="mlx5_7:1")
    assert [event.text for event in await source.read()] == ["down; it is not recorded"]


def test_a_port_of_a_daemon_that_cannot_be_read_has_a_problem_and_one_that_disappeared_is_not_recorded() -> None:
    ports = [port_of(), port_of("mlx5_1", state="unreadable"), port_of("x", state="disappeared")]
    found = describe_answer(read_ports(*ports))
    described = [(port.device, port.state, port.problem, port.active) for port in found]
    assert described == [("mlx5_0", "ACTIVE", "", True), ("mlx5_1", "", "unreadable", True)]
