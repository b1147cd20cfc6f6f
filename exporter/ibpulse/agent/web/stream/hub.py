"""The viewers of the stream, and the task that encodes what is new once for all of them.

The viewers of a job have a task of their own. A task runs only while it has viewers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence

import numpy as np

from ibpulse.agent.aggregator.snapshot import Snapshot
from ibpulse.agent.web.job_choice import describe_ports, job_of, known_jobs
from ibpulse.agent.web.parts import WebParts
from ibpulse.agent.web.stream.messages import describe_second, log_event, ports_event
from ibpulse.base.units import SECOND_NS
from ibpulse.core.events import Event
from ibpulse.core.events.watch import KnownPort
from ibpulse.core.http.admission import Viewers
from ibpulse.core.http.stream import (
    HEARTBEAT,
    HEARTBEAT_SECONDS,
    MAX_LOG_EVENTS,
    RETRY,
    Viewer,
    batch_event,
    gap_event,
    summary_event,
)
from ibpulse.core.jobs import FOREVER, ChosenJob, Key
from ibpulse.core.model import PortState
from ibpulse.core.ring.spans import TickRun, complete_tick, read_peaks, runs_of_ticks, widest_stride

# The longest interruption that is replayed; older samples come from /api/v1/window.
RESUME_SECONDS = 60
# the newest of each port
MAX_STATES = 200


class Feed:
    """Follows the ticks of a ring as they become complete. `next_tick` is the first one not yet in a batch.

    With `job`, it has the ports that this job had within the history, and their samples while it had them.
    """

    def __init__(self, parts: WebParts, job: Key | None = None) -> None:
        self._parts, self._reader = parts, parts.node.reader
        self._key = job
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
        told = log.events()[: len(log.events()) - (log.added - self._logged)]
        oldest_ns, _ = self._span_ns()
        return _logged([event for event in told if event.time_ns >= oldest_ns])

    def advance(self) -> list[bytes]:
        """The messages since the last call: batches of complete ticks, events of the log, the summary of a second."""
        now_ns = self._parts.node.clock.monotonic_ns()
        passed = (now_ns - self._advanced_ns) // self._reader.interval_ns
        # ticks follow the monotonic clock, because the wall clock may just have been stepped
        end = min(self._end(), self.next_tick + passed + self._ticks_per_second)
        self._advanced_ns = now_ns
        events = list(self.batches(self.next_tick, end))
        self.next_tick = max(self.next_tick, end)
        if self._parts.node.events.added != self._logged:
            events.append(_logged(list(self._parts.node.events.after(self._logged))))
            self._logged = self._parts.node.events.added
        snapshot = self._parts.current.get()
        if snapshot is not None and snapshot is not self._snapshot:
            self._snapshot = snapshot
            self.summary = summary_event(describe_second(snapshot, self._key, self._names))
            events.append(self.summary)
        return events

    def batches(self, first_tick: int, end_tick: int) -> Iterator[bytes]:
        """The batches of ticks from `first_tick` up to `end_tick`, exclusive; none without ports."""
        if self._slots and first_tick < end_tick:
            for run in runs_of_ticks(self._reader, first_tick, end_tick):
                yield self._batch(run)

    def _batch(self, run: TickRun) -> bytes:
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
        return batch_event(last_tick, run.wall_tick * self._reader.interval_ns, values, merged)

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
        history_ns = self._reader.capacity * self._reader.interval_ns
        oldest_ns, now_ns = self._span_ns()
        return ports_event(
            ports,
            self._states(),
            self._reader.interval_ns,
            history_ns,
            self._parts.version,
            self._parts.node.fabric().simulated,
            known_jobs(self._parts),
            oldest_ns,
            None if self._job is None else describe_ports(self._job, oldest_ns, now_ns),
        )

    def _span_ns(self) -> tuple[int, int]:
        """The wall times of the history, up to now."""
        now_ns = self._parts.node.clock.time_ns()
        oldest = self._reader.oldest_tick(now_ns)
        return int(self._reader.wall_ns(np.array([oldest]))[0]), now_ns + SECOND_NS

    def _states(self) -> dict[str, list[tuple[int, PortState | None]]]:
        now_ns = self._parts.node.clock.time_ns()
        # a state in force from the newest tick on is in no span that ends there
        first, end = self._reader.oldest_tick(now_ns), self._reader.newest_tick(now_ns) + self._ticks_per_second
        found = {}
        for name in self._names:
            spans = self._parts.node.events.history.spans(name, first, end)[-MAX_STATES:]
            begins = self._reader.wall_ns(np.array([span.first for span in spans], dtype=np.int64)).tolist()
            found[name] = list(zip(begins, (span.state for span in spans), strict=True))
        return found


def _logged(events: Sequence[Event]) -> bytes:
    return log_event(events[-MAX_LOG_EVENTS:]) if events else b""


log = logging.getLogger(__name__)


class Hub:
    """Feeds up to `max_viewers` viewers from one task for the node, and one for each job that is viewed."""

    def __init__(self, parts: WebParts) -> None:
        self._parts = parts
        self._viewers: Viewers[Viewer] = Viewers(parts.counts, parts.limits.max_viewers, parts.ending)
        self._feeds: dict[Key | None, tuple[Feed, asyncio.Task[None]]] = {}

    def join(self, client: str, period_ns: int, resume_tick: int | None, job: Key | None = None) -> Viewer:
        """Add a viewer, of a job if one is given, that gets the ticks from `resume_tick` on, or from now on.

        Raises:
            ProblemError: the maximum number of viewers is connected, and no client has more of them than this one.
        """
        self._viewers.make_room(client)
        feed = self._started(job)
        first = self._first_events(feed, feed.next_tick if resume_tick is None else resume_tick, feed.next_tick)
        viewer = Viewer(first, self._parts.counts, period_ns, job)
        self._viewers.add(viewer, client)
        return viewer

    def leave(self, viewer: Viewer) -> None:
        """Remove a viewer; the last one of a task stops it."""
        self._viewers.remove(viewer)
        if not self._of(viewer.job) and viewer.job in self._feeds:
            _, task = self._feeds.pop(viewer.job)
            task.cancel()

    def _of(self, job: Key | None) -> list[Viewer]:
        """The viewers of a job, or of the node."""
        return [viewer for viewer in self._viewers if viewer.job == job]

    def _started(self, job: Key | None) -> Feed:
        if job not in self._feeds:
            feed = Feed(self._parts, job=job)
            self._feeds[job] = feed, asyncio.create_task(self._run(feed, job), name="stream")
        return self._feeds[job][0]

    @staticmethod
    def _first_events(feed: Feed, resume_tick: int, end_tick: int) -> Iterator[bytes]:
        yield RETRY + feed.ports + feed.log_events() + feed.summary
        yield from feed.resume(resume_tick, end_tick)

    async def _run(self, feed: Feed, job: Key | None) -> None:
        try:
            await self._produce(feed, job)
        except Exception:
            log.exception("the stream failed; disconnecting its viewers")
        self._feeds.pop(job, None)
        for viewer in self._of(job):
            viewer.close()

    async def _produce(self, feed: Feed, job: Key | None) -> None:
        quiet = 0.0
        while not self._parts.ending.is_set():
            period = min((viewer.period_ns for viewer in self._of(job)), default=SECOND_NS) / SECOND_NS
            try:
                async with asyncio.timeout(period):
                    await self._parts.ending.wait()
            except TimeoutError:
                quiet = self._round(feed, self._of(job), quiet + period)

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
