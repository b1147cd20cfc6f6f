"""`/metrics`: hands out the text that the exposition makes, with gzip where the client takes it."""

from __future__ import annotations

import gzip
from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.responses import Response

from ibpulse.web.parts import WebParts
from ibpulse.web.schemas import problems, text

GZIP_LEVEL = 1


def metrics_router(parts: WebParts) -> APIRouter:
    """The route of the metrics, with and without a slash behind it: a redirect would cost every scrape twice."""
    router = APIRouter()
    answer = text("All metrics, or those named.", "text/plain; version=0.0.4; charset=utf-8")
    answer["content"]["application/openmetrics-text; version=1.0.0; charset=utf-8"] = {"schema": {"type": "string"}}

    @router.get("/metrics/", include_in_schema=False)
    @router.get("/metrics", responses={200: answer, **problems(414, 422)}, response_class=Response)
    async def metrics(
        name: Annotated[
            list[str], Query(alias="name[]", description="Only metrics of these names.", default_factory=list)
        ],
        accept: Annotated[str | None, Header(include_in_schema=False)] = None,
        accept_encoding: Annotated[str, Header(include_in_schema=False)] = "",
    ) -> Response:
        """The metrics as Prometheus text or OpenMetrics, as the Accept header asks."""
        body, media_type = parts.metrics(accept, name)
        headers = {"Vary": "Accept, Accept-Encoding"}
        if accepts_gzip(accept_encoding):
            body = gzip.compress(body, GZIP_LEVEL, mtime=0)
            headers["Content-Encoding"] = "gzip"
        headers["Content-Type"] = media_type
        return Response(body, headers=headers)

    return router


def accepts_gzip(header: str) -> bool:
    """Whether an Accept-Encoding header takes gzip: named, or by a star, and not with a weight of zero."""
    weights = {}
    for item in header.lower().split(","):
        coding, _, parameters = item.partition(";")
        weights[coding.strip()] = _weight(parameters)
    return weights.get("gzip", weights.get("*", 0.0)) > 0


def _weight(parameters: str) -> float:
    name, _, value = parameters.strip().partition("=")
    try:
        return float(value) if name.strip() == "q" else 1.0
    except ValueError:
        return 0.0
