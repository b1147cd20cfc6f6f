"""A daemon serves the tree of a bundle as it serves the original."""

from __future__ import annotations

import re
from pathlib import Path

from ibpulse.simulate.fabric import SimulatedFabric
from ibpulse.simulate.timeline import Schedule
from ibpulse.simulate.workloads import make_workload
from tests.doctor.test_bundle import bundle, copy, unpack
from tests.running import Running


def test_the_daemon_over_a_bundle_gives_the_same_metrics(tmp_path: Path) -> None:
    schedule = Schedule(make_workload("constant"), 0, 4, 0)
    fabric = SimulatedFabric(tmp_path / "sys", schedule, 10_000_000, management=True)
    fabric.build(5_000_000_000, {"einval": ["mlx5_3"]})
    fabric.close()
    unpacked = unpack(bundle(copy(tmp_path / "sys"), tmp_path / "b.tar.gz"), tmp_path / "out")
    before, after = (
        known_metrics(tree, tmp_path / f"ring-{number}")
        for number, tree in enumerate((tmp_path / "sys", unpacked / "sys"))
    )
    assert after == before
    assert {'ibpulse_port_up{device="mlx5_an0",port="1"} 1', "ibpulse_node_rails 3"} <= before
    assert any(line.startswith("ibpulse_port_info") and 'gpu_distance="' in line for line in before)
    assert any(line.startswith("ibpulse_link_downed_total") for line in before)


def known_metrics(tree: Path, ring: Path) -> set[str]:
    """Lines of `/metrics` about the fabric that do not depend on when they were asked for, without GUIDs."""
    with Running(tree, ring) as daemon:
        text = daemon.ask("/metrics").text
    timely = re.compile(r"^ibpulse_\w*(?:observed|_seconds_total|read|_count|_bucket|_sum|timestamp)")
    lines = [line for line in text.splitlines() if 'device="' in line or line.startswith("ibpulse_node_")]
    return {re.sub(r'guid="[^"]*"', "", line) for line in lines if not timely.match(line)}
