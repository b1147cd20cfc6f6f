"""Admits requests and connections, and makes room for viewers, up to a limit: the client that holds most gives way.

A client is an address, and holds connections, views of streams, and turns in the queues for what runs in parallel.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any, ParamSpec, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from ibpulse.base.deadline import DaemonThreads
from ibpulse.core.http.problems import ProblemError

# Beyond these, requests get a 503; only the probes get their answer.
MAX_CONNECTIONS = 256
MAX_CONNECTIONS_PER_CLIENT = 32
# Connections accepted beyond those bounds, to read what they request.
SPARE_CONNECTIONS = 16
# With more connections than this, idle ones are closed sooner.
CROWD = 128
# Requests of one kind that wait for a place, and for how long.
MAX_WAITING = 32
WAIT_SECONDS = 5.0

Arguments = ParamSpec("Arguments")
Thing = TypeVar("Thing")
Rank = Callable[[str], int]


class FullError(Exception):
    """All places are taken, and no client holds more than this one would."""


@lru_cache(1024)
def client_of(address: str) -> str:
    """The client behind an address: an IPv4 address, or a network of 64 bits in IPv6, where one host has many."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        return str(found.ipv4_mapped or ipaddress.IPv6Network((int(found), 64), strict=False))
    return str(found)


def requesting_client(scope: Scope) -> str:
    """The client that sent a request."""
    return client_of((scope.get("client") or ("",))[0])


def _same(_client: str) -> int:
    return 0


def of_busiest(held: Mapping[Thing, str], rank: Rank = _same) -> list[Thing]:
    """All that one client holds, of `held` with their clients: the one of the highest rank that holds most."""
    counts = Counter(held.values())
    busiest = max(counts, key=lambda client: (rank(client), counts[client]), default=None)
    return [thing for thing, client in held.items() if client == busiest]


def make_room(held: dict[Thing, str], limit: int, newcomer: str, rank: Rank = _same) -> Thing | None:
    """Make room for one more: if there is none, remove and return the newest of the client that holds most.

    Raises:
        FullError: the newcomer would then hold as much, or has a higher rank.
    """
    if len(held) < limit:
        return None
    counts, busiest = Counter(held.values()), of_busiest(held, rank)
    client = held[busiest[-1]] if busiest else newcomer
    if (rank(client), counts[client]) <= (rank(newcomer), counts[newcomer] + 1):
        raise FullError
    del held[busiest[-1]]
    return busiest[-1]


class FairQueue:
    """`places`, and a queue of up to `max_waiting` for each of which the client with fewest places is next.

    Of several, it is the one that waits longest, counted from its last turn. Clients of a higher `rank` have their turn
    after all others. Not thread-safe; use it only in the event loop.
    """

    def __init__(self, places: int, max_waiting: int, rank: Rank = _same) -> None:
        self._free, self._max_waiting, self._rank = places, max_waiting, rank
        self._running: Counter[str] = Counter()
        # in the order of their turns
        self._waiting: dict[asyncio.Future[None], str] = {}

    async def enter(self, client: str) -> None:
        """Wait for a place, which `leave` gives back.

        Raises:
            FullError: the queue is full, or became full of requests of clients with fewer.
        """
        if self._free:
            self._take(client)
            return
        dropped = make_room(self._waiting, self._max_waiting, client, self._rank)
        if dropped is not None and not dropped.done():
            dropped.set_exception(FullError())
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = client
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting.pop(turn, None)
            elif turn.exception() is None:
                self.leave(client)
            raise

    def leave(self, client: str) -> None:
        """Give a place back, and give it to the next."""
        self._free += 1
        self._running[client] -= 1
        if not self._running[client]:
            del self._running[client]
        while self._free and self._waiting:
            turn = min(self._waiting, key=self._precedence)
            following = self._waiting.pop(turn)
            # the further requests of a client wait behind those of others
            for other in [each for each, holder in self._waiting.items() if holder == following]:
                self._waiting[other] = self._waiting.pop(other)
            if not turn.done():
                self._take(following)
                turn.set_result(None)

    def _precedence(self, turn: asyncio.Future[None]) -> tuple[int, int]:
        client = self._waiting[turn]
        return self._rank(client), self._running[client]

    def _take(self, client: str) -> None:
        self._free -= 1
        self._running[client] += 1


class ParallelRequests:
    """Runs up to `limit` requests of a kind in parallel; others wait for a moment, clients in turn.

    `running`, `instead` and `bound` complete the refusal: those already running, the alternative, the limit's name.
    """

    def __init__(self, limit: int, running: str, instead: str = "", **bound: Any) -> None:
        others, advice = (", and others wait", f", or ask for {instead}") if instead else ("", "")
        self._refusal = f"{limit} {running}, which is the maximum{others}. Try again in a second{advice}."
        self._bound = {"name": "max_parallel_requests", "limit": limit, **bound}
        self._queue = FairQueue(limit, MAX_WAITING)
        self._threads = DaemonThreads(max(1, limit), "wide-window")

    @asynccontextmanager
    async def place(self, request: Request) -> AsyncIterator[None]:
        """A place for a request, once it is the turn of its client."""
        client = await self._enter(request)
        try:
            yield
        finally:
            self._queue.leave(client)

    async def run(
        self, request: Request, answer: Callable[Arguments, Response], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Response:
        """The response of `answer`, computed in a thread once it is the turn of the request's client."""
        client = await self._enter(request)
        try:
            work = asyncio.wrap_future(self._threads.submit(answer, *args, **kwargs))
        except RuntimeError:
            # the system allows no more threads
            self._queue.leave(client)
            raise
        # a client that disconnects cancels the wait, not the thread; the place is freed when the thread is done
        work.add_done_callback(lambda _: self._queue.leave(client))
        return await asyncio.shield(work)

    async def _enter(self, request: Request) -> str:
        client = requesting_client(request.scope)
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._queue.enter(client)
        except (FullError, TimeoutError):
            raise ProblemError("too-busy", 503, self._refusal, bound=self._bound) from None
        return client


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
        self._open: dict[OpenConnection, str] = {}

    def is_crowded(self) -> bool:
        """Whether idle connections are closed sooner."""
        return len(self._open) > CROWD

    def add(self, newcomer: OpenConnection) -> None:
        """Add a new connection; beyond the spare ones, the oldest of the client with most of them is closed."""
        self._open[newcomer] = newcomer.client
        if not self.admit(newcomer) and len(spare := self._of(None, admitted=False)) > SPARE_CONNECTIONS:
            self._close(of_busiest(spare)[0])

    def remove(self, connection: OpenConnection) -> None:
        """Remove a connection, if it has not been yet."""
        self._open.pop(connection, None)

    def admit(self, newcomer: OpenConnection) -> bool:
        """Whether a connection is within the bounds, if need be after closing the one that has been idle longest.

        That is one of the same client, or of the client with most idle ones.
        """
        if not newcomer.admitted:
            own = self._has_room(newcomer.client, MAX_CONNECTIONS_PER_CLIENT)
            newcomer.admitted = own and self._has_room(None, MAX_CONNECTIONS)
        return newcomer.admitted

    def _has_room(self, client: str | None, most: int) -> bool:
        admitted = self._of(client, admitted=True)
        if len(admitted) < most:
            return True
        idle = of_busiest({each: holder for each, holder in admitted.items() if each.is_idle()})
        if idle:
            self._close(min(idle, key=lambda each: each.waiting_since or 0.0))
        return bool(idle)

    def _of(self, client: str | None, *, admitted: bool) -> dict[OpenConnection, str]:
        return {
            each: holder
            for each, holder in self._open.items()
            if client in (None, holder) and each.admitted == admitted
        }

    def _close(self, connection: OpenConnection) -> None:
        self.remove(connection)
        connection.close()
