"""The open connections: which of them are within the bounds, and which is closed to make room for another."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

# Beyond these, requests get a 503; only the probes get their answer.
MAX_CONNECTIONS = 256
MAX_CONNECTIONS_PER_CLIENT = 32
# Connections accepted beyond those bounds, to read what they request.
SPARE_CONNECTIONS = 64
SPARE_CONNECTIONS_PER_CLIENT = 8
# With more connections than this, idle ones are closed sooner.
CROWD = 128


@lru_cache(1024)
def client_of(address: str) -> str:
    """The client behind an address: an IPv4 address, or a network of 64 bits in IPv6, where one host has many."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
        return str(ipaddress.IPv6Network((int(found), 64), strict=False))
    return str(getattr(found, "ipv4_mapped", None) or found)


class OpenConnection:
    """One connection.

    `waiting_since` is the monotonic time since which it waits for a request, or the rest of one; None while a complete
    request is being answered. Before `transport` there is the TLS `handshake`.
    """

    def __init__(self, accepted: socket.socket, client: str) -> None:
        self.socket, self.client = accepted, client
        self.handshake: asyncio.Task[None] | None = None
        self.transport: asyncio.Transport | None = None
        self.waiting_since: float | None = time.monotonic()
        self.admitted = False

    def is_idle(self) -> bool:
        """Whether it waits for its client, with nothing left to send."""
        return self.waiting_since is not None and not (self.transport and self.transport.get_write_buffer_size())

    def close(self) -> None:
        """Close it at once."""
        if self.transport is not None:
            self.transport.abort()
        elif self.handshake is not None:
            self.handshake.cancel()


class OpenConnections:
    """All connections of a server. `ending` is set when the server stops."""

    def __init__(self) -> None:
        self.ending = False
        # the oldest first
        self._open: dict[OpenConnection, None] = {}

    def is_crowded(self) -> bool:
        """Whether idle connections are closed sooner."""
        return len(self._open) > CROWD

    def add(self, newcomer: OpenConnection) -> None:
        """Add a new connection; beyond the spare ones, the oldest of those that were not admitted is closed."""
        self._open[newcomer] = None
        if self.admit(newcomer):
            return
        for client, most in ((newcomer.client, SPARE_CONNECTIONS_PER_CLIENT), (None, SPARE_CONNECTIONS)):
            spare = [each for each in self._of(client) if not each.admitted]
            if len(spare) > most:
                self._close(_of_the_busiest(spare)[0])

    def remove(self, connection: OpenConnection) -> None:
        """Remove a connection, if it has not been yet."""
        self._open.pop(connection, None)

    def admit(self, newcomer: OpenConnection) -> bool:
        """Whether a connection is within the bounds, if need be after closing the one that has been idle longest.

        That is one of the same client, or of the client with most connections.
        """
        if not newcomer.admitted:
            own = self._has_room(newcomer.client, MAX_CONNECTIONS_PER_CLIENT)
            newcomer.admitted = own and self._has_room(None, MAX_CONNECTIONS)
        return newcomer.admitted

    def _has_room(self, client: str | None, most: int) -> bool:
        admitted = [each for each in self._of(client) if each.admitted]
        if len(admitted) < most:
            return True
        idle = _of_the_busiest([each for each in admitted if each.is_idle()])
        if idle:
            self._close(min(idle, key=lambda each: each.waiting_since or 0.0))
        return bool(idle)

    def _of(self, client: str | None) -> Iterable[OpenConnection]:
        return (each for each in self._open if client in (None, each.client))

    def _close(self, connection: OpenConnection) -> None:
        self.remove(connection)
        connection.close()


def _of_the_busiest(connections: list[OpenConnection]) -> list[OpenConnection]:
    """Those of the client with most of them."""
    counts = Counter(each.client for each in connections)
    busiest = max(counts, key=counts.__getitem__, default="")
    return [each for each in connections if each.client == busiest]
