"""`/node/NAME/api/v1/stream`: the stream of a node, event by event as checked, which viewers who ask the same share."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from starlette.responses import Response

from ibpulse.base.errors import DaemonError
from ibpulse.base.internal_errors import Occurrences, find_cause
from ibpulse.core.http.admission import requesting_client
from ibpulse.core.http.application import HEAD
from ibpulse.core.http.problems import operation, problems
from ibpulse.core.http.requests import refuse_repeated
from ibpulse.core.http.stream import EventStream, Viewer
from ibpulse.gateway.node_data import API, find_node, node_problem
from ibpulse.gateway.node_feed import NodeFeed
from ibpulse.gateway.nodes.nodes import Node
from ibpulse.gateway.nodes.stream_answers import STREAM_TYPE
from ibpulse.gateway.parts import GatewayParts

log = logging.getLogger(__name__)

Query = tuple[tuple[str, str], ...]
_ANSWER: dict[str, Any] = {"description": "The events.", "content": {STREAM_TYPE: {"schema": {"type": "string"}}}}


def node_stream_router(parts: GatewayParts) -> APIRouter:
    """The route of the stream of a node."""
    router = APIRouter()
    hub = NodeHub(parts)

    @router.get(
        API + "stream",
        **operation("get_node_stream"),
        responses={200: _ANSWER, **problems(404, 422, 502, 503, 504)},
        response_class=Response,
        dependencies=[refuse_repeated()],
    )
    async def stream(
        name: str, request: Request, last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None
    ) -> Response:
        """The stream of the node; its event `ports` has `gateway_version` in addition."""
        node = find_node(parts, name)
        client = requesting_client(request.scope)
        if request.scope.get(HEAD):
            # nobody views the answer to this
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
        """Add a viewer of a node, once its stream has begun.

        Raises:
            ProblemError: the node refuses or does not answer, or the maximum number of viewers is connected.
        """
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
