"""Snapshots that a real aggregator made of a real ring."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ibpulse.aggregator import Aggregator, AggregatorOptions, Snapshot
from ibpulse.model import Port, SamplerHealth
from tests.aggregator.rings import Ring, constant, port, square

HEALTH = SamplerHealth(
    restarts=3,
    takeovers=1,
    quarantined_devices=("mlx5_1",),
    scheduler_requested="fifo",
    scheduler_actual="other",
    cpu_requested="3",
    heartbeat_age_seconds=0.004,
    throttled_periods=17,
)


def snapshot_of(path: Path, *ports: Port) -> Snapshot:
    """Five seconds of traffic on every port."""
    ring = Ring.create(path, *ports)
    aggregator = Aggregator(ring.reader, AggregatorOptions())
    for number, each in enumerate(ports, 1):
        ring.write(str(each.id), (square(number * 5e9, 20, 30), constant(number * 1e9)), 1, 600)
    aggregator.update(ring.fabric, HEALTH, ring.now_after(4))
    return aggregator.update(replace(ring.fabric, notices=("a", "b")), HEALTH, ring.now_after(5))


def node(path: Path, ports: int = 8) -> Snapshot:
    """A node of so many rails."""
    made = [port(f"mlx5_{number}:1") for number in range(ports)]
    return snapshot_of(path, *made)
