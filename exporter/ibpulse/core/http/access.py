"""Access control before every route: host name, rate limit, authentication, origin of writes, limits of bodies."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import time
from collections.abc import Iterable, Sequence

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ibpulse.core.http.admission import requesting_client
from ibpulse.core.http.passwords import PasswordCheck, TooManyChecksError, parse_basic
from ibpulse.core.http.problems import problem_response
from ibpulse.core.http.reload import WebConfigReloader

LOCAL = "localhost"
ANY = "*"
SHOWN = 100
_HOST = re.compile(r"(?:\[([^\[\]]*)\]|([^\[\]:]*))(?::[0-9]*)?")


class HostCheck:
    """The check of the header Host (RFC 9110, 7.2).

    A server that listens on a loopback address serves loopback names and addresses, and `hosts`. Any other server
    serves every name, or with `hosts` only these, loopback names and addresses: no attacker can rebind an address.
    `hosts` with `*` serves every name.
    """

    def __init__(self, listen_host: str = "", hosts: Sequence[str] = ()) -> None:
        """Resolve `listen_host`, the name or address to listen on; empty for every address of the node."""
        self._local = _is_local(listen_host)
        self._names = {LOCAL, _plain(listen_host), *map(_plain, hosts)} - {""}
        self._open = ANY in hosts or not (hosts or self._local)

    def find_refusal(self, headers: Iterable[tuple[bytes, bytes]]) -> Response | None:
        """The refusal of a request to another host; None without the header, because browsers always send it."""
        if self._open:
            return None
        asked = (value.decode("latin-1") for name, value in headers if name == b"host")
        wrong = next((host for host in asked if not self._serves(host)), None)
        if wrong is None:
            return None
        detail = (
            f"The request is for the host {wrong[:SHOWN]!r}, which is not served here. Use localhost or the address of "
            "this server, or add the name to web.hosts."
        )
        return problem_response(421, detail, "wrong-host")

    def _serves(self, host: str) -> bool:
        match = _HOST.fullmatch(host.strip())
        if match is None:
            return False
        name = _plain(match[1] or match[2] or "")
        address = _parse(name)
        return name in self._names or (address is not None and (address.is_loopback or not self._local))


def _plain(name: str) -> str:
    return name.lower().removesuffix(".")


def _parse(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _is_local(host: str) -> bool:
    """Whether a server that listens on that host can be reached from this node only."""
    if not host:
        return False
    try:
        *_, place = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        # listening fails as well, and says why
        return False
    address = _parse(str(place[0]))
    return address is not None and address.is_loopback


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
        refusal = await self._find_refusal(scope)
        body = announces_body(scope["headers"])
        try:
            if refusal is None and body:
                receive = replay(await read_body(scope["headers"], receive, self._max_body_bytes), receive)
        except DisconnectedError:
            return
        except BodyTooLongError:
            bound = {"name": "max_body_bytes", "limit": self._max_body_bytes}
            refusal = problem_response(
                413, f"A body may be at most {self._max_body_bytes} bytes long.", "body-too-long", bound=bound
            )
        except TimeoutError:
            refusal = problem_response(408, f"The body did not arrive within {BODY_SECONDS:g} s.", "body-too-slow")
        if refusal is not None:
            scope.setdefault("state", {})[REFUSED] = True
            if body:
                refusal.headers.update(CLOSE)
        await (refusal or self._app)(scope, receive, send)

    async def _find_refusal(self, scope: Scope) -> Response | None:
        """The refusal of a request based on its head; None if it may pass."""
        if scope["path"] in PROBES:
            return None
        wrong_host = self._hosts.find_refusal(scope["headers"])
        if wrong_host is not None:
            return wrong_host
        web_config = self._web_config
        if web_config and not web_config.bucket.take(time.monotonic_ns()):
            return problem_response(
                429, "The request exceeds rate_limit; send fewer requests.", "too-many-requests", SOON
            )
        refusal = await self._identify(scope, web_config) if web_config else None
        if refusal is None and is_foreign_write(scope["method"], scope["scheme"], scope["headers"]):
            return problem_response(
                403,
                "The request came from a page of another site; only this server's pages and programs may write.",
                "cross-site",
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
                    return problem_response(401, detail, "login-needed", {"WWW-Authenticate": CHALLENGE})
            except TooManyChecksError:
                return problem_response(
                    503, "Too many logins are pending; try again in a moment.", "too-many-logins", SOON
                )
            name = credentials[0]
        if name:
            scope[USER] = name
        return None
