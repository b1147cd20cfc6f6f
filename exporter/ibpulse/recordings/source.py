"""Sources of a recording's samples: a ring or a daemon.

A daemon's API gives rates without their measured times, so each rate is assumed to cover one interval. The error of one
sample is its jitter; over many samples it vanishes.
"""

from __future__ import annotations

import asyncio
import logging
import platform
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import numpy as np

from ibpulse.analysis.plausible import STEPS
from ibpulse.answers.ports import PortAnswer, PortsAnswer, Source
from ibpulse.client import DaemonConnection, RemoteWindow, ask_ports, ask_window
from ibpulse.errors import DaemonError, FabricError, SamplerError
from ibpulse.events import Event, EventLog
from ibpulse.model import PROBLEMS, Fabric
from ibpulse.recordings import RecordedPort, Recording, RecordingMeta
from ibpulse.recordings.event_sources import DaemonEvents, LogEvents, RecordedTicks, ask_jobs, ports_at_begin
from ibpulse.recordings.from_ring import RingFollower
from ibpulse.recordings.recording import MAX_PORTS
from ibpulse.ring.reader import RingReader
from ibpulse.ring.window import ticks_to_settle, widest_stride
from ibpulse.units import MILLISECOND_NS, SECOND_NS

log = logging.getLogger(__name__)

# size of one answer: small enough to be answered without delay
MAX_VALUES = 100_000
# statuses of permanent refusals
REFUSED = range(400, 500)
TOO_MANY = 429
FIRST_SAMPLE_SECONDS = 10.0
POLL_SECONDS = 0.05
# ticks; longer than any recording
FOREVER = 2**62
MADE_BY = "record"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
_NO_PORT = "has no ports with byte counters, so there is nothing to record; run `ibpulse doctor` to find out why"


class DaemonFollower:
    """Follows a daemon, each sample once and in order.

    The first call finds the newest settled sample, and begins `back_ns` before it. `begin_ns` is the time of the first
    sample, None before the first call.
    """

    def __init__(self, connection: DaemonConnection, meta: RecordingMeta, back_ns: int = 0) -> None:
        self.meta = meta
        self._back_ns = back_ns
        self._connection = connection
        widest = widest_stride(port.stride for port in meta.ports)
        self._settle_ns = ticks_to_settle(meta.interval_ns, widest) * meta.interval_ns
        # rates and uncertainties of both directions
        self._most_ns = max(1, MAX_VALUES // (4 * len(meta.ports))) * meta.interval_ns
        self.begin_ns: int | None = None
        self._next_ns: int | None = None
        self._silent = False

    def read(self) -> Iterator[Recording]:
        """The samples settled since the last call; those that the daemon did not measure are missing (NaN).

        If the daemon does not answer, the next call tries again and gets everything that is still in its ring.

        Raises:
            DaemonError: it has never answered, refuses the request, or has changed its interval.
        """
        while True:
            window = self._ask()
            piece = self._cut(window) if window else None
            if window is None or piece is None:
                return
            yield piece
            if window.newest_ns - piece.end_ns < self._settle_ns + SECOND_NS:
                return

    def _ask(self) -> RemoteWindow | None:
        query: list[tuple[str, str | int]] = [("last", "1s")]
        if self._next_ns is not None:
            query = [
                ("from", self._next_ns // MILLISECOND_NS),
                ("to", (self._next_ns + self._most_ns) // MILLISECOND_NS),
            ]
        try:
            window = ask_means(self._connection, query)
        except DaemonError as error:
            if self._next_ns is None or (error.status in REFUSED and error.status != TOO_MANY):
                raise
            if not self._silent:
                log.warning("%s; retrying", error)
            self._silent = True
            return None
        if self._silent:
            log.info("%s answers again", self._connection.place)
        self._silent = False
        if (window.interval_ns, window.step_ns) != (self.meta.interval_ns, self.meta.interval_ns):
            raise DaemonError(
                f"{self._connection.place} now samples every {window.interval_ns / 1e6:g} ms, but the recording has "
                f"{self.meta.interval_ns / 1e6:g} ms; begin another recording"
            )
        return window

    def _cut(self, window: RemoteWindow) -> Recording | None:
        """The settled part of a window; the first window only determines where to begin."""
        if self._next_ns is None:
            self._next_ns = window.newest_ns - self._settle_ns + self.meta.interval_ns - self._back_ns
            self._next_ns -= self._next_ns % self.meta.interval_ns
            self.begin_ns = self._next_ns
            return None
        sure = (window.newest_ns - self._settle_ns - window.start_ns) // self.meta.interval_ns + 1
        count = min(sure, window.values.shape[1])
        if count <= 0:
            return None
        self._next_ns = window.start_ns + count * self.meta.interval_ns
        return take_samples(window, self.meta, count)


def take_samples(window: RemoteWindow, meta: RecordingMeta, count: int) -> Recording:
    """The first `count` samples of a window of means as a piece of a recording."""
    names = [str(port.id) for port in meta.ports]
    values = np.stack([window.both(name) for name in names])[:, :, :count].astype(np.float64)
    seconds = np.where(np.isnan(values), 0.0, meta.interval_ns / SECOND_NS)
    merged = np.stack([window.marks(name) for name in names])[:, :, :count]
    unsure = np.stack([window.both(name, "uncertainty") for name in names])[:, :, :count]
    steps = np.rint(np.nan_to_num(unsure) * STEPS).astype(np.uint16)
    return Recording(meta, window.start_ns, values, seconds, steps, merged)


def ask_means(connection: DaemonConnection, query: Sequence[tuple[str, str | int]]) -> RemoteWindow:
    """The mean rate of each sample, and its uncertainty.

    Raises:
        DaemonError: as `ask_window`.
    """
    return ask_window(connection, [("statistic", "mean"), *query, ("uncertainty", "true")])


@dataclass(frozen=True, slots=True)
class SampleSource:
    """A stream of samples: `read` returns the pieces since its last call, `check` raises if sampling has failed.

    `read_events` returns the events since its last call.
    """

    meta: RecordingMeta
    read: Callable[[], Iterator[Recording]]
    check: Callable[[], None]
    read_events: Callable[[], Awaitable[Sequence[Event]]]


async def ring_source(
    reader: RingReader, fabric: Fabric, slots: Mapping[str, int], check: Callable[[], None], events: EventLog
) -> SampleSource:
    """The ports of a fabric that is sampled into a ring, from the first sample on; `slots` gives each port's slot.

    `events` is the log of the ring.

    Raises:
        IbpulseError: there are no samples, or `check` raised it.
    """

    def stride_of(name: str) -> int:
        slot = slots.get(name)
        return 1 if slot is None else reader.stride(slot)

    ports = describe_fabric(fabric, stride_of)
    first_tick = await _sampled_tick(reader, check) + widest_stride(port.stride for port in ports)
    ticks = RecordedTicks(first_tick, first_tick + FOREVER, int(reader.wall_ns(np.array([first_tick]))[0]))
    ports = ports_at_begin(ports, events.history, ticks)
    meta = RecordingMeta(platform.node(), reader.interval_ns, ports, MADE_BY, simulated=fabric.simulated)
    follower = RingFollower(reader, meta, first_tick, reader.ring.clock.time_ns, events.history)
    log_events = LogEvents(events, reader, ticks, ports)
    return SampleSource(meta, follower.read, check, log_events.read)


async def _sampled_tick(reader: RingReader, check: Callable[[], None]) -> int:
    """Wait for a sampled tick and return it.

    Raises:
        SamplerError: there is none in time.
    """
    for _ in range(round(FIRST_SAMPLE_SECONDS / POLL_SECONDS)):
        check()
        tick = reader.ring.latest_tick()
        if tick:
            return tick
        await asyncio.sleep(POLL_SECONDS)
    raise SamplerError(f"no sample was taken in {FIRST_SAMPLE_SECONDS:g} s; the log above says why")


@asynccontextmanager
async def daemon_source(url: str, back_ns: int = 0) -> AsyncIterator[SampleSource]:
    """The samples of the daemon at a URL, beginning `back_ns` before the newest one.

    Raises:
        IbpulseError: it does not answer, or has no ports.
    """
    connection = DaemonConnection(url)
    try:
        answer = await asyncio.to_thread(ask_ports, connection)
        ports = describe_remote(answer, connection.place)
        named = urlsplit(connection.place).hostname or ""
        host = platform.node() if named in LOOPBACK else named
        reason = f"from {connection.place}"
        jobs = tuple(record for record in await asyncio.to_thread(ask_jobs, connection) if record.ended_ns is None)
        meta = RecordingMeta(host, answer.interval_ns, ports, MADE_BY, reason, simulated=answer.simulated, jobs=jobs)
        follower = DaemonFollower(connection, meta, back_ns)
        events = DaemonEvents(connection, lambda: follower.begin_ns, ports)
        yield SampleSource(meta, follower.read, lambda: None, events.read)
    finally:
        connection.close()


def describe_fabric(fabric: Fabric, stride_of: Callable[[str], int]) -> tuple[RecordedPort, ...]:
    """The ports of a fabric that count bytes; `stride_of` returns the ticks between two samples of a port by name.

    Raises:
        FabricError: there is none.
    """
    found = tuple(
        RecordedPort.of(port, port.source.name, stride_of(str(port.id)))
        for port in fabric.ports
        if port.source is not None
    )
    if not found:
        raise FabricError(f"this node {_NO_PORT}")
    return found[:MAX_PORTS]


def describe_remote(answer: PortsAnswer, place: str) -> tuple[RecordedPort, ...]:
    """The ports of a daemon's node that count bytes.

    Raises:
        FabricError: there is none.
    """
    found = describe_answer(answer)
    if not found:
        raise FabricError(f"the node at {place} {_NO_PORT}")
    return found


def describe_answer(answer: PortsAnswer) -> tuple[RecordedPort, ...]:
    """The ports of an answer that count bytes, of which those that disappeared have no samples of now."""
    counting = [(port, port.source) for port in answer.ports if port.source is not None and not port.disappeared]
    return tuple(_describe(port, source, answer.interval_ns) for port, source in counting[:MAX_PORTS])


def _describe(port: PortAnswer, source: Source, interval_ns: int) -> RecordedPort:
    troubled = port.state in PROBLEMS
    return RecordedPort(
        port.device,
        port.port,
        port.rate_bytes_per_second,
        rail=port.rail,
        active=port.active,
        state="" if troubled else port.state,
        problem=port.state if troubled else "",
        source=source.name,
        stride=max(1, round(source.resolution_seconds * SECOND_NS / interval_ns)),
        identity=port.identity.value,
        role=port.role,
    )
