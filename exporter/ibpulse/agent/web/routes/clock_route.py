"""`/api/v1/clock`: the wall clock of the node, so that clients can measure how far it is from another one."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from ibpulse.agent.web.parts import WebParts
from ibpulse.core.answers.clock import ClockAnswer
from ibpulse.core.http.schemas import operation


def clock_router(parts: WebParts) -> APIRouter:
    """The clock route."""
    router = APIRouter()

    @router.get(
        "/api/v1/clock",
        **operation("get_clock"),
        responses={200: {"model": ClockAnswer, "description": "The clock of the node."}},
    )
    async def clock() -> Response:
        """The time of this moment by the clock that the samples follow, and whether the clock is synchronised."""
        return Response(describe_clock(parts).encode(), media_type="application/json")

    return router


def describe_clock(parts: WebParts) -> ClockAnswer:
    """The answer of the route; the clock is read last."""
    state = parts.clock_state()
    synchronised = None if state is None else state.synchronised
    return ClockAnswer.model_construct(
        node=parts.node.name, synchronised=synchronised, time_ns=parts.node.clock.time_ns()
    )
