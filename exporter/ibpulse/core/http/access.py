"""Access control before every route: host name, rate limit, authentication, origin of writes, limits of bodies.

A single low-priority thread checks passwords one by one, which limits all clients together to about 20 guesses per
second for bcrypt hashes of cost 10. Clients have their turns, and those with wrong passwords come last. Logins are
remembered and do not wait again.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import ipaddress
import math
import re
import secrets
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import bcrypt
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ibpulse.base.deadline import DaemonThreads, yield_to_others
from ibpulse.core.http.admission import FairQueue, FullError, requesting_client
from ibpulse.core.http.problems import problem_response
from ibpulse.core.http.web_config import WebConfigReloader, cost_of

MAX_WAITING = 64
# logins, and clients with wrong passwords
MAX_REMEMBERED = 1024
# A client with a wrong password waits behind others for this long.
WRONG_SECONDS = 60.0
REMEMBERED_SECONDS = 600.0
# bcrypt ignores further bytes
MAX_PASSWORD_BYTES = 72
# about a tenth of a busy CPU: guesses cost little, and logins stay fast even on a busy node
NICENESS = 10

Credentials = tuple[str, bytes]
Key = TypeVar("Key", str, bytes)


def parse_basic(header: bytes) -> Credentials | None:
    """User and password of an Authorization header (RFC 7617); None if it is of another kind."""
    scheme, _, encoded = header.strip().partition(b" ")
    if scheme.lower() != b"basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (user.decode(), password) if colon else None
    except (binascii.Error, UnicodeDecodeError):
        return None


class PasswordCheck:
    """Checks passwords, and remembers correct ones for a while, as keyed hashes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._secret = secrets.token_bytes(32)
        self._remembered: OrderedDict[bytes, float] = OrderedDict()
        self._running: dict[bytes, asyncio.Task[bool]] = {}
        # when a client last had a wrong password
        self._wrong: OrderedDict[str, float] = OrderedDict()
        self._queue = FairQueue(1, MAX_WAITING, self._rank)
        # niceness is per thread on Linux
        self._thread = DaemonThreads(1, "passwords", partial(yield_to_others, NICENESS))

    async def is_right(self, users: Mapping[str, str], credentials: Credentials, client: str) -> bool:
        """Whether the password is the user's. Takes equally long for unknown users, if all hashes have the same cost.

        `users` has the hash of each user, `client` is where the request comes from.

        Raises:
            FullError: too many checks are pending, and this client has most of them or had a wrong password.
        """
        user, password = credentials
        stored = users.get(user) or _unmatchable(users)
        key = self._digest(user, stored, password)
        if self._recalls(key):
            return True
        if key not in self._running:
            check = self._check(key, stored, password, client)
            self._running[key] = task = asyncio.create_task(check, name="password")
            task.add_done_callback(lambda _: self._forget_task(key, task))
        # a client that disconnects must not cancel the check of another with the same password
        return await asyncio.shield(self._running[key])

    def _forget_task(self, key: bytes, task: asyncio.Task[bool]) -> None:
        del self._running[key]
        if not task.cancelled():
            # no request may be left that reads it
            task.exception()

    def _rank(self, client: str) -> int:
        """1 for a client that recently had a wrong password."""
        return int(self._clock() - self._wrong.get(client, -math.inf) < WRONG_SECONDS)

    async def _check(self, key: bytes, stored: str, password: bytes, client: str) -> bool:
        await self._queue.enter(client)
        try:
            known, loop = password[:MAX_PASSWORD_BYTES], asyncio.get_running_loop()
            right = await loop.run_in_executor(self._thread, bcrypt.checkpw, known, stored.encode())
            if right:
                _note(self._remembered, key, self._clock())
            else:
                _note(self._wrong, client, self._clock())
            return right
        finally:
            self._queue.leave(client)

    def _recalls(self, key: bytes) -> bool:
        """Whether this password was correct recently, counted from its last use."""
        now = self._clock()
        used = self._remembered.pop(key, None)
        if used is None or now - used > REMEMBERED_SECONDS:
            return False
        self._remembered[key] = now
        return True

    def _digest(self, *parts: str | bytes) -> bytes:
        """A keyed hash of user, stored hash and password; a changed hash gives a new key."""
        digest = hashlib.blake2b(key=self._secret, digest_size=32)
        for part in parts:
            content = part if isinstance(part, bytes) else part.encode()
            digest.update(len(content).to_bytes(8, "big") + content)
        return digest.digest()


def _note(times: OrderedDict[Key, float], key: Key, now: float) -> None:
    """Remember a time, and forget the oldest of too many."""
    times.pop(key, None)
    times[key] = now
    while len(times) > MAX_REMEMBERED:
        times.popitem(last=False)


def _unmatchable(users: Mapping[str, str]) -> str:
    """A hash that no password matches, with the highest cost among the users'."""
    cost = max(map(cost_of, users.values()), default=10)
    return f"$2b${cost:02d}${'.' * 53}"


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
            except FullError:
                return problem_response(
                    503, "Too many logins are pending; try again in a moment.", "too-many-logins", SOON
                )
            name = credentials[0]
        if name:
            scope[USER] = name
        return None
