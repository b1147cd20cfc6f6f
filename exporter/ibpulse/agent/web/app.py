"""The web application: all routes, with access control and the outer middleware around them."""

from __future__ import annotations

from fastapi import FastAPI

from ibpulse.agent.web.parts import WebLimits, WebParts
from ibpulse.agent.web.routes.captures_route import captures_router, captures_writing_router
from ibpulse.agent.web.routes.clock_route import clock_router
from ibpulse.agent.web.routes.events_route import events_router
from ibpulse.agent.web.routes.jobs_route import jobs_router
from ibpulse.agent.web.routes.metrics_route import metrics_router
from ibpulse.agent.web.routes.pages_route import health_router, pages_router
from ibpulse.agent.web.routes.ports_route import ports_router, topology_router
from ibpulse.agent.web.routes.stream_route import stream_router
from ibpulse.agent.web.routes.summary_route import summary_router
from ibpulse.agent.web.routes.window_route import window_router
from ibpulse.core.http.application import REFUSALS, make_app

__all__ = ["WebLimits", "WebParts", "create_app"]

DESCRIPTION = "Traffic of every InfiniBand and RoCE port of this node, sample by sample."


def create_app(parts: WebParts) -> FastAPI:
    """The application with all routes."""
    app = make_app("ibpulse", DESCRIPTION, parts, parts.node.clock.monotonic_ns)
    for router in (
        metrics_router,
        ports_router,
        topology_router,
        window_router,
        summary_router,
        events_router,
        jobs_router,
        stream_router,
        clock_router,
    ):
        app.include_router(router(parts), responses=REFUSALS)
    app.include_router(health_router(parts))
    app.include_router(captures_router(parts.node.captures), responses=REFUSALS)
    app.include_router(captures_writing_router(parts, parts.node.captures), responses=REFUSALS)
    app.include_router(pages_router(parts, app.openapi))
    return app
