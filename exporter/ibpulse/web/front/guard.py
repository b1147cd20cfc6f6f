"""What stands before every route: rate limit, who asks, where a write comes from, the body. It must not know routes.

The probes' paths alone are open to everybody, so that an orchestrator needs no password.
"""

from __future__ import annotations

import time

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ibpulse.web.front.body import (
    BODY_SECONDS,
    BodyTooLongError,
    DisconnectedError,
    announces_body,
    discard_body,
    read_body,
    replay,
)
from ibpulse.web.front.door import FrontDoor
from ibpulse.web.front.origin import is_foreign_write
from ibpulse.web.front.passwords import PasswordCheck, TooManyChecksError, parse_basic
from ibpulse.web.problems import KINDS, problem_response

PROBES = ("/-/healthy", "/-/ready")
CHALLENGE = 'Basic realm="ibpulse", charset="UTF-8"'
CLOSE = {"Connection": "close"}
SOON = {"Retry-After": "1"}
USER = "ibpulse.user"
"""Key of the scope that names who asks; absent where nobody had to say."""


class Guard:
    """ASGI middleware. With no door there is nobody to ask for a name; bodies and origins are judged all the same."""

    def __init__(self, app: ASGIApp, door: FrontDoor | None, max_body_bytes: int) -> None:
        self._app, self._door, self._max_body_bytes = app, door, max_body_bytes
        self._passwords = PasswordCheck()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or let it pass."""
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
            refusal = _refuse(413, "body-too-long", f"A body may have {self._max_body_bytes} bytes.", bound=bound)
        except TimeoutError:
            refusal = _refuse(408, "body-too-slow", f"The body did not come within {BODY_SECONDS:g} s; send it faster.")
        if refusal is not None and body and not await self._discard(scope, receive):
            refusal.headers.update(CLOSE)
        await (refusal or self._app)(scope, receive, send)

    async def _discard(self, scope: Scope, receive: Receive) -> bool:
        """Whether the connection is free of a body that nobody reads; one that waits for our word is not asked for."""
        if any(name == b"expect" for name, _ in scope["headers"]):
            return False
        return await discard_body(receive, self._max_body_bytes)

    async def _judge(self, scope: Scope) -> Response | None:
        """The refusal of a request by its head; None for one that may pass."""
        if scope["path"] in PROBES:
            return None
        door = self._door
        if door and not door.bucket.take(time.monotonic_ns()):
            return _refuse(429, "too-many-requests", "More requests came than rate_limit allows; ask less often.", SOON)
        refusal = await self._identify(scope, door) if door else None
        if refusal is None and is_foreign_write(scope["method"], scope["scheme"], scope["headers"]):
            return _refuse(
                403, "cross-site", "A page of another site sent this; writes come from own pages or programs."
            )
        return refusal

    async def _identify(self, scope: Scope, door: FrontDoor) -> Response | None:
        """Put the user's name into the scope; the refusal of one who must say it and does not."""
        users = door.rules.users
        name = scope.get("state", {}).get("certificate")
        if users:
            given = next((text for key, text in scope["headers"] if key == b"authorization"), b"")
            credentials = parse_basic(given)
            client = (scope.get("client") or ("",))[0]
            try:
                if credentials is None or not await self._passwords.is_right(users, credentials, client):
                    detail = "A user and a password of this server are needed; only the probes are open to everybody."
                    return _refuse(401, "login-needed", detail, {"WWW-Authenticate": CHALLENGE})
            except TooManyChecksError:
                return _refuse(503, "too-many-logins", "Too many passwords wait to be checked; try again soon.", SOON)
            name = credentials[0]
        if name:
            scope[USER] = name
        return None


def _refuse(status: int, kind: str, detail: str, headers: dict[str, str] | None = None, **members: object) -> Response:
    return problem_response(status, detail, KINDS[kind], kind, headers, **members)
