"""A fabric for containers."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.campaigns.live.docker.container import simulated_tree


@pytest.fixture(scope="module")
def memory() -> Iterator[Path]:
    """A directory in memory: where the fabric is, and the volumes."""
    directory = Path(tempfile.mkdtemp(prefix="ibpulse-container-", dir="/dev/shm"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def tree(memory: Path) -> Iterator[Path]:
    """A fabric that carries 20 GB/s."""
    with simulated_tree(memory / "sys", "--workload=constant", "--rate=20GB/s") as tree:
        yield tree
