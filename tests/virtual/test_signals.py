"""Signals under the supervisor: a device that hangs while they are read is quarantined once, and loses no bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ibpulse.agent.sampler.supervisor import SupervisorOptions
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.reader import RingReader, read_signals
from ibpulse.core.signals import Signal, SignalSource
from tests.virtual.samplers import INTERVAL_NS, Supervised
from tests.virtual.world import Gate

SIGNALS = (Signal("packet_sequence_errors", 32, stops=True), Signal("port_transmit_wait", 32, stops=True))
TICKS = round(0.1 * 1e9 / INTERVAL_NS)


@pytest.fixture
def node(folder: Path) -> Iterator[Supervised]:
    """A supervisor of two devices with signals that has run for a second."""
    ring = RingFile.create(folder / "ring" / "ring", INTERVAL_NS, 6000, signal_capacity=6000 // TICKS)
    options = SupervisorOptions(scan_seconds=0.2, steady_seconds=3, signal_ticks=TICKS)
    node = Supervised(folder, 2, options, ring)
    ports = []
    for port in node.inventory.fabric.ports:
        files = [node.tree.path(port.id.device, name) for name in ("packet_seq_err", "port_xmit_wait")]
        for file in files:
            file.write_text("7\n")
        source = SignalSource(SIGNALS, tuple(map(str, files)), 1)
        ports.append(replace(port, signals=source))
    node.list_ports(ports)
    node.start()
    yield node
    node.close()


def count_readings(node: Supervised, name: str, seconds: float) -> int:
    last = node.ring.latest_tick()
    slot = node.ring.slots()[f"{name}:1"]
    _, found = read_signals(RingReader(node.ring), slot, last - round(seconds * 1e9 / INTERVAL_NS) + 1, last)
    return len(found.counters) - 1


def test_a_device_that_hangs_in_its_signals_loses_them_not_its_bytes(node: Supervised) -> None:
    assert [count_readings(node, name, 0.8) for name in node.names] == [8, 8]
    gate = Gate(f"{node.tree.root}/", files=("packet_seq_err",), closed=True)
    node.world.gates.setdefault("mlx5_1", []).append(gate)
    node.run(2)
    assert node.supervisor.health().quarantined_devices == ("mlx5_1",)
    node.run(8)
    # the sampler that follows leaves its signals alone, so the device is released, and not quarantined again
    assert node.supervisor.health().quarantined_devices == ()
    assert node.supervisor.health().takeovers == 1
    assert {node.sampled(name, 5) for name in node.names} == {"x" * round(5e9 / INTERVAL_NS)}
    assert count_readings(node, "mlx5_0", 2) == 20
    node.world.open_gate(gate)
    node.run(60)
    assert count_readings(node, "mlx5_1", 2) == 20


def test_signals_that_a_port_no_longer_has_are_dropped(node: Supervised) -> None:
    (first, second) = node.inventory.fabric.ports
    node.list_ports([first, replace(second, signals=None)])
    node.run(1)
    assert node.ring.signals(node.ring.slots()["mlx5_1:1"]) == ()
    assert count_readings(node, "mlx5_0", 0.5) == 5
    assert node.ring.slot_word(node.ring.slots()["mlx5_1:1"], at.S_STATUS) == at.OK
