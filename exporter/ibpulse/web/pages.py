"""The routes of the server's own pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter
from starlette.responses import HTMLResponse

from ibpulse.web.document import page
from ibpulse.web.landing import live_page
from ibpulse.web.parts import WebParts
from ibpulse.web.reference import reference_body


def pages_router(parts: WebParts, schema: Callable[[], dict[str, Any]]) -> APIRouter:
    """The live page and the reference, which is drawn from the OpenAPI document."""
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    async def landing() -> HTMLResponse:
        return live_page(parts)

    @router.get("/api/docs")
    async def reference() -> HTMLResponse:
        return page("ibpulse API", reference_body(schema()))

    return router
