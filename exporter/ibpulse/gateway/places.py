"""Places for requests that take much of a gateway; further ones wait for a moment, clients in turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Request

from ibpulse.web.fair_queue import FairQueue, QueueFullError
from ibpulse.web.open_connections import client_of
from ibpulse.web.problems import ProblemError

MAX_WAITING = 32
WAIT_SECONDS = 5.0


class Places:
    """`limit` requests in parallel; `what` is their plural in the refusal of others."""

    def __init__(self, limit: int, what: str) -> None:
        self._limit, self._what = limit, what
        self._queue = FairQueue(limit, MAX_WAITING)

    @asynccontextmanager
    async def place(self, request: Request) -> AsyncIterator[None]:
        """A place for a request, once it is the turn of its client.

        Raises:
            ProblemError: too many others wait, or none of those running finished in time.
        """
        client = client_of(request.client.host if request.client else "")
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._queue.enter(client)
        except (QueueFullError, TimeoutError):
            raise ProblemError(
                "too-busy",
                503,
                f"{self._limit} {self._what} are already being read, which is the maximum. Try again in a second.",
                bound={"name": "max_parallel_requests", "limit": self._limit},
            ) from None
        try:
            yield
        finally:
            self._queue.leave(client)
