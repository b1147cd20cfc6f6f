"""A supervisor that cannot write its plan or start its sampler."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest

from ibpulse.errors import SamplerError
from ibpulse.model import Fabric
from ibpulse.ring import layout as at
from ibpulse.ring.file import RingFile
from ibpulse.sampler import supervisor as module
from ibpulse.sampler.plan import plan_path
from ibpulse.sampler.supervisor import Supervisor, SupervisorOptions
from tests.sampler.supervised import children, running, sampled_anew, soon, word
from tests.sampler.tree import ListedInventory, Tree


async def test_a_plan_that_cannot_be_written_is_an_error_with_the_way_out(
    ring: RingFile, inventory: ListedInventory
) -> None:
    plan_path(ring.path, 0).mkdir()
    with pytest.raises(SamplerError) as caught:
        await Supervisor(ring, inventory, SupervisorOptions()).start()
    assert str(caught.value) == (
        f"the sampler's plan {ring.path.parent}/plan-0.json cannot be written: Is a directory; "
        "set ring.dir to a writable directory with free space"
    )


async def test_an_error_of_a_running_supervisor_is_one_sentence_and_no_group(
    ring: RingFile, inventory: ListedInventory
) -> None:
    supervisor = Supervisor(ring, inventory, SupervisorOptions(scan_seconds=0.05))
    await supervisor.start()
    plan_path(ring.path, 0).unlink()
    plan_path(ring.path, 0).mkdir()
    inventory.fabric = Fabric(inventory.fabric.ports[:1])
    with pytest.raises(SamplerError, match="cannot be written: Is a directory"):
        await asyncio.wait_for(supervisor.run(), 30)
    assert children() == []


async def test_a_program_that_cannot_be_started_is_an_error_at_the_start(
    ring: RingFile, inventory: ListedInventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(SamplerError) as caught:
        await Supervisor(ring, inventory, SupervisorOptions()).start()
    assert str(caught.value) == "the sampler process /nowhere/python cannot be started: No such file or directory"


async def test_a_sampler_that_cannot_be_started_for_a_while_is_started_later(
    ring: RingFile, inventory: ListedInventory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A machine without a free process for a moment must not lose its daemon."""
    monkeypatch.setattr(module, "RESTART_SECONDS_MAX", 0.3)
    async with running(ring, inventory):
        await sampled_anew(ring, 0)
        with monkeypatch.context() as broken:
            broken.setattr(sys, "executable", "/nowhere/python")
            os.kill(word(ring, at.L_PID), signal.SIGKILL)
            await soon(lambda: "cannot be started" in caplog.text)
        await sampled_anew(ring, 0)
    assert "process /nowhere/python cannot be started: No such file or directory; retrying" in caplog.text


async def test_a_take_over_that_finds_no_free_process_is_finished_later(
    ring: RingFile,
    inventory: ListedInventory,
    tree: Tree,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(module, "RESTART_SECONDS_MAX", 0.3)
    whole, inventory.fabric = inventory.fabric, Fabric(inventory.fabric.ports[:1])
    tree.path("mlx5_1").unlink()
    os.mkfifo(tree.path("mlx5_1"))
    async with running(ring, inventory) as supervisor:
        await sampled_anew(ring, 0)
        with monkeypatch.context() as broken:
            broken.setattr(sys, "executable", "/nowhere/python")
            inventory.fabric = whole
            await soon(lambda: "cannot be started" in caplog.text)
        await sampled_anew(ring, 0)
        assert supervisor.health().quarantined_devices == ("mlx5_1",)
    assert "the sampler could not be started; restarting it" in caplog.text
