"""`/metrics`: the exposition, compressed for clients that accept gzip."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.responses import Response

from ibpulse.agent.metrics.page import render
from ibpulse.agent.web.parts import WebParts
from ibpulse.core.http.schemas import operation, problems, text
from ibpulse.core.metrics.text import accepts_gzip, compress


def metrics_router(parts: WebParts) -> APIRouter:
    """The metrics route, with and without a trailing slash; a redirect would double the cost of every scrape."""
    router = APIRouter()
    answer = text("All metrics, or the named ones.", "text/plain; version=0.0.4; charset=utf-8")
    answer["content"]["application/openmetrics-text; version=1.0.0; charset=utf-8"] = {"schema": {"type": "string"}}

    @router.get("/metrics/", include_in_schema=False)
    @router.get(
        "/metrics", **operation("get_metrics"), responses={200: answer, **problems(422)}, response_class=Response
    )
    async def metrics(
        name: Annotated[
            list[str], Query(alias="name[]", description="Only metrics with these names.", default_factory=list)
        ],
        accept: Annotated[str | None, Header(include_in_schema=False)] = None,
        accept_encoding: Annotated[str, Header(include_in_schema=False)] = "",
    ) -> Response:
        """The metrics as Prometheus text or OpenMetrics, depending on the Accept header."""
        body, media_type = render(parts.current.get_now(), parts.registry, accept, name, parts.counts)
        headers = {"Vary": "Accept, Accept-Encoding"}
        if accepts_gzip(accept_encoding):
            body = compress(body)
            headers["Content-Encoding"] = "gzip"
        headers["Content-Type"] = media_type
        return Response(body, headers=headers)

    return router
