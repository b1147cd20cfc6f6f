"""Limits how many wide requests run in parallel; further ones are refused immediately."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import ParamSpec

from starlette.responses import Response

from ibpulse.deadline import DaemonThreads
from ibpulse.web.parts import WebLimits
from ibpulse.web.problems import ProblemError

Arguments = ParamSpec("Arguments")


class WideRequests:
    """Runs wide requests in threads, at most `max_wide_requests` of them in parallel.

    `running` and `instead` complete the refusal: the requests already running, and the alternative.
    """

    def __init__(self, limits: WebLimits, running: str, instead: str) -> None:
        self._limits = limits
        self._running, self._instead = running, instead
        limit = limits.max_wide_requests
        self._places = threading.Semaphore(limit)
        self._threads = DaemonThreads(max(1, limit), "wide-window")

    async def run(
        self, answer: Callable[Arguments, Response], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Response:
        """The response of `answer`, computed in a thread.

        Raises:
            ProblemError: the maximum number of requests is already running.
        """
        limit = self._limits.max_wide_requests
        if not self._places.acquire(blocking=False):
            raise ProblemError(
                "too-busy",
                503,
                f"{limit} {self._running}, which is the maximum. Try again in a second, or ask for {self._instead}.",
                bound={"name": "max_wide_requests", "limit": limit, "wide_values": self._limits.wide_values},
            )
        work: Future[Response] = self._threads.submit(answer, *args, **kwargs)
        # a client that disconnects cancels the wait, not the thread; the slot is freed when the thread is done
        work.add_done_callback(lambda _: self._places.release())
        return await asyncio.wrap_future(work)
