"""The gate for requests that take long: in threads, and few at a time. It must not know what they compute."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec

from starlette.responses import Response

from ibpulse.web.parts import WebLimits
from ibpulse.web.problems import ProblemError

Arguments = ParamSpec("Arguments")


class WideRequests:
    """Runs wide requests in threads, a few at once; it refuses the others instead of letting them queue.

    `what` and `otherwise` complete the sentences of a refusal: what is going on, and what to ask for instead.
    """

    def __init__(self, limits: WebLimits, what: str, otherwise: str) -> None:
        self._limits = limits
        self._what, self._otherwise = what, otherwise
        limit = limits.max_wide_requests
        self._places = threading.Semaphore(limit)
        self._threads = ThreadPoolExecutor(max_workers=max(1, limit), thread_name_prefix="wide-window")

    async def run(
        self, answer: Callable[Arguments, Response], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Response:
        """The response that `answer` gives in a thread.

        Raises:
            ProblemError: all places are taken.
        """
        limit = self._limits.max_wide_requests
        if not self._places.acquire(blocking=False):
            raise ProblemError(
                "too-busy",
                503,
                f"{limit} {self._what}, and no more are at once. Try again in a second, or ask for {self._otherwise}.",
                bound={"name": "max_wide_requests", "limit": limit, "wide_values": self._limits.wide_values},
            )
        work: Future[Response] = self._threads.submit(answer, *args, **kwargs)
        # a client that hangs up cancels the wait, not the thread: the place is free when the thread is
        work.add_done_callback(lambda _: self._places.release())
        return await asyncio.wrap_future(work)
