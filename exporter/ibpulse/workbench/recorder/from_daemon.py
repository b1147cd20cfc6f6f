"""The windows, ports, events and jobs of a daemon as a recording: as they arrive, or of the past.

The API gives rates without their measured times, so each rate is assumed to cover one interval. The error of one sample
is its jitter; over many samples it vanishes.
"""

from __future__ import annotations

import asyncio
import logging
import platform
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import numpy as np

from ibpulse.base.errors import DaemonError, FabricError, RecordingError
from ibpulse.base.text import show
from ibpulse.base.units import MILLISECOND_NS, SECOND_NS
from ibpulse.core.answers.jobs import JobAnswer, JobsAnswer
from ibpulse.core.answers.members import NOT_OURS
from ibpulse.core.answers.node import PortAnswer, PortsAnswer, Source
from ibpulse.core.answers.samples import SignalsAnswer
from ibpulse.core.client.connection import WINDOW, DaemonConnection, ask_events, ask_ports
from ibpulse.core.client.transport import NodeArray, Query, read_window
from ibpulse.core.events import Event
from ibpulse.core.events.event import JOB_KINDS
from ibpulse.core.jobs import Holding, JobRecord, read_job
from ibpulse.core.model import PROBLEMS
from ibpulse.core.recordings.from_ring import MADE_BY, NO_PORT, SampleSource, mark_others
from ibpulse.core.recordings.recording import (
    MAX_JOBS,
    MAX_PORTS,
    RecordedPort,
    Recording,
    RecordingMeta,
    concatenate,
    limit_events,
    limit_jobs,
    meta_between,
)
from ibpulse.core.ring.spans import ticks_to_settle, widest_stride
from ibpulse.core.signals import MEANINGS, Signal
from ibpulse.core.statistics.gains import MISSING, PortSignals, no_readings
from ibpulse.core.statistics.plausible import MAX_STEPS, STEPS

log = logging.getLogger(__name__)

# of one answer, so that it comes without delay: rates and uncertainties
MAX_VALUES = 100_000
# statuses of permanent refusals
REFUSED = range(400, 500)
TOO_MANY = 429
LOOPBACK = ("localhost", "127.0.0.1", "::1")
# a daemon may notice an event this long after it happened, and lists it only then
LATE_NS = 60 * SECOND_NS


@dataclass(frozen=True, slots=True)
class KeptSamples:
    """The samples that a daemon still has, all of them settled: from `begin_ns` to before `end_ns` by its clock."""

    interval_ns: int
    begin_ns: int
    end_ns: int


class DaemonSamples:
    """The questions for the samples of a recording, and their answers as its pieces; asks nothing itself."""

    def __init__(self, meta: RecordingMeta) -> None:
        self.meta = meta
        widest = widest_stride(port.stride for port in meta.ports)
        self.settle_ns = ticks_to_settle(meta.interval_ns, widest) * meta.interval_ns
        # rates and uncertainties of both directions
        self.answer_ns = max(1, MAX_VALUES // (4 * len(meta.ports))) * meta.interval_ns

    def query(self, begin_ns: int | None = None, end_ns: int = 0) -> Query:
        """The parameters of `/api/v1/window` for each sample of a span, or of the newest second."""
        return [("statistic", "mean"), *_span_query(begin_ns, end_ns), ("uncertainty", "true")]

    def cut(self, begin_ns: int, end_ns: int) -> Iterator[tuple[int, int]]:
        """The spans of the answers that together have the samples of a span."""
        while begin_ns < end_ns:
            yield begin_ns, min(begin_ns + self.answer_ns, end_ns)
            begin_ns += self.answer_ns

    def kept(self, newest: NodeArray) -> KeptSamples:
        """The samples that the daemon had when it answered with its newest ones.

        Raises:
            DaemonError: as `check`.
        """
        self.check(newest)
        end_ns = newest.newest_ns - self.settle_ns + self.meta.interval_ns
        return KeptSamples(self.meta.interval_ns, newest.head.history.oldest_ms * MILLISECOND_NS, end_ns)

    def check(self, window: NodeArray) -> None:
        """Check that a window has the samples of the recording."""
        head, interval_ns = window.head, self.meta.interval_ns
        if head.interval_ms * MILLISECOND_NS != interval_ns:
            raise DaemonError(
                f"it now samples every {head.interval_ms} ms, but the recording has {interval_ns / 1e6:g} ms; "
                "begin another recording",
                kind="bad-answer",
            )
        if (window.step_ns, head.statistic, head.unit) != (interval_ns, "mean", "bytes_per_second"):
            raise DaemonError(f"its answer does not have the rates of single samples; {NOT_OURS}", kind="bad-answer")

    def read(self, window: NodeArray) -> Recording:
        """The samples of a window as a piece, without events.

        Raises:
            DaemonError: as `check`.
        """
        self.check(window)
        names = [str(port.id) for port in self.meta.ports]
        rates = np.stack([window.both(name) for name in names]).astype(np.float64)
        unsure = np.stack([window.both(name, "uncertainty") for name in names]).astype(np.float64)
        steps = np.rint(np.minimum(np.nan_to_num(unsure), MAX_STEPS / STEPS) * STEPS).astype(np.uint16)
        seconds = np.where(np.isnan(rates), 0.0, self.meta.interval_ns / SECOND_NS)
        merged = np.stack([window.merged(name) for name in names])
        return Recording(self.meta, window.start_ns, rates, seconds, steps, merged)


def _span_query(begin_ns: int | None, end_ns: int) -> Query:
    """The parameters for a span, or for the newest second."""
    if begin_ns is None:
        return [("last", "1s")]
    return [("from", begin_ns // MILLISECOND_NS), ("to", -(-end_ns // MILLISECOND_NS))]


def signals_query(piece: Recording | None = None) -> Query:
    """The parameters of `/api/v1/window` for the signals of a piece, or of the newest second."""
    span = _span_query(*((None, 0) if piece is None else (piece.start_ns, piece.end_ns)))
    return [*span, ("signals", "true"), ("direction", "transmit")]


def ask_signals(connection: DaemonConnection, piece: Recording | None = None) -> list[SignalsAnswer]:
    """The signals of the ports, as `signals_query`.

    Raises:
        DaemonError: there is no answer, or it is not one of an ibpulse daemon.
    """
    answer = connection.get(WINDOW, signals_query(piece))
    with connection.named(WINDOW):
        return read_window(answer).signals or []


def with_signals(connection: DaemonConnection, piece: Recording) -> Recording:
    """The piece with the signals of its ports, asked for now."""
    return place_signals(piece, ask_signals(connection, piece)) if wants_signals(piece) else piece


def wants_signals(piece: Recording) -> bool:
    """Whether it has samples of ports with signals."""
    return piece.ticks > 0 and any(port.signals for port in piece.meta.ports)


def name_signals(meta: RecordingMeta, found: Iterable[SignalsAnswer]) -> RecordingMeta:
    """The metadata with the signals that its ports have now."""
    names = {one.port: _name_signals(one) for one in found}
    ports = tuple(replace(port, signals=names.get(str(port.id), ())) for port in meta.ports)
    return replace(meta, ports=ports)


def place_signals(piece: Recording, found: Iterable[SignalsAnswer]) -> Recording:
    """The piece with the signals of an answer."""
    answers = {one.port: one for one in found}
    signals = [_place_signals(answers.get(str(port.id)), port.signals, piece) for port in piece.meta.ports]
    return replace(piece, signals=tuple(signals))


def _place_signals(found: SignalsAnswer | None, wanted: tuple[Signal, ...], piece: Recording) -> PortSignals:
    """The readings of a port at the samples of a piece; none if it has other signals by now."""
    if found is None or _name_signals(found) != wanted:
        return no_readings(len(wanted))
    known = [row for row in found.series if row.name in MEANINGS]
    samples = (np.array(found.time_ms, dtype=np.int64) * MILLISECOND_NS - piece.start_ns) // piece.meta.interval_ns
    kept = (samples >= 0) & (samples < piece.ticks) & (np.diff(samples, prepend=-1) > 0)
    counters = [[int(MISSING) if value is None else value for value in row.counters] for row in known]
    seconds = np.array(found.seconds, dtype=np.float64)
    return PortSignals(samples[kept], seconds[kept], np.array(counters, dtype=np.uint64).T[kept])


def _name_signals(found: SignalsAnswer) -> tuple[Signal, ...]:
    """The signals of a port, without those that only a newer version knows."""
    return tuple(Signal(row.name, row.bits, row.stops) for row in found.series if row.name in MEANINGS)


def past_meta(
    meta: RecordingMeta, events: Iterable[Event], jobs: Iterable[JobRecord], begin_ns: int, end_ns: int
) -> RecordingMeta:
    """The metadata of the samples of a past span: its events and jobs, and the ports as of its beginning.

    `events` are those from the beginning up to now, after which `meta` has the ports, and `jobs` all that are known.
    """
    kept, left_out = limit_events(events)
    kept_jobs, jobs_left_out = limit_jobs(jobs)
    told = replace(meta, events=kept, events_left_out=left_out, jobs=kept_jobs, jobs_left_out=jobs_left_out)
    return meta_between(told, begin_ns, end_ns)


def fetch_recent(url: str, last_ns: int) -> Recording:
    """The samples of the last `last_ns` of the daemon at a URL, or as many as it has, with their events and jobs."""
    with closing(DaemonConnection(url)) as connection:
        meta, pieces = recent_pieces(connection, last_ns)
        whole = _join(connection, pieces)
        known = np.flatnonzero(~np.isnan(whole.bytes_per_second).all(axis=(0, 1)))
        if not known.size:
            raise RecordingError(f"all samples of the last {last_ns / 1e9:g} s of {url} are missing; try again later")
        kept = whole.cut(int(known[0]), whole.ticks)
        return replace(kept, meta=meta_between(meta, kept.start_ns, kept.end_ns))


def recent_pieces(connection: DaemonConnection, last_ns: int) -> tuple[RecordingMeta, Iterator[Recording]]:
    """The last `last_ns` of a daemon, or as much as it has: events and jobs of it, and pieces, asked for one by one.

    Events that the daemon does not give are left out, which is logged.
    """
    samples = DaemonSamples(ask_meta(connection))
    newest = connection.ask_window(samples.query())
    with connection.named(WINDOW):
        kept = samples.kept(newest)
    begin_ns = max(kept.end_ns - last_ns, kept.begin_ns)
    begin_ns -= begin_ns % kept.interval_ns
    events: Sequence[Event] = ()
    try:
        events = ask_events(connection, begin_ns).values
    except DaemonError as error:
        log.warning("%s; the events are left out", error)
    meta = past_meta(samples.meta, events, ask_jobs(connection), begin_ns, kept.end_ns)
    return meta, _iterate_samples(connection, samples, begin_ns, kept.end_ns)


def _iterate_samples(
    connection: DaemonConnection, samples: DaemonSamples, begin_ns: int, end_ns: int
) -> Iterator[Recording]:
    while begin_ns < end_ns:
        window = connection.ask_window(samples.query(begin_ns, min(begin_ns + samples.answer_ns, end_ns)))
        if not window.head.points:
            break
        with connection.named(WINDOW):
            piece = samples.read(window)
        yield with_signals(connection, piece)
        begin_ns = piece.end_ns


def ask_samples(connection: DaemonConnection, samples: DaemonSamples, begin_ns: int, end_ns: int) -> Recording:
    """The samples of a span, without events; those from before the history are missing (NaN)."""
    return _join(connection, _iterate_samples(connection, samples, begin_ns, end_ns))


def _join(connection: DaemonConnection, pieces: Iterable[Recording]) -> Recording:
    found = list(pieces)
    if not found:
        raise DaemonError(f"{connection.place} has no samples of this time yet; try again in some seconds")
    return concatenate(found)


def with_past(connection: DaemonConnection, recording: Recording, events: Iterable[Event]) -> Recording:
    """The samples that were just asked for, with their jobs and of the `events` since their beginning their own."""
    begin_ns, end_ns = recording.start_ns, recording.end_ns
    return replace(recording, meta=past_meta(recording.meta, events, ask_jobs(connection), begin_ns, end_ns))


def ask_meta(connection: DaemonConnection) -> RecordingMeta:
    """The metadata of a recording of a daemon that begins now: its ports, and the jobs that run."""
    answer = ask_ports(connection)
    ports = describe_answer(answer)
    if not ports:
        raise FabricError(f"the node at {connection.place} {NO_PORT}")
    named = urlsplit(connection.place).hostname or ""
    node = platform.node() if named in LOOPBACK else named
    jobs = tuple(record for record in ask_jobs(connection) if record.ended_ns is None)
    reason = f"from {connection.place}"
    meta = RecordingMeta(node, answer.interval_ns, ports, MADE_BY, reason, simulated=answer.simulated, jobs=jobs)
    return name_signals(meta, ask_signals(connection))


@asynccontextmanager
async def daemon_source(url: str) -> AsyncIterator[DaemonSource]:
    """The samples of the daemon at a URL from now on."""
    with closing(DaemonConnection(url)) as connection:
        meta = await asyncio.to_thread(ask_meta, connection)
        yield DaemonSource(connection, meta)


class DaemonSource(SampleSource):
    """The samples and events of a daemon from now on, each once and in order.

    `begin_ns` is the time of the first sample, None before the first call.
    """

    def __init__(self, connection: DaemonConnection, meta: RecordingMeta) -> None:
        self.meta = meta
        self._connection, self._samples = connection, DaemonSamples(meta)
        self.begin_ns: int | None = None
        self._next_ns: int | None = None
        self._silent = False
        self._newest_event_ns = 0
        self._seen: set[tuple[int, str, str, str]] = set()

    def check(self) -> None:
        """A daemon that fails is asked again; `read` raises what is permanent."""

    def read(self) -> Iterator[Recording]:
        """The samples settled since the last call; those that the daemon did not measure are missing (NaN).

        The first call finds the newest settled sample, after which the samples begin. If the daemon does not answer,
        the next call tries again and gets everything that is still in its ring.

        Raises:
            DaemonError: it has never answered, refuses the request, or has changed its interval.
        """
        while True:
            window = self._ask()
            piece = self._cut(window) if window else None
            if window is None or piece is None:
                return
            yield self._with_signals(piece)
            if window.newest_ns - piece.end_ns < self._samples.settle_ns + SECOND_NS:
                return

    def _with_signals(self, piece: Recording) -> Recording:
        """The piece with its signals; a daemon that does not answer just now loses them."""
        try:
            return with_signals(self._connection, piece)
        except DaemonError as error:
            log.debug("%s; its signals are left out", error)
            return piece

    def _ask(self) -> NodeArray | None:
        try:
            next_ns = self._next_ns
            window = self._connection.ask_window(self._samples.query(next_ns, (next_ns or 0) + self._samples.answer_ns))
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
        return window

    def _cut(self, window: NodeArray) -> Recording | None:
        """The settled part of a window; the first window only determines where to begin."""
        samples, interval_ns = self._samples, self._samples.meta.interval_ns
        with self._connection.named(WINDOW):
            end_ns = samples.kept(window).end_ns
        if self._next_ns is None:
            self._next_ns = self.begin_ns = end_ns - end_ns % interval_ns
            return None
        count = min((end_ns - window.start_ns) // interval_ns, window.head.points)
        if count <= 0:
            return None
        self._next_ns = window.start_ns + count * interval_ns
        return samples.read(window).cut(0, count)

    async def read_events(self) -> Sequence[Event]:
        """The events since the beginning that were not listed at the last call; none while it does not answer."""
        return await asyncio.to_thread(self._ask_events)

    def _ask_events(self) -> Sequence[Event]:
        first_ns = self.begin_ns
        if first_ns is None:
            return []
        # what happened to jobs since they were asked for is followed
        begin_ns = max(0, max(first_ns, self._newest_event_ns) - LATE_NS)
        try:
            events = ask_events(self._connection, begin_ns).values
        except DaemonError as error:
            # `read` reports it if it lasts
            log.debug("%s; retrying", error)
            return []
        fresh = [
            event
            for event in events
            if _key(event) not in self._seen and (event.time_ns >= first_ns or event.kind in JOB_KINDS)
        ]
        self._seen = {_key(event) for event in events}
        self._newest_event_ns = max([self._newest_event_ns, *(event.time_ns for event in events)])
        return mark_others(fresh, {str(port.id) for port in self.meta.ports})


def _key(event: Event) -> tuple[int, str, str, str]:
    return event.time_ns, event.kind, event.subject, event.text


def ask_jobs(connection: DaemonConnection) -> tuple[JobRecord, ...]:
    """The jobs of a daemon's node: those that run and those that ended within its history."""
    answer = connection.ask(JobsAnswer, "/api/v1/jobs")
    try:
        return tuple(map(job_from_answer, answer.jobs[:MAX_JOBS]))
    except ValueError as error:
        raise DaemonError(f"{connection.url}/api/v1/jobs: {error}; {NOT_OURS}", kind="bad-answer") from error


def job_from_answer(answer: JobAnswer) -> JobRecord:
    """A job that a daemon describes.

    Raises:
        ValueError: its id or its basis is none.
    """
    job = read_job(vars(answer))
    if job is None:
        raise ValueError(f"{show(answer.job_id)} is not a job")
    return JobRecord(
        job,
        None if answer.began_ms is None else answer.began_ms * MILLISECOND_NS,
        answer.began_uncertainty_ms * MILLISECOND_NS,
        None if answer.ended_ms is None else answer.ended_ms * MILLISECOND_NS,
        answer.ended_uncertainty_ms * MILLISECOND_NS,
        (Holding(job.ports),),
    )


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
