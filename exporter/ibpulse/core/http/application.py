"""The application that daemon and gateway fill with routes, with access control and middleware around them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from ibpulse import __version__
from ibpulse.core.http.auth.access import AccessControl
from ibpulse.core.http.auth.reload import WebConfigReloader
from ibpulse.core.http.host_names import HostCheck
from ibpulse.core.http.middleware import OuterMiddleware
from ibpulse.core.http.problems import install_problem_handlers
from ibpulse.core.http.schemas import problems
from ibpulse.core.metrics.text import process_registry
from ibpulse.core.metrics.web import WebCounts

REFUSALS = problems(401, 414, 421, 429)
"""Of the middleware, for every path but the probes."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Limits on the cost of requests, individually and in total; `max_viewers` is that of all streams together."""

    max_query_bytes: int = 16_384
    max_body_bytes: int = 1_048_576
    max_viewers: int = 16


@dataclass(slots=True, kw_only=True)
class ServerParts:
    """What the routes of daemon and gateway have in common.

    `counts` has the server's own metrics, and `registry` those of the process. Streams end when `ending` is set.
    `web_config` is the loaded web configuration file, if any, and `hosts` the host names that are served.
    """

    limits: RequestLimits
    version: str = field(default_factory=lambda: __version__)
    registry: CollectorRegistry = field(default_factory=process_registry)
    counts: WebCounts = field(default_factory=WebCounts)
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    web_config: WebConfigReloader | None = None
    hosts: HostCheck = field(default_factory=HostCheck)


def make_app(title: str, description: str, parts: ServerParts, monotonic_ns: Callable[[], int]) -> FastAPI:
    """The application, still without routes."""
    app = FastAPI(
        title=title,
        description=description,
        version=parts.version,
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    install_problem_handlers(app)
    # middleware added last is outermost
    app.add_middleware(
        AccessControl, web_config=parts.web_config, max_body_bytes=parts.limits.max_body_bytes, hosts=parts.hosts
    )
    app.add_middleware(
        OuterMiddleware,
        counts=parts.counts,
        max_query_bytes=parts.limits.max_query_bytes,
        headers=parts.web_config.headers if parts.web_config else tuple,
        monotonic_ns=monotonic_ns,
    )
    return app
