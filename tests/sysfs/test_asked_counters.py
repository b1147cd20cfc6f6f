"""Ports whose counters are asked for by netlink: the choice, the fallback with its reason, and what is served by it."""

from __future__ import annotations

import errno
import pickle
from pathlib import Path

from ibpulse.agent.sampler.adaptive import stride_of_source
from ibpulse.agent.sysfs.byte_counters import SOFT_ROCE, SOURCES, may_ask, spare_devices
from ibpulse.agent.sysfs.error_counters import CounterReader
from ibpulse.agent.sysfs.inventory import Inventory
from ibpulse.agent.sysfs.netlink import count_queue_pairs, read_port
from ibpulse.core.model import ByteSource, Port, PortId, PortIdentity
from tests.sysfs.opened import Opened
from tests.sysfs.rdma_kernel import RdmaKernel
from tests.sysfs.trees import Tree, add_efa
from tests.tables import for_each

DEVICE = "rdmap144s27"
COUNTERS = {"tx_bytes": 11, "rx_bytes": 22, "retrans_pkts": 33}


class Node:
    """An EFA device in a tree and in a kernel."""

    def __init__(self, tree: Tree, sources: dict[str, tuple[str, ...]] | None = None) -> None:
        add_efa(tree)
        (tree.port(DEVICE) / "hw_counters/retrans_pkts").write_text("5\n")
        self.kernel = RdmaKernel()
        self.kernel.add(DEVICE, COUNTERS)
        self.inventory = Inventory(
            tree.root,
            counters="diagnostic",
            ask=lambda device, port: read_port(device, port, self.kernel.connect),
            count=lambda device: count_queue_pairs(device, self.kernel.connect),
            sources=sources,
        )

    def source(self) -> ByteSource:
        (port,) = self.inventory.scan().ports
        assert port.source is not None
        return port.source


def test_an_efa_port_is_asked_every_10_ms(tree: Tree) -> None:
    source = Node(tree).source()
    assert (source.name, source.netlink, source.refusal, source.refresh_seconds) == ("hw_bytes", True, "", 0.0)
    assert stride_of_source(source, 10_000_000) == 1


def test_the_queue_pairs_of_a_device_are_counted_with_its_errors(tree: Tree) -> None:
    node = Node(tree)
    (readings,) = node.inventory.scan().counters
    assert readings.queue_pairs is not None
    assert readings.queue_pairs.value == 5
    node.kernel.error = errno.EPERM
    (readings,) = node.inventory.scan().counters
    assert readings.queue_pairs is None
    assert readings.readings


@for_each(
    {
        "no module": (errno.EPROTONOSUPPORT, 0, "ib_core is not loaded"),
        "no family": (errno.EAFNOSUPPORT, 0, "allow AF_NETLINK"),
        "seccomp": (errno.EPERM, 0, "seccomp"),
        "too long": (0, errno.EMSGSIZE, "do not fit"),
        "old kernel": (0, errno.EINVAL, "does not answer"),
        "no access": (0, errno.EPERM, "not allowed"),
    }
)
def test_a_refusal_leads_to_sysfs_with_its_reason(socket_error: int, error: int, reason: str, tree: Tree) -> None:
    if tree.folder(DEVICE).exists():
        tree.remove(DEVICE)
    node = Node(tree)
    node.kernel.refuses, node.kernel.error = socket_error, error
    source = node.source()
    assert (source.netlink, stride_of_source(source, 10_000_000)) == (False, 5)
    assert reason in source.refusal


def test_a_reply_without_the_bytes_leads_to_sysfs(tree: Tree) -> None:
    node = Node(tree)
    del node.kernel.devices[DEVICE].counters["rx_bytes"]
    assert node.source().refusal == "the reply does not have its byte counters"


def test_a_device_of_another_namespace_is_read_from_sysfs(tree: Tree) -> None:
    node = Node(tree)
    node.kernel.devices.clear()
    assert "namespace" in node.source().refusal


def test_a_later_refusal_and_its_end_are_followed(tree: Tree) -> None:
    node = Node(tree)
    assert node.source().netlink
    node.kernel.error = errno.EPERM
    seen = [node.source().netlink for _ in range(3)]
    assert seen == [True, False, False]
    node.kernel.error = 0
    assert [node.source().netlink for _ in range(2)] == [False, True]


def test_the_setting_chooses_sysfs(tree: Tree) -> None:
    node = Node(tree, {"sysfs": ("rdmap*",)})
    source = node.source()
    assert (source.netlink, source.refusal) == (False, "ports.sources chooses sysfs")
    assert node.kernel.requests == 0


def test_a_tree_that_is_not_the_kernels_asks_nobody(tree: Tree) -> None:
    add_efa(tree)
    (port,) = Inventory(tree.root).scan().ports
    assert (port.source.netlink, port.source.refusal, port.source.refresh_seconds) == (False, "", 0.016)


def test_error_counters_come_with_the_message(tree: Tree, opened: Opened) -> None:
    node = Node(tree)
    (readings,) = node.inventory.scan().counters
    assert {reading.file: reading.value for reading in readings.readings}["retrans_pkts"] == 33
    opened.clear()
    (readings,) = node.inventory.scan().counters
    assert not [path for path in opened.paths() if path.endswith("/retrans_pkts")]


def test_a_counter_without_a_value_is_read_from_its_file(tree: Tree) -> None:
    add_efa(tree)
    for name in ("retrans_pkts", "rx_drops"):
        (tree.port(DEVICE) / "hw_counters" / name).write_text("5\n")
    reader = CounterReader(PortId(DEVICE, 1), str(tree.port(DEVICE)), "Unknown", "efa", "diagnostic", lambda: 5)
    asked = {reading.file: reading for reading in reader.read({"retrans_pkts": 2**64 - 1, "rx_drops": 8}).readings}
    assert asked["retrans_pkts"].value == 5
    assert (asked["rx_drops"].value, asked["rx_drops"].taken_ns) == (8, 5)


def test_rows_that_the_device_updates_seldom_are_not_asked_for() -> None:
    asked = {row.name for row in SOURCES if may_ask(row)}
    assert asked == {
        *("hfi1_words", "roce_only_bytes", "hw_bytes", "ip_octets", "ionic_bytes", "erdma_bytes", "rxe_bytes"),
    }


def asked_ports(count: int, driver: str = "efa") -> list[Port]:
    source = ByteSource("hw_bytes", ("/tx_bytes",), ("/rx_bytes",), 1, netlink=True)
    identity = PortIdentity(driver=driver)
    return [Port(PortId(f"rdmap{number}", 1), identity, True, "ACTIVE", None, source) for number in range(count)]


@for_each([(1, 1), (16, 1), (17, 2), (32, 2), (64, 4)])
def test_many_devices_are_asked_less_often(count: int, stride: int) -> None:
    sources = [port.source for port in spare_devices(asked_ports(count), ())]
    assert {stride_of_source(source, 10_000_000) for source in sources if source} == {stride}


def test_the_setting_and_soft_roce_ask_as_often_as_sampled() -> None:
    patient = [PortId(f"rdmap{number}", 1) for number in range(20)]
    ports = spare_devices([*asked_ports(40)], patient)
    paused = [bool(port.source and port.source.pause_seconds) for port in ports]
    assert paused == [False] * 20 + [True] * 20
    assert {port.source.pause_seconds for port in ports[20:] if port.source} == {20 / 1600}
    assert {port.source.pause_seconds for port in spare_devices(asked_ports(40, SOFT_ROCE), ()) if port.source} == {0.0}


def test_an_inventory_that_asks_goes_to_another_process(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Inventory(tmp_path, ask=read_port, sources={"sysfs": ("mlx5_0",)})))
