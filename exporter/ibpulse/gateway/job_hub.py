"""The viewers of jobs: one task per job reads its nodes, and encodes each choice of rows once for all its viewers."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Iterator
from time import time_ns

import orjson

from ibpulse.fleet.lateness import Lateness
from ibpulse.gateway.job_nodes import choose_job, rows_of
from ibpulse.gateway.job_polls import JobPolls
from ibpulse.gateway.job_summary import find_lateness
from ibpulse.gateway.job_view import WAIT_MS, JobView, check_rows
from ibpulse.gateway.parts import GatewayParts
from ibpulse.jobs.claims import Key
from ibpulse.units import MILLISECOND_NS, SECOND_NS
from ibpulse.web.stream.hub import HEARTBEAT_SECONDS, Viewer, make_room
from ibpulse.web.stream.messages import END, HEARTBEAT, RETRY, event, gap_event

log = logging.getLogger(__name__)

# which rows: whether rails, and of which nodes
ViewKey = tuple[bool, tuple[str, ...]]
LATENESS_MS = 10_000
LATENESS_SECONDS = 2.0
# the first poll reads so much of the past
FIRST_PAST_MS = 10_000


class JobFeed:
    """A job that is viewed: its nodes, its choices of rows, and who views which."""

    def __init__(self, parts: GatewayParts, key: Key) -> None:
        self._version = parts.version
        self.polls = JobPolls(parts, key)
        self.views: dict[ViewKey, JobView] = {}
        self.viewers: dict[Viewer, ViewKey] = {}
        self.task: asyncio.Task[None] | None = None
        self._lateness: dict[str, Lateness] = {}
        self._lateness_at = 0.0
        self._second = 0

    def first_events(self, view: ViewKey, resume_ms: int | None) -> Iterator[bytes]:
        """What a new viewer receives before the batches that all viewers receive."""
        now_ms = wall_ms()
        known = self.views.get(view)
        if known is None:
            oldest = now_ms - WAIT_MS - FIRST_PAST_MS
            # the first poll reads this past, so it comes with the first batches
            begin = now_ms - WAIT_MS if resume_ms is None else min(max(resume_ms, oldest), now_ms - WAIT_MS)
            rails, nodes = view
            known = JobView(self.polls, nodes, rails=rails, version=self._version, begin_ms=begin)
            self.views[view] = known
            too_old = resume_ms is not None and resume_ms < oldest
            past = [gap_event(resume_ms * MILLISECOND_NS, begin * MILLISECOND_NS)] if resume_ms and too_old else []
            return iter([b"".join((RETRY, known.rows, *past))])
        return _replay(known, RETRY + known.rows + _log(list(self.polls.events)) + known.summary, resume_ms)

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
                    await asyncio.wait(tasks, timeout=self.polls.period_seconds)
                quiet = 0.0 if self._feed() else quiet + loop.time() - begin
                try:
                    async with asyncio.timeout(max(0.0, begin + self.polls.period_seconds - loop.time())):
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
            viewer.offer([END])
            viewer.end()

    def _feed(self) -> bool:
        """Feed all viewers once; whether there was anything."""
        now_ms, loop = wall_ms(), asyncio.get_running_loop()
        log_events = self.polls.take_events()
        second = now_ms // 1000
        news, self._second = second != self._second, second
        if news and loop.time() - self._lateness_at >= LATENESS_SECONDS:
            self._lateness, self._lateness_at = find_lateness(self.polls.nodes, LATENESS_MS), loop.time()
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
            events += [view.describe_second(self._lateness, now_ms)] if news else []
            for viewer in viewers:
                viewer.offer(events)
            fed = fed or bool(events)
        return fed

    def _offer(self, events: list[bytes]) -> None:
        for viewer in self.viewers:
            viewer.offer(events)


class JobHub:
    """Feeds up to `max_viewers` viewers of jobs; a job without viewers is not read."""

    def __init__(self, parts: GatewayParts) -> None:
        self._parts = parts
        # the oldest first
        self._viewers: dict[Viewer, None] = {}
        self._feeds: dict[Key, JobFeed] = {}
        # those of nodes are counted elsewhere
        self._counted = 0

    def check(self, job: str, view: ViewKey) -> Key:
        """The job of a request for a stream.

        Raises:
            ProblemError: there is no such job, several schedulers have one, or it has too many rows.
        """
        states = {state.name: state for state in self._parts.table.rows()}
        found = choose_job(states.values(), job)
        check_rows(rows_of(found, states, view[1], rails=view[0]))
        return found.key

    def join(self, client: str, job: Key, view: ViewKey, resume_ms: int | None) -> Viewer:
        """Add a viewer that gets the batches from `resume_ms` on, or from now on.

        Raises:
            ProblemError: the maximum number of viewers is connected, and no client has more of them than this one.
        """
        others = self._parts.counts.stream_viewers - self._counted
        limit = self._parts.limits.max_viewers - others
        make_room(self._viewers, client, limit, ending=self._parts.ending.is_set())
        feed = self._feeds.get(job)
        if feed is None:
            feed = self._feeds[job] = JobFeed(self._parts, job)
            feed.task = asyncio.create_task(self._run(job, feed), name="job stream")
        first = feed.first_events(view, resume_ms)
        viewer = Viewer(client, SECOND_NS, first, self._count_dropped)
        self._viewers[viewer] = None
        feed.viewers[viewer] = view
        self._count_viewers()
        return viewer

    def leave(self, viewer: Viewer) -> None:
        """Remove a viewer; the last one of a job stops its task."""
        self._viewers.pop(viewer, None)
        self._count_viewers()
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

    def _count_viewers(self) -> None:
        self._parts.counts.stream_viewers += len(self._viewers) - self._counted
        self._counted = len(self._viewers)

    def _count_dropped(self) -> None:
        self._parts.counts.stream_dropped_events += 1


def wall_ms() -> int:
    """The clock of the gateway."""
    return time_ns() // MILLISECOND_NS


def _replay(view: JobView, first: bytes, resume_ms: int | None) -> Iterator[bytes]:
    """The first events of a viewer of rows that others view; its batches end where theirs continue."""
    return itertools.chain([first], () if resume_ms is None else list(view.resume(resume_ms, view.sent_ms)))


def _log(events: list[dict[str, object]]) -> bytes:
    return event("events", orjson.dumps({"events": events})) if events else b""
