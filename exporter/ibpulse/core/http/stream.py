"""Streams of server-sent events: their encoding, the viewers with what is queued for each, and the response."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import orjson
from fastapi import Header
from pydantic import WithJsonSchema
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ibpulse.base.units import MILLISECOND_NS, SECOND_NS
from ibpulse.core.answers.members import AnswerPart
from ibpulse.core.answers.samples import StreamDropped, StreamGap
from ibpulse.core.arrays import Floats
from ibpulse.core.http.admission import FullError, make_room, requesting_client
from ibpulse.core.http.application import HEAD
from ibpulse.core.http.problems import ProblemError
from ibpulse.core.metrics.web import WebCounts

BYTES_PER_MEGABYTE = 1e6
# reconnection delay of clients
RETRY = b"retry: 2000\n\n"
# a comment, which keeps proxies from closing a quiet connection
HEARTBEAT = b":\n\n"
END = b"event: end\ndata: {}\n\n"
# the newest of the log
MAX_LOG_EVENTS = 1000
# about ten seconds of messages, the longest that a viewer may fall behind
QUEUE_EVENTS = 64
# those of a gateway come from nodes, which may send long ones
QUEUE_BYTES = 4_000_000
HEARTBEAT_SECONDS = 10.0
MEDIA_TYPE = "text/event-stream"
LastEventId = Annotated[
    str | None,
    Header(alias="Last-Event-ID", description="Id of the last batch received; the stream continues after it."),
    WithJsonSchema({"type": "string", "pattern": "^[0-9]{1,18}$"}),
]


def event(name: str, data: bytes, identity: int | None = None) -> bytes:
    """One event; a client that reconnects sends the last `identity` it received."""
    head = b"" if identity is None else b"id: %d\n" % identity
    return b"%bevent: %b\ndata: %b\n\n" % (head, name.encode(), data)


def answer_event(name: str, data: AnswerPart) -> bytes:
    """One event with an answer as its data."""
    return event(name, data.encode_given())


def batch_event(
    last_tick: int,
    start_ns: int,
    bytes_per_second: Floats,
    merged: Sequence[tuple[int, int, int]],
    signals: Sequence[Mapping[str, Any]] | None = None,
) -> bytes:
    """The rates of some samples in whole MB/s, null for missing data; its identity is the last tick.

    `merged` are the places of merged samples: series, first sample, number of samples. `signals` are as in a window.
    The members of `StreamBatch` are written without one, which takes half the time: a batch comes ten times a second.
    """
    numbers = _whole_numbers(np.rint(bytes_per_second / BYTES_PER_MEGABYTE))
    more = b',"merged":%b' % orjson.dumps(merged) if merged else b""
    if signals is not None:
        more += b',"signals":%b' % orjson.dumps(signals, option=orjson.OPT_SERIALIZE_NUMPY)
    data = b'{"start_ms":%d,"megabytes_per_second":%b%b}' % (start_ns // MILLISECOND_NS, numbers, more)
    return event("batch", data, last_tick)


def _whole_numbers(values: Floats) -> bytes:
    """Values as JSON without fractions, null for NaN."""
    lost = np.isnan(values)
    if not lost.any():
        return orjson.dumps(values.astype(np.int32, order="C"), option=orjson.OPT_SERIALIZE_NUMPY)
    whole = np.where(lost, 0, values).astype(np.int32).astype(object)
    whole[lost] = None
    return orjson.dumps(whole.tolist())


def gap_event(start_ns: int, end_ns: int) -> bytes:
    """A requested time span that is too old to be sent."""
    span = StreamGap.model_construct(start_ms=start_ns // MILLISECOND_NS, end_ms=end_ns // MILLISECOND_NS)
    return answer_event("gap", span)


class Viewer:
    """One viewer and its queued events, after the `first`. Not thread-safe; use it only in the event loop.

    `followed` is what its hub knows its feed by. `counts` has the number of dropped events.
    """

    def __init__(
        self, first: Iterator[bytes], counts: WebCounts, period_ns: int = SECOND_NS, followed: object = None
    ) -> None:
        self._first, self._counts = first, counts
        self.period_ns, self.followed = period_ns, followed
        self._ports = b""
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._ready = asyncio.Event()
        self._dropped = 0
        self._ended = False

    def offer(self, events: Sequence[bytes]) -> None:
        """Queue events; drops the oldest if the viewer does not keep up."""
        for event in events:
            while self._queue and (len(self._queue) >= QUEUE_EVENTS or self._queued_bytes + len(event) > QUEUE_BYTES):
                self._queued_bytes -= len(self._queue.popleft())
                self._drop(1)
            self._queue.append(event)
            self._queued_bytes += len(event)
            self._ready.set()

    def update(self, ports: bytes) -> None:
        """Tell the viewer other states of the same ports before the queued events; none of them is dropped."""
        self._ports = ports
        self._ready.set()

    def restart(self, ports: bytes) -> None:
        """Start over with other ports; drops queued events, which describe the old ones."""
        self._drop(len(self._queue))
        self._queue.clear()
        self._queued_bytes = 0
        self.update(ports)

    def end(self) -> None:
        """Close the queue; the viewer can still take queued events."""
        self._ended = True
        self._ready.set()

    def close(self) -> None:
        """End the stream with the event `end`."""
        self.offer([END])
        self.end()

    async def take(self) -> bytes:
        """Wait for events and return all of them, joined; empty after the end of the stream."""
        if not self._ended:
            for event in self._first:
                return event
        if not self._queue and not self._ports and not self._ended:
            self._ready.clear()
            await self._ready.wait()
        events = [self._ports, *self._queue]
        if self._dropped:
            events = [answer_event("dropped", StreamDropped.model_construct(events=self._dropped)), *events]
        self._ports, self._dropped = b"", 0
        self._queue.clear()
        self._queued_bytes = 0
        return b"".join(events)

    def _drop(self, events: int) -> None:
        self._dropped += events
        self._counts.stream_dropped_events += events


class Viewers:
    """The viewers of all streams of a server: up to `limit`, the oldest first; `counts` has their number."""

    def __init__(self, counts: WebCounts, limit: int, ending: asyncio.Event) -> None:
        self._counts, self._limit, self._ending = counts, limit, ending
        self._viewers: dict[Viewer, str] = {}

    def __iter__(self) -> Iterator[Viewer]:
        return iter(self._viewers)

    def make_room(self, client: str) -> None:
        """Make room for a viewer of a client: if there is none, the newest of the client with most viewers ends."""
        try:
            if self._ending.is_set():
                raise FullError
            dropped = make_room(self._viewers, self._limit, client)
        except FullError:
            raise ProblemError(
                "too-many-viewers",
                503,
                f"{self._limit} viewers are connected to the stream, which is the maximum. Close a page, or poll "
                "/api/v1/window instead.",
                bound={"name": "max_viewers", "limit": self._limit},
            ) from None
        if dropped is not None:
            dropped.close()

    def add(self, viewer: Viewer, client: str) -> None:
        """Add a viewer, for which there is room."""
        self._viewers[viewer] = client
        self._counts.stream_viewers = len(self._viewers)

    def remove(self, viewer: Viewer) -> None:
        """Remove a viewer, however it ended."""
        self._viewers.pop(viewer, None)
        self._counts.stream_viewers = len(self._viewers)


class EventStream(Response):
    """The response: `join` gets the address of the client when it is sent, and `leave` the viewer however it ends."""

    media_type = MEDIA_TYPE

    def __init__(self, join: Callable[[str], Viewer], leave: Callable[[Viewer], None]) -> None:
        # makes buffering proxies pass on events immediately (nginx reads X-Accel-Buffering)
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._join, self._leave = join, leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the client disconnects, another takes its place, or the server stops."""
        if scope.get(HEAD):
            await self._begin(send)
            await send({"type": "http.response.body", "body": b""})
            return
        viewer = self._join(requesting_client(scope))
        leaving = asyncio.create_task(_wait_for_leave(receive, viewer))
        try:
            await self._begin(send)
            while events := await viewer.take():
                await send({"type": "http.response.body", "body": events, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._leave(viewer)
            leaving.cancel()

    async def _begin(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})


async def _wait_for_leave(receive: Receive, viewer: Viewer) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    viewer.end()
