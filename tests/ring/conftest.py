"""A small ring for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ibpulse.core.ring.file import RingFile
from tests.ring.tiny import tiny_tmpfs

__all__ = ["tiny_tmpfs"]

INTERVAL_NS = 10_000_000
CAPACITY = 50


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[RingFile]:
    made = RingFile.create(tmp_path / "ring", INTERVAL_NS, CAPACITY)
    yield made
    made.close()
