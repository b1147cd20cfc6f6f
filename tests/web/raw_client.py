"""Raw connections to a server, from any address of the loopback network, on the daemon's event loop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, ClassVar

import uvloop
from starlette.types import ASGIApp

from ibpulse.core.http.server import WebServer, serve
from tests.running import HANG_SECONDS


def on_uvloop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on the event loop of the daemon, whose transports differ from those of asyncio."""

    @functools.wraps(test)
    def run(*args: object, **kwargs: object) -> None:
        # those of tests on other loops are closed with these
        Client.opened.clear()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            try:
                runner.run(test(*args, **kwargs))
            finally:
                runner.run(Client.close_all())

    return run


@contextlib.asynccontextmanager
async def running(app: ASGIApp, **options: Any) -> AsyncIterator[WebServer]:
    """A server with this application."""
    server = await serve(app, "127.0.0.1", 0, **options)
    try:
        yield server
    finally:
        await server.stop()


class Client:
    """A raw connection."""

    opened: ClassVar[list[Client]] = []

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, server: WebServer, source: str = "127.0.0.1") -> Client:
        cls.opened.append(cls(*await asyncio.open_connection(server.host, server.port, local_addr=(source, 0))))
        return cls.opened[-1]

    @classmethod
    async def close_all(cls) -> None:
        """Close every connection, because a loop with open ones cannot be closed."""
        while cls.opened:
            cls.opened.pop().writer.transport.abort()
        # lets the loop close what it aborted
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def send(self, *parts: bytes) -> None:
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()

    async def get(self, path: str, *headers: str) -> tuple[int, dict[str, str], bytes]:
        """The answer to a request."""
        await self.send("\r\n".join([f"GET {path} HTTP/1.1", "Host: a", *headers, "", ""]).encode())
        return await self.answer()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of one answer."""
        head = (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), HANG_SECONDS)).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        content = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return int(head[0].split()[1]), headers, content

    async def ended(self) -> bool:
        """Whether the server has closed the connection."""
        try:
            return await asyncio.wait_for(self.reader.read(1), HANG_SECONDS) == b""
        except ConnectionError:
            return True
