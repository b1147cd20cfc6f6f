"""A server that answers what no daemon would: a raw socket, one handler for each path."""

from __future__ import annotations

import asyncio
import re
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.loop_clock import pause

Handler = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Hostile:
    """What is answered at each path, and the heads of the requests."""

    handlers: dict[str, Handler] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    connections: int = 0
    open: int = 0
    url: str = ""

    def answer(
        self, path: str, body: bytes, kind: str = "application/json", status: str = "200 OK", *headers: str
    ) -> None:
        """A well-formed answer."""
        lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", *headers, "", ""]
        self.send(path, "\r\n".join(lines).encode() + body)

    def send(self, path: str, raw: bytes) -> None:
        """These bytes, whatever they are."""

        async def write(writer: asyncio.StreamWriter) -> None:
            writer.write(raw)

        self.handlers[path] = write


@asynccontextmanager
async def hostile(tls: ssl.SSLContext | None = None) -> AsyncIterator[Hostile]:
    """The server on a free loopback port."""
    state = Hostile()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        state.connections += 1
        state.open += 1
        task = asyncio.current_task()
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                state.asked.append(head)
                if length := re.search(r"(?i)\r\ncontent-length: (\d+)", head):
                    await reader.readexactly(int(length[1]))
                handler = state.handlers.get(head.split()[1].partition("?")[0])
                if handler is None:
                    writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                else:
                    await handler(writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            state.open -= 1
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    state.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    try:
        yield state
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def never(_: asyncio.StreamWriter) -> None:
    """No answer at all."""
    await asyncio.Event().wait()


async def endless(writer: asyncio.StreamWriter) -> None:
    """A body without an end, as fast as it is read."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + b"[" * 65536 + b"\r\n")
        await writer.drain()


async def endless_gzip(writer: asyncio.StreamWriter) -> None:
    """A compressed body without an end."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n\r\n")
    writer.write(zlib.compress(bytes(1_000_000), wbits=31))
    while True:
        writer.write(bytes(65_536))
        await writer.drain()


async def drip(writer: asyncio.StreamWriter) -> None:
    """A byte every 50 ms, so that no single read is late."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await pause(0.05)


async def endless_head(writer: asyncio.StreamWriter) -> None:
    """Headers without an end."""
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X-Y: " + b"z" * 1000 + b"\r\n")
        await writer.drain()


async def informational(writer: asyncio.StreamWriter) -> None:
    """Interim answers without an end."""
    while True:
        writer.write(b"HTTP/1.1 102 Processing\r\n\r\n" * 100)
        await writer.drain()
        await pause(0.01)
