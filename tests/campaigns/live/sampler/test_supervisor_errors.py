"""A supervisor in a process that can open no file, and one whose program is missing."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ibpulse.errors import SamplerError
from ibpulse.internal_errors import InternalErrors
from ibpulse.ring.file import RingFile
from ibpulse.sampler.supervisor import Supervisor, SupervisorOptions
from ibpulse.sysfs.inventory import Inventory
from ibpulse.sysfs.state_poller import StatePoller
from tests.sampler.supervised import at_work, sampled_anew, soon
from tests.sampler.tree import ListedInventory, Tree


@contextmanager
def no_free_descriptors() -> Iterator[None]:
    """No file can be opened in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


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


async def test_a_program_that_cannot_be_started_is_an_error_at_the_start(
    ring: RingFile, inventory: ListedInventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(SamplerError) as caught:
        await Supervisor(ring, inventory, SupervisorOptions()).start()
    assert str(caught.value) == "the sampler process /nowhere/python cannot be started: No such file or directory"
