"""The data of one node below `/node/NAME/api/v1/`, fetched from it and validated; its stream is shared by viewers."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, nullcontext
from dataclasses import dataclass
from typing import Annotated

import orjson
from fastapi import APIRouter, Header, Request
from starlette.responses import Response

from ibpulse.base.errors import DaemonError
from ibpulse.base.internal_errors import Occurrences, find_cause
from ibpulse.core.answers.jobs import CapturesAnswer, JobsAnswer
from ibpulse.core.answers.members import AnswerPart
from ibpulse.core.answers.node import ClockAnswer, EventsAnswer, LimitsAnswer, PortsAnswer, TopologyAnswer
from ibpulse.core.answers.samples import NPY_TYPE, StreamBatch, StreamEvents, StreamPorts, StreamSummary
from ibpulse.core.answers.summary import SummaryAnswer
from ibpulse.core.captures import MEDIA_TYPE, TRACE_TYPE, parse_name, trace_file
from ibpulse.core.client import transport
from ibpulse.core.http.admission import ParallelRequests, requesting_client
from ibpulse.core.http.application import HEAD
from ibpulse.core.http.problems import ProblemError, bad_parameter, operation, text
from ibpulse.core.http.stream import HEARTBEAT, MAX_LOG_EVENTS, RETRY, EventStream, Viewer, event
from ibpulse.gateway.nodes.requests import PAGE_SECONDS, STREAM_TYPE, Node, read_events
from ibpulse.gateway.parts import GatewayParts

API = "/node/{name}/api/v1/"
PARQUET_MARK, TRACE_MARK = b"PAR1", b"\n"
MAX_WINDOW_BYTES, MAX_CAPTURE_BYTES = 16_000_000, 32_000_000
CAPTURE_SECONDS = 10.0
# answers of this size are in memory twice
MAX_LARGE = 4
# of the batches of a minute, eight ports at 10 ms have half of it
KEPT_BYTES = 1_000_000
MAX_BATCHES = 600
_EVENTS = text("The events.", STREAM_TYPE)
_REFUSED = (404, 422, 502, 503, 504)


@dataclass(frozen=True, slots=True)
class NodeResource:
    """A path of the API of a node, its operation, what is there as a sentence, and how its answer is read."""

    path: str
    operation: str
    sentence: str
    read: Callable[[transport.PeerAnswer, str], Response]
    repeatable: tuple[str, ...] = ()
    max_bytes: int = transport.MAX_BYTES


def find_node(parts: GatewayParts, name: str) -> Node:
    """The node of a path.

    Raises:
        ProblemError: no source lists it.
    """
    node = parts.nodes.get(name)
    if node is None:
        raise ProblemError("unknown-node", 404, f"No such node: {name[:64]!r}. See /api/v1/nodes for those that exist.")
    return node


def node_problem(node: Node, error: DaemonError) -> ProblemError:
    """The error for a node that does not give what was asked for."""
    if error.status in (404, 422, 503):
        # the node serves, but not this request
        return ProblemError("node-refused", error.status, f"{node.name}: {error}", node=node.name)
    kinds = {"no-answer": ("no-answer", 504), "refused": ("node-refused", 502), "bad-answer": ("bad-answer", 502)}
    kind, status = kinds[error.kind]
    return ProblemError(kind, status, f"{node.name}: {error}", node=node.name)


def _passes(model: type[AnswerPart]) -> Callable[[transport.PeerAnswer, str], Response]:
    def read(answer: transport.PeerAnswer, _: str) -> Response:
        # what this node did not send, such as the job of a query without one, is not in the answer either
        return Response(transport.read_answer(model, answer).encode_given(), media_type=transport.JSON_TYPE)

    return read


def _window(answer: transport.PeerAnswer, wanted: str) -> Response:
    if wanted == "npy":
        body, about = transport.read_array(answer).encode()
        return Response(body, media_type=NPY_TYPE, headers={transport.WINDOW_HEADER: about})
    if wanted == "grafana":
        # only Grafana's server reads it, and takes it as data
        return Response(transport.read_json(answer), media_type=transport.JSON_TYPE)
    return Response(transport.read_window(answer).encode_given(), media_type=transport.JSON_TYPE)


def _captures(answer: transport.PeerAnswer, _: str) -> Response:
    found = transport.read_answer(CapturesAnswer, answer)
    # the addresses are those on the node itself
    without_url = {"__all__": {"url"}}
    return Response(
        found.model_dump_json(exclude={"captures": without_url, "pending": without_url}), media_type=transport.JSON_TYPE
    )


RESOURCES = (
    NodeResource(
        "ports",
        "list_node_ports",
        "Every port of the node: identity, state, and files of its byte counters.",
        _passes(PortsAnswer),
    ),
    NodeResource(
        "topology",
        "get_node_topology",
        "The devices of the node with their PCIe links, and its GPUs.",
        _passes(TopologyAnswer),
    ),
    NodeResource(
        "jobs", "list_node_jobs", "The jobs of the node and the ports that carry their traffic.", _passes(JobsAnswer)
    ),
    NodeResource(
        "events", "list_node_events", "What happened on the node and when.", _passes(EventsAnswer), ("kind", "port")
    ),
    NodeResource("summary", "get_node_summary", "All statistics of one span of whole seconds.", _passes(SummaryAnswer)),
    NodeResource("limits", "get_node_limits", "Signs of what limited the rails of the node.", _passes(LimitsAnswer)),
    NodeResource("captures", "list_node_captures", "The captures of the node.", _captures),
    NodeResource("clock", "get_node_clock", "The wall clock of the node.", _passes(ClockAnswer)),
    NodeResource(
        "window",
        "get_node_window",
        "Rates of single samples, or of bins of samples.",
        _window,
        ("port",),
        MAX_WINDOW_BYTES,
    ),
)


def node_router(parts: GatewayParts) -> APIRouter:
    """The routes of the data of a node. Parameters are those of the daemon, which judges them."""
    router = APIRouter()
    large = ParallelRequests(MAX_LARGE, "windows or captures of nodes are already being read")
    for resource in RESOURCES:
        router.add_api_route(
            API + resource.path,
            _answer_with(parts, resource, large),
            **operation(resource.operation, None, *_REFUSED, repeatable=resource.repeatable),
            description=resource.sentence,
        )

    @router.get(API + "captures/{file}", **operation("download_node_capture", None, 404, 502, 503, 504))
    async def download(request: Request, name: str, file: str) -> Response:
        """A finished capture, as Parquet or for Perfetto."""
        node, traced = find_node(parts, name), request.query_params.get("format") == "perfetto"
        if parse_name(file) is None:
            raise ProblemError("unknown-capture", 404, f"No such capture: {file[:64]!r}.")
        async with large.place(request):
            try:
                path = f"/api/v1/captures/{file}"
                query = request.query_params.multi_items()
                body = (await node.get(path, query, max_bytes=MAX_CAPTURE_BYTES, seconds=CAPTURE_SECONDS)).body
            except DaemonError as error:
                raise node_problem(node, error) from error
            mark, media = (TRACE_MARK, TRACE_TYPE) if traced else (PARQUET_MARK, MEDIA_TYPE)
            if not body.startswith(mark) or not (traced or body.endswith(mark)):
                raise node_problem(node, DaemonError("its answer is not a capture", kind="bad-answer"))
            saved = trace_file(file) if traced else file
            headers = {"Content-Disposition": f'attachment; filename="{saved}"'}
            return Response(body, media_type=media, headers=headers)

    return router


def _answer_with(
    parts: GatewayParts, resource: NodeResource, large: ParallelRequests
) -> Callable[[str, Request], Awaitable[Response]]:
    async def answer(name: str, request: Request) -> Response:
        node = find_node(parts, name)
        if resource.path == "window" and request.query_params.get("format") == "csv":
            raise bad_parameter("format", "only the node itself answers with csv; choose json, npy or grafana")
        query = request.query_params.multi_items()
        async with large.place(request) if resource.max_bytes > transport.MAX_BYTES else nullcontext():
            try:
                path = f"/api/v1/{resource.path}"
                found = await node.get(path, query, max_bytes=resource.max_bytes, seconds=PAGE_SECONDS)
                return resource.read(found, request.query_params.get("format", "json"))
            except DaemonError as error:
                raise node_problem(node, error) from error

    return answer


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
        """The events that a new viewer gets before the events for all viewers."""
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


log = logging.getLogger(__name__)

Query = tuple[tuple[str, str], ...]


def node_stream_router(parts: GatewayParts) -> APIRouter:
    """The route of the stream of a node."""
    router = APIRouter()
    hub = NodeHub(parts)

    @router.get(API + "stream", **operation("get_node_stream", _EVENTS, *_REFUSED, repeatable=()))
    async def stream(
        name: str, request: Request, last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None
    ) -> Response:
        """The stream of the node; its event `ports` has `gateway_version` in addition."""
        node = find_node(parts, name)
        client = requesting_client(request.scope)
        if request.scope.get(HEAD):
            # an answer to HEAD needs no viewer
            return Response(media_type=STREAM_TYPE)
        last_id = (last_event_id or "")[:64]
        # httpx refuses other characters in headers; the node judges the rest
        last_id = last_id if last_id.isascii() and last_id.isprintable() else ""
        viewer = await hub.join(client, node, tuple(request.query_params.multi_items()), last_id)
        return EventStream(lambda _: viewer, hub.leave)

    return router


class NodeHub:
    """Reads the streams of nodes that have viewers. Viewers who ask a node the same share one."""

    def __init__(self, parts: GatewayParts) -> None:
        self._parts = parts
        self._shared: dict[tuple[Node, Query], NodeFeed] = {}
        self._feeds: dict[Viewer, NodeFeed] = {}
        self._failures = Occurrences()

    async def join(self, client: str, node: Node, query: Query, last_id: str) -> Viewer:
        """Add a viewer of a node, once its stream has begun."""
        self._parts.viewers.make_room(client)
        feed = self._find(node, query, last_id)
        viewer = Viewer(feed.first_events(last_id), self._parts.counts)
        self._parts.viewers.add(viewer, client)
        feed.viewers.add(viewer)
        self._feeds[viewer] = feed
        try:
            await feed.wait()
        except BaseException as error:
            self.leave(viewer)
            if isinstance(error, DaemonError):
                raise node_problem(node, error) from error
            raise
        return viewer

    def leave(self, viewer: Viewer) -> None:
        """Remove a viewer; the last one of a stream ends it."""
        self._parts.viewers.remove(viewer)
        feed = self._feeds.pop(viewer)
        feed.viewers.discard(viewer)
        if not feed.viewers and feed.task is not None:
            self._forget(feed)
            feed.task.cancel()

    def _find(self, node: Node, query: Query, last_id: str) -> NodeFeed:
        """The stream that a viewer shares, or a new one."""
        known = self._shared.get((node, query))
        if known is not None and known.continues(last_id):
            return known
        feed = NodeFeed(node, query, last_id, self._parts.version)
        # the past of another time is only for who asks for it
        if known is None and not any(name == "from" for name, _ in query):
            self._shared[node, query] = feed
        feed.task = asyncio.create_task(self._run(feed), name="node stream")
        return feed

    async def _run(self, feed: NodeFeed) -> None:
        tasks = [asyncio.create_task(feed.read()), asyncio.create_task(self._parts.ending.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._forget(feed)
            for task in tasks:
                task.cancel()
            found, _ = await asyncio.gather(*tasks, return_exceptions=True)
            if isinstance(found, DaemonError):
                # a viewer that asks again is told why the node does not answer
                feed.failure = found
            elif isinstance(found, Exception) and self._failures.is_news(find_cause(found)):
                log.error("the stream of a node failed; disconnecting its viewers", exc_info=found)
            feed.end()

    def _forget(self, feed: NodeFeed) -> None:
        for key in [key for key, each in self._shared.items() if each is feed]:
            del self._shared[key]
