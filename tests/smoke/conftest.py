"""A smoke test ends all processes that it starts."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.running import eventually
from tests.smoke.parts import MARK, processes


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No process of a test outlives it."""
    monkeypatch.setenv(MARK, str(tmp_path))
    yield
    try:
        eventually(lambda: not processes(tmp_path))
    finally:
        for pid in processes(tmp_path):
            os.kill(pid, signal.SIGKILL)
