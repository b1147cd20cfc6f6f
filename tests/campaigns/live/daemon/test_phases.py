"""A checkpoint of a replayed job becomes an event of the daemon that reads the replay with the printed settings."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ibpulse.model import COMPUTE, STORAGE
from ibpulse.recordings import RecordedPort, Recording, RecordingMeta, save
from tests.running import Running, eventually

# wide enough that a writer on a busy machine is in time
INTERVAL = "50ms"
TICK_NS = 50_000_000
START_NS = 1_763_683_200 * 10**9
LINE = 50e9
WRITTEN_BYTES = 15e9
WRITE_SECONDS = 1.5


def make_round() -> Recording:
    """Seven seconds of steps of half a second on two rails, and two seconds in which only the storage port sends."""
    rates = np.zeros((3, 2, 180))
    rates[:2, :, :140] = np.resize(np.repeat([20e9, 0.0], [6, 4]), 140)
    rates[2, 0, 142:172] = WRITTEN_BYTES / WRITE_SECONDS
    ports = tuple(
        RecordedPort(f"mlx5_{number}", 1, LINE, rail=role == COMPUTE, role=role, state="ACTIVE", source="port_data")
        for number, role in enumerate((COMPUTE, COMPUTE, STORAGE))
    )
    meta = RecordingMeta("node7", TICK_NS, ports, "record")
    return Recording(meta, START_NS, rates, np.full(rates.shape, TICK_NS / 1e9))


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Running]:
    """A daemon over that round, again and again, with the roles that `ibpulse replay` prints."""
    path, tree = tmp_path / "job.parquet", tmp_path / "tree"
    save(path, make_round())
    command = [sys.executable, "-m", "ibpulse", "replay", str(path), str(tree), "--loop"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as replay:
        try:
            assert replay.stdout is not None
            said = replay.stdout.readline() + replay.stdout.readline()
            roles = re.findall(r"--ports\.roles=\S+", said)
            assert roles == ["--ports.roles=compute=mlx5_0:1,mlx5_1:1,storage=mlx5_2:1"]
            window = "--analysis.traffic-window=10s"
            with Running(tree, tmp_path / "ring", *roles, window, interval=INTERVAL) as running:
                yield running
        finally:
            replay.terminate()


def test_a_checkpoint_is_an_event_with_its_bytes(daemon: Running) -> None:
    def whole_checkpoint() -> dict[str, Any] | None:
        """One of which no sample was late, which on a busy machine need not be the first."""
        for event in daemon.ask("/api/v1/events", kind="checkpoint").json()["events"]:
            if event["details"]["transmitted_bytes"] == pytest.approx(WRITTEN_BYTES, rel=0.05):
                return dict(event)
        return None

    event = eventually(whole_checkpoint, 120)
    assert event["subject"] == ""
    assert re.fullmatch(r"checkpoint: 1\d\.\d\d GB to storage in \d\.\d\d s, rails silent", event["text"])
    # a replay that is late pauses, so nothing is shorter than recorded
    assert event["details"]["seconds"] >= WRITE_SECONDS - 2 * TICK_NS / 1e9
    assert event["details"]["silent_seconds"] >= WRITE_SECONDS - 2 * TICK_NS / 1e9
    assert event["details"]["received_bytes"] == 0
