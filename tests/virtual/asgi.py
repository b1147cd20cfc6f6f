"""Requests to applications in this process, whose answers may have no end."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

import httpx

from tests.virtual.world import World

App = Any


class AppTransport(httpx.AsyncBaseTransport):
    """Answers requests to a host by the application that runs there now; without one, nothing listens.

    As with a connection whose buffers are full, the application waits while the client does not read.
    """

    def __init__(self, find: Callable[[str], App | None]) -> None:
        self._find = find

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        app = self._find(request.url.host)
        if app is None:
            refused = OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
            raise httpx.ConnectError("All connection attempts failed", request=request) from refused
        exchange = _Exchange(request, await request.aread())
        return await exchange.answer(app)


class _Exchange(httpx.AsyncByteStream):
    """One request and the body of its answer."""

    def __init__(self, request: httpx.Request, body: bytes) -> None:
        self._request, self._body = request, body
        self._begun: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._parts: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=1)
        self._left = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def answer(self, app: App) -> httpx.Response:
        self._task = asyncio.create_task(self._run(app), name="answer")
        try:
            begun = await self._begun
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        return httpx.Response(begun["status"], headers=begun["headers"], stream=self, request=self._request)

    async def _run(self, app: App) -> None:
        url = self._request.url
        # httpx would resolve the dots of a path
        raw_path = self._request.extensions.get("target", url.raw_path).partition(b"?")[0]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": self._request.method,
            "headers": [(name.lower(), text) for name, text in self._request.headers.raw],
            "scheme": url.scheme,
            "path": unquote(raw_path.decode()),
            "raw_path": raw_path,
            "query_string": url.query,
            "server": (url.host, url.port),
            "client": ("127.0.0.1", 123),
            "root_path": "",
            "state": {},
        }
        try:
            await app(scope, self._receive, self._send)
        except Exception as error:
            if not self._begun.done():
                self._begun.set_exception(error)
            raise
        finally:
            if not self._left.is_set():
                await self._parts.put(None)

    async def _receive(self) -> Mapping[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None  # type: ignore[assignment]
            return {"type": "http.request", "body": body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self._begun.set_result(dict(message))
        elif message.get("body") and not self._left.is_set():
            await self._parts.put(message["body"])

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (part := await self._parts.get()) is not None:
            yield part

    async def aclose(self) -> None:
        self._left.set()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await self._task


class BlockingTransport(httpx.BaseTransport):
    """Answers requests of a program whose thread waits, for an application in the same virtual time."""

    def __init__(self, world: World, transport: AppTransport) -> None:
        self._world, self._transport = world, transport

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._world.wait_for(self._send(request))

    async def _send(self, request: httpx.Request) -> httpx.Response:
        response = await self._transport.handle_async_request(request)
        content = httpx.ByteStream(await response.aread())
        return httpx.Response(response.status_code, headers=response.headers, stream=content)


class Viewer:
    """A client of a stream."""

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: AppTransport, url: str) -> None:
        self.received = bytearray()
        self._loop = loop
        self._task = loop.create_task(self._read(transport, url), name="viewer")

    async def _read(self, transport: AppTransport, url: str) -> None:
        response = await transport.handle_async_request(httpx.Request("GET", url))
        try:
            async for part in response.aiter_raw():
                self.received += part
        finally:
            await response.aclose()

    def events(self, name: str) -> list[bytes]:
        """The data of the events of this name so far."""
        found = []
        for text in bytes(self.received).split(b"\n\n"):
            fields = dict(line.partition(b": ")[::2] for line in text.split(b"\n"))
            if fields.get(b"event") == name.encode():
                found.append(fields.get(b"data", b""))
        return found

    def leave(self) -> None:
        """Close the connection."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)
