"""The same story twice says the same, byte for byte: metrics, windows, events, jobs, captures and a stream."""

from __future__ import annotations

import errno
import json
from pathlib import Path

from tests.virtual.node import Node

MS = 1_000_000
FLAGS = ("--slow.interval=1s", "--capture.allow-unauthenticated=true", "--capture.rules=rail-lost")


def play(folder: Path) -> dict[str, bytes]:
    """What a node says after whatever can happen to it."""
    owners = folder / "owners"
    owners.mkdir(parents=True, mode=0o755)
    with Node(folder, *FLAGS, f"--jobs.owners-dir={owners}", rails=4, workload="moe") as node:
        node.run(1)
        node.late_by(lambda tick: 35 * MS if tick % 50 == 0 else 3 * MS if tick % 7 == 0 else 0)
        viewer = node.view("/api/v1/stream")
        node.run(6)
        node.late_by({})
        viewer.reads.clear()
        (owners / "7.json").write_text(json.dumps({"id": "7", "scheduler": "slurm", "devices": ["mlx5_0", "mlx5_1"]}))
        node.slow("mlx5_1", 0.003)
        node.wrap("mlx5_3", 32, 1_000_000_000)
        node.run(8)
        node.answer()
        node.hang("mlx5_1")
        node.fail("mlx5_2", errno.EINVAL, "port_rcv_data")
        node.run(6)
        node.answer()
        viewer.reads.set()
        (owners / "7.json").unlink()
        node.fault({"vanish": ["mlx5_3"], "link-flap": ["mlx5_0"], "stuck": ["mlx5_2"]})
        node.run(5)
        node.fault({"reset": ["mlx5_0"]})
        node.run(5)
        for step in (3600, -1.2345):
            node.clock.step(step)
            node.run(4)
        node.clock.slew(400)
        node.suspend(30)
        node.samplers.kill()
        node.run(4)
        node.restart(after=2)
        node.run(4)
        for old, new in (("mlx5_0", "old"), ("mlx5_1", "mlx5_0"), ("old", "mlx5_1")):
            node.rename(old, new)
        node.post("/api/v1/captures", {"before": "2s", "after": "1s"})
        node.run(8)
        return {**node.said(), "stream": bytes(viewer.received)}


def test_two_runs_say_the_same(folder: Path) -> None:
    first, second = (play(folder / name) for name in ("first", "second"))
    assert first["metrics"].count(b"\n") > 500
    assert [name for name in first if first[name] != second.get(name)] == []
    assert len(first) == len(second) > 7
