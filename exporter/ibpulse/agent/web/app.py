"""The web application: all routes, with access control and the outer middleware around them."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI

from ibpulse.agent.web.captures import add_capture_writing, add_captures
from ibpulse.agent.web.events import add_events
from ibpulse.agent.web.jobs import add_jobs
from ibpulse.agent.web.limits import add_limits
from ibpulse.agent.web.node import add_clock, add_metrics, add_ports, add_summary
from ibpulse.agent.web.pages import add_health, add_pages
from ibpulse.agent.web.parts import WebParts
from ibpulse.agent.web.stream import add_stream
from ibpulse.agent.web.window import add_window
from ibpulse.core.http.application import REFUSALS, make_app

DESCRIPTION = "Traffic of every InfiniBand and RoCE port of this node, sample by sample."


def create_app(parts: WebParts) -> FastAPI:
    """The application with all routes."""
    app = make_app("ibpulse", DESCRIPTION, parts, parts.node.clock.monotonic_ns)
    api, probes, captures = APIRouter(responses=REFUSALS), APIRouter(), APIRouter(responses=REFUSALS)
    for add in (
        add_metrics,
        add_ports,
        add_window,
        add_summary,
        add_limits,
        add_events,
        add_jobs,
        add_stream,
        add_clock,
    ):
        add(api, parts)
    add_health(probes, parts)
    add_captures(captures, parts)
    add_capture_writing(captures, parts)
    for router in (api, probes, captures):
        app.include_router(router)
    add_pages(app, parts)
    return app
