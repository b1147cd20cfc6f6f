"""The stream of a node, read once for all its viewers, and the part of it that a viewer gets who joins later."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import aclosing

import orjson

from ibpulse.base.errors import DaemonError
from ibpulse.core.answers.members import AnswerPart
from ibpulse.core.answers.samples import StreamBatch, StreamEvents, StreamPorts, StreamSummary
from ibpulse.core.http.stream import HEARTBEAT, MAX_LOG_EVENTS, RETRY, Viewer, event
from ibpulse.gateway.nodes.nodes import PAGE_SECONDS, Node
from ibpulse.gateway.nodes.stream_answers import STREAM_TYPE, read_events

# of the batches of a minute, eight ports at 10 ms have half of it
KEPT_BYTES = 1_000_000
MAX_BATCHES = 600


class Recent:
    """The newest texts of at most `max_items` and `KEPT_BYTES` together, each with the id of its event or 0."""

    def __init__(self, max_items: int) -> None:
        self._max_items, self._bytes = max_items, 0
        self.items: deque[tuple[int, bytes]] = deque()
        self.complete = True
        """Whether nothing was dropped since the last `clear`."""

    def add(self, text: bytes, identity: int = 0) -> None:
        """Add a text, and drop the oldest ones that are too many."""
        self.items.append((identity, text))
        self._bytes += len(text)
        while len(self.items) > self._max_items or self._bytes > KEPT_BYTES:
            self._bytes -= len(self.items.popleft()[1])
            self.complete = False

    def clear(self, *, complete: bool = True) -> None:
        """Drop all."""
        self.items.clear()
        self._bytes, self.complete = 0, complete


class NodeFeed:
    """A stream of a node as it is asked for with some parameters, from `last_id` on if that is given."""

    def __init__(self, node: Node, query: Sequence[tuple[str, str]], last_id: str, version: str) -> None:
        self._node, self._query, self._last_id, self._version = node, query, last_id, version
        self.viewers: set[Viewer] = set()
        self.task: asyncio.Task[None] | None = None
        self.failure: DaemonError | None = None
        self._settled, self._began = asyncio.Event(), False
        self._names: list[str] = []
        self._ports = self._summary = b""
        self._log, self._batches = Recent(MAX_LOG_EVENTS), Recent(MAX_BATCHES)

    async def wait(self) -> None:
        """Wait for the first event.

        Raises:
            DaemonError: the node refuses, does not answer, or sends something else.
        """
        try:
            async with asyncio.timeout(PAGE_SECONDS):
                await self._settled.wait()
        except TimeoutError:
            raise DaemonError(f"no event within {PAGE_SECONDS:g} s") from None
        if not self._began:
            raise self.failure or DaemonError("its stream ended before its first event")

    def continues(self, last_id: str) -> bool:
        """Whether a viewer who got the batches up to `last_id` can have the next ones here."""
        if not last_id:
            return True
        known = (str(identity) for identity, _ in self._batches.items)
        return (last_id == self._last_id and self._batches.complete) or last_id in known

    def first_events(self, last_id: str) -> Iterator[bytes]:
        """What a new viewer gets before the events that all viewers get."""
        logged = b",".join(text for _, text in self._log.items)
        entries = event("events", b'{"events":[%b]}' % logged) if logged else b""
        batches = list(self._batches.items) if last_id else []
        known = [number for number, (identity, _) in enumerate(batches, 1) if str(identity) == last_id]
        following = batches[known[-1] if known else 0 :]
        return itertools.chain([RETRY + self._ports + entries + self._summary], (text for _, text in following))

    async def read(self) -> None:
        """Read the stream until it ends, and offer its events to the viewers.

        Raises:
            DaemonError: the node refuses, does not answer, or sends something else.
        """
        headers = {"Last-Event-ID": self._last_id} if self._last_id else {}
        stream = self._node.stream("/api/v1/stream", self._query, STREAM_TYPE, headers)
        async with aclosing(stream) as content, aclosing(read_events(content)) as events:
            async for found in events:
                if found is None:
                    self._offer(HEARTBEAT)
                    continue
                name, identity, data = found
                if name == "end":
                    return
                self._take(name, identity, data)
                self._began = True
                self._settled.set()

    def end(self) -> None:
        """End the streams of all viewers."""
        self._settled.set()
        for viewer in self.viewers:
            viewer.close()

    def _take(self, name: str, identity: int | None, data: AnswerPart) -> None:
        members = data.model_dump(exclude_unset=True)
        if isinstance(data, StreamPorts):
            members["gateway_version"] = self._version
        text = event(name, orjson.dumps(members), identity)
        if isinstance(data, StreamPorts):
            self._lay_out(text, [port.port for port in data.ports])
            return
        if isinstance(data, StreamBatch):
            self._batches.add(text, identity or 0)
        elif isinstance(data, StreamSummary):
            self._summary = text
        elif isinstance(data, StreamEvents):
            for entry in members["events"]:
                self._log.add(orjson.dumps(entry))
        elif name == "gap":
            self._batches.complete = False
        self._offer(text)

    def _lay_out(self, text: bytes, names: list[str]) -> None:
        """Other ports, or other states of the same ones."""
        others, self._names, self._ports = names != self._names, names, text
        if others:
            # without any, it is the first event
            self._batches.clear(complete=not self._batches.items)
        for viewer in self.viewers:
            if others:
                viewer.restart(text)
            else:
                viewer.update(text)

    def _offer(self, text: bytes) -> None:
        for viewer in self.viewers:
            viewer.offer([text])
