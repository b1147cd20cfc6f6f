"""`/api/v1/stream`: the newest samples as server-sent events, until the client disconnects or the server stops."""

from __future__ import annotations

import asyncio
import bisect
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from ibpulse.agent.aggregator.snapshot import PortSnapshot, Snapshot
from ibpulse.agent.web.jobs import JOB_HELP, OptionalJob, choose_job, describe_job_ports, job_of, known_jobs
from ibpulse.agent.web.parts import WebParts
from ibpulse.agent.web.window import describe_signals
from ibpulse.base.units import MILLISECOND_NS, SECOND_NS, whole_ms
from ibpulse.base.values import duration
from ibpulse.core.answers.samples import (
    EVENTS,
    StreamDirections,
    StreamEntry,
    StreamEvents,
    StreamJob,
    StreamJobSpan,
    StreamPort,
    StreamPorts,
    StreamPortTraffic,
    StreamSampler,
    StreamState,
    StreamSummary,
    StreamTraffic,
)
from ibpulse.core.answers.summary import NO_RAIL
from ibpulse.core.events import Event
from ibpulse.core.events.watch import KnownPort
from ibpulse.core.http.problems import inline_parts, operation
from ibpulse.core.http.requests import RESUME_FROM, Duration, OptionalInstant, read_parameter, read_resume
from ibpulse.core.http.stream import (
    HEARTBEAT,
    HEARTBEAT_SECONDS,
    MAX_LOG_EVENTS,
    MEDIA_TYPE,
    RETRY,
    EventStream,
    LastEventId,
    Viewer,
    Viewers,
    answer_event,
    batch_event,
    gap_event,
)
from ibpulse.core.jobs import FOREVER, ChosenJob, JobRecord, Key
from ibpulse.core.metrics.row import Histogram
from ibpulse.core.model import PortState
from ibpulse.core.ring.spans import TickRun, complete_tick, read_peaks, runs_of_ticks, widest_stride
from ibpulse.core.window_values import read_port_signals

log = logging.getLogger(__name__)

# The longest interruption that is replayed; older samples come from /api/v1/window.
RESUME_SECONDS = 60
# the newest of each port
MAX_STATES = 200
DISAPPEARED = "disappeared"
STATE_MEMBERS = ("state", "physical", "active", "rate_bytes_per_second", "rail", "role", "problem")
# by the kind of an event; others can be large, such as the states of all ports at the start
EVENT_DETAILS: Mapping[str, Sequence[str]] = {"capture": ("name",)}
# on a node with very many short jobs, the newest
MAX_JOB_SPANS = 500


def _describe(known: KnownPort, states: list[StreamState]) -> StreamPort:
    state = known.state
    return StreamPort.model_construct(
        port=str(known.port.id),
        rail=known.port.rail if state is None else state.rail,
        role=known.port.role if state is None else state.role,
        active=state is not None and state.active,
        state=DISAPPEARED if state is None else state.state,
        rate_bytes_per_second=known.port.rate_bytes_per_second if state is None else state.rate_bytes_per_second,
        problem=DISAPPEARED if state is None else state.problem,
        problem_text=known.problem,
        since_ms=whole_ms(known.since_ns),
        states=states,
    )


def _describe_jobs(jobs: Iterable[JobRecord], since_ns: int) -> list[StreamJobSpan]:
    """The times since `since_ns` in which jobs had ports: those that last until now, then the last that ended."""
    held = [
        (each, record.job.claim)
        for record in jobs
        for each in record.holdings
        if each.ports and (each.until is None or each.until.time_ns > since_ns)
    ]
    held.sort(key=lambda one: -(math.inf if one[0].until is None else one[0].until.time_ns))
    return [
        StreamJobSpan.model_construct(
            job_id=claim.id,
            scheduler=claim.scheduler,
            name=claim.name,
            ports=[str(port) for port in each.ports],
            from_ms=None if each.since is None else each.since.time_ns // MILLISECOND_NS,
            to_ms=None if each.until is None else each.until.time_ns // MILLISECOND_NS,
        )
        for each, claim in held[:MAX_JOB_SPANS]
    ]


def _members(state: PortState | None) -> dict[str, Any]:
    if state is None:
        return {"state": DISAPPEARED}
    return {name: getattr(state, name) for name in STATE_MEMBERS}


def log_event(events: Iterable[Event]) -> bytes:
    """Events of the log as in `/api/v1/events`, without the states of ports, which `ports` has."""
    return answer_event("events", StreamEvents.model_construct(events=[_entry(each) for each in events]))


def _entry(found: Event) -> StreamEntry:
    return StreamEntry.model_construct(
        time_ms=found.time_ns // MILLISECOND_NS,
        uncertainty_ms=-(-found.uncertainty_ns // MILLISECOND_NS),
        kind=found.kind,
        subject=found.subject,
        text=found.text,
        details={name: found.details[name] for name in EVENT_DETAILS.get(found.kind, ()) if name in found.details},
    )


def describe_second(snapshot: Snapshot, job: Key | None = None, names: Sequence[str] = ()) -> StreamSummary:
    """The data of one event `summary`; unknown values are null.

    With `job`, the numbers are those of the job in place of the node's, and the ports are those of these names.
    """
    chosen = [port for port in snapshot.ports if port.directions and (job is None or str(port.port.id) in names)]
    numbers: dict[str, Any] = {"node": _node(snapshot)} if job is None else {"job": _job(snapshot, job)}
    return StreamSummary.model_construct(
        end_ms=whole_ms(snapshot.end_wall_ns),
        **numbers,
        ports=[_port(port, snapshot.windows) for port in chosen],
        sampler=_sampler(snapshot),
        notices=list(snapshot.fabric.notices),
    )


def _node(snapshot: Snapshot) -> StreamTraffic:
    traffic = snapshot.traffic
    return StreamTraffic.model_construct(
        **vars(snapshot.rails),
        **vars(traffic.concluded),
        bandwidth_saturated=traffic.saturated,
        moe_saturated=traffic.moe_saturated,
        windows=dict(zip(snapshot.windows, snapshot.node, strict=True)),
    )


def _job(snapshot: Snapshot, key: Key) -> StreamJob | None:
    job = snapshot.statistics_of(key)
    if job is None:
        return None
    return StreamJob.model_construct(
        job_id=job.job_id,
        duty_cycle_ratio=job.duty_cycle_ratio,
        active_bytes_per_second=job.active_bytes_per_second,
        rail_fairness_ratio=job.fairness,
        step_period_seconds=None if job.step_seconds is None or math.isnan(job.step_seconds) else job.step_seconds,
        last_traffic_ms=whole_ms(job.last_traffic_ns),
    )


def _port(port: PortSnapshot, windows: tuple[str, ...]) -> StreamPortTraffic:
    """A port with its peaks in the shortest window, for the marks on its bars."""
    transmit, receive = (direction.windows[0].peak_bytes_per_second for direction in port.directions)
    return StreamPortTraffic.model_construct(
        port=str(port.port.id),
        peak_window=windows[0],
        peak_bytes_per_second=StreamDirections.model_construct(transmit=transmit, receive=receive),
        **vars(port.balance or NO_RAIL),
        left_alone=port.left_alone,
        effective_resolution_seconds=port.effective_resolution_seconds,
    )


def _sampler(snapshot: Snapshot) -> StreamSampler:
    sampler, health = snapshot.sampler, snapshot.health
    return StreamSampler.model_construct(
        interval_seconds=sampler.interval_seconds,
        ticks=sampler.ticks,
        missed_ticks=sampler.missed_ticks,
        clock_steps=sampler.clock_steps,
        lateness_p99_bound_seconds=_bound_of(sampler.lateness),
        tick_duration_p99_bound_seconds=_bound_of(sampler.tick_duration),
        read_errors=sum(port.read_errors for port in snapshot.ports),
        implausible_samples=sum(port.implausible_samples for port in snapshot.ports),
        skipped_seconds=snapshot.skipped_seconds,
        heartbeat_age_seconds=health.heartbeat_age_seconds,
        restarts=health.restarts,
        takeovers=health.takeovers,
        quarantined_devices=list(health.quarantined_devices),
        scheduler=health.scheduler_actual,
        throttled_periods=health.throttled_periods,
    )


def _bound_of(histogram: Histogram) -> float | None:
    """The upper bound of the bucket with the 99th percentile; None without samples, or beyond the last bound."""
    count = histogram.cumulative[-1]
    if not count:
        return None
    index = bisect.bisect_left(histogram.cumulative, 0.99 * count)
    return histogram.bounds[index] if index < len(histogram.bounds) else None


class Feed:
    """Follows the ticks of a ring as they become complete. `next_tick` is the first one not yet in a batch.

    With `job`, it has the ports that this job had within the history, and their samples while it had them. With
    `signals`, the batches have those.
    """

    def __init__(self, parts: WebParts, job: Key | None = None, *, signals: bool = False) -> None:
        self._parts, self._reader = parts, parts.node.reader
        self._key, self._signals = job, signals
        self._unread: dict[int, int] = {}
        self._job: ChosenJob | None = None
        self._ticks_per_second = SECOND_NS // self._reader.interval_ns
        self._seen: tuple[object, ...] = ()
        self._logged = parts.node.events.added
        self._snapshot: Snapshot | None = None
        self._slots: tuple[int, ...] = ()
        self._names: list[str] = []
        self._rates: list[tuple[str, float | None]] = []
        self.ports = b""
        self.summary = b""
        self.refresh_ports()
        self.next_tick = self._end()
        self._advanced_ns = parts.node.clock.monotonic_ns()

    def refresh_ports(self) -> tuple[bool, bool]:
        """Update `ports`. Returns whether other ports are in the stream, and whether anything changed in `ports`."""
        based_on = self._parts.node.events.added, self._parts.node.jobs.view.jobs
        slots = self._reader.ring.slots()
        if self._key is not None:
            self._job = job_of(self._parts, self._key)
            had = self._job.ports.within(self._reader.oldest_tick(self._parts.node.clock.time_ns()), FOREVER).spans
            slots = {name: slot for name, slot in slots.items() if name in had}
        known = [each for each in self._parts.node.supervisor.known_ports() if str(each.port.id) in slots]
        names = [str(each.port.id) for each in known]
        numbers = tuple(slots[name] for name in names)
        states = [(each.state, each.since_ns, each.problem) for each in known]
        seen = (names, numbers, states, based_on, self._parts.node.fabric().simulated)
        if seen == self._seen:
            return False, False
        others = names != self._names
        self._seen, self._names, self._slots = seen, names, numbers
        self._rates = [(str(each.port.id), each.port.rate_bytes_per_second) for each in known]
        before, self.ports = self.ports, self._describe(known)
        return others, before != self.ports

    def log_events(self) -> bytes:
        """The events of the log within the history that `advance` has returned; empty without any."""
        log = self._parts.node.events
        sent = log.events()[: len(log.events()) - (log.added - self._logged)]
        oldest_ns, _ = self._span_ns()
        return _logged([event for event in sent if event.time_ns >= oldest_ns])

    def advance(self) -> list[bytes]:
        """The messages since the last call: batches of complete ticks, events of the log, the summary of a second."""
        now_ns = self._parts.node.clock.monotonic_ns()
        passed = (now_ns - self._advanced_ns) // self._reader.interval_ns
        # ticks follow the monotonic clock, because the wall clock may just have been stepped
        end = min(self._end(), self.next_tick + passed + self._ticks_per_second)
        self._advanced_ns = now_ns
        events = list(self.batches(self.next_tick, end, self._unread))
        self.next_tick = max(self.next_tick, end)
        if self._parts.node.events.added != self._logged:
            events.append(_logged(list(self._parts.node.events.after(self._logged))))
            self._logged = self._parts.node.events.added
        snapshot = self._parts.current.get()
        if snapshot is not None and snapshot is not self._snapshot:
            self._snapshot = snapshot
            self.summary = answer_event("summary", describe_second(snapshot, self._key, self._names))
            events.append(self.summary)
        return events

    def batches(self, first_tick: int, end_tick: int, unread: dict[int, int] | None = None) -> Iterator[bytes]:
        """The batches of ticks from `first_tick` up to `end_tick`, exclusive; none without ports.

        `unread` has by slot the tick from which on its signals are not in a batch yet, if that is before the batch.
        """
        if self._slots and first_tick < end_tick:
            for run in runs_of_ticks(self._reader, first_tick, end_tick):
                yield self._batch(run, {} if unread is None else unread)

    def _batch(self, run: TickRun, unread: dict[int, int]) -> bytes:
        last_tick = run.tick + run.count - 1
        # a batch is short, so padding all ports by the widest stride is cheaper than one read per stride
        widest = [widest_stride(self._reader.strides(self._slots))] * len(self._slots)
        lines = [self._parts.node.events.history.line_rate(*port) for port in self._rates]
        peaks, merges = read_peaks(self._reader, self._slots, widest, run.tick, last_tick, lines)
        if self._job is not None:
            kept = self._job.ports.mask(self._names, run.tick, run.count)
            peaks, merges = np.where(kept[:, None], peaks, np.nan), merges.only(kept)
        # each port's transmit before its receive
        values = peaks.reshape(2 * len(self._slots), run.count)
        merged = [
            (2 * row + way, max(0, first), min(last + 1, run.count) - max(0, first))
            for row, way, first, last in merges.places.tolist()
        ]
        signals = list(self._read_signals(run.tick, last_tick, unread)) if self._signals else None
        return batch_event(last_tick, run.wall_tick * self._reader.interval_ns, values, merged, signals)

    def _read_signals(self, first_tick: int, last_tick: int, unread: dict[int, int]) -> Iterator[dict[str, Any]]:
        """The ports that were read; a reading that took longer than the samples after it comes with later ones."""
        for name, slot in zip(self._names, self._slots, strict=True):
            begin = unread.setdefault(slot, first_tick)
            found = read_port_signals(self._reader, name, slot, begin, last_tick, self._job)
            if len(found.ticks):
                unread[slot] = int(found.ticks[-1]) + 1
                yield describe_signals(found)

    def resume(self, first_tick: int, end_tick: int) -> Iterator[bytes]:
        """The batches of an interruption, one per second, preceded by the part that is too old."""
        kept = min(RESUME_SECONDS * self._ticks_per_second, self._reader.readable_ticks)
        oldest = end_tick - kept
        if first_tick < oldest:
            yield gap_event(*self._reader.wall_ns(np.array([first_tick, oldest])).tolist())
        for first in range(max(first_tick, oldest), end_tick, self._ticks_per_second):
            yield from self.batches(first, min(first + self._ticks_per_second, end_tick))

    def _end(self) -> int:
        """The tick after the newest one that is complete for every port."""
        widest = widest_stride(self._reader.strides(self._slots))
        return complete_tick(self._reader, widest, self._parts.node.clock.time_ns()) + 1

    def _describe(self, ports: list[KnownPort]) -> bytes:
        """The series of the following batches: two per port, transmit before receive, in this order.

        Models cost 80 µs more than dictionaries with 8 ports, but only after a change of a port or of a job.
        """
        oldest_ns, now_ns = self._span_ns()
        job: dict[str, Any] = {} if self._job is None else {"job": describe_job_ports(self._job, oldest_ns, now_ns)}
        data = StreamPorts.model_construct(
            version=self._parts.version,
            interval_ms=self._reader.interval_ns // MILLISECOND_NS,
            history_ms=self._reader.capacity * self._reader.interval_ns // MILLISECOND_NS,
            simulated=self._parts.node.fabric().simulated,
            ports=[_describe(known, states) for known, states in zip(ports, self._states(), strict=True)],
            jobs=_describe_jobs(known_jobs(self._parts), oldest_ns),
            **job,
        )
        return answer_event("ports", data)

    def _span_ns(self) -> tuple[int, int]:
        """The wall times of the history, up to now."""
        now_ns = self._parts.node.clock.time_ns()
        oldest = self._reader.oldest_tick(now_ns)
        return self._reader.wall_of(oldest), now_ns + SECOND_NS

    def _states(self) -> Iterator[list[StreamState]]:
        """The states of each port over the history, oldest first."""
        now_ns = self._parts.node.clock.time_ns()
        # a state in force from the newest tick on is in no span that ends there
        first, end = self._reader.oldest_tick(now_ns), self._reader.newest_tick(now_ns) + self._ticks_per_second
        for name in self._names:
            spans = self._parts.node.events.history.spans(name, first, end)[-MAX_STATES:]
            begins = self._reader.wall_ns(np.array([span.first for span in spans], dtype=np.int64)).tolist()
            yield [
                StreamState.model_construct(from_ms=begin_ns // MILLISECOND_NS, **_members(span.state))
                for begin_ns, span in zip(begins, spans, strict=True)
            ]


def _logged(events: Sequence[Event]) -> bytes:
    return log_event(events[-MAX_LOG_EVENTS:]) if events else b""


Followed = tuple[Key | None, bool]
"""The job of a feed, or None for the node, and whether its batches have signals."""


class Hub:
    """Feeds up to `max_viewers` viewers from one task for each feed that is viewed: of the node or a job."""

    def __init__(self, parts: WebParts) -> None:
        self._parts = parts
        self._viewers: Viewers = Viewers(parts.counts, parts.limits.max_viewers, parts.ending)
        self._feeds: dict[Followed, tuple[Feed, asyncio.Task[None]]] = {}

    def join(self, client: str, period_ns: int, resume_tick: int | None, followed: Followed) -> Viewer:
        """Add a viewer that gets the ticks from `resume_tick` on, or from now on."""
        self._viewers.make_room(client)
        feed = self._started(followed)
        first = self._first_events(feed, feed.next_tick if resume_tick is None else resume_tick, feed.next_tick)
        viewer = Viewer(first, self._parts.counts, period_ns, followed)
        self._viewers.add(viewer, client)
        return viewer

    def leave(self, viewer: Viewer) -> None:
        """Remove a viewer; the last one of a task stops it."""
        self._viewers.remove(viewer)
        for followed in [each for each in self._feeds if not self._of(each)]:
            _, task = self._feeds.pop(followed)
            task.cancel()

    def _of(self, followed: Followed) -> list[Viewer]:
        """The viewers of a feed."""
        return [viewer for viewer in self._viewers if viewer.followed == followed]

    def _started(self, followed: Followed) -> Feed:
        if followed not in self._feeds:
            job, signals = followed
            feed = Feed(self._parts, job, signals=signals)
            self._feeds[followed] = feed, asyncio.create_task(self._run(feed, followed), name="stream")
        return self._feeds[followed][0]

    @staticmethod
    def _first_events(feed: Feed, resume_tick: int, end_tick: int) -> Iterator[bytes]:
        yield RETRY + feed.ports + feed.log_events() + feed.summary
        yield from feed.resume(resume_tick, end_tick)

    async def _run(self, feed: Feed, followed: Followed) -> None:
        try:
            await self._produce(feed, followed)
        except Exception:
            log.exception("the stream failed; disconnecting its viewers")
        self._feeds.pop(followed, None)
        for viewer in self._of(followed):
            viewer.close()

    async def _produce(self, feed: Feed, followed: Followed) -> None:
        quiet = 0.0
        while not self._parts.ending.is_set():
            period = min((viewer.period_ns for viewer in self._of(followed)), default=SECOND_NS) / SECOND_NS
            try:
                async with asyncio.timeout(period):
                    await self._parts.ending.wait()
            except TimeoutError:
                quiet = self._round(feed, self._of(followed), quiet + period)

    @staticmethod
    def _round(feed: Feed, viewers: Sequence[Viewer], quiet: float) -> float:
        """Feed the viewers once; returns the seconds since the last event."""
        others, changed = feed.refresh_ports()
        for viewer in viewers:
            if others:
                viewer.restart(feed.ports)
            elif changed:
                viewer.update(feed.ports)
        events = feed.advance()
        if not events and quiet >= HEARTBEAT_SECONDS:
            events = [HEARTBEAT]
        for viewer in viewers:
            viewer.offer(events)
        return 0.0 if events else quiet


PERIOD = duration("100ms", "250ms")

_ANSWER: dict[str, Any] = {
    "description": "Events `ports`, `batch`, `events`, `summary`, `gap`, `dropped` and `end`, each with a JSON object.",
    "content": {
        MEDIA_TYPE: {
            "schema": {"type": "string"},
            "x-events": {name: inline_parts(model.model_json_schema()) for name, model in EVENTS.items()},
        }
    },
}


class StreamQuery(BaseModel):
    """The query parameters of `/api/v1/stream`, unparsed."""

    model_config = ConfigDict(extra="forbid")

    every: Duration = Field(
        "200ms",
        description="Longest time between two batches, 100ms to 250ms. All viewers get the shortest one requested.",
    )
    from_: OptionalInstant = RESUME_FROM
    job: OptionalJob = Field(None, description=f"{JOB_HELP} `summary` has its numbers in place of the node's.")
    signals: bool = Field(False, description="Add what the congestion counters of the ports gained to each batch.")


def add_stream(router: APIRouter, parts: WebParts) -> None:
    """The stream route."""
    hub = Hub(parts)

    @router.get("/api/v1/stream", **operation("get_stream", _ANSWER, 404, 422, 503, repeatable=()))
    async def stream(query: Annotated[StreamQuery, Query()], last_event_id: LastEventId = None) -> Response:
        """The rates of every sample, live, and the node's statistics once a second, as server-sent events."""
        period_ns = read_parameter("every", query.every, PERIOD)
        job = choose_job(parts, query.job)
        last, begin_ns = read_resume(last_event_id, query.from_, parts.node.clock.time_ns())
        begin = None if begin_ns is None else parts.node.reader.tick_at(begin_ns)
        begin = begin if last is None else last + 1
        followed = None if job is None else job.key, query.signals
        return EventStream(lambda client: hub.join(client, period_ns, begin, followed), hub.leave)
