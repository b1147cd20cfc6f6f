"""`/node/NAME/api/v1/stream`: the stream of a node, event by event as checked, until the viewer or the node leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Header, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ibpulse.errors import DaemonError
from ibpulse.fleet.node_answers import NodeMember
from ibpulse.fleet.nodes import PAGE_SECONDS, Node
from ibpulse.fleet.stream_answers import STREAM_TYPE, StreamPorts, read_events
from ibpulse.gateway.node_data import API, find_node, node_problem
from ibpulse.gateway.parts import GatewayParts
from ibpulse.web.middleware import HEAD
from ibpulse.web.parameters import refuse_repeated
from ibpulse.web.problems import ProblemError
from ibpulse.web.schemas import problems

RETRY = b"retry: 2000\n\n"
COMMENT = b":\n\n"
END = b"event: end\ndata: {}\n\n"
_ANSWER: dict[str, Any] = {"description": "The events.", "content": {STREAM_TYPE: {"schema": {"type": "string"}}}}


def node_stream_router(parts: GatewayParts) -> APIRouter:
    """The route of the stream of a node."""
    router = APIRouter()

    @router.get(
        API + "stream",
        responses={200: _ANSWER, **problems(404, 422, 502, 503, 504)},
        response_class=Response,
        dependencies=[refuse_repeated()],
    )
    async def stream(
        name: str, request: Request, last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None
    ) -> Response:
        """The stream of the node; its event `ports` has `gateway_version` in addition."""
        return NodeStream(parts, find_node(parts, name), request.query_params.multi_items(), last_event_id or "")

    return router


class NodeStream(Response):
    """The response: a stream of the node for each viewer, which ends however this one ends."""

    media_type = STREAM_TYPE

    def __init__(self, parts: GatewayParts, node: Node, query: list[tuple[str, str]], last_id: str) -> None:
        # makes buffering proxies pass on events immediately (nginx reads X-Accel-Buffering)
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._parts, self._node = parts, node
        # httpx refuses other characters in headers; the node judges the rest
        headers = {"Last-Event-ID": last_id[:64]} if last_id.isascii() and last_id.isprintable() and last_id else {}
        self._events = self._encode(node.stream("/api/v1/stream", query, STREAM_TYPE, headers))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the viewer disconnects, the node leaves, or the gateway stops."""
        counts, limit = self._parts.counts, self._parts.limits.max_viewers
        if scope.get(HEAD):
            await self._begin(send)
            await send({"type": "http.response.body", "body": b""})
            return
        if counts.stream_viewers >= limit or self._parts.ending.is_set():
            raise ProblemError(
                "too-many-viewers",
                503,
                f"{limit} viewers are connected to this gateway, which is the maximum. Close a page.",
                bound={"name": "max_viewers", "limit": limit},
            )
        counts.stream_viewers += 1
        try:
            async with aclosing(self._events):
                await self._serve(receive, send)
        finally:
            counts.stream_viewers -= 1

    async def _serve(self, receive: Receive, send: Send) -> None:
        try:
            # before the status is sent, so that a refusal of the node has one of its own
            async with asyncio.timeout(PAGE_SECONDS):
                first = await anext(self._events, END)
        except DaemonError as error:
            raise node_problem(self._node, error) from error
        except TimeoutError as error:
            raise node_problem(self._node, DaemonError(f"no event within {PAGE_SECONDS:g} s")) from error
        await self._begin(send)
        tasks = [
            asyncio.create_task(each)
            for each in (self._send_all(first, send), _wait_for_leave(receive), self._parts.ending.wait())
        ]
        sending, leaving, _ = tasks
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if not sending.cancelled() and (failure := sending.exception()) and not isinstance(failure, DaemonError):
            raise failure
        if leaving.cancelled():
            # a viewer that asks again is told why the node does not answer
            await send({"type": "http.response.body", "body": END})

    async def _begin(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})

    async def _send_all(self, first: bytes, send: Send) -> None:
        await send({"type": "http.response.body", "body": RETRY + first, "more_body": True})
        async for event in self._events:
            await send({"type": "http.response.body", "body": event, "more_body": True})

    async def _encode(self, content: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        async with aclosing(content), aclosing(read_events(content)) as events:
            async for found in events:
                if found is None:
                    yield COMMENT
                    continue
                name, identity, data = found
                if name == "end":
                    return
                head = b"" if identity is None else b"id: %d\n" % identity
                yield b"%bevent: %b\ndata: %b\n\n" % (head, name.encode(), self._data(data))

    def _data(self, data: NodeMember) -> bytes:
        members = data.model_dump(exclude_unset=True)
        if isinstance(data, StreamPorts):
            members["gateway_version"] = self._parts.version
        return orjson.dumps(members)


async def _wait_for_leave(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
