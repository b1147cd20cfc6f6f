"""`/api/v1/summary`: all statistics of one window."""

from __future__ import annotations

from typing import Annotated

import orjson
from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from ibpulse.aggregator.summary import Summary
from ibpulse.units import SECOND_NS, format_duration
from ibpulse.web.parameters import (
    INSTANT_FORMS,
    Duration,
    OptionalInstant,
    read_duration,
    read_instant,
    refuse_repeated,
)
from ibpulse.web.parts import WebParts
from ibpulse.web.problems import bad_parameter
from ibpulse.web.schemas import problems
from ibpulse.web.wide_requests import WideRequests

DEFAULT_WINDOW = "1m"


class SummaryQuery(BaseModel):
    """The query parameters of `/api/v1/summary`, unparsed."""

    model_config = ConfigDict(extra="forbid")

    window: Duration = Field(
        DEFAULT_WINDOW, description="Length of the window in whole seconds, like 30s or 5m, up to the history."
    )
    to: OptionalInstant = Field(
        None, description=INSTANT_FORMS + "End of the window, rounded down to a whole second (default: now)."
    )


def summary_router(parts: WebParts) -> APIRouter:
    """The summary route."""
    router = APIRouter()
    wide = WideRequests(parts.limits, "summaries are already being computed", "a raw window instead")

    @router.get(
        "/api/v1/summary",
        responses={200: {"model": Summary, "description": "The summary."}, **problems(414, 422, 503)},
        response_class=Response,
        dependencies=[refuse_repeated()],
    )
    async def summary(query: Annotated[SummaryQuery, Query()]) -> Response:
        """Peak, mean, duty cycle, burstiness, bursts, rails, step period and signature of a window."""
        seconds = _whole_seconds(query.window, parts)
        return await wide.run(answer_summary, parts, seconds, _end_ns(query.to, parts))

    return router


def answer_summary(parts: WebParts, seconds: int, end_ns: int | None) -> Response:
    """The response for a window of `seconds`."""
    return Response(orjson.dumps(parts.summarize(seconds, end_ns)), media_type="application/json")


def _whole_seconds(text: str, parts: WebParts) -> int:
    window_ns = read_duration("window", text)
    if window_ns % SECOND_NS:
        raise bad_parameter("window", f"{text} is not a whole number of seconds; write it like 30s or 5m")
    history_ns = parts.reader.capacity * parts.reader.interval_ns // SECOND_NS * SECOND_NS
    if window_ns > history_ns:
        held = format_duration(history_ns)
        raise bad_parameter(
            "window", f"{text} exceeds the history, {held}; shorten the window or raise sampler.history"
        )
    return window_ns // SECOND_NS


def _end_ns(text: str | None, parts: WebParts) -> int | None:
    if text is None:
        return None
    end_ns = read_instant("to", text)
    if end_ns > parts.wall_clock_ns():
        raise bad_parameter("to", f"{text} is in the future; check both clocks")
    return end_ns
