"""Runs an ASGI application inside a running event loop. It must not know routes, and leaves signals to the command."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Any

from starlette.types import ASGIApp
from uvicorn import Config, Server
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ibpulse.errors import ConfigError

BACKLOG = 128
MAX_CONNECTIONS = 256
HEAD_SECONDS = 10.0
MAX_HEAD_BYTES = 65_536
# longer than the usual scrape interval of a minute, so that a scraper keeps its connection
KEEP_ALIVE_SECONDS = 75


class WebServer:
    """A server that listens; `host` and `port` are what it is really bound to."""

    def __init__(self, server: _Server, listener: socket.socket) -> None:
        self.host: str
        self.port: int
        self.host, self.port = listener.getsockname()[:2]
        self._server = server
        self._task = asyncio.create_task(server.serve(sockets=[listener]), name="web server")

    async def wait(self) -> None:
        """Return when the server has ended, or raise what ended it."""
        await asyncio.shield(self._task)

    async def stop(self) -> None:
        """Stop listening, let running requests end within the time given, and close."""
        self._server.should_exit = True
        self._server.ending.set()
        await self._task


async def serve(app: ASGIApp, host: str, port: int, *, shutdown_seconds: int = 5) -> WebServer:
    """A server that already listens; an empty host is every address, port 0 is any free port.

    Raises:
        ConfigError: the address cannot be bound.
    """
    listener = bind(host, port)
    config = Config(
        app,
        http=_BoundedProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=shutdown_seconds,
    )
    server = _Server(config)
    running = WebServer(server, listener)
    started = asyncio.create_task(server.listening.wait())
    await asyncio.wait([started, running._task], return_when=asyncio.FIRST_COMPLETED)
    started.cancel()
    if not server.listening.is_set():
        await running.wait()
    return running


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; an empty host is every address, of IPv6 too where the node has it.

    Raises:
        ConfigError: the address cannot be bound.
    """
    try:
        if not host and socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG)
        family, *_, address = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
            0
        ]
        return socket.create_server((address[0], port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError, UnicodeError) as error:
        # the system's own words: Python's repeat the address
        number = getattr(error, "errno", None) or 0
        reason = os.strerror(number) if number > 0 else getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            [
                f"web.listen-address: {host}:{port} cannot be listened on: {reason}; "
                "stop what uses it, or choose another address with --web.listen-address"
            ]
        ) from error


class _Server(Server):
    """uvicorn's server with events instead of flags, which leaves the signals alone."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()
        self.ending = asyncio.Event()

    async def main_loop(self) -> None:
        """Renew the Date header once a second until the end; uvicorn's own loop wakes ten times as often."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.ending.wait(), 1.0)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: the command that serves handles signals for all parts."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        self.listening.set()


class _BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with a bound on the length of a request's head and on the time it may take."""

    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._head_timer is not None:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.send_400_response(f"The head of a request may have {MAX_HEAD_BYTES} bytes.")
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._head_timer is None:
            self._expect_head()

    def on_headers_complete(self) -> None:
        self._end_head()
        super().on_headers_complete()

    def _expect_head(self) -> None:
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _end_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
