"""Limits how many wide requests run in parallel; further ones wait for a moment, clients in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec

from starlette.requests import Request
from starlette.responses import Response

from ibpulse.deadline import DaemonThreads
from ibpulse.web.fair_queue import FairQueue, QueueFullError
from ibpulse.web.open_connections import client_of
from ibpulse.web.parts import WebLimits
from ibpulse.web.problems import ProblemError

Arguments = ParamSpec("Arguments")
MAX_WAITING = 32
WAIT_SECONDS = 5.0


class WideRequests:
    """Runs wide requests in threads, at most `max_wide_requests` of them in parallel.

    `running` and `instead` complete the refusal: the requests already running, and the alternative.
    """

    def __init__(self, limits: WebLimits, running: str, instead: str) -> None:
        self._limits = limits
        self._running, self._instead = running, instead
        limit = limits.max_wide_requests
        self._queue = FairQueue(limit, MAX_WAITING)
        self._threads = DaemonThreads(max(1, limit), "wide-window")

    async def run(
        self, request: Request, answer: Callable[Arguments, Response], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Response:
        """The response of `answer`, computed in a thread once it is the turn of the request's client.

        Raises:
            ProblemError: too many requests wait, or none of those running finished in time.
        """
        client = client_of(request.client.host if request.client else "")
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._queue.enter(client)
        except (QueueFullError, TimeoutError):
            limit = self._limits.max_wide_requests
            raise ProblemError(
                "too-busy",
                503,
                f"{limit} {self._running}, which is the maximum, and others wait. Try again in a second, or ask for "
                f"{self._instead}.",
                bound={"name": "max_wide_requests", "limit": limit, "wide_values": self._limits.wide_values},
            ) from None
        work = asyncio.wrap_future(self._threads.submit(answer, *args, **kwargs))
        # a client that disconnects cancels the wait, not the thread; the place is freed when the thread is done
        work.add_done_callback(lambda _: self._queue.leave(client))
        return await asyncio.shield(work)
