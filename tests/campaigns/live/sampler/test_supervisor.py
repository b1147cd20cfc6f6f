"""The supervisor with real sampler processes, which are killed and stopped."""

from __future__ import annotations

import os
import signal

from ibpulse.ring import layout as at
from ibpulse.ring.file import RingFile
from ibpulse.sampler.supervisor import SupervisorOptions
from tests.sampler.supervised import children, running, sampled_anew, soon, word
from tests.sampler.tree import ListedInventory


async def test_stopping_leaves_no_process_behind(ring: RingFile, inventory: ListedInventory) -> None:
    async with running(ring, inventory):
        assert children() == [word(ring, at.L_PID)]
    assert children() == []


async def test_a_sampler_is_pinned_to_a_cpu(ring: RingFile, inventory: ListedInventory) -> None:
    cpu = min(os.sched_getaffinity(0))
    async with running(ring, inventory, SupervisorOptions(cpu=cpu)) as supervisor:
        await soon(lambda: word(ring, at.L_TICKS) > 3)
        health = supervisor.health()
        assert (health.cpu_requested, health.cpu_actual) == (str(cpu), str(cpu))
        assert health.heartbeat_age_seconds is not None
        assert 0 <= health.heartbeat_age_seconds < 20


async def test_a_killed_sampler_is_restarted(ring: RingFile, inventory: ListedInventory) -> None:
    async with running(ring, inventory) as supervisor:
        pid = word(ring, at.L_PID)
        os.kill(pid, signal.SIGKILL)
        await soon(lambda: word(ring, at.L_PID) != pid)
        await sampled_anew(ring, supervisor.slots["mlx5_0:1"])
        assert supervisor.health().restarts == 1


async def test_a_stopped_sampler_is_replaced(ring: RingFile, inventory: ListedInventory) -> None:
    async with running(ring, inventory) as supervisor:
        slot = supervisor.slots["mlx5_1:1"]
        await sampled_anew(ring, slot)
        pid = word(ring, at.L_PID)
        os.kill(pid, signal.SIGSTOP)
        await soon(lambda: word(ring, at.L_PID) != pid)
        await sampled_anew(ring, slot)
        assert pid not in children()
