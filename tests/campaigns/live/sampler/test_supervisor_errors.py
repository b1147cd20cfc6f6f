"""A supervisor that cannot write its plan, start its sampler, scan or record an event goes on, and says so."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ibpulse.errors import SamplerError
from ibpulse.events import Event, EventLog
from ibpulse.events.event_file import EventFile
from ibpulse.internal_errors import InternalErrors
from ibpulse.model import Fabric
from ibpulse.ring import layout as at
from ibpulse.ring.file import RingFile
from ibpulse.sampler import supervisor as module
from ibpulse.sampler.plan import plan_path
from ibpulse.sampler.supervisor import Supervisor, SupervisorOptions
from ibpulse.sysfs.inventory import Inventory
from ibpulse.sysfs.state_poller import StatePoller
from tests.sampler.supervised import at_work, children, running, sampled_anew, soon, word
from tests.sampler.tree import ListedInventory, Tree


async def test_a_plan_that_cannot_be_written_at_the_start_is_written_later(
    ring: RingFile, inventory: ListedInventory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "RESTART_SECONDS_MAX", 0.3)
    plan_path(ring.path, 0).mkdir()
    errors = InternalErrors()
    supervisor = Supervisor(ring, inventory, SupervisorOptions(scan_seconds=0.05), errors=errors)
    async with at_work(supervisor):
        await soon(lambda: errors.counts()["plan"] > 3)
        sentence = (
            f"the sampler's plan {ring.path.parent}/plan-0.json cannot be written: Is a directory; "
            "set ring.dir to a writable directory with free space; retrying"
        )
        assert errors.notices() == (f"internal error in plan (main sampler): {sentence}",)
        assert caplog.text.count(sentence) == 1
        plan_path(ring.path, 0).rmdir()
        await sampled_anew(ring, 1)
    assert children() == []


async def test_a_plan_that_cannot_be_written_leaves_the_last_one_in_force(
    ring: RingFile, inventory: ListedInventory
) -> None:
    whole, inventory.fabric = inventory.fabric, Fabric(inventory.fabric.ports[:1])
    errors = InternalErrors()
    async with running(ring, inventory, SupervisorOptions(scan_seconds=0.05), errors) as supervisor:
        await sampled_anew(ring, 0)
        plan_path(ring.path, 0).unlink()
        plan_path(ring.path, 0).mkdir()
        inventory.fabric = whole
        await soon(lambda: errors.counts()["plan"] > 2)
        await sampled_anew(ring, 0)
        plan_path(ring.path, 0).rmdir()
        await sampled_anew(ring, supervisor.slots["mlx5_1:1"])
        assert supervisor.health().restarts == 0


async def test_a_scan_that_fails_leaves_the_last_one_in_force(ring: RingFile, tree: Tree) -> None:
    """Every directory that is opened fails, as without free descriptors."""
    names = ("mlx5_0", "mlx5_1")
    for name in names:
        tree.write(name, 1, 2)
        (tree.root / f"class/infiniband/{name}/ports/1/state").write_text("4: ACTIVE\n")
        (tree.root / f"class/infiniband/{name}/ports/1/rate").write_text("400 Gb/sec (4X NDR)\n")
    errors = InternalErrors()
    inventory, states = Inventory(tree.root, errors=errors), StatePoller(tree.root, 0.05, errors)
    supervisor = Supervisor(ring, inventory, SupervisorOptions(scan_seconds=0.05), states=states, errors=errors)
    async with at_work(supervisor):
        await sampled_anew(ring, 0)
        with no_free_descriptors():
            await soon(lambda: errors.counts()["fabric"] > 5)
            await sampled_anew(ring, 0)
            assert [str(port.id) for port in supervisor.fabric.ports] == ["mlx5_0:1", "mlx5_1:1"]
            assert all(known.problem == "" for known in supervisor.known_ports())
            assert any("Too many open files" in notice for notice in errors.notices())
        failed = errors.counts()["fabric"]
        (tree.root / "class/infiniband/mlx5_1/ports/1/state").write_text("1: DOWN\n")
        await soon(lambda: not supervisor.fabric.ports[1].active)
        assert errors.counts()["fabric"] - failed < 5
        assert not {event.kind for event in supervisor.events.events()} & {"disappeared", "unreadable"}


async def test_an_event_that_cannot_be_recorded_ends_nothing(
    ring: RingFile, inventory: ListedInventory, tmp_path: Path
) -> None:
    file, errors = BrokenFile(tmp_path / "events"), InternalErrors()
    events = EventLog(file)
    events.load(0)
    supervisor = Supervisor(ring, inventory, SupervisorOptions(scan_seconds=0.05), events, errors=errors)
    async with at_work(supervisor):
        await sampled_anew(ring, 0)
        file.broken = True
        inventory.fabric = Fabric(inventory.fabric.ports[:1])
        await soon(lambda: errors.counts()["events"] > 0)
        await sampled_anew(ring, 0)
    events.close()


class BrokenFile(EventFile):
    """A file of events with a fault in its code."""

    broken = False

    def append(self, event: Event) -> bool:
        if self.broken:
            raise ZeroDivisionError
        return super().append(event)


@contextmanager
def no_free_descriptors() -> Iterator[None]:
    """No file can be opened in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_hung_device_is_not_read_again_because_of_a_plan_that_cannot_be_written(
    ring: RingFile, inventory: ListedInventory, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last plan still has the device, so a sampler that followed it would hang as well, and the next one too."""
    monkeypatch.setattr(module, "RESTART_SECONDS_MAX", 0.1)
    obstacle, errors = ring.path.with_name("plan-0.json.new"), InternalErrors()
    async with running(ring, inventory, SupervisorOptions(scan_seconds=0.1), errors) as supervisor:
        await sampled_anew(ring, 0)
        obstacle.mkdir()
        tree.path("mlx5_1").unlink()
        os.mkfifo(tree.path("mlx5_1"))
        os.kill(word(ring, at.L_PID), signal.SIGKILL)
        await soon(lambda: supervisor.health().quarantined_devices == ("mlx5_1",))
        failed = errors.counts()["plan"]
        await soon(lambda: errors.counts()["plan"] > failed + 20)
        assert supervisor.health().takeovers == 1
        obstacle.rmdir()
        await sampled_anew(ring, supervisor.slots["mlx5_0:1"])
        assert supervisor.health().takeovers == 1


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
