"""`/api/v1/stream`: the newest samples as server-sent events, until the client disconnects or the server stops."""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from ibpulse.agent.web.job_choice import JOB_HELP, OptionalJob, choose_job
from ibpulse.agent.web.parts import WebParts
from ibpulse.agent.web.stream.hub import Hub
from ibpulse.base.values import INSTANT, duration
from ibpulse.core.answers.stream import EVENTS
from ibpulse.core.http.parameters import INSTANT_FORMS, Duration, OptionalInstant, read_parameter, refuse_repeated
from ibpulse.core.http.problems import bad_parameter
from ibpulse.core.http.schemas import inline_parts, operation, problems
from ibpulse.core.http.stream import MEDIA_TYPE, EventStream, LastEventId

PERIOD = duration("100ms", "250ms")

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
