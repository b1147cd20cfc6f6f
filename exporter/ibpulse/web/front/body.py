"""Request bodies, read whole before a route sees them: bounded in length and in time. It must not know routes.

A body that is announced is read whatever the method, so that none is left in the connection for the next request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from starlette.types import Message, Receive

BODY_SECONDS = 15.0
# what a refused request may still send, so that the client is done and reads the answer
DISCARD_SECONDS = 1.0


class BodyTooLongError(Exception):
    """More was sent, or announced, than may be."""


class DisconnectedError(Exception):
    """The client went away."""


def announces_body(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether the head says that a body follows."""
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip() not in (b"", b"0"))
        for name, value in headers
    )


async def read_body(headers: Iterable[tuple[bytes, bytes]], receive: Receive, max_bytes: int) -> bytes:
    """The whole body.

    Raises:
        BodyTooLongError: it is longer than `max_bytes`, by its own account or by what came.
        TimeoutError: it did not come in time.
        DisconnectedError: the client went away.
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


async def discard_body(receive: Receive, max_bytes: int) -> bool:
    """Whether the whole body came within a moment and some bytes; it is thrown away."""
    left = max_bytes
    try:
        async with asyncio.timeout(DISCARD_SECONDS):
            while left >= 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if not message.get("more_body", False):
                    return bool(message["type"] == "http.request")
    except TimeoutError:
        pass
    return False


def replay(body: bytes, receive: Receive) -> Receive:
    """A receiver that gives the body once, and then what the connection gives."""
    given = False

    async def receive_again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again
