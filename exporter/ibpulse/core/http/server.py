"""Runs an ASGI application in a running event loop, with limits on its connections: heads, clients that do not read.

It relies on internals of uvicorn, which is pinned to a minor version; `tests/web` notices when they change.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import socket
import struct
import termios
import time
from collections.abc import Iterator
from typing import Any

import httptools
from starlette.responses import Response
from starlette.types import ASGIApp
from uvicorn import Config, Server
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from ibpulse.base.deadline import seconds_until_beat
from ibpulse.base.errors import ConfigError
from ibpulse.core.http.access import CLOSE, PROBES, REFUSED
from ibpulse.core.http.admission import (
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_CLIENT,
    OpenConnection,
    OpenConnections,
    client_of,
)
from ibpulse.core.http.application import REFUSAL
from ibpulse.core.http.problems import problem_response
from ibpulse.core.http.web_config import TlsServer, WebConfigReloader, find_name, has_allowed_name

HEAD_SECONDS = 10.0
MAX_HEAD_BYTES = 65_536
# A client whose system has taken nothing for this long is disconnected.
UNREAD_SECONDS = 20.0
# in a crowd, and after a refused request
SHORT_KEEP_ALIVE_SECONDS = 5

_malformed = problem_response(400, "The request is not valid HTTP/1.1.", headers=CLOSE)
_long = problem_response(431, f"The head of a request may be at most {MAX_HEAD_BYTES} bytes long.", headers=CLOSE)
_crowded = problem_response(
    503,
    f"Too many connections are in use: at most {MAX_CONNECTIONS}, and {MAX_CONNECTIONS_PER_CLIENT} per address. "
    "Try again in a second.",
    "too-many-connections",
    {**CLOSE, "Retry-After": "1"},
)


class Connection(HttpToolsProtocol):
    """A client's connection. The scope of its requests has the name in its certificate as `state.certificate`."""

    def __init__(
        self,
        config: Config,
        state: ServerState,
        tls: TlsServer | None,
        opened: OpenConnections,
        place: OpenConnection,
    ) -> None:
        super().__init__(config, state, {})
        self._tls, self._opened, self._place = tls, opened, place
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        # the request that is being answered; uvicorn's `cycle` is the last one received
        self._answering: Any = None
        # whether data came that cannot be read as requests; no more is read
        self._refused = False
        self._read_at = time.monotonic()
        self._unread_bytes = 0

    def connection_made(self, transport: Any) -> None:
        """Start, or disconnect a client whose certificate has no allowed name."""
        super().connection_made(transport)
        self._place.transport = transport
        peer = transport.get_extra_info("ssl_object")
        if self._tls and not has_allowed_name(peer, self._tls.allowed_names):
            transport.abort()
            return
        self.app_state = {"certificate": find_name(peer)}
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel everything that waits for this client."""
        self._end_head()
        self._opened.remove(self._place)
        self.pipeline.clear()
        if self._answering is not None:
            self._answering.disconnected = True
            self._answering.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse received data; refuse malformed data and a head that grows too long."""
        if self.transport.is_closing() or self._refused:
            return
        self._unset_keepalive_if_required()
        if self._head_timer is None and (self.cycle is None or self.cycle.response_complete):
            self._expect_head()
        expecting = self._head_timer
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self._refuse(_malformed)
        # the same head as before; one that arrived complete is measured elsewhere
        if expecting is not None and expecting is self._head_timer:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse(_long)
        if self._opened.ending:
            self.close_after_answers()

    def on_message_begin(self) -> None:
        """Start the timeout for the rest of a head."""
        super().on_message_begin()
        if self._head_timer is None:
            self._expect_head()

    def on_headers_complete(self) -> None:
        """Stop the timeout, and start the response: the application's, or a refusal."""
        self._end_head()
        refusal = self._judge_head()
        if refusal is not None:
            self.scope["state"][REFUSAL] = refusal
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Note that the request is complete: from here on the client waits for the server."""
        if not self.cycle.response_complete:
            self._place.waiting_since = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request, not for long in a crowd or after a refusal, or answer the one that waits."""
        short = self._opened.is_crowded() or REFUSED in self._answering.scope["state"]
        self.timeout_keep_alive = SHORT_KEEP_ALIVE_SECONDS if short else self.config.timeout_keep_alive
        super().on_response_complete()
        if self._answering.response_complete or self._answering.more_body:
            self._place.waiting_since = time.monotonic()

    def close_after_answers(self) -> None:
        """Close the connection after the answers to what it received."""
        if self.cycle is not None:
            self.cycle.keep_alive = False

    def check_reading(self) -> None:
        """Disconnect a client whose system has taken nothing for a while, although there is something to take.

        A system takes data until its buffers are full; from then on the client has to read.
        """
        try:
            unread_bytes = self.transport.get_write_buffer_size() + _unsent_bytes(self._place.socket)
        except (OSError, ValueError):
            # already closed
            return
        if not unread_bytes or unread_bytes < self._unread_bytes:
            self._read_at = time.monotonic()
        elif time.monotonic() - self._read_at >= UNREAD_SECONDS:
            self.transport.abort()
        self._unread_bytes = unread_bytes

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _parse(self, data: bytes) -> None:
        """Parse; a request for an upgrade, none of which is offered, is like any other, and more may follow it."""
        while data:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]

    def _judge_head(self) -> Response | None:
        head_bytes = len(self.url) + sum(len(name) + len(text) for name, text in self.headers)
        if head_bytes > MAX_HEAD_BYTES:
            return _long
        is_probe = self.url.partition(b"?")[0].decode("latin-1") in PROBES
        return None if is_probe or self._opened.admit(self._place) else _crowded

    def _refuse(self, refusal: Response) -> None:
        """Send a refusal and close; while other requests are answered, only close after their answers."""
        self._refused = True
        last = self.cycle
        waits_for_body = last is not None and last is self._answering and last.more_body and not last.response_started
        if last is None or last.response_complete or waits_for_body:
            head = [(b"HTTP/1.1 %d Refused" % refusal.status_code, b""), *refusal.raw_headers]
            self.transport.write(b"\r\n".join(name + (text and b": " + text) for name, text in head))
            self.transport.write(b"\r\n\r\n" + bytes(refusal.body))
            self.transport.close()
        else:
            self.close_after_answers()

    def _expect_head(self) -> None:
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _end_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def _unsent_bytes(connected: socket.socket) -> int:
    """Bytes in the system's send queue that the client's system has not acknowledged (SIOCOUTQ)."""
    (count,) = struct.unpack("=i", fcntl.ioctl(connected, termios.TIOCOUTQ, bytes(4)))
    return int(count)


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
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
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
