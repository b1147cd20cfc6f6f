"""`/-/healthy` and `/-/ready`: one sentence each, for probes and for people."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import PlainTextResponse

from ibpulse.units import SECOND_NS
from ibpulse.web.parts import WebParts
from ibpulse.web.schemas import text

LEAST_BOUND_SECONDS = 5.0
BOUND_INTERVALS = 20


def health_router(parts: WebParts) -> APIRouter:
    """The routes of the probes."""
    router = APIRouter()
    healthy_answers = _answers("The sampler's heartbeat is young.")
    ready_answers = _answers("The first samples are in.")

    @router.get("/-/healthy", responses=healthy_answers, response_class=PlainTextResponse)
    async def healthy() -> PlainTextResponse:
        """Whether the sampler's heartbeat is young."""
        return _answer(*judge_health(parts))

    @router.get("/-/ready", responses=ready_answers, response_class=PlainTextResponse)
    async def ready() -> PlainTextResponse:
        """Whether the first samples are in."""
        return _answer(*parts.ready())

    return router


def judge_health(parts: WebParts) -> tuple[bool, str]:
    """Whether the sampler lives, and the sentence that says so. Without a port there is nothing that could be late."""
    bound = max(LEAST_BOUND_SECONDS, BOUND_INTERVALS * parts.reader.interval_ns / SECOND_NS)
    age = parts.heartbeat_age_seconds()
    if not parts.slots():
        return True, "Healthy: there is no port to sample."
    if age is None:
        return False, "Not healthy: the sampler has given no heartbeat yet."
    if age <= bound:
        return True, f"Healthy: the sampler's last heartbeat is {age:.2f} s old, at most {bound:g} s may pass."
    return False, (
        f"Not healthy: the sampler's last heartbeat is {age:.2f} s old, at most {bound:g} s may pass; the log says why."
    )


def _answers(good: str) -> dict[int | str, dict[str, Any]]:
    return {200: text(good), 503: text("This is not so; the sentence says why.")}


def _answer(good: bool, sentence: str) -> PlainTextResponse:
    return PlainTextResponse(sentence + "\n", 200 if good else 503)
