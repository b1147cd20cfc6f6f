from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.sysfs.opened import Opened
from tests.sysfs.trees import MLX5_HW, PortFiles, Tree
from tests.virtual.world import World

HW = MLX5_HW | {"packet_seq_err": "3\n", "np_cnp_sent": "5\n"}


@pytest.fixture(autouse=True)
def world() -> Iterator[World]:
    """A read takes no time, however busy the machine is, unless a test lets it hang."""
    with closing(World()) as world:
        yield world


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "sys")


@pytest.fixture
def opened() -> Iterator[Opened]:
    watcher = Opened()
    watcher.switch_on()
    yield watcher
    watcher.switch_off()


@pytest.fixture
def node(tree: Tree) -> Tree:
    """Three devices."""
    for index in range(3):
        tree.add(f"mlx5_{index}", {1: PortFiles(hw_counters=HW)}, pci=f"0000:{index:02x}:00.0")
    return tree
