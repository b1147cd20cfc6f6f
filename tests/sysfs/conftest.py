from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sysfs.opened import Opened
from tests.sysfs.trees import Tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "sys")


@pytest.fixture
def opened() -> Iterator[Opened]:
    watcher = Opened()
    watcher.switch_on()
    yield watcher
    watcher.switch_off()
