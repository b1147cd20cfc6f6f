"""Which error counters of a node are read."""

from __future__ import annotations

from pathlib import Path

from tests.tables import for_each
from tests.virtual.node import Node


@for_each([("all", True), ("none", False)])
def test_all_counters_or_none_can_be_asked_for(counters: str, read: bool, folder: Path) -> None:
    with Node(folder / counters, f"--slow.counters={counters}", rails=1) as node:
        node.run(8)
        metrics = node.metrics()
    for name in ("port_data_transmitted_bytes", "np_cnp_packets_sent", "link_downed"):
        assert bool(metrics.find(f"ibpulse_{name}_total")) is read, name
