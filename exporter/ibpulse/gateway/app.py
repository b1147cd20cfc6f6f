"""The web application of the gateway: all its routes."""

from __future__ import annotations

from fastapi import FastAPI

from ibpulse.core.http.application import REFUSALS, make_app
from ibpulse.gateway.alerts import alert_router
from ibpulse.gateway.job_stream import job_router
from ibpulse.gateway.metrics import gateway_metrics_router
from ibpulse.gateway.node_list import node_list_router
from ibpulse.gateway.node_proxy import node_router, node_stream_router
from ibpulse.gateway.page_routes import page_router, probe_router
from ibpulse.gateway.parts import GatewayParts

DESCRIPTION = "Traffic of many nodes at one address. Answers about a node are those of its daemon."


def create_gateway(parts: GatewayParts) -> FastAPI:
    """The application with all routes."""
    app = make_app("ibpulse gateway", DESCRIPTION, parts, parts.clock.monotonic_ns)
    data = (node_list_router, job_router, alert_router, node_router, node_stream_router, gateway_metrics_router)
    for router in data:
        app.include_router(router(parts), responses=REFUSALS)
    app.include_router(probe_router(parts))
    app.include_router(page_router(parts, app.openapi))
    return app
