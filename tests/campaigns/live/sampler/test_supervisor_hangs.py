"""The supervisor and a real process that hangs in the kernel."""

from __future__ import annotations

import os

from ibpulse.ring.file import RingFile
from tests.sampler.supervised import running, sampled_anew, soon
from tests.sampler.tree import ListedInventory, Tree


async def test_a_file_that_hangs_when_it_is_opened_is_found_by_its_device(
    ring: RingFile, inventory: ListedInventory, tree: Tree
) -> None:
    """Opening a pipe without a writer hangs, like a read of a hung device."""
    tree.path("mlx5_1").unlink()
    os.mkfifo(tree.path("mlx5_1"))
    async with running(ring, inventory) as supervisor:
        await soon(lambda: supervisor.health().quarantined_devices == ("mlx5_1",))
        await sampled_anew(ring, supervisor.slots["mlx5_0:1"])
