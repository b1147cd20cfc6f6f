"""Accepts connections: few enough in all and of one client, each through TLS if there is any. It must not read any."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable

from ibpulse.web.front.tls import TlsServer

log = logging.getLogger(__name__)

# beyond these a connection is closed at once; below, the application can still say that it is too busy
MAX_OPEN = 320
MAX_OPEN_PER_CLIENT = 128
HANDSHAKE_SECONDS = 10.0
CLOSE_SECONDS = 2.0
# the wait when the process has no descriptor left for a connection
EXHAUSTED_SECONDS = 0.5

MakeProtocol = Callable[[TlsServer | None, Callable[[], None]], asyncio.Protocol]
"""A protocol for a connection; it calls the second argument once the connection is lost."""


class Listener:
    """Accepts from a listening socket until it is closed; looks to uvicorn like one of asyncio's servers."""

    def __init__(
        self, listening: socket.socket, make_protocol: MakeProtocol, tls: Callable[[], TlsServer | None]
    ) -> None:
        self._listening, self._make_protocol, self._tls = listening, make_protocol, tls
        self._open: Counter[str] = Counter()
        self._shaking_hands: set[asyncio.Task[None]] = set()
        listening.setblocking(False)
        self._task = asyncio.create_task(self._accept(), name="listener")

    def close(self) -> None:
        """Accept no more, and end handshakes; connections stay."""
        for task in (self._task, *self._shaking_hands):
            task.cancel()

    async def wait_closed(self) -> None:
        """Return when nothing is accepted any more."""
        await asyncio.gather(self._task, *self._shaking_hands, return_exceptions=True)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(self._listening)
            except OSError as error:
                log.warning("a connection could not be accepted: %s", error.strerror)
                await asyncio.sleep(EXHAUSTED_SECONDS)
                continue
            client = str(address[0])
            if self._open.total() >= MAX_OPEN or self._open[client] >= MAX_OPEN_PER_CLIENT:
                connection.close()
                continue
            self._open[client] += 1
            task = asyncio.create_task(self._begin(connection, client), name="handshake")
            self._shaking_hands.add(task)
            task.add_done_callback(self._shaking_hands.discard)

    async def _begin(self, connection: socket.socket, client: str) -> None:
        """Hand the connection to a protocol, after the handshake if there is one."""
        released = False

        def release() -> None:
            nonlocal released
            if not released:
                released = True
                self._release(client)

        tls, begun = self._tls(), False
        timeouts = {"ssl_handshake_timeout": HANDSHAKE_SECONDS, "ssl_shutdown_timeout": CLOSE_SECONDS} if tls else {}
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._make_protocol(tls, release), connection, ssl=tls.context if tls else None, **timeouts
            )
            begun = True
        except (OSError, TimeoutError) as error:
            # a client that speaks no TLS, has no certificate that counts, or waits too long is not worth a line
            log.debug("a connection of %s ended in its handshake: %s", client, error)
        finally:
            if not begun:
                connection.close()
                release()

    def _release(self, client: str) -> None:
        self._open[client] -= 1
        if not self._open[client]:
            del self._open[client]
