"""A running supervisor for the tests, and waits for what its samplers do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from ibpulse.internal_errors import InternalErrors
from ibpulse.ring import layout as at
from ibpulse.ring.file import RingFile
from ibpulse.ring.reader import RingReader
from ibpulse.sampler.supervisor import Supervisor, SupervisorOptions
from tests.sampler.tree import ListedInventory

T = TypeVar("T")
LO = "/sys/class/net/lo/statistics"
MAIN = at.lane_at(0)


async def soon(check: Callable[[], T], seconds: float = 30.0) -> T:
    """What `check` returns once it is true."""
    deadline = time.monotonic() + seconds
    while not (answer := check()):
        assert time.monotonic() < deadline, f"still {answer!r} after {seconds} s"
        await asyncio.sleep(0.02)
    return answer


@asynccontextmanager
async def running(
    ring: RingFile,
    inventory: ListedInventory,
    options: SupervisorOptions | None = None,
    errors: InternalErrors | None = None,
) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(ring, inventory, options or SupervisorOptions(scan_seconds=0.2), errors=errors)
    async with at_work(supervisor):
        await soon(lambda: ring.words[MAIN + at.L_HEARTBEAT_NS])
        yield supervisor


@asynccontextmanager
async def at_work(supervisor: Supervisor) -> AsyncIterator[None]:
    """A supervisor runs; its sampler may not."""
    await supervisor.start()
    task = asyncio.create_task(supervisor.run())
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def word(ring: RingFile, which: int) -> int:
    return ring.words[MAIN + which]


def children() -> list[int]:
    """Processes of this one that are not zombies."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        for pid in (task / "children").read_text().split():
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if b"ibpulse.sampler.process" in command:
                found.append(int(pid))
    return found


async def sampled_anew(ring: RingFile, slot: int, ticks: int = 3) -> None:
    """Wait until a port has so many more records."""
    await soon(lambda: word(ring, at.L_HEARTBEAT_NS))
    begun = ring.latest_begun_tick()

    def count() -> int:
        return int(RingReader(ring).read([slot], begun + 1, ring.latest_tick()).present.sum())

    await soon(lambda: count() >= ticks)
