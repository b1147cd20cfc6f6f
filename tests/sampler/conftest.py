"""A ring and a tree of plain counter files for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ibpulse.core.model import Fabric
from ibpulse.core.ring.file import RingFile
from tests.ring.tiny import tiny_tmpfs
from tests.sampler.sampling import Sampling
from tests.sampler.tree import ListedInventory, Tree, port

__all__ = ["tiny_tmpfs"]

INTERVAL_NS = 10_000_000
CAPACITY = 6000


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[RingFile]:
    made = RingFile.create(tmp_path / "ring" / "ring", INTERVAL_NS, CAPACITY)
    yield made
    made.close()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "sys")


@pytest.fixture(autouse=True)
def close_files() -> Iterator[None]:
    yield
    while Sampling.running:
        Sampling.running.pop().apply()


@pytest.fixture
def inventory(tree: Tree) -> ListedInventory:
    for number in range(2):
        tree.write(f"mlx5_{number}", number, number + 10)
    return ListedInventory(Fabric(tuple(port(name, tree.source(name)) for name in ("mlx5_0", "mlx5_1"))))
