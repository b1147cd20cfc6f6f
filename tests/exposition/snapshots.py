"""Snapshots made by a real aggregator from a real ring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from ibpulse.agent.aggregator import Aggregator, AggregatorOptions, Snapshot
from ibpulse.agent.aggregator.aggregator import COUNTED
from ibpulse.agent.aggregator.snapshot import JobSnapshot, PortLimits
from ibpulse.agent.metrics.ports import DIAGNOSTIC_COUNTERS, USUAL_SIGNS
from ibpulse.agent.sysfs.error_counters import CounterSet, choose_counters
from ibpulse.base.internal_errors import PARTS
from ibpulse.core.events import KINDS
from ibpulse.core.events.watch import KnownPort
from ibpulse.core.jobs import Claim, PlacedJob
from ibpulse.core.metrics.web import WebCounts
from ibpulse.core.model import (
    CAPTURE_ORIGINS,
    CaptureCounts,
    CounterReading,
    DevicePlace,
    DeviceReads,
    Fabric,
    Port,
    PortReadings,
    PortState,
    SamplerHealth,
    Topology,
)
from ibpulse.workbench.simulate.tree import COUNTERS, HW_COUNTERS
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
    reads=(DeviceReads("mlx5_0", 0.0081, True), DeviceReads("mlx5_1", None)),
)
CAPTURES = CaptureCounts(
    taken=tuple((origin, number) for number, origin in enumerate(CAPTURE_ORIGINS)),
    errors=2,
    stored=15,
    stored_bytes=21_000_000,
    newest_seconds=1763683200.5,
)

ERRORS = {part: number for number, part in enumerate(PARTS)}
SERVER = WebCounts(
    stream_viewers=2,
    stream_dropped_events=17,
    config_reloaded=True,
    internal_errors=SimpleNamespace(counts=lambda: dict(ERRORS)),
)
for _path, _code, _seconds in (
    ("/metrics", 200, 0.0015),
    ("/metrics", 200, 0.0025),
    ("/metrics", 405, 0.0001),
    ("other", 404, 0.25),
):
    SERVER.observe(_path, _code, _seconds)


def mlx5_readings(port: Port, counter_set: CounterSet = "diagnostic", value: int = 7, at_ns: int = 1) -> PortReadings:
    """The slow reader's counters of an mlx5 port; all have the same value."""
    listed = {"counters": COUNTERS, "hw_counters": (*HW_COUNTERS, "lifespan")}
    wanted = choose_counters(listed, port.identity.link_layer, "mlx5_core", counter_set)
    readings = [CounterReading(one.name, one.file, value * one.scale, at_ns) for one in wanted if one.name]
    return PortReadings(port.id, tuple(readings))


def every_row(port: Port, value: int, at_ns: int) -> PortReadings:
    """A counter for each row of the table, one of them saturated; no real port has all of them."""
    files = {DIAGNOSTIC_COUNTERS[0].name: "port_xmit_wait"}
    readings = [CounterReading(row.name, files.get(row.name, "file"), value, at_ns) for row in DIAGNOSTIC_COUNTERS]
    full = CounterReading(DIAGNOSTIC_COUNTERS[3].name, "symbol_error", 65535, at_ns, saturated=True)
    return PortReadings(port.id, (*readings[:3], full, *readings[4:]))


def _read_all(fabric: Fabric, value: int, at_ns: int) -> Fabric:
    return replace(
        fabric, counters=tuple(every_row(port, value, at_ns) for port in fabric.ports), topology=_plug(fabric)
    )


def _plug(fabric: Fabric) -> Topology:
    """Every device in a slot that carries as much as its links can."""
    devices = sorted({port.id.device for port in fabric.ports})
    return Topology(
        tuple(DevicePlace(name, pcie_bytes_per_second=63e9, pcie_max_bytes_per_second=63e9) for name in devices)
    )


def snapshot_of(path: Path, *ports: Port) -> Snapshot:
    """Five seconds of traffic on every port."""
    ring = Ring.create(path, *ports)
    aggregator = Aggregator(ring.reader, AggregatorOptions(xmit_wait_tick_bytes=8))
    for number, each in enumerate(ports, 1):
        ring.write(str(each.id), (square(number * 5e9, 20, 30), constant(number * 1e9)), 1, 600)
    aggregator.update(_read_all(ring.fabric, 7, 1), ring.now_after(4))
    fabric = replace(_read_all(ring.fabric, 9, 10**9 + 1), notices=("a", "b"))
    made = aggregator.update(fabric, ring.now_after(5))
    return replace(
        made,
        health=HEALTH,
        captures=CAPTURES,
        known_ports=_know(ports),
        event_counts=dict.fromkeys(KINDS, 3),
        expected_rails=9,
        job_statistics=(JobSnapshot("4711", 0.4, 60e9, 0.9, 0.5, 1_763_683_200_500_000_000),),
        job_stalls={"4711": False},
        limits=tuple(
            PortLimits(port.id, {sign: 1.5 * (sign in USUAL_SIGNS) for sign in COUNTED}, 40e9) for port in ports
        ),
        jobs=(PlacedJob(Claim("4711", "slurm", "slurm-cgroup"), tuple(port.id for port in ports), "alone"),),
    )


def _know(ports: Sequence[Port]) -> tuple[KnownPort, ...]:
    """The ports with different totals, the first of them unreadable."""
    states = [PortState(port.state, "LinkUp", port.active, port.rate_bytes_per_second, port.rail) for port in ports]
    states[0] = replace(states[0], problem="unreadable")
    return tuple(
        KnownPort(port, state, None, state.problem, 1.5 * number, 2 * number)
        for number, (port, state) in enumerate(zip(ports, states, strict=True))
    )


def node(path: Path, ports: int = 8) -> Snapshot:
    """A node with this number of rails."""
    made = [port(f"mlx5_{number}:1") for number in range(ports)]
    return snapshot_of(path, *made)


def simulated(snapshot: Snapshot) -> Snapshot:
    """The snapshot of a simulated fabric."""
    return replace(snapshot, fabric=replace(snapshot.fabric, simulated=True))
