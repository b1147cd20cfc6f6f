"""The routes of jobs across nodes: the list, the stream, windows, summaries and events."""

from __future__ import annotations

import re
import time
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from ibpulse.errors import DaemonError
from ibpulse.fleet.node_answers import ask_node
from ibpulse.fleet.nodes import Node
from ibpulse.fleet.span_answers import NodeEvents, NodeSpanSummary
from ibpulse.gateway.job_captures import captures_router, captures_writing_router
from ibpulse.gateway.job_hub import JobHub
from ibpulse.gateway.job_nodes import FleetJob, choose_job, describe_jobs, rows_of
from ibpulse.gateway.job_polls import GONE, ask_samples
from ibpulse.gateway.job_summary import NodeData, SummarySpan, describe_summary, find_lateness
from ibpulse.gateway.job_view import check_rows
from ibpulse.gateway.job_window import JobWindowQuery, JobWindows, NodeNames, Rows
from ibpulse.gateway.node_samples import NodeSamples
from ibpulse.gateway.parts import GatewayParts
from ibpulse.units import MILLISECOND_NS
from ibpulse.web.parameters import INSTANT_FORMS, OptionalDuration, OptionalInstant, read_duration, read_instant
from ibpulse.web.parameters import refuse_repeated as once
from ibpulse.web.problems import bad_parameter
from ibpulse.web.routes.events_route import EventsQuery
from ibpulse.web.routes.stream_route import MEDIA_TYPE, EventStream, LastEventId
from ibpulse.web.schemas import problems

PATH = "/api/v1/jobs/{job}"
DEFAULT_WINDOW = "10s"
MAX_WINDOW_MS = 60_000
JSON = "application/json"


class RowsQuery(BaseModel):
    """Which rows of a job."""

    model_config = ConfigDict(extra="forbid")

    rows: Rows = Field("nodes", description="One row per node, or per rail.")
    node: NodeNames = Field(default_factory=list, description="Only this node; repeatable (default: all of the job).")


class JobStreamQuery(RowsQuery):
    """The query parameters of `/api/v1/jobs/ID/stream`, unparsed."""

    from_: OptionalInstant = Field(
        None,
        alias="from",
        description=INSTANT_FORMS + "Start there, at most a minute ago (default: now). Last-Event-ID takes precedence.",
    )


class JobSummaryQuery(RowsQuery):
    """The query parameters of `/api/v1/jobs/ID/summary`, unparsed."""

    window: OptionalDuration = Field(None, description=f"Length of the span, up to 1m (default: {DEFAULT_WINDOW}).")
    to: OptionalInstant = Field(None, description=INSTANT_FORMS + "End of the span, rounded down to a second.")


def job_router(parts: GatewayParts) -> APIRouter:
    """The routes of jobs."""
    router = APIRouter()
    hub, windows = JobHub(parts), JobWindows(parts)

    @router.get("/api/v1/jobs", responses=_described("The jobs of all nodes.", JSON))
    async def jobs() -> Response:
        """The jobs of all nodes: those that run, and those that ended within the history, with begin and end."""
        return _json(describe_jobs(parts.table.rows()))

    @router.get(
        PATH + "/stream",
        responses={**_described("Events like those of a node's stream.", MEDIA_TYPE), **problems(404, 422, 503)},
        response_class=Response,
        dependencies=[once("node")],
    )
    async def stream(
        job: str, query: Annotated[JobStreamQuery, Query()], last_event_id: LastEventId = None
    ) -> Response:
        """The highest sample of every row in 100 ms, live, and the numbers of the job once a second."""
        view = query.rows == "rails", tuple(sorted(set(query.node)))
        key, begin = hub.check(job, view), _resume_ms(last_event_id or "", query.from_)
        return EventStream(lambda client: hub.join(client, key, view, begin), hub.leave)

    @router.get(
        PATH + "/window",
        responses={**_described("The window; missing samples are null.", JSON), **problems(404, 422, 503)},
        response_class=Response,
        dependencies=[once("node")],
    )
    async def window(job: str, query: Annotated[JobWindowQuery, Query()]) -> Response:
        """Rates of all rows on a regular grid of wall time."""
        return await windows.answer(job, query, time.time_ns())

    @router.get(
        PATH + "/summary",
        responses={**_described("The numbers of the job and its rows.", JSON), **problems(404, 422)},
        response_class=Response,
        dependencies=[once("node")],
    )
    async def summary(job: str, query: Annotated[JobSummaryQuery, Query()]) -> Response:
        """The numbers of the job and of its rows in a span of whole seconds."""
        return _json(await _summarize(parts, job, query))

    @router.get(
        PATH + "/events",
        responses={**_described("The events of the nodes.", JSON), **problems(404, 422)},
        response_class=Response,
        dependencies=[once("kind")],
    )
    async def events(job: str, query: Annotated[EventsQuery, Query()]) -> Response:
        """The events of the nodes of the job, each by the clock of its node."""
        return _json(await _list_events(parts, choose_job(parts.table.rows(), job), query))

    router.include_router(captures_router(parts))
    router.include_router(captures_writing_router(parts))
    return router


def _described(description: str, media_type: str) -> dict[int | str, dict[str, Any]]:
    schema = {"type": "string" if media_type == MEDIA_TYPE else "object"}
    return {200: {"description": description, "content": {media_type: {"schema": schema}}}}


def _json(members: dict[str, Any]) -> Response:
    return Response(orjson.dumps(members), media_type=JSON)


def _resume_ms(identity: str, begin: str | None) -> int | None:
    if identity:
        if not re.fullmatch("[0-9]{1,15}", identity):
            raise bad_parameter("Last-Event-ID", f"{identity[:64]!r} is not an id of this stream; remove it")
        return int(identity)
    if begin is None:
        return None
    begin_ns = read_instant("from", begin)
    if begin_ns > time.time_ns():
        raise bad_parameter("from", f"{begin} is in the future; check both clocks")
    return begin_ns // MILLISECOND_NS


async def _summarize(parts: GatewayParts, text: str, query: JobSummaryQuery) -> dict[str, Any]:
    states = {state.name: state for state in parts.table.rows()}
    job = choose_job(states.values(), text)
    rows = rows_of(job, states, query.node, rails=query.rows == "rails")
    check_rows(rows)
    window_ms = read_duration("window", query.window or DEFAULT_WINDOW) // MILLISECOND_NS
    if not 1000 <= window_ms <= MAX_WINDOW_MS or window_ms % 1000:
        raise bad_parameter("window", f"{query.window} is not 1s to 60s in whole seconds")
    newest_ms = time.time_ns() // MILLISECOND_NS - 1000
    to_ms = newest_ms if query.to is None else min(newest_ms, read_instant("to", query.to) // MILLISECOND_NS)
    to_ms = to_ms // 1000 * 1000
    nodes = {name: NodeData(each, states.get(name), GONE) for name, each in job.nodes.items()}

    async def ask(node: Node) -> tuple[NodeSamples, NodeSpanSummary]:
        span = [("from", str(to_ms - window_ms)), ("to", str(to_ms))]
        window = await ask_samples(node, job.text, span)
        samples = NodeSamples(window.head.interval_ms, window_ms).add(window)
        of_job = [("job", job.text), ("window", f"{window_ms}ms"), ("to", str(to_ms))]
        return samples, await ask_node(node, NodeSpanSummary, "/api/v1/summary", of_job)

    asked = [node for name in nodes if (node := parts.nodes.get(name)) is not None]
    async for node, answer in parts.nodes.ask_each(asked, ask):
        data = nodes[node.name]
        if isinstance(answer, DaemonError):
            data.problem = (answer.kind, str(answer))
        else:
            data.problem, (data.samples, data.summary) = ("", ""), answer
    span = SummarySpan(to_ms, window_ms, window_ms)
    found = describe_summary(nodes, find_lateness(nodes, window_ms), rows, span)
    return {"window_seconds": window_ms // 1000, **found}


async def _list_events(parts: GatewayParts, job: FleetJob, query: EventsQuery) -> dict[str, Any]:
    asked = [
        (name, str(text)) for name, text in query.model_dump(by_alias=True, exclude_none=True).items() if name != "kind"
    ]
    asked += [("kind", kind) for kind in query.kind]

    async def ask(node: Node) -> NodeEvents:
        return await ask_node(node, NodeEvents, "/api/v1/events", asked)

    nodes = [node for name in job.nodes if (node := parts.nodes.get(name)) is not None]
    found = await parts.nodes.ask_all(nodes, ask)
    missing = {name: GONE[1] for name in job.nodes if parts.nodes.get(name) is None} | found.missing
    every = [{"node": node, **event.model_dump()} for node, answer in found.answers.items() for event in answer.events]
    every.sort(key=lambda event: event["time_ms"])
    kept = every[-query.limit :]
    kinds: dict[str, int] = {}
    for answer in found.answers.values():
        for kind, count in answer.kinds.items():
            kinds[kind] = kinds.get(kind, 0) + count
    begins = [answer.from_ms for answer in found.answers.values()]
    return {
        "from_ms": None if None in begins else min((each for each in begins if each is not None), default=None),
        "to_ms": max((answer.to_ms for answer in found.answers.values()), default=None),
        "kinds": kinds,
        "left_out": sum(answer.left_out for answer in found.answers.values()) + len(every) - len(kept),
        "missing": [{"node": name, "reason": reason} for name, reason in missing.items()],
        "events": kept,
    }
