"""uvicorn's protocol with limits on request heads and on clients that do not read, and with client certificates.

`tests/web/test_uvicorn_canary.py` covers the uvicorn internals it relies on.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import termios
import time
from typing import Any

import httptools
from starlette.responses import Response
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from ibpulse.core.http.access import PROBES, REFUSED
from ibpulse.core.http.admission import MAX_CONNECTIONS, MAX_CONNECTIONS_PER_CLIENT, OpenConnection, OpenConnections
from ibpulse.core.http.application import REFUSAL
from ibpulse.core.http.problems import problem_response
from ibpulse.core.http.web_config import TlsServer, find_name, has_allowed_name

HEAD_SECONDS = 10.0
MAX_HEAD_BYTES = 65_536
# A client whose system has taken nothing for this long is disconnected.
UNREAD_SECONDS = 20.0
# in a crowd, and after a refused request
SHORT_KEEP_ALIVE_SECONDS = 5
CLOSE = {"Connection": "close"}

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
