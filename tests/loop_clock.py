"""An event loop whose clock goes on by itself: to the next timer as soon as nothing else is left to do.

What waits a second takes none, and nothing is late however slow the machine is. Sockets and threads are real.
"""

from __future__ import annotations

import asyncio
import selectors
from asyncio import Future
from collections.abc import Callable
from typing import Any

# real time in which something that is on its way through the system arrives, and in which a thread ends
QUIET_SECONDS = 0.02
WORK_SECONDS = 10.0
# on the clock of the loop: how long anything may take before it counts as hung
HANG_SECONDS = 3600.0


class ClockSelector(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    """Waits for files and threads, but for no timer."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.at_work = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        seconds = WORK_SECONDS if self.at_work else QUIET_SECONDS
        found: list[tuple[selectors.SelectorKey, int]] = super().select(seconds)
        if not found:
            self.now += timeout
        return found


class ClockLoop(asyncio.SelectorEventLoop):
    """The event loop of a test."""

    def __init__(self) -> None:
        self._clock = ClockSelector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Future[Any]:
        self._clock.at_work += 1
        running = super().run_in_executor(executor, func, *args)
        running.add_done_callback(self._end)
        return running

    def _end(self, _: Future[Any]) -> None:
        self._clock.at_work -= 1


async def pause(seconds: float) -> None:
    """Wait for a time on the clock of the loop."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    handle = loop.call_later(seconds, over.set_result, None)
    try:
        await over
    finally:
        handle.cancel()


async def until(check: Callable[[], object], every_seconds: float = 0.01) -> None:
    """Wait until something is true, on the clock of the loop."""
    async with asyncio.timeout(HANG_SECONDS):
        while not check():
            await pause(every_seconds)
