"""What a capture knows of its ports, of those that vanished too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ibpulse.agent.flightrecorder.recorder import KnownPorts
from ibpulse.workbench.simulate.workloads import ExpertParallel
from tests.flightrecorder.played import Act, play

WORKLOAD = ExpertParallel()


def test_a_port_that_went_down_keeps_the_rate_that_it_had(tmp_path: Path) -> None:
    book = KnownPorts(10_000)
    for snapshot in play(tmp_path, Act(WORKLOAD, 5), Act(WORKLOAD, 5, down=(2,))):
        book.update(snapshot)
    ports = {port.device: port for port in book.since(1)}
    assert len(ports) == 8
    assert (ports["mlx5_2"].active, ports["mlx5_2"].state, ports["mlx5_2"].rate_bytes_per_second) == (
        False,
        "DOWN",
        50e9,
    )
    assert (ports["mlx5_0"].active, ports["mlx5_0"].rail, ports["mlx5_0"].source) == (True, True, "words")
    assert (ports["mlx5_0"].stride, ports["mlx5_0"].identity.link_layer) == (1, "InfiniBand")


def test_the_ports_of_a_simulator_are_simulated(tmp_path: Path) -> None:
    book = KnownPorts(10_000)
    for snapshot in play(tmp_path, Act(WORKLOAD, 5)):
        book.update(snapshot)
        assert not book.simulated
        book.update(replace(snapshot, fabric=replace(snapshot.fabric, simulated=True)))
        assert book.simulated


def test_a_port_that_vanished_is_known_while_the_ring_may_hold_it(tmp_path: Path) -> None:
    book = KnownPorts(1000)
    snapshots = list(play(tmp_path, Act(WORKLOAD, 5), Act(WORKLOAD, 20, gone=(2,))))
    for snapshot in snapshots[:10]:
        book.update(snapshot)
    gone = [port for port in book.since(450) if port.device == "mlx5_2"]
    assert [(port.state, port.active) for port in gone] == [("GONE", False)]
    assert len(book.since(501)) == 7
    for snapshot in snapshots[10:]:
        book.update(snapshot)
    assert len(book.since(1)) == 7
