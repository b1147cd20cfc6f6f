"""Runs an ASGI application in a running event loop, with limits on its connections.

`tests/web/test_uvicorn_canary.py` covers the uvicorn internals it relies on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Iterator

from starlette.types import ASGIApp
from uvicorn import Config, Server

from ibpulse.base.deadline import seconds_until_beat
from ibpulse.base.errors import ConfigError
from ibpulse.core.http.admission import OpenConnection, OpenConnections, client_of
from ibpulse.core.http.connection import Connection
from ibpulse.core.http.reload import WebConfigReloader

log = logging.getLogger(__name__)

HANDSHAKE_SECONDS = 10.0
CLOSE_SECONDS = 2.0
# pause when the process has no file descriptor left
EXHAUSTED_SECONDS = 0.5
BACKLOG = 512
# the whole daemon exits within 5 s
SHUTDOWN_SECONDS = 3
# at the end, time for what clients have sent already to be read
SETTLE_SECONDS = 0.1
# longer than a scrape interval of one minute, so that scrapers keep their connections
KEEP_ALIVE_SECONDS = 75


class WebServer:
    """A listening server; `host` and `port` are the bound address."""

    def __init__(self, server: _Server, listener: socket.socket) -> None:
        self.host: str
        self.port: int
        self.host, self.port = listener.getsockname()[:2]
        self._server = server
        self._task = asyncio.create_task(server.serve(sockets=[listener]), name="web server")

    async def wait(self) -> None:
        """Wait for the end of the server; raises the error that ended it."""
        await asyncio.shield(self._task)

    async def stop(self) -> None:
        """Stop listening, give running requests some time to finish, and close."""
        self._server.should_exit = True
        self._server.ending.set()
        await self._task
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()


async def serve(
    app: ASGIApp,
    host: str,
    port: int,
    *,
    shutdown_seconds: int = SHUTDOWN_SECONDS,
    web_config: WebConfigReloader | None = None,
) -> WebServer:
    """Start a server; an empty host means every address, port 0 any free port.

    New connections have the TLS of `web_config`. `app` also sends the refusals of the connection, as `OuterMiddleware`
    does.

    Raises:
        ConfigError: the address cannot be bound.
    """
    listener = bind(host, port)
    config = Config(
        app,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=shutdown_seconds,
    )
    server = _Server(config, listener, web_config)
    running = WebServer(server, listener)
    started = asyncio.create_task(server.listening.wait())
    await asyncio.wait([started, running._task], return_when=asyncio.FIRST_COMPLETED)
    started.cancel()
    if not server.listening.is_set():
        await running.wait()
    return running


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; an empty host or `::` means every address, including IPv6 if available.

    Raises:
        ConfigError: the address cannot be bound.
    """
    try:
        host = "" if host == "::" else host
        if not host and socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG)
        family, *_, address = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
            0
        ]
        return socket.create_server((address[0], port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError, UnicodeError) as error:
        # the system's message: Python's repeats the address
        number = getattr(error, "errno", None) or 0
        reason = os.strerror(number) if number > 0 else getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            [
                f"web.listen-address: cannot listen on {host}:{port}: {reason}; "
                "stop the process that uses it, or choose another --web.listen-address"
            ]
        ) from error


class _Server(Server):
    """uvicorn's server with events instead of flags, and without signal handlers."""

    def __init__(self, config: Config, listening: socket.socket, web_config: WebConfigReloader | None) -> None:
        super().__init__(config)
        self._listening, self._web_config = listening, web_config
        self._loop = asyncio.get_running_loop()
        self._handshakes: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self.opened = OpenConnections()
        self.listening = asyncio.Event()
        self.ending = asyncio.Event()

    async def main_loop(self) -> None:
        """Renew the Date header and check the clients once a second; uvicorn's own loop wakes ten times as often."""
        while not await self.on_tick(0):
            for connection in self._connections():
                connection.check_reading()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.ending.wait(), seconds_until_beat(1.0))

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: the daemon handles signals."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and set `listening`, without asyncio's servers, which have no limits."""
        self._listening.setblocking(False)
        self._loop.add_reader(self._listening, self._accept)
        self.servers = []
        self.started = True
        self.listening.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, and answer what clients have sent so far."""
        self.opened.ending = True
        for connection in self._connections():
            connection.close_after_answers()
        await self._close_listener()
        await asyncio.sleep(SETTLE_SECONDS)
        await super().shutdown(sockets)

    def _connections(self) -> list[Connection]:
        return [each for each in self.server_state.connections if isinstance(each, Connection)]

    async def _close_listener(self) -> None:
        """Accept what clients have opened so far, and no more; cancel handshakes that take long."""
        self._loop.remove_reader(self._listening)
        self._accept()
        if self._pause is not None:
            self._pause.cancel()
        if self._handshakes:
            _, late = await asyncio.wait(self._handshakes, timeout=SETTLE_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _accept(self) -> None:
        for _ in range(BACKLOG):
            try:
                accepted, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("cannot accept a connection: %s", error.strerror)
                self._loop.remove_reader(self._listening)
                self._pause = self._loop.call_later(
                    EXHAUSTED_SECONDS, self._loop.add_reader, self._listening, self._accept
                )
                return
            self._take(OpenConnection(accepted, client_of(str(address[0]))))

    def _take(self, place: OpenConnection) -> None:
        task = place.handshake = self._loop.create_task(self._begin(place), name="handshake")
        self._handshakes.add(task)
        task.add_done_callback(lambda _: self._begun(place, task))
        self.opened.add(place)

    def _begun(self, place: OpenConnection, task: asyncio.Task[None]) -> None:
        self._handshakes.discard(task)
        if place.transport is None:
            self.opened.remove(place)
            place.socket.close()

    async def _begin(self, place: OpenConnection) -> None:
        """Pass the connection to a protocol, after the TLS handshake if any."""
        tls = self._web_config.rules.tls if self._web_config else None
        timeouts = {"ssl_handshake_timeout": HANDSHAKE_SECONDS, "ssl_shutdown_timeout": CLOSE_SECONDS} if tls else {}
        try:
            await self._loop.connect_accepted_socket(
                lambda: Connection(self.config, self.server_state, tls, self.opened, place),
                place.socket,
                ssl=tls.context if tls else None,
                **timeouts,
            )
        except (OSError, TimeoutError) as error:
            # clients without TLS, without a valid certificate, or too slow are too common to log
            log.debug("TLS handshake with %s failed: %s", place.client, error)
