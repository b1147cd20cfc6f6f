from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sysfs.opened import Opened
from tests.sysfs.trees import MLX5_HW, PortFiles, Tree, release

HW = MLX5_HW | {"packet_seq_err": "3\n", "np_cnp_sent": "5\n"}


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
def node(tree: Tree) -> Iterator[Tree]:
    """Three devices; whatever hangs on the middle one is let go at the end."""
    for index in range(3):
        tree.add(f"mlx5_{index}", {1: PortFiles(hw_counters=HW)}, pci=f"0000:{index:02x}:00.0")
    yield tree
    for path in filter(Path.is_fifo, tree.root.rglob("*")):
        release(path)
    for thread in threading.enumerate():
        if thread.name == "sysfs-mlx5_1":
            thread.join()
