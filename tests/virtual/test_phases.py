"""A checkpoint of a replayed job becomes an event of the daemon that reads the replay with the printed settings."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from ibpulse.commands.replay import describe
from ibpulse.core.model import COMPUTE, STORAGE
from ibpulse.core.recordings import RecordedPort, Recording, RecordingMeta
from ibpulse.workbench.simulate.replay import Player, Replay
from tests.virtual.node import Node
from tests.virtual.world import START_NS

INTERVAL_NS = 50_000_000
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
    meta = RecordingMeta("node7", INTERVAL_NS, ports, "record")
    return Recording(meta, START_NS, rates, np.full(rates.shape, INTERVAL_NS / 1e9))


def test_a_checkpoint_is_an_event_with_its_bytes(folder: Path) -> None:
    played = make_round()
    with closing(Player(lambda: iter([played]), 3, 1.0, loop=True)) as player:
        replay = Replay(folder / "tree", played.meta, player, INTERVAL_NS, START_NS)
        replay.build()
        asked = SimpleNamespace(directory=folder / "tree", speed=1.0)
        said = describe(folder / "job.parquet", played.meta, asked, INTERVAL_NS)  # type: ignore[arg-type]
        roles = re.findall(r"--ports\.roles=\S+", said)
        assert roles == ["--ports.roles=compute=mlx5_0:1,mlx5_1:1,storage=mlx5_2:1"]
        with Node(folder, *roles, "--analysis.traffic-window=10s", interval="50ms", tree=replay) as node:
            node.run(40)
            events = node.events("checkpoint")
    # one in each round of nine seconds, which is over after 8.6 s
    assert len(events) == 4
    for event in events:
        assert event.subject == ""
        assert event.text == "checkpoint: 15.00 GB to storage in 1.50 s, rails silent"
        assert event.details["transmitted_bytes"] == WRITTEN_BYTES
        assert event.details["seconds"] == WRITE_SECONDS
        assert event.details["silent_seconds"] == WRITE_SECONDS
        assert event.details["received_bytes"] == 0
