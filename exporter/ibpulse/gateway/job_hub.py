"""The viewers of jobs: one task per job reads its nodes, and encodes each choice of rows once for all its viewers."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from ibpulse.base.clocks import Clock
from ibpulse.base.units import MILLISECOND_NS
from ibpulse.core.http.problems import ProblemError
from ibpulse.core.http.stream import HEARTBEAT, HEARTBEAT_SECONDS, RETRY, Viewer, event, gap_event
from ibpulse.core.jobs import Key
from ibpulse.core.statistics.lateness import Lateness
from ibpulse.gateway.job_polls import JobPolls
from ibpulse.gateway.job_stall import find_stall
from ibpulse.gateway.job_summary import SummarySpan, describe_job
from ibpulse.gateway.job_view import WAIT_MS, JobView
from ibpulse.gateway.jobs import choose_job, choose_rows, find_lateness
from ibpulse.gateway.parts import GatewayParts

log = logging.getLogger(__name__)

# which rows: whether rails, and of which nodes
ViewKey = tuple[bool, tuple[str, ...]]
# lateness is that of the last ten seconds, and the statistics of a node are read as often
LATENESS_MS = 10_000
LATENESS_SECONDS = 5.0
# the first poll reads so much of the past
FIRST_PAST_MS = 10_000
# polls of nodes by all jobs together, by the time between two of one node
POLLS_PER_SECOND = 96
MIN_SECONDS = 0.2
# of all choices of rows, because each is encoded on its own
MAX_VIEWED_ROWS = 512


class JobFeed:
    """A job that is viewed: its nodes, its choices of rows, and who views which.

    `period` returns the time between two polls of a node in seconds.
    """

    def __init__(self, parts: GatewayParts, key: Key, period: Callable[[], float]) -> None:
        self._version, self._period = parts.version, period
        self._clock = parts.clock
        self.polls = JobPolls(parts, key)
        self.views: dict[ViewKey, JobView] = {}
        self.viewers: dict[Viewer, ViewKey] = {}
        self.task: asyncio.Task[None] | None = None
        self._lateness: dict[str, Lateness] = {}
        self._lateness_at = 0.0
        self._second = 0

    def first_events(self, key: ViewKey, resume_ms: int | None) -> Iterator[bytes]:
        """What a new viewer receives before the batches that all viewers receive."""
        past: Iterator[bytes] = iter(())
        begin_ms, unread = wall_ms(self._clock) - WAIT_MS, not self.views
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
        return itertools.chain([RETRY + view.rows + _log(self.polls.known_events()) + view.summary], past)

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
                    await asyncio.wait(tasks, timeout=self._period())
                quiet = 0.0 if self._feed() else quiet + loop.time() - begin
                try:
                    async with asyncio.timeout(max(0.0, begin + self._period() - loop.time())):
                        await ending.wait()
                except TimeoutError:
                    pass
                if quiet >= HEARTBEAT_SECONDS:
                    self._offer([HEARTBEAT])
                    quiet = 0.0
        finally:
            await self.polls.stop()

    def end(self) -> None:
        """End the streams of all viewers."""
        for viewer in self.viewers:
            viewer.close()

    def _feed(self) -> bool:
        """Feed all viewers once; whether there was anything."""
        now_ms, loop = wall_ms(self._clock), asyncio.get_running_loop()
        log_events = self.polls.take_events()
        second = now_ms // 1000
        news, self._second = second != self._second, second
        if news and loop.time() - self._lateness_at >= LATENESS_SECONDS:
            self._lateness, self._lateness_at = find_lateness(self.polls.nodes, LATENESS_MS), loop.time()
        span = SummarySpan(now_ms // 1000 * 1000)
        stall = find_stall(self.polls.nodes) if news else None
        numbers = describe_job(self.polls.nodes, self._lateness, span, stall) if news else None
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

    def _offer(self, events: list[bytes]) -> None:
        for viewer in self.viewers:
            viewer.offer(events)


class JobHub:
    """Feeds the viewers of jobs; a job without viewers is not read."""

    def __init__(self, parts: GatewayParts) -> None:
        self._parts = parts
        self._feeds: dict[Key, JobFeed] = {}

    def check(self, job: str, view: ViewKey) -> Key:
        """The job of a request for a stream.

        Raises:
            ProblemError: there is no such job, several schedulers have one, it has none of the nodes, or too many rows.
        """
        states = {state.name: state for state in self._parts.table.rows()}
        found = choose_job(states.values(), job)
        rows = choose_rows(found, states, view[1], rails=view[0])
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
        """Add a viewer that gets the batches from `resume_ms` on, or from now on.

        Raises:
            ProblemError: the maximum number of viewers is connected, and no client has more of them than this one.
        """
        self._parts.viewers.make_room(client)
        feed = self._feeds.get(job)
        if feed is None:
            feed = self._feeds[job] = JobFeed(self._parts, job, self._period)
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
        feed.end()

    def _period(self) -> float:
        """Time between two polls of a node in seconds."""
        polled = sum(len(feed.polls.nodes) for feed in self._feeds.values())
        return max(MIN_SECONDS, polled / POLLS_PER_SECOND)


def wall_ms(clock: Clock) -> int:
    """The clock of the gateway."""
    return clock.time_ns() // MILLISECOND_NS


def _log(events: list[dict[str, Any]]) -> bytes:
    return event("events", orjson.dumps({"events": events})) if events else b""
