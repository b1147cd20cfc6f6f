"""Trees and rings of virtual nodes are in memory where possible: they are written a hundred times a second."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.virtual.samplers import Make, Supervised

SHARED_MEMORY = Path("/dev/shm")


@contextmanager
def make_folder() -> Iterator[Path]:
    parent = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=parent) as directory:
        yield Path(directory)


@pytest.fixture
def folder() -> Iterator[Path]:
    with make_folder() as directory:
        yield directory


@pytest.fixture(scope="module")
def shared_folder() -> Iterator[Path]:
    """One for all tests of a module."""
    with make_folder() as directory:
        yield directory


@pytest.fixture
def make(folder: Path) -> Iterator[Make]:
    """Makes supervisors of two devices, or of more, and closes them."""
    made: list[Supervised] = []

    def make(devices: int = 2, **options: object) -> Supervised:
        made.append(Supervised(folder, devices, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def node(make: Make) -> Supervised:
    """A supervisor that has run for a second."""
    node = make()
    node.start()
    return node
