"""The routes of jobs across nodes: the list, the stream, windows, summaries and events."""

from __future__ import annotations

import re
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import Response

from ibpulse.base.clocks import Clock
from ibpulse.base.units import MILLISECOND_NS
from ibpulse.base.values import INSTANT
from ibpulse.core.http.admission import ParallelRequests
from ibpulse.core.http.problems import bad_parameter, operation, problems
from ibpulse.core.http.requests import INSTANT_FORMS, EventsQuery, OptionalInstant, read_parameter
from ibpulse.core.http.requests import refuse_repeated as once
from ibpulse.core.http.stream import MEDIA_TYPE, EventStream, LastEventId
from ibpulse.gateway.job_captures import captures_router, captures_writing_router
from ibpulse.gateway.job_hub import JobHub
from ibpulse.gateway.job_list import describe_jobs
from ibpulse.gateway.job_nodes import choose_job
from ibpulse.gateway.job_rails import RowsQuery
from ibpulse.gateway.job_spans import JobSummaryQuery, list_job_events, summarize_job
from ibpulse.gateway.job_window import JobWindowQuery, JobWindows
from ibpulse.gateway.parts import GatewayParts

PATH = "/api/v1/jobs/{job}"
MAX_SPANS = 4
JSON = "application/json"


class JobStreamQuery(RowsQuery):
    """The query parameters of `/api/v1/jobs/ID/stream`, unparsed."""

    from_: OptionalInstant = Field(
        None,
        alias="from",
        description=INSTANT_FORMS + "Start there, at most a minute ago (default: now). Last-Event-ID takes precedence.",
    )


def job_router(parts: GatewayParts) -> APIRouter:
    """The routes of jobs."""
    router = APIRouter()
    hub = JobHub(parts)

    @router.get("/api/v1/jobs", **operation("list_jobs"), responses=_described("The jobs of all nodes.", JSON))
    async def jobs() -> Response:
        """The jobs of all nodes: those that run, and those that ended within the history, with begin and end."""
        return _json(describe_jobs(parts.table.rows()))

    @router.get(
        PATH + "/stream",
        **operation("get_job_stream"),
        responses={**_described("Events like those of a node's stream.", MEDIA_TYPE), **problems(404, 422, 503)},
        response_class=Response,
        dependencies=[once("node")],
    )
    async def stream(
        job: str, query: Annotated[JobStreamQuery, Query()], last_event_id: LastEventId = None
    ) -> Response:
        """The highest sample of every row in 100 ms, live, and the numbers of the job once a second."""
        view = query.rows == "rails", tuple(sorted(set(query.node)))
        key, begin = hub.check(job, view), _resume_ms(last_event_id or "", query.from_, parts.clock)
        return EventStream(lambda client: hub.join(client, key, view, begin), hub.leave)

    router.include_router(_span_router(parts))
    router.include_router(captures_router(parts))
    router.include_router(captures_writing_router(parts))
    return router


def _span_router(parts: GatewayParts) -> APIRouter:
    """The routes of spans of jobs."""
    router, windows = APIRouter(), JobWindows(parts)
    spans = ParallelRequests(MAX_SPANS, "summaries or lists of events of jobs are already being read")

    @router.get(
        PATH + "/window",
        **operation("get_job_window"),
        responses={**_described("The window; missing samples are null.", JSON), **problems(404, 422, 503)},
        response_class=Response,
        dependencies=[once("node")],
    )
    async def window(request: Request, job: str, query: Annotated[JobWindowQuery, Query()]) -> Response:
        """Rates of all rows on a regular grid of wall time."""
        return await windows.answer(request, job, query, parts.clock.time_ns())

    @router.get(
        PATH + "/summary",
        **operation("get_job_summary"),
        responses={**_described("The numbers of the job and its rows.", JSON), **problems(404, 422, 503)},
        response_class=Response,
        dependencies=[once("node")],
    )
    async def summary(request: Request, job: str, query: Annotated[JobSummaryQuery, Query()]) -> Response:
        """The numbers of the job and of its rows in a span of whole seconds."""
        async with spans.place(request):
            return _json(await summarize_job(parts, job, query))

    @router.get(
        PATH + "/events",
        **operation("list_job_events"),
        responses={**_described("The events of the nodes.", JSON), **problems(404, 422, 503)},
        response_class=Response,
        dependencies=[once("kind")],
    )
    async def events(request: Request, job: str, query: Annotated[EventsQuery, Query()]) -> Response:
        """The events of the nodes of the job, each by the clock of its node."""
        chosen = choose_job(parts.table.rows(), job)
        async with spans.place(request):
            return _json(await list_job_events(parts, chosen, query))

    return router


def _described(description: str, media_type: str) -> dict[int | str, dict[str, Any]]:
    schema = {"type": "string" if media_type == MEDIA_TYPE else "object"}
    return {200: {"description": description, "content": {media_type: {"schema": schema}}}}


def _json(members: dict[str, Any]) -> Response:
    return Response(orjson.dumps(members), media_type=JSON)


def _resume_ms(identity: str, begin: str | None, clock: Clock) -> int | None:
    if identity:
        if not re.fullmatch("[0-9]{1,15}", identity):
            raise bad_parameter("Last-Event-ID", f"{identity[:64]!r} is not an id of this stream; remove it")
        return int(identity)
    if begin is None:
        return None
    begin_ns = read_parameter("from", begin, INSTANT)
    if begin_ns > clock.time_ns():
        raise bad_parameter("from", f"{begin} is in the future; check both clocks")
    return begin_ns // MILLISECOND_NS
