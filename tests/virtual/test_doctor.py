"""`ibpulse doctor` in virtual time: faults of the simulator, hung devices, and next to a running daemon."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ibpulse.workbench.simulate.faults import FAULTS
from ibpulse.workbench.simulate.tree import make_devices
from ibpulse.workbench.simulate.workloads import Constant
from tests.tables import for_each
from tests.virtual.doctor import Answer, ask_doctor
from tests.virtual.node import Node
from tests.virtual.rates import RATE

DEVICE = "mlx5_2"
# a function without a device has no name of one
CARD = make_devices(4)[2].pci_path.rpartition("/")[2]
# the check that names each fault, its level, its subject, and part of its sentence
NAMED = {
    "idle-rail": ("balance", "WARN", "is idle"),
    "slow-rail": ("balance", "WARN", "is slow"),
    "link-flap": ("rails", "FAIL", "its link is DOWN"),
    "trained-down": ("rails", "WARN", "trained down"),
    "vanish": ("devices", "FAIL", "has no RDMA device"),
    "reset": ("counting", "WARN", "was reset"),
    "stuck": ("balance", "FAIL", "has stuck byte counters"),
    "refresh": ("resolution", "WARN", "refreshed only every 100 ms"),
    "bit-errors": ("saturation", "WARN", "has counters at their maximum: symbol_error"),
    "unanswered": ("balance", "WARN", "is idle: it carries 0 GB/s"),
    "einval": ("rails", "FAIL", "is not sampled: counters/port_xmit_data says 'N/A (no PMA)'"),
}
# the fabric causes these
OF_THE_FABRIC = {"congested"}
# a fault has consequences that are findings too
CONSEQUENCES = {"trained-down": [("balance", "WARN")]}


def make_node(folder: Path) -> Node:
    """Four rails and a management port with constant traffic."""
    return Node(folder, rails=4, workload=Constant(RATE))


def examine(node: Node, *flags: str) -> Answer:
    """What doctor says without a daemon: it samples the tree itself."""
    return ask_doctor(node.world, node.clock, node.tree, node.path / "no-ring", "--format=json", *flags)


def examine_through_daemon(node: Node, *flags: str) -> Answer:
    """What doctor says of the samples of the running daemon."""
    return ask_doctor(node.world, node.clock, node.tree, node.path / "ring", "--format=json", *flags)


def later(node: Node, seconds: float, do: Callable[[], object]) -> None:
    """Do something while doctor samples."""
    node.world.start(do, "later", round(seconds * 1e9))


def test_every_fault_of_the_simulator_has_a_row() -> None:
    assert set(NAMED) == set(FAULTS) - OF_THE_FABRIC


@for_each([None, *OF_THE_FABRIC, *NAMED])
def test_a_fault_of_the_simulator_is_the_only_finding(fault: str | None, folder: Path) -> None:
    with make_node(folder / f"{fault}") as node:
        node.stop()
        if fault == "reset":
            later(node, 2.0, lambda: node.fault({"reset": [DEVICE]}))
        elif fault:
            node.fault({fault: [DEVICE]})
        answer = examine(node, "--strict")
    troubles = answer.troubles()
    if fault not in NAMED:
        assert (troubles, answer.code, answer.document["verdict"]) == ([], 0, "OK")
        return
    topic, level, words = NAMED[fault]
    named = [(one["topic"], one["level"]) for one in troubles]
    assert named == [(topic, level), *CONSEQUENCES.get(fault, [])], troubles
    assert troubles[0]["subject"] == (CARD if fault == "vanish" else f"{DEVICE}:1")
    assert words in troubles[0]["sentence"]
    assert (answer.document["verdict"], answer.code) == (level, 1)


def test_next_to_a_daemon_doctor_reads_its_ring(folder: Path) -> None:
    with make_node(folder) as node:
        node.run(5)
        node.fault({"idle-rail": [DEVICE]})
        answer = examine_through_daemon(node)
        metrics = node.metrics()
    assert [one["topic"] for one in answer.troubles()] == ["balance"]
    assert answer.document["look"]["by_daemon"] is True
    for name in ("restarts", "takeovers", "missed_ticks"):
        assert metrics.value(f"ibpulse_sampler_{name}_total") == 0
    assert sum(metrics.find("ibpulse_sampler_read_errors_total").values()) == 0


@for_each([(), ("node_guid",)])
def test_a_device_that_hangs_delays_nothing(*files: str, folder: Path) -> None:
    with make_node(folder / f"hung-{'-'.join(files)}") as node:
        node.stop()
        node.hang(DEVICE, *files)
        begin = node.clock.monotonic()
        answer = examine(node)
        seconds = node.clock.monotonic() - begin
        node.answer()
    assert [(one["topic"], one["level"], one["subject"]) for one in answer.troubles()] == [("devices", "FAIL", DEVICE)]
    assert seconds < 10
    sampled = {one["subject"] for one in answer.document["findings"] if one["topic"] == "resolution"}
    assert sampled == {"mlx5_0:1", "mlx5_1:1", "mlx5_3:1"}
