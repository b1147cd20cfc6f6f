"""The slow counters of ports, read once."""

from __future__ import annotations

from pathlib import Path

from ibpulse.agent.doctor.facts import Counts
from ibpulse.agent.doctor.ports import READ_TWICE, join_counts, read_counts
from ibpulse.agent.sysfs.inventory import Inventory
from ibpulse.core.model import PortId
from tests.sysfs.opened import Opened
from tests.sysfs.trees import Tree, make_hang, make_unreadable, release

PORT = PortId("mlx5_0", 1)


def test_full_and_unreadable_counters_are_told(tree: Tree) -> None:
    tree.add("mlx5_0")
    make_unreadable(tree.port("mlx5_0") / "counters/VL15_dropped")
    (tree.port("mlx5_0") / "counters/symbol_error").write_text("rubbish\n")
    found = read_counts(tree.root, Inventory(tree.root).scan().ports)[PORT]
    assert found.full == ("counters/link_downed", "counters/port_xmit_wait")
    assert found.end["counters/port_xmit_data"] == 205143497464492
    assert found.unreadable == {
        "counters/VL15_dropped": "cannot be read: Invalid argument",
        "counters/symbol_error": "holds 'rubbish', which is not a count",
    }


def test_the_file_that_renews_the_cache_is_read_first(tree: Tree, opened: Opened) -> None:
    tree.add("mlx5_0")
    ports = Inventory(tree.root).scan().ports
    opened.clear()
    read_counts(tree.root, ports)
    files = [path for path in opened.paths() if "/hw_counters/" in path]
    assert files[0].endswith("/rx_write_requests")


def test_only_the_telling_ones_are_read_when_asked(tree: Tree) -> None:
    tree.add("mlx5_0")
    found = read_counts(tree.root, Inventory(tree.root).scan().ports, READ_TWICE)[PORT]
    assert set(found.end) == {
        "hw_counters/rx_write_requests",
        "counters/link_downed",
        "counters/link_error_recovery",
    }


def test_a_device_that_hangs_is_left_out_and_the_others_are_read(tree: Tree) -> None:
    tree.add("mlx5_0")
    tree.add("mlx5_1", pci="0000:19:00.0")
    ports = Inventory(tree.root).scan().ports
    path = tree.port("mlx5_0") / "counters/symbol_error"
    make_hang(path)
    found = read_counts(tree.root, ports)
    release(path)
    assert set(found) == {PortId("mlx5_1", 1)}


def test_rises_are_counted_between_two_readings(tree: Tree) -> None:
    tree.add("mlx5_0")
    ports = Inventory(tree.root).scan().ports
    begin = read_counts(tree.root, ports, READ_TWICE)
    (tree.port("mlx5_0") / "hw_counters/rx_write_requests").write_text("12\n")
    joined = join_counts(begin, read_counts(tree.root, ports))[PORT]
    assert joined.rise("hw_counters/rx_write_requests") == 12
    assert joined.rise("counters/link_downed") == 0
    assert joined.rise("counters/nothing") == 0
    assert join_counts({}, read_counts(tree.root, ports))[PORT].rise("hw_counters/rx_write_requests") == 0


def test_a_fall_is_no_rise() -> None:
    assert Counts({"a": 5}, {"a": 1}).rise("a") == 0


def test_ports_without_bytes_are_not_asked(tree: Tree, opened: Opened) -> None:
    folder = tree.add("mlx5_0")
    for name in ("port_xmit_data", "port_rcv_data"):
        Path(folder, "ports/1/counters", name).unlink()
    ports = Inventory(tree.root).scan().ports
    opened.clear()
    assert read_counts(tree.root, ports) == {}
    assert opened.paths() == []
