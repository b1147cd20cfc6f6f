"""What can happen to a node, each in a few seconds of virtual time."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Mapping

from tests.virtual.node import Node

MS = 1_000_000


def wake_late(node: Node) -> None:
    """Every seventh tick begins 3 ms late, every 50th so late that three are missed."""
    node.late_by(lambda tick: 35 * MS if tick % 50 == 0 else 3 * MS if tick % 7 == 0 else 0)
    node.run(10)


def read_slowly(node: Node) -> None:
    node.slow("mlx5_1", 0.003)
    node.run(10)
    node.answer()
    node.run(5)


def hang_and_answer(node: Node) -> None:
    node.hang("mlx5_1")
    node.run(5)
    node.answer()
    node.run(20)


def refuse(node: Node) -> None:
    node.fail("mlx5_2", errno.EINVAL, "port_rcv_data")
    node.run(8)


def vanish_and_return(node: Node) -> None:
    node.fault({"vanish": ["mlx5_3"]})
    node.run(5)
    node.fault()
    node.run(5)


def swap_names(node: Node) -> None:
    for old, new in (("mlx5_0", "old"), ("mlx5_1", "mlx5_0"), ("old", "mlx5_1")):
        node.rename(old, new)
    node.run(8)


def reset(node: Node) -> None:
    node.fault({"reset": ["mlx5_0"]})
    node.run(5)


def wrap(node: Node) -> None:
    node.wrap("mlx5_1", 32, 1_000_000_000)
    node.run(5)


def read_a_stream_slowly(node: Node) -> None:
    viewer = node.view("/api/v1/stream")
    node.run(2)
    viewer.reads.clear()
    node.run(20)
    viewer.reads.set()
    node.run(1)
    (node.captures / "stream.parquet").write_bytes(bytes(viewer.received))


def flap(node: Node) -> None:
    node.fault({"link-flap": ["mlx5_0"], "slow-rail": {"mlx5_1": 0.5}, "stuck": ["mlx5_2"]})
    node.run(5)
    node.fault()
    node.run(5)


def set_the_clock(node: Node) -> None:
    node.clock.step(3600)
    node.run(4)
    node.clock.step(-1.2345)
    node.run(4)
    node.clock.slew(400)
    node.run(4)


def suspend(node: Node) -> None:
    node.suspend(30)
    node.run(5)


def restart(node: Node) -> None:
    node.restart(after=2)
    node.run(5)


def kill(node: Node) -> None:
    node.samplers.kill()
    node.run(4)


def capture(node: Node) -> None:
    node.post("/api/v1/captures", {"before": "2s", "after": "1s"})
    node.run(4)


def run_jobs(node: Node) -> None:
    owners = node.path / "owners"
    (owners / "7.json").write_text(json.dumps({"id": "7", "scheduler": "slurm", "devices": ["mlx5_0", "mlx5_1"]}))
    node.run(6)
    (owners / "7.json").unlink()
    node.run(4)


Scenario = Callable[[Node], None]
SCENARIOS: Mapping[Scenario, str] = {
    wake_late: "moe",
    read_slowly: "dense",
    hang_and_answer: "constant",
    refuse: "dense",
    vanish_and_return: "expert-parallel",
    swap_names: "square",
    reset: "dense",
    wrap: "dense",
    read_a_stream_slowly: "moe",
    flap: "expert-parallel",
    set_the_clock: "dense",
    suspend: "dense",
    restart: "dense",
    kill: "dense",
    capture: "moe",
    run_jobs: "constant",
}
"""Each with the workload of the node."""
