"""The web application of the gateway: its routes, with access control and the middleware of the daemon around them."""

from __future__ import annotations

from fastapi import FastAPI

from ibpulse.gateway.alert_captures import alert_router
from ibpulse.gateway.gateway_metrics import gateway_metrics_router
from ibpulse.gateway.job_stream import job_router
from ibpulse.gateway.node_data import node_router
from ibpulse.gateway.node_list import node_list_router
from ibpulse.gateway.node_stream import node_stream_router
from ibpulse.gateway.page_routes import page_router, probe_router
from ibpulse.gateway.parts import GatewayParts
from ibpulse.web.auth.access import AccessControl
from ibpulse.web.middleware import OuterMiddleware
from ibpulse.web.problems import install_problem_handlers
from ibpulse.web.schemas import problems

DESCRIPTION = "Traffic of many nodes at one address. Answers about a node are those of its daemon."


def create_gateway(parts: GatewayParts) -> FastAPI:
    """The application with all routes."""
    app = FastAPI(
        title="ibpulse gateway",
        description=DESCRIPTION,
        version=parts.version,
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    install_problem_handlers(app)
    # from the middleware, for every path but the probes
    refusals = problems(401, 414, 421, 429)
    data = (node_list_router, job_router, alert_router, node_router, node_stream_router, gateway_metrics_router)
    for router in data:
        app.include_router(router(parts), responses=refusals)
    app.include_router(probe_router(parts))
    app.include_router(page_router(parts, app.openapi))
    # middleware added last is outermost
    app.add_middleware(
        AccessControl, web_config=parts.web_config, max_body_bytes=parts.limits.max_body_bytes, hosts=parts.hosts
    )
    app.add_middleware(
        OuterMiddleware,
        counts=parts.counts,
        max_query_bytes=parts.limits.max_query_bytes,
        headers=parts.web_config.headers if parts.web_config else tuple,
        monotonic_ns=parts.clock.monotonic_ns,
    )
    return app
