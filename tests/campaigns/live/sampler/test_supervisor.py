"""The supervisor with a real sampler process that stops."""

from __future__ import annotations

import os
import signal

from ibpulse.ring import layout as at
from ibpulse.ring.file import RingFile
from tests.sampler.supervised import children, running, sampled_anew, soon, word
from tests.sampler.tree import ListedInventory


async def test_a_stopped_sampler_is_replaced_and_none_is_left_at_the_end(
    ring: RingFile, inventory: ListedInventory
) -> None:
    async with running(ring, inventory) as supervisor:
        slot = supervisor.slots["mlx5_1:1"]
        await sampled_anew(ring, slot)
        pid = word(ring, at.L_PID)
        os.kill(pid, signal.SIGSTOP)
        await soon(lambda: word(ring, at.L_PID) != pid)
        await sampled_anew(ring, slot)
        assert children() == [word(ring, at.L_PID)]
    assert children() == []
