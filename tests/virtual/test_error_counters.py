"""Error counters of a node: which are read, files that refuse, a file that hangs."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from ibpulse.agent.sysfs.inventory import Inventory
from ibpulse.workbench.simulate.tree import COUNTERS, HW_COUNTERS
from ibpulse.workbench.simulate.workloads import Constant
from tests.tables import for_each
from tests.virtual.node import Node
from tests.virtual.rates import RATE

PORTS = 4
REMARK = "some of its error counters have no value"
BYTE_COUNTERS = ("port_xmit_data", "port_rcv_data")
# a scan every second, and half a second later its numbers
SETTLED = 2.5


@pytest.fixture
def node(folder: Path) -> Iterator[Node]:
    flags = ("--slow.interval=1s", "--slow.xmit-wait-tick=8")
    with Node(folder, *flags, rails=PORTS, workload=Constant(RATE)) as node:
        node.run(5.5)
        yield node


def symbol_errors(node: Node, device: str) -> float | None:
    found = node.metrics().find("ibpulse_symbol_error_total", device=device)
    return next(iter(found.values()), None)


def after_putting(node: Node, device: str, value: int) -> float | None:
    """The total once the counter has this value."""
    node.put(device, "symbol_error", str(value))
    node.run(SETTLED)
    return symbol_errors(node, device)


def test_the_stalled_share_is_absent_while_its_counter_is_full(node: Node) -> None:
    name = "ibpulse_port_transmit_stalled_ratio"
    assert list(node.metrics().find(name).values()) == [0.0] * PORTS
    node.put("mlx5_3", "port_xmit_wait", str(2**32 - 1))
    node.run(SETTLED)
    assert list(node.metrics().find(name).values()) == [0.0] * (PORTS - 1)


def test_a_counter_that_hangs_leaves_the_others_fresh(node: Node) -> None:
    node.hang("mlx5_0", "out_of_sequence")
    assert after_putting(node, "mlx5_1", 11) == 11
    node.run(5)
    assert symbol_errors(node, "mlx5_0") is None
    assert after_putting(node, "mlx5_1", 12) == 12
    # its bytes are sampled and its status is the last that was known
    assert node.metrics().port("up", "mlx5_0") == 1
    assert node.window("1s")["mlx5_0:1 transmit"] == [RATE] * 100
    node.answer()
    node.run(SETTLED)
    assert symbol_errors(node, "mlx5_0") == 0


def test_hundreds_of_refusing_files_are_one_line(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    files = (*HW_COUNTERS, *(name for name in COUNTERS if name not in BYTE_COUNTERS))
    for number in range(PORTS):
        node.fail(f"mlx5_{number}", errno.EINVAL, *files)
    assert PORTS * len(files) > 150
    node.run(10)
    (line,) = (message for message in caplog.messages if REMARK in message)
    assert "which cannot be read: Invalid argument" in line
    assert not node.metrics().find("ibpulse_symbol_error_total")
    assert node.window("1s")["mlx5_0:1 transmit"] == [RATE] * 100


@for_each([("all", True), ("none", False)])
def test_all_counters_or_none_can_be_asked_for(counters: str, read: bool, folder: Path) -> None:
    with Node(folder / counters, f"--slow.counters={counters}", rails=1, workload=Constant(RATE)) as node:
        node.run(8)
        metrics = node.metrics()
    for name in ("port_data_transmitted_bytes", "np_cnp_packets_sent", "link_downed"):
        assert bool(metrics.find(f"ibpulse_{name}_total")) is read, name


def test_a_device_that_went_away_has_no_counters(folder: Path) -> None:
    with Node(folder, rails=1) as node:
        scans = Inventory(node.tree, counters="diagnostic")
        assert len(scans.scan().counters[0].readings) > 10
        node.fail("mlx5_0", errno.ENODEV, "link_downed")
        assert scans.scan().counters[0].readings == ()
        node.answer()
        assert len(scans.scan().counters[0].readings) > 10
