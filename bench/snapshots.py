"""Runs the aggregator in this process on a ring with synthetic history."""

from __future__ import annotations

from pathlib import Path

from bench.bench import MILLISECOND_NS
from bench.history import filled_ring
from ibpulse.aggregator import Aggregator, AggregatorOptions, Snapshot
from ibpulse.model import ByteSource, Fabric, Port, PortId, PortIdentity
from ibpulse.ring import layout as at
from ibpulse.ring.reader import RingReader

LINE_BYTES_PER_SECOND = 50e9
INTERVAL_NS = 10 * MILLISECOND_NS


def open_aggregator(folder: Path, ports: int, history_seconds: int) -> tuple[RingReader, Aggregator]:
    """A ring with this number of ports and this much history, and a new aggregator for it."""
    reader = filled_ring(folder / "ring", INTERVAL_NS, ports, history_seconds)
    return reader, Aggregator(reader, AggregatorOptions())


def build_fabric(ports: int) -> Fabric:
    """A fabric with this number of 400 Gb/s rails."""
    identity = PortIdentity(
        "InfiniBand", "400 Gb/sec (4X NDR)", "b8ce:f603:00aa:0000", "MT_0000000838", "MT4129", "28.41.1000", "mlx5_core"
    )
    source = ByteSource("port_data", ("/transmit",), ("/receive",), 4)
    return Fabric(
        tuple(
            Port(PortId(f"mlx5_{number}", 1), identity, True, "ACTIVE", LINE_BYTES_PER_SECOND, source, rail=True)
            for number in range(ports)
        )
    )


def build_snapshot(reader: RingReader, aggregator: Aggregator, ports: int, tick: int) -> Snapshot:
    """The snapshot at a sample, as if the ring's sampler had just reached it."""
    reader.ring.words[at.lane_at(0) + at.L_TICK] = tick
    return aggregator.update(build_fabric(ports), tick)
