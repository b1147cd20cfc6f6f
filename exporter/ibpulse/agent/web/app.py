"""The web application: all routes, with access control and the outer middleware around them."""

from __future__ import annotations

from fastapi import FastAPI

from ibpulse.agent.web.captures import captures_router, captures_writing_router
from ibpulse.agent.web.events import events_router
from ibpulse.agent.web.jobs import jobs_router
from ibpulse.agent.web.node import clock_router, metrics_router, ports_router, summary_router, topology_router
from ibpulse.agent.web.pages import health_router, pages_router
from ibpulse.agent.web.parts import WebLimits, WebParts
from ibpulse.agent.web.stream import stream_router
from ibpulse.agent.web.window import window_router
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
