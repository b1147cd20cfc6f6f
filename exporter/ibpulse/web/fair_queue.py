"""A few places that clients get in turn, so that one with many requests does not hold up one with few."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable


class QueueFullError(Exception):
    """Too many requests are waiting, and this one is of a client with most of them."""


class FairQueue:
    """`places`, and a queue of up to `max_waiting` for each of which the client with fewest places is next.

    Clients of a higher `rank` have their turn after all others. If the queue is full, a request of a client with fewer
    waiting ones takes the place of the newest of the client with most. Not thread-safe; use it only in the event loop.
    """

    def __init__(self, places: int, max_waiting: int, rank: Callable[[str], int] = lambda _client: 0) -> None:
        self._free, self._max_waiting, self._rank = places, max_waiting, rank
        self._running: Counter[str] = Counter()
        # in the order of their turns
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    async def enter(self, client: str) -> None:
        """Wait for a place, which `leave` gives back.

        Raises:
            QueueFullError: the queue is full, or became full of requests of clients with fewer.
        """
        if self._free:
            self._take(client)
            return
        self._make_room(client)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._withdraw(client, turn)
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
            following = min(self._waiting, key=lambda each: (self._rank(each), self._running[each]))
            turns = self._waiting.pop(following)
            turn = turns.popleft()
            if turns:
                self._waiting[following] = turns
            if not turn.done():
                self._take(following)
                turn.set_result(None)

    def _take(self, client: str) -> None:
        self._free -= 1
        self._running[client] += 1

    def _make_room(self, client: str) -> None:
        if sum(map(len, self._waiting.values())) < self._max_waiting:
            return

        def demand(each: str, more: int = 0) -> tuple[int, int]:
            return self._rank(each), len(self._waiting.get(each, ())) + more

        busiest = max(self._waiting, key=demand, default=client)
        if demand(busiest) <= demand(client, 1):
            raise QueueFullError
        turn = self._waiting[busiest][-1]
        self._withdraw(busiest, turn)
        if not turn.done():
            turn.set_exception(QueueFullError())

    def _withdraw(self, client: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(client, deque())
        if turn in turns:
            turns.remove(turn)
        if not turns:
            self._waiting.pop(client, None)
