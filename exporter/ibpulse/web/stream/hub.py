"""The viewers of the stream, and the one task that feeds all of them while there is a viewer."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from ibpulse.units import SECOND_NS
from ibpulse.web.parts import WebParts
from ibpulse.web.problems import ProblemError
from ibpulse.web.stream.events import END, HEARTBEAT, RETRY, dropped_event
from ibpulse.web.stream.feed import Feed

log = logging.getLogger(__name__)

# about ten seconds of events: what a viewer may fall behind
QUEUE_EVENTS = 64
HEARTBEAT_SECONDS = 10.0


class Viewer:
    """One client: the events that it has not taken yet. Not thread-safe; for the event loop alone."""

    def __init__(self, period_ns: int, first: Iterator[bytes], drop: Callable[[], None]) -> None:
        self.period_ns = period_ns
        self._first, self._drop = first, drop
        self._queue: deque[bytes] = deque()
        self._ready = asyncio.Event()
        self._dropped = 0
        self._ended = False

    def offer(self, events: Sequence[bytes]) -> None:
        """Queue events; the oldest are dropped when the viewer does not keep up."""
        for event in events:
            if len(self._queue) >= QUEUE_EVENTS:
                self._queue.popleft()
                self._dropped += 1
                self._drop()
            self._queue.append(event)
            self._ready.set()

    def restart(self, ports: bytes) -> None:
        """Begin again with other ports: what is queued is about those before, and is dropped."""
        for _ in self._queue:
            self._dropped += 1
            self._drop()
        self._queue.clear()
        self.offer([ports])

    def end(self) -> None:
        """Let the viewer take what is queued, and then no more."""
        self._ended = True
        self._ready.set()

    async def take(self) -> bytes:
        """All events that wait, joined; nothing when the stream has ended."""
        if not self._ended:
            for event in self._first:
                return event
        if not self._queue and not self._ended:
            self._ready.clear()
            await self._ready.wait()
        events = [dropped_event(self._dropped)] if self._dropped else []
        events += self._queue
        self._dropped = 0
        self._queue.clear()
        return b"".join(events)


class Hub:
    """Feeds up to `max_viewers` viewers from one task."""

    def __init__(self, parts: WebParts) -> None:
        self._parts = parts
        self._viewers: set[Viewer] = set()
        self._task: asyncio.Task[None] | None = None
        self._feed: Feed | None = None

    def join(self, period_ns: int, resume_tick: int | None) -> Viewer:
        """A new viewer that gets the ticks from `resume_tick` on, or those from now on.

        Raises:
            ProblemError: there are already as many viewers as may be.
        """
        limit = self._parts.limits.max_viewers
        if len(self._viewers) >= limit or self._parts.ending.is_set():
            raise ProblemError(
                "too-many-viewers",
                503,
                f"{limit} viewers watch the stream, and no more may. Close a page, or ask for "
                "/api/v1/window now and then.",
                bound={"name": "max_viewers", "limit": limit},
            )
        feed = self._started()
        first = self._first_events(feed, feed.next_tick if resume_tick is None else resume_tick, feed.next_tick)
        viewer = Viewer(period_ns, first, self._count_dropped)
        self._viewers.add(viewer)
        self._parts.counts.stream_viewers = len(self._viewers)
        return viewer

    def leave(self, viewer: Viewer) -> None:
        """Forget a viewer; the last one ends the task."""
        self._viewers.discard(viewer)
        self._parts.counts.stream_viewers = len(self._viewers)
        if not self._viewers and self._task is not None:
            self._task.cancel()
            self._task = self._feed = None

    def _started(self) -> Feed:
        if self._feed is None:
            self._feed = Feed(self._parts)
            self._task = asyncio.create_task(self._run(self._feed), name="stream")
        return self._feed

    @staticmethod
    def _first_events(feed: Feed, resume_tick: int, end_tick: int) -> Iterator[bytes]:
        yield RETRY + feed.ports + feed.summary
        yield from feed.resume(resume_tick, end_tick)

    async def _run(self, feed: Feed) -> None:
        try:
            await self._produce(feed)
        except Exception:
            log.exception("the stream failed; its viewers are let go")
        self._task = self._feed = None
        for viewer in self._viewers:
            viewer.offer([END])
            viewer.end()

    async def _produce(self, feed: Feed) -> None:
        quiet = 0.0
        while not self._parts.ending.is_set():
            period = min((viewer.period_ns for viewer in self._viewers), default=SECOND_NS) / SECOND_NS
            try:
                async with asyncio.timeout(period):
                    await self._parts.ending.wait()
            except TimeoutError:
                quiet = self._round(feed, quiet + period)

    def _round(self, feed: Feed, quiet: float) -> float:
        """Feed all viewers once; returns for how many seconds there has been no event."""
        if feed.refresh_ports():
            for viewer in self._viewers:
                viewer.restart(feed.ports)
        events = feed.advance()
        if not events and quiet >= HEARTBEAT_SECONDS:
            events = [HEARTBEAT]
        for viewer in self._viewers:
            viewer.offer(events)
        return 0.0 if events else quiet

    def _count_dropped(self) -> None:
        self._parts.counts.stream_dropped_events += 1
