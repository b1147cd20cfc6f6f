"""Access control before every route: host name, rate limit, authentication, origin of writes, limits of bodies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ibpulse.core.http.admission import requesting_client
from ibpulse.core.http.auth.passwords import PasswordCheck, TooManyChecksError, parse_basic
from ibpulse.core.http.auth.reload import WebConfigReloader
from ibpulse.core.http.host_names import HostCheck
from ibpulse.core.http.problems import KINDS, problem_response

BODY_SECONDS = 15.0
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
OWN_SITES = (b"same-origin", b"none")
PROBES = ("/-/healthy", "/-/ready")
CHALLENGE = 'Basic realm="ibpulse", charset="UTF-8"'
CLOSE = {"Connection": "close"}
SOON = {"Retry-After": "1"}
USER = "ibpulse.user"
"""Scope key of the user's name; absent if no login is required."""
REFUSED = "ibpulse.refused"
"""Key in the `state` of the scope of requests that were refused here."""


class BodyTooLongError(Exception):
    """The body exceeds the limit."""


class DisconnectedError(Exception):
    """The client disconnected."""


def announces_body(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether the head announces a body."""
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip() not in (b"", b"0"))
        for name, value in headers
    )


async def read_body(headers: Iterable[tuple[bytes, bytes]], receive: Receive, max_bytes: int) -> bytes:
    """Read the whole body.

    Raises:
        BodyTooLongError: it exceeds `max_bytes`, or its announced length does.
        TimeoutError: it did not arrive in time.
        DisconnectedError: the client disconnected.
    """
    length = dict(headers).get(b"content-length", b"0")
    if length.isdigit() and int(length) > max_bytes:
        raise BodyTooLongError
    body = bytearray()
    more = True
    async with asyncio.timeout(BODY_SECONDS):
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise DisconnectedError
            body += message.get("body", b"")
            if len(body) > max_bytes:
                raise BodyTooLongError
            more = message.get("more_body", False)
    return bytes(body)


def replay(body: bytes, receive: Receive) -> Receive:
    """A receive callable that returns the body once, and then the connection's messages."""
    given = False

    async def receive_again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


def is_foreign_write(method: str, scheme: str, headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a browser sent this write on behalf of another site (Fetch Metadata, W3C; Origin, RFC 6454)."""
    if method in SAFE_METHODS:
        return False
    given = dict(headers)
    site, origin = given.get(b"sec-fetch-site"), given.get(b"origin")
    if site is not None:
        return site not in OWN_SITES
    return origin is not None and origin.lower() != f"{scheme}://".encode() + given.get(b"host", b"").lower()


class AccessControl:
    """ASGI middleware; without a web configuration there are no users and no rate limit."""

    def __init__(
        self, app: ASGIApp, web_config: WebConfigReloader | None, max_body_bytes: int, hosts: HostCheck | None = None
    ) -> None:
        self._app, self._web_config, self._max_body_bytes = app, web_config, max_body_bytes
        self._hosts = hosts or HostCheck()
        self._passwords = PasswordCheck()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = await self._judge(scope)
        body = announces_body(scope["headers"])
        try:
            if refusal is None and body:
                receive = replay(await read_body(scope["headers"], receive, self._max_body_bytes), receive)
        except DisconnectedError:
            return
        except BodyTooLongError:
            bound = {"name": "max_body_bytes", "limit": self._max_body_bytes}
            refusal = _refuse(
                413, "body-too-long", f"A body may be at most {self._max_body_bytes} bytes long.", bound=bound
            )
        except TimeoutError:
            refusal = _refuse(408, "body-too-slow", f"The body did not arrive within {BODY_SECONDS:g} s.")
        if refusal is not None:
            scope.setdefault("state", {})[REFUSED] = True
            if body:
                refusal.headers.update(CLOSE)
        await (refusal or self._app)(scope, receive, send)

    async def _judge(self, scope: Scope) -> Response | None:
        """The refusal of a request based on its head; None if it may pass."""
        if scope["path"] in PROBES:
            return None
        wrong_host = self._hosts.find_refusal(scope["headers"])
        if wrong_host is not None:
            return wrong_host
        web_config = self._web_config
        if web_config and not web_config.bucket.take(time.monotonic_ns()):
            return _refuse(429, "too-many-requests", "The request exceeds rate_limit; send fewer requests.", SOON)
        refusal = await self._identify(scope, web_config) if web_config else None
        if refusal is None and is_foreign_write(scope["method"], scope["scheme"], scope["headers"]):
            return _refuse(
                403,
                "cross-site",
                "The request came from a page of another site; only this server's pages and programs may write.",
            )
        return refusal

    async def _identify(self, scope: Scope, web_config: WebConfigReloader) -> Response | None:
        """Put the user's name into the scope; returns a refusal if the required login is missing or wrong."""
        users = web_config.rules.users
        name = scope.get("state", {}).get("certificate")
        if users:
            given = next((text for key, text in scope["headers"] if key == b"authorization"), b"")
            credentials = parse_basic(given)
            client = requesting_client(scope)
            try:
                if credentials is None or not await self._passwords.is_right(users, credentials, client):
                    detail = "A user name and password are required; only the health probes are public."
                    return _refuse(401, "login-needed", detail, {"WWW-Authenticate": CHALLENGE})
            except TooManyChecksError:
                return _refuse(503, "too-many-logins", "Too many logins are pending; try again in a moment.", SOON)
            name = credentials[0]
        if name:
            scope[USER] = name
        return None


def _refuse(status: int, kind: str, detail: str, headers: dict[str, str] | None = None, **members: object) -> Response:
    return problem_response(status, detail, KINDS[kind], kind, headers, **members)
