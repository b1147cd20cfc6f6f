"""`/api/v1/window`: small windows at once, wide ones in a thread and few at a time."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from ibpulse.web.parts import WebParts
from ibpulse.web.problems import ProblemError
from ibpulse.web.schemas import GRAFANA_SCHEMA, WindowAnswer, problems
from ibpulse.web.window_formats import CSV_TYPE, NPY_HEADER, NPY_TYPE, write_window
from ibpulse.web.window_query import Format, WindowPlan, plan_window, query_parameters, read_query
from ibpulse.web.window_read import read_window

_ANSWER: dict[str, Any] = {
    "description": "The window. Holes are null in JSON, empty in CSV and NaN in NPY.",
    "headers": {
        NPY_HEADER: {
            "description": "With format=npy: interval, resolution, start, end, holes and names of the series as JSON.",
            "schema": {"type": "string"},
        }
    },
    "content": {
        "application/json": {"schema": {"anyOf": [WindowAnswer.model_json_schema(), GRAFANA_SCHEMA]}},
        CSV_TYPE: {"schema": {"type": "string"}},
        NPY_TYPE: {"schema": {"type": "string", "format": "binary"}},
    },
}


class WideGate:
    """Runs wide requests in threads, at most `limit` at once; it refuses the others instead of letting them queue."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._places = threading.Semaphore(limit)
        self._threads = ThreadPoolExecutor(max_workers=max(1, limit), thread_name_prefix="wide-window")

    async def run(self, parts: WebParts, plan: WindowPlan, wanted: Format) -> Response:
        """The response of a wide window.

        Raises:
            ProblemError: all places are taken.
        """
        if not self._places.acquire(blocking=False):
            raise ProblemError(
                "too-busy",
                503,
                f"{self._limit} wide windows are being written, and no more are at once. Try again in a second, or "
                f"ask for at most {parts.limits.wide_values} values with max_points, fewer ports or a shorter span.",
                bound={"name": "max_wide_requests", "limit": self._limit, "wide_values": parts.limits.wide_values},
            )
        work: Future[Response] = self._threads.submit(answer_window, parts, plan, wanted)
        # a client that hangs up cancels the wait, not the thread: the place is free when the thread is
        work.add_done_callback(lambda _: self._places.release())
        return await asyncio.wrap_future(work)


def answer_window(parts: WebParts, plan: WindowPlan, wanted: Format) -> Response:
    """The response of a planned window."""
    return write_window(read_window(plan, parts.reader, parts.wall_clock_ns()), wanted)


def is_wide(plan: WindowPlan, parts: WebParts) -> bool:
    """Whether the plan reads or returns more than a short pause of the server allows."""
    ticks = min(plan.points * plan.width, parts.reader.capacity)
    read = 2 * len(plan.ports) * ticks
    return max(read, plan.points * plan.series) > parts.limits.wide_values


def window_router(parts: WebParts) -> APIRouter:
    """The route of raw windows."""
    router = APIRouter()
    gate = WideGate(parts.limits.max_wide_requests)

    @router.get(
        "/api/v1/window",
        responses={200: _ANSWER, **problems(404, 414, 422, 503)},
        response_class=Response,
        openapi_extra={"parameters": query_parameters()},
    )
    async def window(request: Request) -> Response:
        """Rates of every sample, or of bins of samples, on a regular grid of wall time."""
        query = read_query(request.query_params.multi_items())
        plan = plan_window(query, parts)
        if is_wide(plan, parts):
            return await gate.run(parts, plan, query.format)
        return answer_window(parts, plan, query.format)

    return router
