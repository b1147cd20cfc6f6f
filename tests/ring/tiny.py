"""A very small file system."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def tiny_tmpfs(tmp_path: Path) -> Iterator[Path]:
    """A small tmpfs with space for a ring's header and one slot of 10,000 records; `mount` is a process."""
    if os.geteuid():
        pytest.skip("no root")
    folder = tmp_path / "tiny"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=700k,mode=750", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no root")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
