"""The web application: puts the routes together. It must not know how the parts it is given work."""

from __future__ import annotations

from fastapi import FastAPI

from ibpulse.web.captures_route import captures_router
from ibpulse.web.captures_write import captures_writing_router
from ibpulse.web.edge import Edge
from ibpulse.web.front.guard import Guard
from ibpulse.web.health_route import health_router
from ibpulse.web.http_metrics import HttpMetrics
from ibpulse.web.metrics_route import metrics_router
from ibpulse.web.pages import pages_router
from ibpulse.web.parts import WebLimits, WebParts
from ibpulse.web.ports_route import ports_router
from ibpulse.web.problems import install_problem_handlers
from ibpulse.web.static_route import static_router
from ibpulse.web.stream_route import stream_router
from ibpulse.web.summary_route import summary_router
from ibpulse.web.topology_route import topology_router
from ibpulse.web.window_route import window_router

__all__ = ["WebLimits", "WebParts", "create_app"]

DESCRIPTION = "What every InfiniBand and RoCE port of this node does, sample by sample."


def create_app(parts: WebParts) -> FastAPI:
    """The application with all routes."""
    app = FastAPI(
        title="ibpulse",
        description=DESCRIPTION,
        version=parts.version,
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    install_problem_handlers(app)
    for router in (
        metrics_router,
        ports_router,
        topology_router,
        window_router,
        summary_router,
        stream_router,
        health_router,
    ):
        app.include_router(router(parts))
    if parts.captures:
        app.include_router(captures_router(parts.captures))
        app.include_router(captures_writing_router(parts, parts.captures))
    app.include_router(pages_router(parts, app.openapi))
    app.include_router(static_router())
    # the one added last is the outermost
    app.add_middleware(Guard, door=parts.door, max_body_bytes=parts.limits.max_body_bytes)
    app.add_middleware(
        Edge,
        metrics=HttpMetrics(parts.registry),
        max_query_bytes=parts.limits.max_query_bytes,
        headers=parts.door.headers if parts.door else tuple,
    )
    return app
