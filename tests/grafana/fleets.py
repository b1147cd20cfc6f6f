"""Simulated nodes with their daemons below a Prometheus and an Alertmanager, whose rules have short durations.

The table of thresholds shortens the durations; the rules are not edited. Asserts nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.fabrics import simulated
from tests.grafana.servers import Servers, running_servers
from tests.running import Running

SHORT = {
    "moe_window": "20s",
    "moe_for": "5s",
    "saturated_window": "30s",
    "rail_idle_for": "8s",
    "rail_slow_for": "10s",
    "rail_missing_for": "5s",
    "drop_window": "20s",
    "step_recent": "20s",
    "step_memory": "1m",
    "step_for": "10s",
    "job_silent": "5",
    "keep_for": "1s",
    "keep_cause_for": "15s",
    # samples really are missed where eight daemons share two processors
    "unreliable_for": "30s",
}
FLAGS = (
    "--analysis.traffic-window=20s",
    "--analysis.moe-saturation-hold=5s",
    # a quarter of the reads is uncertain where several daemons and their simulators share two processors
    "--analysis.moe-saturation-peak=0.8",
    "--slow.interval=1s",
)


@dataclass
class Node:
    """One simulated node with its daemon."""

    daemon: Running

    @property
    def instance(self) -> str:
        return self.daemon.url.removeprefix("http://")


@dataclass
class Fleet:
    """All nodes by name, and the servers over them."""

    nodes: dict[str, Node]
    servers: Servers


@contextmanager
def running_fleet(directory: Path, workloads: Mapping[str, str]) -> Iterator[Fleet]:
    """Healthy nodes by name, on four ports each, and the servers over them."""
    with ExitStack() as stack:
        nodes = {name: _start(stack, directory / name, workload) for name, workload in workloads.items()}
        for node in nodes.values():
            node.daemon.wait_until_counting()
        targets = [node.instance for node in nodes.values()]
        yield Fleet(nodes, stack.enter_context(running_servers(directory, targets, SHORT)))


def _start(stack: ExitStack, directory: Path, workload: str) -> Node:
    directory.mkdir()
    tree = stack.enter_context(simulated(directory / "sys", workload, ports=4))
    daemon = Running(tree, directory / "ring", *FLAGS)
    stack.callback(daemon.stop)
    daemon.launch()
    return Node(daemon)
