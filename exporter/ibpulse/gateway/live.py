"""The viewers of jobs: one task per job reads its nodes, and encodes each choice of rows once for all its viewers."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import orjson

from ibpulse.base.errors import DaemonError
from ibpulse.base.internal_errors import Occurrences
from ibpulse.base.units import MILLISECOND_NS
from ibpulse.core.answers.node import EventAnswer, EventsAnswer
from ibpulse.core.answers.summary import SummaryAnswer
from ibpulse.core.http.problems import ProblemError
from ibpulse.core.http.stream import HEARTBEAT, HEARTBEAT_SECONDS, RETRY, Viewer, batch_event, event, gap_event
from ibpulse.core.jobs import Key
from ibpulse.core.statistics.lateness import Lateness
from ibpulse.gateway import jobs
from ibpulse.gateway.jobs import JobNumbers, SummarySpan
from ibpulse.gateway.nodes.requests import GONE, Node, ask_node
from ibpulse.gateway.nodes.table import NodeState
from ibpulse.gateway.parts import GatewayParts
from ibpulse.gateway.samples import NodeSamples, ask_samples, bin_samples, common_interval, find_places

log = logging.getLogger(__name__)
KEPT_MS = 61_000
FIRST_MS = 11_000
SUMMARY_MS = 10_000
# of statistics and events
SLOW_SECONDS = 5.0
FAILED_SECONDS = 2.0
MAX_EVENTS = 1000
# if all nodes were asked at once, on a busy machine each answer would take as long as all of them together
MAX_ASKED = 8
# a node that hangs keeps others waiting for so long at most
PLACE_SECONDS = 0.1
# nodes that are no longer listed, whose rows stay
MAX_GONE = 64
GONE_NODE = ("gone", GONE)
WAITING = ("no-answer", "it was not asked yet")
MAX_STATES = 200
# the longest that a batch waits for a node, and the longest span of one
WAIT_MS, BATCH_SPAN_MS = 1100, 1000
RESUME_MS = 60_000
# maximum time of a value up to each number of rows, unless the samples are further apart
VALUES_MS = ((4, 10), (8, 20), (16, 50), (jobs.MAX_ROWS, 100))
SAMPLES = (100, 50, 20, 10, 5, 2, 1)
STATE_MEMBERS = ("state", "active", "rate_bytes_per_second", "problem")
# lateness is that of the last ten seconds, and the statistics of a node are read as often
LATENESS_MS = 10_000
LATENESS_SECONDS = 5.0
# span of the first poll
FIRST_PAST_MS = 10_000
# polls of nodes by all jobs together, by the time between two of one node
POLLS_PER_SECOND = 96
MIN_SECONDS = 0.2
# of all choices of rows, because each is encoded on its own
MAX_VIEWED_ROWS = 512


def describe_event(node: str, event: EventAnswer) -> dict[str, Any]:
    """An event as in `/api/v1/stream`, with its node."""
    details = {name: event.details[name] for name in ("name",) if event.kind == "capture" and name in event.details}
    shown = event.model_dump(include={"time_ms", "uncertainty_ms", "kind", "subject", "text"})
    return {"node": node, **shown, "details": details}


class NodePoll:
    """The samples and statistics read from one node, and the task that reads it now; its events go to `events`."""

    def __init__(self, data: jobs.JobNode, events: deque[dict[str, Any]], parts: GatewayParts) -> None:
        self.data, self._clock = data, parts.clock
        self._events = events
        self._slow_at = 0.0
        self._events_from_ms: int | None = None
        self._known: deque[tuple[Any, ...]] = deque(maxlen=MAX_EVENTS)
        self.again_at = 0.0
        self.task: asyncio.Task[None] | None = None

    async def read(self, node: Node, job: str) -> None:
        """Read what is new; statistics and events less often."""
        samples = self.data.samples
        try:
            window = await ask_samples(node, job, self._span())
            self.data.samples = (samples or NodeSamples(window.head.interval_ms, KEPT_MS)).add(window)
            self.data.history_ms = max(0, window.head.history.newest_ms - window.head.history.oldest_ms)
            self.data.problem = ("", "")
            if self._clock.monotonic() >= self._slow_at:
                self._slow_at = self._clock.monotonic() + SLOW_SECONDS
                query = [("job", job), ("last", f"{SUMMARY_MS}ms")]
                self.data.summary = await ask_node(node, SummaryAnswer, "/api/v1/summary", query)
                await self._read_events(node)
        except DaemonError as error:
            # a node whose clock was set back refuses what is in its future
            if error.status == 422:
                self.data.samples = self._events_from_ms = None
            # statistics of another time are not those of now
            self.data.summary, self._slow_at = None, 0.0
            self.data.problem = (error.kind, str(error))
            self.again_at = self._clock.monotonic() + FAILED_SECONDS

    def _span(self) -> list[tuple[str, str]]:
        samples, known = self.data.samples, self.data.state
        if samples is None or not samples.end_ms:
            return [("last", f"{FIRST_MS}ms")]
        offset = known.offset.offset_ns if known and known.offset else 0
        if self._clock.time_ns() + offset - samples.end_ms * MILLISECOND_NS > FIRST_MS * MILLISECOND_NS:
            return [("last", f"{FIRST_MS}ms")]
        return [("from", str(samples.end_ms))]

    async def _read_events(self, node: Node) -> None:
        query = [("limit", str(MAX_EVENTS))]
        query += [] if self._events_from_ms is None else [("from", str(self._events_from_ms))]
        found = (await ask_node(node, EventsAnswer, "/api/v1/events", query)).events
        news = [each for each in found if (each.time_ms, each.kind, each.subject, each.text) not in self._known]
        self._known.extend((each.time_ms, each.kind, each.subject, each.text) for each in news)
        self._events_from_ms = max((each.time_ms for each in found), default=self._events_from_ms)
        self._events.extend(describe_event(node.name, each) for each in news)


class JobPolls:
    """Polls the nodes of a job. What a node answers is in `nodes` at once; one that hangs does not hold up others."""

    def __init__(self, parts: GatewayParts, key: Key) -> None:
        self._parts, self._key = parts, key
        self._polls: dict[str, NodePoll] = {}
        self._failures = Occurrences()
        self._places = asyncio.Semaphore(MAX_ASKED)
        # events that the viewers have, and events that they get next
        self.events: deque[dict[str, Any]] = deque(maxlen=MAX_EVENTS)
        self._new_events: deque[dict[str, Any]] = deque(maxlen=MAX_EVENTS)
        self.job = jobs.FleetJob(key)
        self.refresh()

    @property
    def nodes(self) -> dict[str, jobs.JobNode]:
        """The nodes of the job by name."""
        return {name: poll.data for name, poll in self._polls.items()}

    def refresh(self) -> None:
        """Take over the nodes that the job has now; nodes that it had keep what was read."""
        states = {state.name: state for state in self._parts.table.rows()}
        found = jobs.list_jobs(states.values()).get(self._key)
        for name, job in found.nodes.items() if found else ():
            self.job.nodes[name] = job
        for name, job in self.job.nodes.items():
            poll, state = self._polls.get(name), states.get(name)
            if poll is None:
                self._polls[name] = NodePoll(jobs.JobNode(job, state, WAITING), self._new_events, self._parts)
            else:
                problem, samples = (poll.data.problem, poll.data.samples) if state else (GONE_NODE, None)
                state = state or poll.data.state
                poll.data = replace(poll.data, job=job, state=state, problem=problem, samples=samples)
        # a node that has another name at each poll would fill the memory
        gone = [name for name, poll in self._polls.items() if name not in states and poll.task is None]
        for name in gone[:-MAX_GONE]:
            del self._polls[name], self.job.nodes[name]

    def start(self) -> list[asyncio.Task[None]]:
        """Begin a poll of every node that is not polled now, and that did not just fail; returns the running ones."""
        for name, poll in self._polls.items():
            node = self._parts.nodes.get(name)
            if node is not None and poll.task is None and self._parts.clock.monotonic() >= poll.again_at:
                poll.task = asyncio.create_task(self._read(poll, node), name=f"job {name}")
                poll.task.add_done_callback(partial(self._end, name, poll))
        return [poll.task for poll in self._polls.values() if poll.task is not None]

    async def _read(self, poll: NodePoll, node: Node) -> None:
        """Read what is new from a node once there is a place."""
        await self._places.acquire()
        with ExitStack() as place:
            # closing it again does nothing
            place.callback(self._places.release)
            place.callback(asyncio.get_running_loop().call_later(PLACE_SECONDS, place.close).cancel)
            await poll.read(node, self.job.text)

    async def stop(self) -> None:
        """Cancel the polls."""
        tasks = [poll.task for poll in self._polls.values() if poll.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def take_events(self) -> list[dict[str, Any]]:
        """The events that were not taken yet."""
        found = list(self._new_events)
        self._new_events.clear()
        self.events.extend(found)
        return found

    def _end(self, name: str, poll: NodePoll, task: asyncio.Task[None]) -> None:
        poll.task = None
        error = None if task.cancelled() else task.exception()
        # a fault of ours with this one node; the others go on
        if error is not None:
            poll.data.problem = ("bad-answer", "internal error of the gateway; see its log")
            poll.again_at = self._parts.clock.monotonic() + FAILED_SECONDS
            if self._failures.is_news((type(error), name)):
                log.error("internal error while reading the samples of %s", name, exc_info=error)


class JobView:
    """The rows of some nodes, or their rails, and the time up to which they were sent."""

    def __init__(self, polls: JobPolls, nodes: Sequence[str], *, rails: bool, version: str, begin_ms: int) -> None:
        self._polls, self._nodes, self._rails, self._version = polls, nodes, rails, version
        self._rows: list[jobs.Row] = []
        self._states: dict[str, list[dict[str, Any]]] = {}
        # up to which time each row was sent, if that is not `sent_ms`
        self._row_sent_ms: dict[str, int] = {}
        self._layout = 0
        self.batch_ms = 0
        self.rows = b""
        self.summary = b""
        self.refresh(begin_ms)
        self.sent_ms = begin_ms // self.batch_ms * self.batch_ms

    @property
    def row_count(self) -> int:
        """The number of rows."""
        return len(self._rows)

    def refresh(self, now_ms: int) -> tuple[bool, bool]:
        """Update `rows`. Returns whether they are other ones, and whether anything changed."""
        nodes = self._polls.nodes
        table: dict[str, NodeState] = {name: data.state for name, data in nodes.items() if data.state}
        rows = jobs.rows_of(self._polls.job, table, self._nodes, rails=self._rails)[: jobs.MAX_ROWS]
        intervals = (data.samples.interval_ms for data in nodes.values() if data.samples and data.samples.end_ms)
        # one node that samples seldom does not hide what the others have
        interval_ms = common_interval(intervals, 10)
        longest_ms = next(most_ms for most, most_ms in VALUES_MS if len(rows) <= most)
        batch_ms = next((times * interval_ms for times in SAMPLES if times * interval_ms <= longest_ms), interval_ms)
        others = (batch_ms, [row.name for row in rows]) != (self.batch_ms, [row.name for row in self._rows])
        if others and self.batch_ms:
            self.sent_ms = -(-self.sent_ms // batch_ms) * batch_ms
            self._row_sent_ms.clear()
        self._layout += others
        self._rows, self.batch_ms = rows, batch_ms
        self._states = {row.name: self._states[row.name] for row in rows if row.name in self._states}
        document = {
            "version": self._version,
            "interval_ms": interval_ms,
            "batch_ms": batch_ms,
            "history_ms": max((data.history_ms for data in nodes.values()), default=0),
            "simulated": any(state.ports is not None and bool(state.ports.simulated) for state in table.values()),
            "job": self._polls.job.about(),
            "nodes": list(nodes),
            "rows": [self._describe(row, now_ms) for row in rows],
        }
        before, self.rows = self.rows, event("rows", orjson.dumps(document))
        return others, before != self.rows

    def _describe(self, row: jobs.Row, now_ms: int) -> dict[str, Any]:
        data = self._polls.nodes[row.node]
        found = jobs.describe_row(row, self._polls.job, data.state, data.problem)
        left = data.samples.left_out(row.rails) if data.samples and data.answering and row.port is None else []
        if left and not found["problem"]:
            found["problem_text"] = f"no samples of {', '.join(left)}, left out of the sum"
        now = {name: found[name] for name in STATE_MEMBERS}
        states = self._states.setdefault(row.name, [])
        if not states or any(states[-1][name] != now[name] for name in STATE_MEMBERS):
            states.append({"from_ms": now_ms, **now})
            del states[:-MAX_STATES]
        return {**found, "states": states}

    def advance(self, now_ms: int) -> list[bytes]:
        """The batches of what is new, those of rows that were late first."""
        if not now_ms - KEPT_MS <= self.sent_ms <= now_ms + BATCH_SPAN_MS:
            # the clock was set, or the machine slept
            self.sent_ms = (now_ms - WAIT_MS) // self.batch_ms * self.batch_ms
            self._row_sent_ms.clear()
        end_ms = self._end(now_ms)
        found = [*self._late_batches(), *self._batches(self.sent_ms, end_ms)]
        for row in self._rows:
            if (own := self._available(row)) < end_ms:
                self._row_sent_ms[row.name] = max(self._row_sent_ms.get(row.name, self.sent_ms), min(own, end_ms))
        self.sent_ms = max(self.sent_ms, end_ms)
        return found

    def resume(self, from_ms: int, to_ms: int) -> Iterator[bytes]:
        """The batches from a time up to another one, preceded by the part that is too old; until the rows change."""
        kept_ms = to_ms - RESUME_MS
        oldest = -(-max(from_ms, kept_ms) // self.batch_ms) * self.batch_ms
        gap = [gap_event(from_ms * MILLISECOND_NS, oldest * MILLISECOND_NS)] if from_ms < kept_ms else []
        return itertools.chain(gap, self._until_other_rows(self._layout, self._batches(oldest, to_ms)))

    def _until_other_rows(self, layout: int, batches: Iterator[bytes]) -> Iterator[bytes]:
        while self._layout == layout and (found := next(batches, None)) is not None:
            yield found

    def describe_second(self, numbers: JobNumbers) -> bytes:
        """The event `summary` of a second, which stays in `summary`."""
        self.summary = event("summary", orjson.dumps(numbers.document(self._rows)))
        return self.summary

    def _end(self, now_ms: int) -> int:
        """Up to where all answering nodes have samples, or at most `WAIT_MS` ago."""
        nodes = self._polls.nodes
        # a row of longer samples follows later, as one that is late
        ends = [
            self._available(row)
            for row in self._rows
            if (data := nodes[row.node]).answering and not (data.samples and data.samples.interval_ms > self.batch_ms)
        ]
        latest = now_ms // self.batch_ms * self.batch_ms
        oldest = (now_ms - WAIT_MS) // self.batch_ms * self.batch_ms
        return max(self.sent_ms, oldest, min(latest, *ends) if ends else oldest)

    def _available(self, row: jobs.Row) -> int:
        """The end of the last bin of which all samples of a row were read, 0 without any."""
        samples = self._polls.nodes[row.node].samples
        return samples.end_ms // self.batch_ms * self.batch_ms if samples else 0

    def _late_batches(self) -> Iterator[bytes]:
        """The bins that were sent without some rows, which have samples of them now."""
        late = {
            row.name: (max(sent, self.sent_ms - KEPT_MS), min(self._available(row), self.sent_ms))
            for row in self._rows
            if (sent := self._row_sent_ms.get(row.name, self.sent_ms)) < min(self._available(row), self.sent_ms)
        }
        for name, (_, end) in late.items():
            self._row_sent_ms[name] = end
            if end >= self.sent_ms:
                del self._row_sent_ms[name]
        begin = -(-min((first for first, _ in late.values()), default=0) // self.batch_ms) * self.batch_ms
        end = max((end for _, end in late.values()), default=0)
        yield from self._batches(begin, end, late)

    def _batches(self, from_ms: int, to_ms: int, only: dict[str, tuple[int, int]] | None = None) -> Iterator[bytes]:
        step_ms = max(self.batch_ms, BATCH_SPAN_MS // self.batch_ms * self.batch_ms)
        for first in range(from_ms, to_ms, step_ms):
            yield self._batch(first, min(first + step_ms, to_ms), only)

    def _batch(self, from_ms: int, to_ms: int, only: dict[str, tuple[int, int]] | None = None) -> bytes:
        """A batch; with `only`, of these rows and spans, and null for all others."""
        bins = (to_ms - from_ms) // self.batch_ms
        values = np.full((2 * len(self._rows), bins), np.nan)
        marks = np.zeros(values.shape, dtype=np.bool_)
        for place, row in enumerate(self._rows):
            samples = self._polls.nodes[row.node].samples
            first, end = (from_ms, to_ms) if only is None else only.get(row.name, (0, 0))
            first, end = max(first, from_ms), min(end, to_ms, self._available(row))
            if samples is None or first >= end:
                continue
            part = slice((first - from_ms) // self.batch_ms, (end - from_ms) // self.batch_ms)
            found = bin_samples(samples, row.rails, first, end, self.batch_ms, live=True)
            values[2 * place : 2 * place + 2, part], marks[2 * place : 2 * place + 2, part] = found
        return batch_event(to_ms, from_ms * MILLISECOND_NS, values, find_places(marks))


# a choice of rows: rails or nodes, and the names of the nodes
ViewKey = tuple[bool, tuple[str, ...]]


class JobFeed:
    """A job that is viewed: its nodes, its choices of rows, and who views each of them."""

    def __init__(self, parts: GatewayParts, key: Key, hub: JobHub) -> None:
        self._version, self._hub = parts.version, hub
        self._clock, self._verdicts = parts.clock, parts.verdicts
        self.polls = JobPolls(parts, key)
        self.views: dict[ViewKey, JobView] = {}
        self.viewers: dict[Viewer, ViewKey] = {}
        self.task: asyncio.Task[None] | None = None
        self._lateness: dict[str, Lateness] = {}
        self._lateness_at = 0.0
        self._second = 0

    def first_events(self, key: ViewKey, resume_ms: int | None) -> Iterator[bytes]:
        """The events that a new viewer receives before the batches for all viewers."""
        past: Iterator[bytes] = iter(())
        begin_ms, unread = self._clock.time_ns() // MILLISECOND_NS - WAIT_MS, not self.views
        if unread and resume_ms is not None:
            # the first poll reads this past, so it comes with the first batches
            oldest_ms = begin_ms - FIRST_PAST_MS
            begin_ms = min(max(resume_ms, oldest_ms), begin_ms)
            if resume_ms < oldest_ms:
                past = iter([gap_event(resume_ms * MILLISECOND_NS, begin_ms * MILLISECOND_NS)])
        if key not in self.views:
            rails, nodes = key
            self.views[key] = JobView(self.polls, nodes, rails=rails, version=self._version, begin_ms=begin_ms)
        view = self.views[key]
        if not unread and resume_ms is not None:
            past = view.resume(resume_ms, view.sent_ms)
        return itertools.chain([RETRY + view.rows + _log(list(self.polls.events)) + view.summary], past)

    def leave(self, viewer: Viewer) -> None:
        """Remove a viewer, and its choice of rows if it was the last one."""
        view = self.viewers.pop(viewer, None)
        if view is not None and view not in self.viewers.values():
            self.views.pop(view, None)

    async def run(self, ending: asyncio.Event) -> None:
        """Read the nodes, and feed the viewers, until the server ends."""
        loop, quiet, refreshed = asyncio.get_running_loop(), 0.0, 0.0
        try:
            while not ending.is_set():
                begin = loop.time()
                if begin - refreshed >= 1:
                    self.polls.refresh()
                    refreshed = begin
                if tasks := self.polls.start():
                    # a batch may wait for a node, but not longer than until the next poll
                    await asyncio.wait(tasks, timeout=self._hub.period())
                quiet = 0.0 if self._feed() else quiet + loop.time() - begin
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, begin + self._hub.period() - loop.time())):
                        await ending.wait()
                if quiet >= HEARTBEAT_SECONDS:
                    for viewer in self.viewers:
                        viewer.offer([HEARTBEAT])
                    quiet = 0.0
        finally:
            await self.polls.stop()

    def _feed(self) -> bool:
        """Feed all viewers once; whether there was anything."""
        now_ms, loop = self._clock.time_ns() // MILLISECOND_NS, asyncio.get_running_loop()
        log_events = self.polls.take_events()
        second = now_ms // 1000
        news, self._second = second != self._second, second
        if news and loop.time() - self._lateness_at >= LATENESS_SECONDS:
            self._lateness, self._lateness_at = jobs.find_lateness(self.polls.nodes, LATENESS_MS), loop.time()
        span = SummarySpan(now_ms // 1000 * 1000)
        watched = self._verdicts.of(self.polls.job.key)
        numbers = JobNumbers(self.polls.nodes, self._lateness, span, watched) if news else None
        fed = False
        for key, view in self.views.items():
            viewers = [viewer for viewer, own in self.viewers.items() if own == key]
            others, changed = view.refresh(now_ms)
            for viewer in viewers:
                if others:
                    viewer.restart(view.rows)
                elif changed:
                    viewer.update(view.rows)
            events = view.advance(now_ms)
            events += [_log(log_events)] if log_events else []
            events += [view.describe_second(numbers)] if numbers else []
            for viewer in viewers:
                viewer.offer(events)
            fed = fed or bool(events)
        return fed


class JobHub:
    """Feeds the viewers of jobs; a job without viewers is not read."""

    def __init__(self, parts: GatewayParts) -> None:
        self._parts = parts
        self._feeds: dict[Key, JobFeed] = {}

    def check(self, job: str, view: ViewKey) -> Key:
        """The job of a request for a stream."""
        states = {state.name: state for state in self._parts.table.rows()}
        found, rows = jobs.choose_rows(states, job, view[1], rails=view[0])
        feed = self._feeds.get(found.key)
        if feed is None or view not in feed.views:
            viewed = sum(each.row_count for other in self._feeds.values() for each in other.views.values())
            if viewed + len(rows) > MAX_VIEWED_ROWS:
                raise ProblemError(
                    "too-many-viewers",
                    503,
                    f"Others view {viewed} rows of jobs, and {MAX_VIEWED_ROWS} is the maximum. Choose fewer nodes with "
                    "node=, or all of them, which viewers share.",
                    bound={"name": "max_viewed_rows", "limit": MAX_VIEWED_ROWS, "asked": viewed + len(rows)},
                )
        return found.key

    def join(self, client: str, job: Key, view: ViewKey, resume_ms: int | None) -> Viewer:
        """Add a viewer that gets the batches from `resume_ms` on, or from now on."""
        self._parts.viewers.make_room(client)
        feed = self._feeds.get(job)
        if feed is None:
            feed = self._feeds[job] = JobFeed(self._parts, job, self)
            feed.task = asyncio.create_task(self._run(job, feed), name="job stream")
        viewer = Viewer(feed.first_events(view, resume_ms), self._parts.counts)
        self._parts.viewers.add(viewer, client)
        feed.viewers[viewer] = view
        return viewer

    def leave(self, viewer: Viewer) -> None:
        """Remove a viewer; the last one of a job stops its task."""
        self._parts.viewers.remove(viewer)
        for job, feed in list(self._feeds.items()):
            feed.leave(viewer)
            if not feed.viewers:
                del self._feeds[job]
                if feed.task is not None:
                    feed.task.cancel()

    async def _run(self, job: Key, feed: JobFeed) -> None:
        try:
            await feed.run(self._parts.ending)
        except Exception:
            log.exception("the stream of a job failed; disconnecting its viewers")
        if self._feeds.get(job) is feed:
            del self._feeds[job]
        for viewer in feed.viewers:
            viewer.close()

    def period(self) -> float:
        """Time between two polls of a node in seconds."""
        polled = sum(len(feed.polls.nodes) for feed in self._feeds.values())
        return max(MIN_SECONDS, polled / POLLS_PER_SECOND)


def _log(events: list[dict[str, Any]]) -> bytes:
    return event("events", orjson.dumps({"events": events})) if events else b""
