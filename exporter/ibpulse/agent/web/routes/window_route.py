"""`/api/v1/window`: small windows in the event loop, wide ones in threads, a few in parallel."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from ibpulse.agent.web.parts import WebParts
from ibpulse.agent.web.window.encoding import CSV_TYPE, write_window
from ibpulse.agent.web.window.query import Format, WindowQuery, plan_window
from ibpulse.core.answers.window import NPY_HEADER, NPY_TYPE, WindowAnswer, WindowHead
from ibpulse.core.http.parameters import refuse_repeated
from ibpulse.core.http.schemas import GRAFANA_SCHEMA, inline_parts, operation, problems
from ibpulse.core.window_values import WindowPlan, read_window

_HEAD = inline_parts(WindowHead.model_json_schema())
_ANSWER: dict[str, Any] = {
    "description": "The window. Missing samples are null in JSON, empty in CSV and NaN in NPY.",
    "headers": {
        NPY_HEADER: {
            "description": "With format=npy: interval, resolution, start, end, holes and names of the series as JSON.",
            "schema": {"type": "string", "contentMediaType": "application/json", "contentSchema": _HEAD},
        }
    },
    "content": {
        "application/json": {"schema": {"anyOf": [inline_parts(WindowAnswer.model_json_schema()), GRAFANA_SCHEMA]}},
        CSV_TYPE: {"schema": {"type": "string"}},
        NPY_TYPE: {"schema": {"type": "string", "format": "binary"}},
    },
}


def answer_window(parts: WebParts, plan: WindowPlan, wanted: Format) -> Response:
    """The response of a planned window."""
    return write_window(read_window(plan, parts.node.reader, parts.node.clock.time_ns()), wanted)


def is_wide(plan: WindowPlan, parts: WebParts) -> bool:
    """Whether the plan reads or returns too many values for the event loop."""
    ticks = min(plan.bins.points * plan.bins.width, parts.node.reader.capacity)
    read = 2 * len(plan.ports) * ticks
    return max(read, plan.bins.points * plan.series) > parts.limits.wide_values


def window_router(parts: WebParts) -> APIRouter:
    """The window route."""
    router = APIRouter()
    wide = parts.limits.wide_requests(
        "wide window requests are already running",
        f"at most {parts.limits.wide_values} values with max_points, fewer ports or a shorter span",
    )

    @router.get(
        "/api/v1/window",
        **operation("get_window"),
        responses={200: _ANSWER, **problems(404, 422, 503)},
        response_class=Response,
        dependencies=[refuse_repeated("port")],
    )
    async def window(request: Request, query: Annotated[WindowQuery, Query()]) -> Response:
        """Rates of single samples, or of bins of samples, on a regular grid of wall time."""
        plan = plan_window(query, parts)
        if is_wide(plan, parts):
            return await wide.run(request, answer_window, parts, plan, query.format)
        return answer_window(parts, plan, query.format)

    return router
