"""The supervisor with a real sampler process that stops."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from ibpulse.agent.sampler.supervisor import Supervisor, SupervisorOptions
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from tests.running import HANG_SECONDS
from tests.sampler.tree import ListedInventory


async def soon(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + HANG_SECONDS
    while not check():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def children() -> list[int]:
    """The sampler processes of this one."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        for pid in (task / "children").read_text().split():
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if b"ibpulse.agent.sampler.process" in command:
                found.append(int(pid))
    return found


async def test_a_stopped_sampler_is_replaced_and_none_is_left_at_the_end(
    ring: RingFile, inventory: ListedInventory
) -> None:
    def word(which: int) -> int:
        return ring.words[at.lane_at(0) + which]

    async def sampled() -> None:
        begun = word(at.L_TICKS)
        await soon(lambda: word(at.L_TICKS) > begun + 3)

    supervisor = Supervisor(ring, inventory, SupervisorOptions(scan_seconds=0.2))
    await supervisor.start()
    task = asyncio.create_task(supervisor.run())
    try:
        await sampled()
        pid = word(at.L_PID)
        os.kill(pid, signal.SIGSTOP)
        await soon(lambda: word(at.L_PID) != pid)
        await sampled()
        assert children() == [word(at.L_PID)]
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert children() == []
