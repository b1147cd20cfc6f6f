"""Requests to nodes: one, many in parallel within a time, the figures in their metrics, and their streams."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ibpulse.base.errors import DaemonError
from ibpulse.core.answers.members import NOT_OURS, AnswerPart, Part, read_members
from ibpulse.core.answers.samples import EVENTS
from ibpulse.core.client.transport import MAX_BYTES, SECONDS, HttpPeer, NodeAccess, PeerAnswer, Query, read_answer
from ibpulse.gateway.nodes.targets import Target

T = TypeVar("T")
MAX_PARALLEL = 64
PAGE_SECONDS = 2.0
ANSWERED = "answered"
GONE = "its source no longer lists it"
MakePeer = Callable[[str, NodeAccess], HttpPeer]
# 256 bytes for each of 1024 rails
MAX_FIGURES_BYTES = 300_000
_VERSION = re.compile(rb'^ibpulse_build_info\{[^\n]*?\bversion="([0-9A-Za-z.+-]{1,40})"', re.MULTILINE)
_RAILS = re.compile(rb"^ibpulse_port_rail_(idle|slow)\{([^}\n]{1,500})\} 1(?:\.0)?$", re.MULTILINE)
_DEVICE, _PORT = re.compile(rb'\bdevice="([A-Za-z0-9_.-]{1,64})"'), re.compile(rb'\bport="([0-9]{1,3})"')
STREAM_TYPE = "text/event-stream"
MAX_EVENT_BYTES = 4_000_000


class Node:
    """A node that can be asked, with the access to it; requests with one semaphore share a limit."""

    def __init__(
        self,
        target: Target,
        access: NodeAccess,
        parallel: asyncio.Semaphore,
        peer: HttpPeer | None = None,
        outcomes: Counter[str] | None = None,
        make_peer: MakePeer = HttpPeer,
    ) -> None:
        self._make_peer = make_peer
        self.target = target
        self.access = access
        self._peer = peer or make_peer(target.url, access)
        self._parallel = parallel
        self._outcomes = Counter() if outcomes is None else outcomes

    def limited_by(self, parallel: asyncio.Semaphore) -> Node:
        """This node and its connections, with another limit."""
        return Node(self.target, self.access, parallel, self._peer, self._outcomes, self._make_peer)

    @property
    def name(self) -> str:
        """The name of the node."""
        return self.target.name

    async def post(self, path: str, content: bytes, *, seconds: float = SECONDS) -> PeerAnswer:
        """The answer of the node to a POST request with JSON, which is sent once only.

        Raises:
            DaemonError: there is no answer, it is too long, or the node refuses.
        """
        async with self._peer.places, self._parallel:
            with self._counted():
                return await self._peer.post(path, content, seconds=seconds)

    async def get(
        self, path: str, query: Query = (), *, max_bytes: int = MAX_BYTES, seconds: float = SECONDS
    ) -> PeerAnswer:
        """The answer of the node, in at most this many seconds after a place is free.

        Raises:
            DaemonError: there is no answer, it is too long, or the node refuses.
        """
        async with self._peer.places, self._parallel:
            with self._counted():
                return await self._peer.get(path, query, max_bytes=max_bytes, seconds=seconds)

    async def stream(
        self, path: str, query: Query, media_type: str, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[bytes, None]:
        """The parts of an answer without an end, on a connection of its own, so that no other request waits for it.

        Raises:
            DaemonError: it does not begin in time, breaks off, is of another media type, or the node refuses.
        """
        peer = self._make_peer(self.target.url, self.access)
        try:
            async with aclosing(peer.stream(path, query, media_type, headers)) as parts:
                with self._counted():
                    first = await anext(parts, b"")
                yield first
                async for part in parts:
                    yield part
        finally:
            await peer.close()

    async def close(self) -> None:
        """Refuse later requests, and close the connections as soon as no request runs."""
        await self._peer.close()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Count how a request ends; a cancelled one does not count."""
        try:
            yield
        except DaemonError as error:
            self._outcomes[error.kind] += 1
            raise
        self._outcomes[ANSWERED] += 1


async def ask_node(node: Node, model: type[Part], path: str, query: Query = (), max_bytes: int = MAX_BYTES) -> Part:
    """The checked answer of a node at a path.

    Raises:
        DaemonError: there is no answer, the node refuses, or the answer is not the expected one.
    """
    return read_answer(model, await node.get(path, query, max_bytes=max_bytes))


Ask = Callable[[Node], Awaitable[T]]


@dataclass(slots=True)
class FleetAnswers(Generic[T]):
    """Answers by the name of the node, and for each node without one the reason as a sentence."""

    answers: dict[str, T] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


class Nodes:
    """The nodes of the discovery, with their connections, which last as long as the node stays the same."""

    def __init__(self, make_peer: MakePeer = HttpPeer) -> None:
        self._make_peer = make_peer
        self._nodes: dict[str, Node] = {}
        self._parallel = asyncio.Semaphore(MAX_PARALLEL)
        self._closing: set[asyncio.Task[None]] = set()
        self.outcomes: Counter[str] = Counter()
        """The number of requests to nodes by how they ended, or streams began: `answered`, or the kind of the error."""

    def __len__(self) -> int:
        return len(self._nodes)

    def all(self) -> tuple[Node, ...]:
        """All nodes, in the order of the discovery."""
        return tuple(self._nodes.values())

    def get(self, name: str) -> Node | None:
        """A node by name."""
        return self._nodes.get(name)

    def update(self, targets: Iterable[Target], access: NodeAccess) -> None:
        """Keep the nodes that are listed unchanged, if their access is the same; add and close others."""
        old, self._nodes = self._nodes, {}
        for target in targets:
            known = old.get(target.name)
            if known and known.access is access and known.target.url == target.url:
                known.target = target
                self._nodes[target.name] = old.pop(target.name)
            else:
                self._nodes[target.name] = Node(
                    target, access, self._parallel, outcomes=self.outcomes, make_peer=self._make_peer
                )
        for node in old.values():
            task = asyncio.create_task(node.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close all connections."""
        self.update((), NodeAccess())
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def ask_each(
        self, nodes: Iterable[Node], ask: Ask[T], seconds: float = PAGE_SECONDS
    ) -> AsyncIterator[tuple[Node, T | DaemonError]]:
        """Each node with its answer or the reason for having none, as they come, in at most this many seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        tasks = {asyncio.ensure_future(_ask(ask, node)): node for node in nodes}
        waiting = set(tasks)
        try:
            while waiting:
                done, waiting = await asyncio.wait(
                    waiting, timeout=max(0.0, deadline - loop.time()), return_when=asyncio.FIRST_COMPLETED
                )
                # a set has another order in every process
                for task in sorted(done, key=lambda task: tasks[task].name):
                    yield tasks[task], task.result()
                if not done:
                    break
            for task in waiting:
                yield tasks[task], DaemonError(f"no answer within the {seconds:g} s of the whole request")
        finally:
            for task in waiting:
                task.cancel()
            if waiting:
                await asyncio.wait(waiting)

    def choose(self, names: Iterable[str]) -> tuple[list[Node], dict[str, str]]:
        """Nodes by name, and the reason for those that are no longer listed."""
        found = {name: self._nodes.get(name) for name in names}
        missing = {name: GONE for name, node in found.items() if node is None}
        return [node for node in found.values() if node is not None], missing

    async def ask_all(self, nodes: Iterable[Node], ask: Ask[T]) -> FleetAnswers[T]:
        """All answers within `PAGE_SECONDS`, and the reasons of nodes without one."""
        found: FleetAnswers[T] = FleetAnswers()
        async for node, answer in self.ask_each(nodes, ask):
            if isinstance(answer, DaemonError):
                found.missing[node.name] = str(answer)
            else:
                found.answers[node.name] = answer
        return found


async def _ask(ask: Ask[T], node: Node) -> T | DaemonError:
    """The answer, or the error as a value: asyncio logs exceptions of tasks that are never retrieved."""
    try:
        return await ask(node)
    except DaemonError as error:
        return error


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """Figures that only metrics have: the version, None if it is not exported, and the rails that are idle or slow."""

    version: str | None
    idle: tuple[str, ...] = ()
    slow: tuple[str, ...] = ()


FIGURES = [("name[]", f"ibpulse_{name}") for name in ("build_info", "port_rail_idle", "port_rail_slow")]


async def ask_figures(node: Node) -> NodeFigures:
    """The figures of a node that only its metrics have.

    Raises:
        DaemonError: there is no answer, or the node refuses.
    """
    body = (await node.get("/metrics", FIGURES, max_bytes=MAX_FIGURES_BYTES)).body
    version = _VERSION.search(body)
    known = version[1].decode() if version else None
    return NodeFigures(known, _find_rails(body, b"idle"), _find_rails(body, b"slow"))


def _find_rails(body: bytes, word: bytes) -> tuple[str, ...]:
    places = ((_DEVICE.search(labels), _PORT.search(labels)) for said, labels in _RAILS.findall(body) if said == word)
    return tuple(f"{device[1].decode()}:{port[1].decode()}" for device, port in places if device and port)


async def read_events(
    content: AsyncIterator[bytes],
) -> AsyncGenerator[tuple[str, int | None, AnswerPart] | None, None]:
    """Name, id and checked data of each event in the body of a stream; None for a comment. Unknown events are dropped.

    Raises:
        DaemonError: an event is too long, or its data is not as expected.
    """
    rest = bytearray()
    async for part in content:
        # the mark may begin in the part before
        looked = max(0, len(rest) - 1)
        rest += part
        while (end := rest.find(b"\n\n", looked)) >= 0:
            text, looked = bytes(rest[:end]), 0
            del rest[: end + 2]
            found = _read_event(text)
            if found is not None or text.startswith(b":"):
                yield found
        if len(rest) > MAX_EVENT_BYTES:
            raise DaemonError(f"an event of its stream is longer than {MAX_EVENT_BYTES} bytes", kind="bad-answer")


def _read_event(text: bytes) -> tuple[str, int | None, AnswerPart] | None:
    fields = {name: value for name, _, value in (line.partition(b": ") for line in text.split(b"\n"))}
    name = fields.get(b"event", b"").decode("ascii", "replace")
    model = EVENTS.get(name)
    if model is None:
        return None
    identity = fields.get(b"id")
    if identity is not None and not (identity.isdigit() and len(identity) <= 18):
        raise DaemonError(f"the id of an event of its stream is not a number; {NOT_OURS}", kind="bad-answer")
    return name, None if identity is None else int(identity), read_members(model, fields.get(b"data", b""))
