"""Which programs a smoke test needs, and the end of all processes that it starts."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.running import eventually
from tests.smoke.parts import MARK, find, processes


@functools.cache
def is_root() -> bool:
    """Whether this user may make namespaces and mount file systems in them."""
    if os.geteuid() or not shutil.which("unshare"):
        return False
    mount = ["unshare", "--mount", "--net", "--pid", "--fork", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(mount, capture_output=True, check=False).returncode == 0


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose program is missing, before any fixture starts something."""
    for program in (name for mark in item.iter_markers("needs") for name in mark.args):
        if not (is_root() if program == "root" else find(program)):
            pytest.skip(f"no {program}")


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
