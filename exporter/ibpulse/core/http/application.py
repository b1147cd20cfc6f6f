"""The application without routes: access control, and the middleware around all answers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ibpulse import __version__
from ibpulse.base.internal_errors import Occurrences, find_cause
from ibpulse.base.units import SECOND_NS
from ibpulse.core.http.access import AccessControl, HostCheck
from ibpulse.core.http.problems import install_problem_handlers, problem_response, problems
from ibpulse.core.http.web_config import WebConfigReloader
from ibpulse.core.metrics.text import process_registry
from ibpulse.core.metrics.web import WebCounts

log = logging.getLogger(__name__)

Headers = Sequence[tuple[bytes, bytes]]

SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
CONTENT_POLICY = b"content-security-policy"
POLICY = (CONTENT_POLICY, b"default-src 'none'; frame-ancestors 'none'")
# nginx's code for a client that disconnected before the response began
ABANDONED = 499
# label of requests without a route
OTHER = "other"
# marks the scope of a HEAD request, handled like a GET without the body
HEAD = "ibpulse.head"
REFUSAL = "ibpulse.refusal"
"""Key in the `state` of the scope: the response to a request that the connection refuses."""
NO_STORE = (b"cache-control", b"no-store")


class OuterMiddleware:
    """ASGI middleware around all routes."""

    def __init__(
        self,
        app: ASGIApp,
        counts: WebCounts,
        max_query_bytes: int,
        web_config: WebConfigReloader | None = None,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._app, self._counts, self._max_query_bytes = app, counts, max_query_bytes
        self._web_config, self._monotonic_ns = web_config, monotonic_ns
        self._failures = Occurrences()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        configured = self._web_config.rules.headers if self._web_config else ()
        exchange = Exchange(send, scope["method"] == "HEAD", configured)
        if exchange.head:
            scope = {**scope, "method": "GET", HEAD: True}
        started_ns = self._monotonic_ns()
        try:
            await self._answer(scope, receive, exchange)
        finally:
            path = getattr(scope.get("route"), "path", OTHER)
            seconds = (self._monotonic_ns() - started_ns) / SECOND_NS
            self._counts.observe(path.rstrip("/") or path, exchange.status or ABANDONED, seconds)

    async def _answer(self, scope: Scope, receive: Receive, exchange: Exchange) -> None:
        app = scope.get("state", {}).get(REFUSAL, self._app)
        if len(scope["query_string"]) > self._max_query_bytes:
            detail = f"The query is {len(scope['query_string'])} bytes long; the maximum is {self._max_query_bytes}."
            bound = {"name": "max_query_bytes", "limit": self._max_query_bytes, "asked": len(scope["query_string"])}
            app = problem_response(414, detail, "query-too-long", bound=bound)
        try:
            await app(scope, receive, exchange.send)
        except asyncio.CancelledError:
            # the server is shutting down and has waited long enough for this request
            if exchange.status == 0:
                headers = {"Connection": "close", "Retry-After": "1"}
                ended = problem_response(503, "The server is stopping; try again in a moment.", headers=headers)
                await ended(scope, receive, exchange.send)
        except Exception as error:
            # any client may be able to repeat the request
            if self._failures.is_news(find_cause(error)):
                log.exception("request %s failed", scope["path"])
            if exchange.status == 0:
                await problem_response(500, "Internal error; see the server's log.")(scope, receive, exchange.send)


class Exchange:
    """Sends a response: adds headers, drops the body for HEAD, remembers the status."""

    def __init__(self, send: Send, head: bool, configured: Headers) -> None:
        self._send, self.head, self.status, self._configured = send, head, 0, configured

    async def send(self, message: Message) -> None:
        """Send a message."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": _complete(message["headers"], self._configured)}
        elif self.head and message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await self._send(message)


def _complete(headers: Headers, configured: Headers) -> list[tuple[bytes, bytes]]:
    """The response's headers, overridden by those of the web configuration, and the security headers.

    A configured content policy is sent in addition to the page's own; browsers enforce both.
    """
    replacing = {name for name, _ in configured if name != CONTENT_POLICY}
    whole = [*(header for header in headers if header[0] not in replacing), *configured]
    given = replacing | {name for name, _ in headers}
    return [*whole, *(header for header in (*SECURITY_HEADERS, POLICY, NO_STORE) if header[0] not in given)]


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
    """The common part of what the routes of daemon and gateway are given.

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
        web_config=parts.web_config,
        monotonic_ns=monotonic_ns,
    )
    return app
