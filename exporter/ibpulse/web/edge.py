"""What every request passes: HEAD, the query's length, security headers, self-metrics, errors nobody expected."""

from __future__ import annotations

import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ibpulse.web.http_metrics import OTHER, HttpMetrics
from ibpulse.web.problems import KINDS, problem_response

log = logging.getLogger(__name__)

SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
POLICY = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
# what proxies write when the client went away before an answer began
ABANDONED = 499
NO_STORE = (b"cache-control", b"no-store")


class Edge:
    """ASGI middleware around the routes."""

    def __init__(self, app: ASGIApp, metrics: HttpMetrics, max_query_bytes: int) -> None:
        self._app, self._metrics, self._max_query_bytes = app, metrics, max_query_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = Exchange(send, scope["method"] == "HEAD")
        if exchange.head:
            scope = {**scope, "method": "GET"}
        started = time.perf_counter()
        try:
            await self._answer(scope, receive, exchange)
        finally:
            path = getattr(scope.get("route"), "path", OTHER)
            self._metrics.observe(path.rstrip("/") or path, exchange.status or ABANDONED, time.perf_counter() - started)

    async def _answer(self, scope: Scope, receive: Receive, exchange: Exchange) -> None:
        app = self._app
        if len(scope["query_string"]) > self._max_query_bytes:
            detail = f"The query is {len(scope['query_string'])} bytes long, at most {self._max_query_bytes} are read."
            bound = {"name": "max_query_bytes", "limit": self._max_query_bytes, "asked": len(scope["query_string"])}
            app = problem_response(414, detail, KINDS["query-too-long"], "query-too-long", bound=bound)
        try:
            await app(scope, receive, exchange.send)
        except Exception:
            log.exception("request %s failed", scope["path"])
            if exchange.status == 0:
                await problem_response(500, "The server failed; its log says how.")(scope, receive, exchange.send)


class Exchange:
    """The sending half of a request: adds the headers, drops the body of an answer to HEAD, remembers the status."""

    def __init__(self, send: Send, head: bool) -> None:
        self._send, self.head, self.status = send, head, 0

    async def send(self, message: Message) -> None:
        """Pass a message on."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": _with_defaults(message["headers"])}
        elif self.head and message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await self._send(message)


def _with_defaults(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers with the security headers; a page's own content policy stays."""
    given = {name for name, _ in headers}
    return [*headers, *(header for header in (*SECURITY_HEADERS, POLICY, NO_STORE) if header[0] not in given)]
