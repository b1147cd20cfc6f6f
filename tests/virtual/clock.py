"""The clocks of a node in virtual time, and an event loop in it."""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from tests.virtual.world import MONOTONIC_NS, SECOND, START_NS, World

# A process wakes this much after its deadline, and one sample costs this much of a CPU.
WAKE_NS = 50_000
CPU_NS = 60_000


class NodeClock:
    """What ibpulse uses of the module `time`, for one node. `late` is asked how late each wake-up is (ns)."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.late: Callable[[], int] = lambda: 0
        self._ahead_ns = START_NS - MONOTONIC_NS
        self._sleeps = 0

    def monotonic_ns(self) -> int:
        return self.world.monotonic_ns

    def time_ns(self) -> int:
        return self.world.monotonic_ns + self.world.suspended_ns + self._ahead_ns

    def monotonic(self) -> float:
        return self.monotonic_ns() / SECOND

    def time(self) -> float:
        return self.time_ns() / SECOND

    def process_time_ns(self) -> int:
        return self._sleeps * CPU_NS

    def sleep(self, seconds: float) -> None:
        self._sleeps += 1
        self.world.pause(round(seconds * SECOND) + WAKE_NS + self.late())

    def step(self, seconds: float) -> None:
        """Set the wall clock forward or back."""
        self._ahead_ns += round(seconds * SECOND)


class _Selector(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    """Lets virtual time pass where a selector waits for real time."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.frozen = False
        self._idle = 0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if self.frozen:
            return self._wait_frozen()
        self.world.pause(None if timeout is None else math.ceil(timeout * SECOND))
        return super().select(0)

    def _wait_frozen(self) -> list[Any]:
        """What is ready after threads had their turn: those of this world, or after a while those of a library."""
        self.world.pause(0)
        ready = super().select(0.005 * self._idle)
        self._idle = 0 if ready else self._idle + 1
        assert self._idle < 60, "a request waits for time to pass; let it be answered while the node runs"
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time."""

    def __init__(self, world: World) -> None:
        self._virtual = _Selector(world)
        super().__init__(self._virtual)

    @classmethod
    def of(cls, world: World) -> VirtualLoop:
        """The loop of a world."""
        if world.loop is None:
            world.loop = cls(world)
        assert isinstance(world.loop, cls)
        return world.loop

    def time(self) -> float:
        return self._virtual.world.monotonic_ns / SECOND

    def run_in_executor(self, executor: Executor | None, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future = self.create_future()

        def run() -> None:
            try:
                result = func(*args)
            except Exception as error:
                self.call_soon(future.set_exception, error)
            else:
                self.call_soon(lambda: future.cancelled() or future.set_result(result))
            world.wake_main()

        world = self._virtual.world
        world.start(run, "executor")
        return future

    def run_frozen(self, work: Any) -> Any:
        """Run a coroutine while no time passes."""
        self._virtual.frozen, self._virtual._idle = True, 0
        try:
            return self.run_until_complete(work)
        finally:
            self._virtual.frozen = False
