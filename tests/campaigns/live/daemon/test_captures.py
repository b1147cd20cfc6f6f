"""Captures that are being written when the daemon is killed."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from ibpulse.core.recordings import load
from tests.fabrics import simulated
from tests.running import Running, eventually

PATH = "/api/v1/captures"
OPEN = "--capture.allow-unauthenticated=true"


def captures(daemon: Running) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = daemon.ask(PATH).json()["captures"]
    return found


def ask_for(daemon: Running, **body: Any) -> httpx.Response:
    return httpx.post(daemon.url + PATH, json=body, timeout=20)


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    with simulated(tmp_path / "sys", "expert-parallel", ports=4) as made:
        yield made


def is_running(pid: int) -> bool:
    """Whether a process exists and has not ended."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except OSError:
        return False


def test_a_kill_at_any_point_leaves_whole_files_alone(tmp_path: Path, tree: Path) -> None:
    directory = tmp_path / "captures"
    daemon = Running(tree, tmp_path / "ring", OPEN, "--capture.before=30s", "--capture.after=1s")
    whole: set[str] = set()
    for attempt in range(4):
        daemon.start()
        for number in range(3):
            assert ask_for(daemon, labels={"number": str(number)}, after="50ms").status_code == 202
        time.sleep(0.15 + 0.3 * attempt)
        daemon.signal(signal.SIGSTOP)
        children = daemon.sampler_pids()
        daemon.stop(signal.SIGKILL)
        # a writer that was at work ends its file by itself
        eventually(lambda children=children: not any(map(is_running, children)), 60)
        before, whole = whole, {file.name for file in directory.glob("*.parquet")}
        assert before <= whole
        for name in whole - before:
            assert load(directory / name).meta.source == "capture"
    daemon.start()
    assert {each["name"] for each in captures(daemon)} == whole
    assert daemon.stop() == 0
    assert whole
