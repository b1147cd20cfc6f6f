"""A daemon followed over HTTP: each tick once, what is not certain yet waited for, refusals told, silence borne."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import pytest

from ibpulse.agent.sampler.temporary_sampler import TemporarySampler
from ibpulse.base.errors import DaemonError, FabricError, RecordingError
from ibpulse.core.client.connection import DaemonConnection
from ibpulse.core.events import Event, EventLog
from ibpulse.core.model import Fabric, PortState
from ibpulse.core.recordings import RecordedPort, RecordingMeta
from ibpulse.core.recordings.from_ring import LogEvents, RecordedTicks, ports_at_begin
from ibpulse.core.ring.layout import H_CREATED_WALL_NS
from ibpulse.core.signals import Signal
from ibpulse.core.statistics.gains import MISSING
from ibpulse.workbench.recorder.from_daemon import DaemonSource, ask_meta, describe_answer, fetch_recent
from ibpulse.workbench.recorder.sampler_source import follow_sampler
from tests.aggregator.rings import MS, Ring, constant, port
from tests.client.servers import WINDOW, Canned, canned
from tests.fleet.small_answers import PORT, events_of, jobs_of, port_of, ports_of, read_ports, state_of

INTERVAL_NS = 10_000_000
META = RecordingMeta("node7", INTERVAL_NS, (RecordedPort("mlx5_0", 1), RecordedPort("mlx5_1", 1)), "record")


@pytest.fixture
def server() -> Iterator[Canned]:
    with canned() as state:
        yield state


@pytest.fixture
def follower(server: Canned) -> Iterator[DaemonSource]:
    """A follower that has asked once, when the newest tick was at 1.04 s: it begins after 0.8 s."""
    connection = DaemonConnection(server.url)
    follower = DaemonSource(connection, META)
    answer(server, 500, 1040, 54)
    assert list(follower.read()) == []
    yield follower
    connection.close()


def answer(server: Canned, start_ms: int, newest_ms: int, points: int, interval_ms: int = 10) -> None:
    """From now on the daemon's window is this: the first port sends the number of its tick, the second is unknown."""
    ticks = start_ms // 10 + np.arange(points)
    history = {"oldest_ms": 0, "newest_ms": newest_ms}
    grid = {"interval_ms": interval_ms, "resolution_ms": interval_ms, "start_ms": start_ms, "history": history}
    server.answer_window(np.stack([ticks, np.where(ticks % 7, ticks, np.nan)]), **grid)


def test_what_is_not_certain_yet_is_waited_for(server: Canned, follower: DaemonSource) -> None:
    answer(server, 810, 1140, 30)
    (piece,) = follower.read()
    assert server.asked[-1][0].startswith("/api/v1/window?statistic=mean&from=810&to=")
    # 0.2 s after a tick and the four samples after it, it is certain
    assert (piece.start_ns, piece.end_ns) == (810_000_000, 910_000_000)
    np.testing.assert_array_equal(piece.bytes_per_second[0, 0], np.arange(81, 91))
    assert np.flatnonzero(np.isnan(piece.bytes_per_second[0, 1])).tolist() == [3]
    assert np.isnan(piece.bytes_per_second[1]).all()
    assert piece.seconds[0, 1].tolist() == [0.01] * 3 + [0.0] + [0.01] * 6
    answer(server, 910, 1145, 20)
    assert list(follower.read()) == []
    answer(server, 910, 1150, 20)
    assert [piece.ticks for piece in follower.read()] == [1]


def test_whoever_is_far_behind_asks_until_it_is_not(server: Canned, follower: DaemonSource) -> None:
    answer(server, 810, 4040, 100)
    pieces = follower.read()
    assert next(pieces).ticks == 100
    answer(server, 1810, 4040, 250)
    assert next(pieces).end_ns == 3_810_000_000
    assert next(pieces, None) is None
    assert "from=1810" in server.asked[-1][0]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_daemon_that_cannot_answer_now_is_asked_again(
    server: Canned, follower: DaemonSource, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server.answer("/api/v1/window", b"", status)
    assert [*follower.read(), *follower.read()] == []
    answer(server, 810, 1140, 30)
    assert [piece.ticks for piece in follower.read()] == [10]
    assert caplog.text.count("; retrying") == 1
    assert caplog.text.count("answers again") == 1


def test_a_daemon_that_refuses_is_believed_and_one_with_another_interval_ends_the_recording(
    server: Canned, follower: DaemonSource
) -> None:
    server.answer("/api/v1/window", b'{"detail": "no such user"}', 401)
    with pytest.raises(DaemonError, match="it asks for a password"):
        list(follower.read())
    answer(server, 810, 1100, 30, interval_ms=1)
    sentence = "now samples every 1 ms, but the recording has 10 ms; begin another recording"
    with pytest.raises(DaemonError, match=sentence):
        list(follower.read())


def test_daemons_that_never_answered_or_have_no_port_are_refused(server: Canned) -> None:
    connection = DaemonConnection(server.url)
    server.answer("/api/v1/window", b"", 503)
    with pytest.raises(DaemonError, match="it refuses with 503"):
        list(DaemonSource(connection, META).read())
    connection.close()
    server.answer("/api/v1/ports", ports_of(port_of(source=None)))
    with pytest.raises(FabricError, match=f"the node at {server.url} has no ports with byte counters"):
        ask_meta(DaemonConnection(server.url))


@pytest.fixture
def history() -> Iterator[Canned]:
    with canned() as state:
        port = port_of(identity={**PORT["identity"], "link_layer": "InfiniBand"})
        state.answer("/api/v1/ports", ports_of(port, simulated=True))
        state.answer("/api/v1/jobs", jobs_of())
        state.answer("/api/v1/events", events_of())
        yield state


def answer_seconds(history: Canned, values: np.ndarray) -> None:  # type: ignore[type-arg]
    """A window from 100 s to 110 s; the port sends and receives the same."""
    history.answer_window(np.stack([values, values]), start_ms=100_000, history={"oldest_ms": 0, "newest_ms": 110_000})


def test_the_last_seconds_without_what_is_before_the_history(history: Canned) -> None:
    values = np.arange(1001.0)
    values[:300] = np.nan
    values[500] = np.nan
    answer_seconds(history, values)
    recording = fetch_recent(history.url, 10 * 10**9)
    assert recording.start_ns == 103_000_000_000
    assert recording.bytes_per_second[0, 0, :3].tolist() == [300, 301, 302]
    assert np.isnan(recording.bytes_per_second[0, 0, 200])
    assert recording.meta.simulated
    asked = next(path for path, _ in history.asked if "from=" in path)
    # 10 s before the newest settled sample
    begin_ms = int(asked.partition("from=")[2].partition("&")[0])
    assert 99_000 < begin_ms < 100_010


def test_it_has_the_events_and_jobs_of_its_span_and_ports_as_of_its_beginning(history: Canned) -> None:
    answer_seconds(history, np.ones(1001))
    history.answer("/api/v1/ports", ports_of(port_of(state="DOWN", active=False)))
    up, down = state_of(state="ACTIVE", active=True, rail=True), state_of(state="DOWN", rail=True)
    history.answer("/api/v1/events", events_of({"time_ms": 105_000, "before": up, "after": down}))
    history.answer("/api/v1/jobs", jobs_of({"ended_ms": 99_000, "job_id": "6"}, {"ended_ms": 106_000}))
    meta = fetch_recent(history.url, 10 * 10**9).meta
    assert (meta.ports[0].active, meta.ports[0].state) == (True, "ACTIVE")
    assert [event.time_ns for event in meta.events] == [105 * 10**9]
    assert [(job.job.claim.id, job.ended_ns) for job in meta.jobs] == [("7", 106 * 10**9)]


def test_refused_events_are_left_out_and_a_history_without_samples_is_refused(
    history: Canned, caplog: pytest.LogCaptureFixture
) -> None:
    answer_seconds(history, np.ones(1001))
    history.answer("/api/v1/events", b"", 403)
    assert fetch_recent(history.url, 10 * 10**9).meta.events == ()
    assert caplog.messages == [f"{history.url}/api/v1/events: it refuses with 403; the events are left out"]
    answer_seconds(history, np.full(1001, np.nan))
    with pytest.raises(RecordingError, match=r"all samples of the last 10 s of http://.* are missing; try again later"):
        fetch_recent(history.url, 10 * 10**9)
    answer_seconds(history, np.zeros(0))
    with pytest.raises(DaemonError, match="has no samples of this time yet; try again in some seconds"):
        fetch_recent(history.url, 10 * 10**9)


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
def connection(server: Canned) -> Iterator[DaemonConnection]:
    made = DaemonConnection(server.url)
    yield made
    made.close()


def answer_events(server: Canned, *times_ms: int, **changes: Any) -> None:
    """From now on the daemon has a link that went down at each of these times."""
    down = {"text": "down", "before": state_of(state="ACTIVE", active=True), "after": state_of(state="DOWN"), **changes}
    server.answer("/api/v1/events", events_of(*({"time_ms": time_ms, **down} for time_ms in times_ms)))


async def test_a_daemon_gives_the_events_since_the_first_sample_once(
    server: Canned, connection: DaemonConnection
) -> None:
    source = DaemonSource(connection, META)
    answer_events(server, 100_000)
    assert await source.read_events() == []
    source.begin_ns = 90_000 * MS
    (event,) = await source.read_events()
    assert (event.time_ns, event.uncertainty_ns, event.kind) == (100_000 * MS, 1000 * MS, "link-down")
    assert (event.before, event.after) == (PortState("ACTIVE", active=True), PortState("DOWN"))
    assert "from=30000" in server.asked[-1][0]
    answer_events(server, 99_000, 100_000, 200_000)
    assert [event.time_ns // MS for event in await source.read_events()] == [99_000, 200_000]
    assert await source.read_events() == []
    assert "from=140000" in server.asked[-1][0]


async def test_a_daemon_that_does_not_answer_is_asked_again(server: Canned, connection: DaemonConnection) -> None:
    source = DaemonSource(connection, META)
    source.begin_ns = 1
    server.answer("/api/v1/events", b"", 503)
    assert await source.read_events() == []
    answer_events(server, 100_000, kind="appeared", subject="mlx5_7:1")
    assert [event.text for event in await source.read_events()] == ["down; it is not recorded"]


def test_a_port_of_a_daemon_that_cannot_be_read_has_a_problem_and_one_that_disappeared_is_not_recorded() -> None:
    ports = [port_of(), port_of("mlx5_1", state="unreadable"), port_of("x", state="disappeared")]
    found = describe_answer(read_ports(*ports))
    described = [(port.device, port.state, port.problem, port.active) for port in found]
    assert described == [("mlx5_0", "ACTIVE", "", True), ("mlx5_1", "", "unreadable", True)]


def signals_of(waits: list[int | None], name: str = "port_transmit_wait") -> bytes:
    """The window with signals of one port: read every 100 ms from 100.05 s on."""
    count = len(waits)
    series = {"name": name, "bits": 32, "stops": True, "sign": "waiting", "unit": "ticks", "of_peers": False}
    port = {
        "port": "mlx5_0:1",
        "time_ms": [100_050 + 100 * number for number in range(count)],
        "seconds": [None, *[0.1] * (count - 1)],
        "series": [{**series, "counters": waits, "gained": [None] * count, "full": [False] * count}],
    }
    return orjson.dumps({**WINDOW, "points": 0, "series": [], "signals": [port]})


def test_a_recording_of_a_daemon_has_its_signals(history: Canned) -> None:
    answer_seconds(history, np.arange(1001.0))
    history.answer("signals", signals_of([5, None, 9]))
    found = fetch_recent(history.url, 10**10)
    assert found.meta.ports[0].signals == (Signal("port_transmit_wait", 32, stops=True),)
    assert found.time_ns()[found.signals[0].samples].tolist() == [100_050_000_000, 100_150_000_000, 100_250_000_000]
    assert found.signals[0].counters[:, 0].tolist() == [5, int(MISSING), 9]
    np.testing.assert_array_equal(found.signals[0].seconds, [np.nan, 0.1, 0.1])
    answer_seconds(history, np.arange(1001.0))
    history.answer("signals", signals_of([5], name="of_the_future"))
    assert fetch_recent(history.url, 10**10).meta.ports[0].signals == ()
    answer_seconds(history, np.arange(1001.0))
    history.answer("signals", signals_of([5, 6]).replace(b"[5,6]", b"[5]"))
    with pytest.raises(DaemonError, match="other lengths than points or times"):
        fetch_recent(history.url, 10**10)
