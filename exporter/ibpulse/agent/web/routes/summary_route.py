"""`/api/v1/summary`: all statistics of one span of whole seconds."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import Response

from ibpulse.agent.web.job_choice import JOB_HELP, OptionalJob, choose_job, describe_ports
from ibpulse.agent.web.parts import WebParts
from ibpulse.base.units import MILLISECOND_NS, SECOND_NS, format_duration
from ibpulse.base.values import SOME_SECONDS
from ibpulse.core.answers.summary import SummaryAnswer
from ibpulse.core.http.parameters import OptionalDuration, SpanQuery, TimeSpan, read_parameter, refuse_repeated
from ibpulse.core.http.problems import bad_parameter
from ibpulse.core.http.schemas import operation, problems
from ibpulse.core.jobs import ChosenJob
from ibpulse.core.ring.spans import place_ports, settled_tick, widest_stride

DEFAULT_LAST = "1m"


class SummaryQuery(SpanQuery):
    """The query parameters of `/api/v1/summary`, unparsed."""

    last: OptionalDuration = Field(
        None,
        description=f"Length of the newest span in whole seconds, like 30s or 5m (default: {DEFAULT_LAST}).",
    )
    job: OptionalJob = Field(None, description=JOB_HELP)


def summary_router(parts: WebParts) -> APIRouter:
    """The summary route."""
    router = APIRouter()
    wide = parts.limits.wide_requests("summaries are already being computed", "a raw window instead")

    @router.get(
        "/api/v1/summary",
        **operation("get_summary"),
        responses={200: {"model": SummaryAnswer, "description": "The summary."}, **problems(404, 422, 503)},
        response_class=Response,
        dependencies=[refuse_repeated()],
    )
    async def summary(request: Request, query: Annotated[SummaryQuery, Query()]) -> Response:
        """Peak, mean, duty cycle, burstiness, bursts, rails, step period and signature of a span."""
        job = choose_job(parts, query.job)
        return await wide.run(request, answer_summary, parts, *choose_seconds(query, parts), job)

    return router


def answer_summary(parts: WebParts, seconds: int, end_ns: int | None, job: ChosenJob | None = None) -> Response:
    """The response for `seconds` that end at a wall time, None for now, of a job if one is given."""
    found = parts.node.summarize(seconds, end_ns, None if job is None else job.ports)
    if job is None:
        return Response(found.encode(), media_type="application/json")
    described = describe_ports(job, found.start_ms * MILLISECOND_NS, found.end_ms * MILLISECOND_NS)
    answer = SummaryAnswer.model_construct(**vars(found), job=described)
    return Response(answer.encode(), media_type="application/json")


def choose_seconds(query: SummaryQuery, parts: WebParts) -> tuple[int, int | None]:
    """The number of whole seconds of a query, and the wall time in ns at which they end; None for the newest.

    Raises:
        ProblemError: a parameter or the combination is invalid, or the span exceeds the history.
    """
    span = query.span(parts.node.clock.time_ns(), DEFAULT_LAST)
    if span.newest:
        return _whole_seconds(DEFAULT_LAST if query.last is None else query.last, parts), None
    return _widen(span, parts)


def _whole_seconds(text: str, parts: WebParts) -> int:
    return _refuse_long("last", text, read_parameter("last", text, SOME_SECONDS) // SECOND_NS, parts)


def _widen(span: TimeSpan, parts: WebParts) -> tuple[int, int]:
    """The complete seconds that overlap a span, as the bins of a window do."""
    reader = parts.node.reader
    ticks = SECOND_NS // reader.interval_ns
    ports = place_ports(reader, [known.port for known in parts.node.supervisor.known_ports()], reader.ring.slots())
    settled = settled_tick(reader, widest_stride(port.stride for port in ports), parts.node.clock.time_ns())
    first, wanted = reader.tick_at(span.from_ns) // ticks, reader.tick_at(span.to_ns - 1) // ticks + 1
    end = min(wanted, settled // ticks)
    if first >= end:
        empty = "the span is empty; use an earlier from or a later to"
        raise bad_parameter(
            "from", empty if first >= wanted else "no second of the span is complete yet; try again in a second"
        )
    length = f"the span of {format_duration((end - first) * SECOND_NS)}"
    seconds = _refuse_long("from", length, end - first, parts)
    return seconds, int(reader.wall_ns(np.array([end * ticks]))[0])


def _refuse_long(parameter: str, text: str, seconds: int, parts: WebParts) -> int:
    history = parts.node.reader.capacity * parts.node.reader.interval_ns // SECOND_NS
    if seconds > history:
        held = format_duration(history * SECOND_NS)
        raise bad_parameter(parameter, f"{text} exceeds the history, {held}; shorten the span or raise sampler.history")
    return seconds
