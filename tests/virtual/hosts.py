"""Applications that answer as no daemon would, for hosts of a fleet."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from tests.virtual.asgi import App

JSON = "application/json"


def answers(bodies: Mapping[str, tuple[bytes, str]], status: int = 200, *headers: tuple[bytes, bytes]) -> App:
    """An application with a body and its media type at these paths of its API, and nothing elsewhere.

    The path `""` stands for all others.
    """

    async def app(scope: Any, receive: Any, send: Any) -> None:
        found = bodies.get(scope["path"].removeprefix("/api/v1/"), bodies.get(""))
        body, kind = found or (b"", "text/plain")
        head = [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body)), *headers]
        await send({"type": "http.response.start", "status": status if found else 404, "headers": head})
        await send({"type": "http.response.body", "body": body})

    return app


async def hang(scope: Any, receive: Any, send: Any) -> None:
    """An application that never answers."""
    await asyncio.Event().wait()


async def endless(scope: Any, receive: Any, send: Any) -> None:
    """An application whose answers have no end."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", JSON.encode())]})
    while True:
        await send({"type": "http.response.body", "body": b"[" * 65536, "more_body": True})


async def drip(scope: Any, receive: Any, send: Any) -> None:
    """An application that sends a byte every 50 ms."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", JSON.encode())]})
    while True:
        await send({"type": "http.response.body", "body": b" ", "more_body": True})
        await asyncio.sleep(0.05)
