"""uvicorn's protocol with limits on request heads and on clients that do not read, and with client certificates.

`tests/web/test_uvicorn_canary.py` covers the uvicorn internals it relies on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from ibpulse.web.auth.tls import TlsServer, find_name, has_allowed_name
from ibpulse.web.problems import KINDS, problem_response

# Requests on connections beyond these get a 503; the server accepts a few more to be able to send it.
MAX_CONNECTIONS = 256
HEAD_SECONDS = 10.0
MAX_HEAD_BYTES = 65_536
# A client that has read nothing for this long is disconnected.
UNREAD_SECONDS = 20.0

HEAD_TOO_LONG = f"The head of a request may be at most {MAX_HEAD_BYTES} bytes long."
_long = problem_response(431, HEAD_TOO_LONG, headers={"Connection": "close"})
_crowded = problem_response(
    503,
    f"{MAX_CONNECTIONS} connections are already open, which is the maximum. Try again in a second.",
    KINDS["too-many-connections"],
    "too-many-connections",
    {"Connection": "close", "Retry-After": "1"},
)


class Connection(HttpToolsProtocol):
    """A client's connection. The scope of its requests has the name in its certificate as `state.certificate`."""

    def __init__(self, config: Config, state: ServerState, tls: TlsServer | None, on_lost: Callable[[], None]) -> None:
        super().__init__(config, state, {})
        self._tls, self._on_lost = tls, on_lost
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None
        self._unread_bytes: int | None = None

    def connection_made(self, transport: Any) -> None:
        """Start, or disconnect a client whose certificate has no allowed name."""
        super().connection_made(transport)
        peer = transport.get_extra_info("ssl_object")
        if self._tls and not has_allowed_name(peer, self._tls.allowed_names):
            transport.abort()
            return
        self.app_state = {"certificate": find_name(peer)}
        self._expect_head()
        self._check_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel everything that waits for this client."""
        self._end_head()
        if self._unread_timer is not None:
            self._unread_timer.cancel()
        self._on_lost()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse received data; refuse a head that grows too long."""
        if self.transport.is_closing():
            return
        expecting = self._head_timer
        super().data_received(data)
        # the same head as before; one that arrived complete is measured elsewhere
        if expecting is not None and expecting is self._head_timer:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.send_400_response(HEAD_TOO_LONG)

    def resume_writing(self) -> None:
        """Continue: the client has read."""
        self._unread_bytes = None
        super().resume_writing()

    def on_message_begin(self) -> None:
        """Start the timeout for the rest of a head."""
        super().on_message_begin()
        if self._head_timer is None:
            self._expect_head()

    def on_headers_complete(self) -> None:
        """Stop the timeout, and start the response: the application's, or a refusal."""
        self._end_head()
        head_bytes = len(self.url) + sum(len(name) + len(text) for name, text in self.headers)
        crowded = len(self.connections) > MAX_CONNECTIONS
        self.app = _long if head_bytes > MAX_HEAD_BYTES else _crowded if crowded else self.config.loaded_app
        super().on_headers_complete()

    def _expect_head(self) -> None:
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _end_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _check_reading(self) -> None:
        """Disconnect a client that has read nothing since the last check, while the buffer is full or closing.

        Nothing is added to the buffer in that state, so it shrinks if the client reads.
        """
        if self.flow.write_paused or self.transport.is_closing():
            unread_bytes = self.transport.get_write_buffer_size()
            if self._unread_bytes is not None and unread_bytes >= self._unread_bytes:
                self.transport.abort()
                return
            self._unread_bytes = unread_bytes
        self._unread_timer = self.loop.call_later(UNREAD_SECONDS, self._check_reading)
