"""A few places that clients get in turn, so that one with many requests does not hold up one with few."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable


class QueueFullError(Exception):
    """Too many requests are waiting, and this one is of a client with most of them."""


class FairQueue:
    """`places`, and a queue of up to `max_waiting` for each of which the client with fewest places is next.

    Of several, it is the one that waits longest, counted from its last turn. Clients of a higher `rank` have their turn
    after all others. If the queue is full, a request of a client with fewer waiting ones takes the place of the newest
    of the client with most. Not thread-safe; use it only in the event loop.
    """

    def __init__(self, places: int, max_waiting: int, rank: Callable[[str], int] = lambda _client: 0) -> None:
        self._free, self._max_waiting, self._rank = places, max_waiting, rank
        self._running: Counter[str] = Counter()
        # in the order of their turns
        self._waiting: dict[asyncio.Future[None], str] = {}

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

    def _make_room(self, client: str) -> None:
        if len(self._waiting) < self._max_waiting:
            return
        counts = Counter(self._waiting.values())
        busiest = max(counts, key=lambda each: (self._rank(each), counts[each]), default=client)
        if (self._rank(busiest), counts[busiest]) <= (self._rank(client), counts[client] + 1):
            raise QueueFullError
        newest = [each for each, holder in self._waiting.items() if holder == busiest][-1]
        del self._waiting[newest]
        if not newest.done():
            newest.set_exception(QueueFullError())
