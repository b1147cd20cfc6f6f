"""`/api/v1/stream`: the newest samples as server-sent events, until the client disconnects or the server stops."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ibpulse.answers.stream import EVENTS
from ibpulse.base.values import INSTANT, duration
from ibpulse.web.admission import requesting_client
from ibpulse.web.job_choice import JOB_HELP, OptionalJob, choose_job
from ibpulse.web.middleware import HEAD
from ibpulse.web.parameters import (
    INSTANT_FORMS,
    Duration,
    OptionalInstant,
    read_parameter,
    refuse_repeated,
)
from ibpulse.web.parts import WebParts
from ibpulse.web.problems import bad_parameter
from ibpulse.web.schemas import inline_parts, operation, problems
from ibpulse.web.stream.hub import Hub, Viewer

PERIOD = duration("100ms", "250ms")
MEDIA_TYPE = "text/event-stream"

_ANSWER: dict[str, Any] = {
    "description": "Events `ports`, `batch`, `events`, `summary`, `gap`, `dropped` and `end`, each with a JSON object.",
    "content": {
        MEDIA_TYPE: {
            "schema": {"type": "string"},
            "x-events": {name: inline_parts(model.model_json_schema()) for name, model in EVENTS.items()},
        }
    },
}


class StreamQuery(BaseModel):
    """The query parameters of `/api/v1/stream`, unparsed."""

    model_config = ConfigDict(extra="forbid")

    every: Duration = Field(
        "200ms",
        description="Longest time between two batches, 100ms to 250ms. All viewers get the shortest one requested.",
    )
    from_: OptionalInstant = Field(
        None,
        alias="from",
        description=INSTANT_FORMS + "Start there, at most a minute ago (default: now). Last-Event-ID takes precedence.",
    )
    job: OptionalJob = Field(None, description=f"{JOB_HELP} `summary` has its numbers in place of the node's.")


LastEventId = Annotated[
    str | None,
    Header(alias="Last-Event-ID", description="Id of the last batch received; the stream continues after it."),
    WithJsonSchema({"type": "string", "pattern": "^[0-9]{1,18}$"}),
]


def stream_router(parts: WebParts) -> APIRouter:
    """The stream route."""
    router = APIRouter()
    hub = Hub(parts)

    @router.get(
        "/api/v1/stream",
        **operation("get_stream"),
        responses={200: _ANSWER, **problems(404, 422, 503)},
        response_class=Response,
        dependencies=[refuse_repeated()],
    )
    async def stream(query: Annotated[StreamQuery, Query()], last_event_id: LastEventId = None) -> Response:
        """The rates of every sample, live, and the node's statistics once a second, as server-sent events."""
        period_ns = read_parameter("every", query.every, PERIOD)
        job = choose_job(parts, query.job)
        begin = _resume_tick(parts, last_event_id or "", query.from_)
        key = None if job is None else job.key
        return EventStream(lambda client: hub.join(client, period_ns, begin, key), hub.leave)

    return router


def _resume_tick(parts: WebParts, identity: str, begin: str | None) -> int | None:
    if identity:
        if not re.fullmatch("[0-9]{1,18}", identity):
            raise bad_parameter("Last-Event-ID", f"{identity[:64]!r} is not an id of this stream; remove it")
        return int(identity) + 1
    if begin is None:
        return None
    begin_ns = read_parameter("from", begin, INSTANT)
    if begin_ns > parts.node.clock.time_ns():
        raise bad_parameter("from", f"{begin} is in the future; check both clocks")
    return parts.node.reader.tick_at(begin_ns)


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
