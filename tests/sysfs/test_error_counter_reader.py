"""The slow reader of one port and of a node: what it opens, what it leaves alone, what it says."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest

from ibpulse.agent.sysfs.error_counters import CounterReader, CounterSet
from ibpulse.agent.sysfs.inventory import Inventory
from ibpulse.core.model import CounterReading, Fabric, PortId, PortReadings
from tests.sysfs.conftest import HW
from tests.sysfs.opened import Opened
from tests.sysfs.trees import MLX5_COUNTERS, PortFiles, Tree, make_unreadable
from tests.virtual.world import World

SECOND = 1_000_000_000


class Clock:
    """A clock that moves a little at every look, and by hand."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        self.now_ns += 10
        return self.now_ns


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def port(tree: Tree) -> Path:
    tree.add("mlx5_0", {1: PortFiles(hw_counters=HW)})
    return tree.port("mlx5_0")


def reader(port: Path, clock: Clock, which: CounterSet = "diagnostic", driver: str = "mlx5_core") -> CounterReader:
    return CounterReader(PortId("mlx5_0", 1), str(port), "InfiniBand", driver, which, clock)


def values(read: PortReadings) -> dict[str, int]:
    return {reading.file: reading.value for reading in read.readings}


def test_values_come_with_their_names_and_times(port: Path, clock: Clock) -> None:
    read = reader(port, clock).read()
    assert read.port == PortId("mlx5_0", 1)
    # the look at rx_write_requests comes first
    assert read.readings[0] == CounterReading(
        "ibpulse_out_of_sequence_packets_received_total", "out_of_sequence", 0, 35
    )
    assert values(read)["packet_seq_err"] == 3
    assert [reading.taken_ns for reading in read.readings] == list(range(35, 35 + 20 * len(read.readings), 20))


def test_what_renews_the_cache_is_opened_first(port: Path, clock: Clock, opened: Opened) -> None:
    slow = reader(port, clock)
    slow.read()
    opened.clear()
    slow.read()
    paths = [Path(path) for path in opened.paths()]
    assert paths[0] == port / "hw_counters" / "rx_write_requests"
    assert [path.parent.name for path in paths] == ["hw_counters"] * 3 + ["counters"] * 6


def test_none_opens_nothing_but_the_listing(port: Path, clock: Clock, opened: Opened) -> None:
    assert reader(port, clock, "none").read().readings == ()
    assert {Path(path).name for path in opened.paths()} <= {"counters", "hw_counters"}


def test_all_has_every_number(port: Path, clock: Clock) -> None:
    found = values(reader(port, clock, "all").read())
    assert set(found) == {*MLX5_COUNTERS, *HW} - {"lifespan"}
    assert found["port_xmit_data"] == 4 * 205143497464492


def test_a_counter_at_its_maximum_is_saturated(port: Path, clock: Clock) -> None:
    saturated = {reading.file for reading in reader(port, clock).read().readings if reading.saturated}
    assert saturated == {"link_downed", "port_xmit_wait"}


def tries_of(port: Path, clock: Clock, opened: Opened, seconds: Iterable[int]) -> list[int]:
    """Of these times of a read, those at which a file that refuses is opened."""
    bad = port / "counters" / "symbol_error"
    make_unreadable(bad)
    slow, tries = reader(port, clock), []
    for second in seconds:
        clock.now_ns = second * SECOND
        opened.clear()
        slow.read()
        tries += [second] * opened.paths().count(str(bad))
    return tries


def test_a_file_that_refuses_three_times_is_left_alone_for_a_minute(port: Path, clock: Clock, opened: Opened) -> None:
    # the pause doubles: 60 s, then 120 s
    seconds = (0, 5, 10, 15, 60, 69, 71, 75, 130, 190, 192)
    assert tries_of(port, clock, opened, seconds) == [0, 5, 10, 71, 192]


def test_pauses_end_at_ten_minutes(port: Path, clock: Clock, opened: Opened) -> None:
    tries = tries_of(port, clock, opened, range(0, 7200, 60))
    assert {later - earlier for earlier, later in pairwise(tries[-5:])} <= {600, 660}


@pytest.mark.parametrize("refusals", [2, 3])
def test_a_file_that_answers_again_has_a_value_again(port: Path, clock: Clock, refusals: int) -> None:
    bad = port / "counters" / "symbol_error"
    slow = reader(port, clock)
    for _ in range(5):
        make_unreadable(bad)
        for _ in range(refusals):
            assert "symbol_error" not in values(slow.read())
        assert bool(slow.remark) == (refusals == 3)
        bad.unlink()
        bad.write_text("9\n")
        # two refusals are forgotten, after a third one it is left alone for a while
        assert ("symbol_error" in values(slow.read())) == (refusals == 2)
        clock.now_ns += 11 * 60 * SECOND
        assert values(slow.read())["symbol_error"] == 9
        assert slow.remark == ""


def test_all_that_fails_on_a_port_is_one_remark_that_stays(port: Path, clock: Clock) -> None:
    names = [*MLX5_COUNTERS, *HW]
    for name in names:
        folder = "counters" if name in MLX5_COUNTERS else "hw_counters"
        make_unreadable(port / folder / name)
    slow = reader(port, clock, "all")
    remarks = set()
    for _ in range(20):
        slow.read()
        clock.now_ns += 30 * SECOND
        remarks.add(slow.remark)
    assert remarks == {
        "",
        "some of its error counters have no value, such as hw_counters/rx_write_requests, which cannot be read: "
        "Invalid argument; they are omitted and retried from time to time.",
    }


def test_a_driver_without_counters_is_left_alone(port: Path, clock: Clock, opened: Opened) -> None:
    for path in (port / "counters").iterdir():
        path.write_text("N/A (no PMA)\n")
    slow = reader(port, clock)
    for _ in range(4):
        opened.clear()
        assert set(values(slow.read())) == {"out_of_sequence", "packet_seq_err"}
    assert not [path for path in opened.paths() if "/counters/" in path]
    assert "says 'N/A (no PMA)': the driver has no counters" in slow.remark


def test_what_is_no_number_is_left_out_of_all_without_a_word(port: Path, clock: Clock) -> None:
    (port / "hw_counters" / "word").write_text("up\n")
    slow = reader(port, clock, "all")
    for _ in range(4):
        assert "word" not in values(slow.read())
    assert slow.remark == ""


def test_a_diagnostic_counter_that_is_no_number_is_said(port: Path, clock: Clock) -> None:
    (port / "counters" / "symbol_error").write_text("-3\n")
    slow = reader(port, clock)
    for _ in range(3):
        slow.read()
    assert "such as counters/symbol_error, which holds '-3', which is not a count;" in slow.remark


def test_what_fails_without_refusing_is_tried_every_time(port: Path, clock: Clock, opened: Opened) -> None:
    bad = port / "counters" / "symbol_error"
    bad.unlink()
    bad.mkdir()
    slow = reader(port, clock)
    for _ in range(6):
        opened.clear()
        slow.read()
        assert str(bad) in opened.paths()
    assert slow.remark.endswith("which cannot be read: Is a directory; they are omitted and retried at every scan.")


def test_after_a_slow_read_nothing_more_is_asked(port: Path, opened: Opened) -> None:
    looks = iter([0, 10, 20, 30 + 2 * SECOND, 40])
    slow = CounterReader(PortId("mlx5_0", 1), str(port), "InfiniBand", "mlx5_core", "diagnostic", lambda: next(looks))
    opened.clear()
    assert list(values(slow.read())) == ["out_of_sequence"]
    assert [Path(path).name for path in opened.paths()][2:] == ["rx_write_requests", "out_of_sequence"]


# files outside the port's folder


def test_carrier_changes_are_those_of_the_ports_netdev(tree: Tree) -> None:
    for name, changes in {"eth0": "4\n", "eth1": "6\n"}.items():
        (tree.add_netdev(name) / "carrier_changes").write_text(changes)
    tree.add("mlx5_0", {1: PortFiles(link_layer="Ethernet\n", ndevs={0: "eth0"})})
    inventory = Inventory(tree.root, counters="diagnostic")
    assert values(inventory.scan().counters[0])["carrier_changes"] == 4
    (tree.port("mlx5_0") / "gid_attrs" / "ndevs" / "0").write_text("eth1\n")
    assert values(inventory.scan().counters[0])["carrier_changes"] == 6


def test_a_netdev_that_is_elsewhere_is_no_trouble(tree: Tree, clock: Clock) -> None:
    (netdev := tree.add_netdev("eth0") / "carrier_changes").write_text("4\n")
    tree.add("mlx5_0", {1: PortFiles(link_layer="Ethernet\n")})
    slow = CounterReader(
        PortId("mlx5_0", 1), str(tree.port("mlx5_0")), "Ethernet", "mlx5_core", "diagnostic", clock, str(netdev.parent)
    )
    assert values(slow.read())["carrier_changes"] == 4
    netdev.unlink()
    for _ in range(4):
        assert "carrier_changes" not in values(slow.read())
    assert slow.remark == ""
    netdev.write_text("7\n")
    assert values(slow.read())["carrier_changes"] == 7


# a node


def port_of(tree: Tree, name: str = "mlx5_1") -> Path:
    return tree.port(name)


def inventory(tree: Tree) -> Inventory:
    return Inventory(tree.root, counters="diagnostic")


def counted(fabric: Fabric) -> list[str]:
    return [str(port.port) for port in fabric.counters]


def test_a_scan_has_the_counters_of_every_port(node: Tree) -> None:
    fabric = inventory(node).scan()
    assert counted(fabric) == ["mlx5_0:1", "mlx5_1:1", "mlx5_2:1"]
    assert len(fabric.counters[0].readings) == 8


def test_a_fabric_is_the_same_whatever_its_counters_are(node: Tree) -> None:
    scans = inventory(node)
    first = scans.scan()
    (port_of(node) / "counters" / "symbol_error").write_text("9\n")
    second = scans.scan()
    assert first == second
    assert first.counters != second.counters


def test_a_counter_that_hangs_leaves_the_status_of_its_device_and_all_of_the_others(node: Tree, world: World) -> None:
    world.hang("mlx5_1", node.root, "packet_seq_err")
    (port_of(node) / "state").write_text("1: DOWN\n")
    fabric = inventory(node).scan()
    assert [port.active for port in fabric.ports] == [True, False, True]
    assert fabric.stuck_devices == ("mlx5_1",)
    assert counted(fabric) == ["mlx5_0:1", "mlx5_2:1"]


def test_old_counters_are_not_shown_for_ever(node: Tree, world: World) -> None:
    scans = inventory(node)
    scans.scan()
    world.hang("mlx5_1", node.root, "packet_seq_err")
    shown = [counted(scans.scan()) for _ in range(4)]
    assert ["mlx5_1:1" in names for names in shown] == [True, True, False, False]
    assert all({"mlx5_0:1", "mlx5_2:1"} <= set(names) for names in shown)


def test_a_port_that_returns_is_asked_anew(node: Tree) -> None:
    scans = inventory(node)
    for name in MLX5_COUNTERS:
        make_unreadable(port_of(node) / "counters" / name)
    for _ in range(3):
        scans.scan()
    node.remove("mlx5_1")
    assert counted(scans.scan()) == ["mlx5_0:1", "mlx5_2:1"]
    node.add("mlx5_1", {1: PortFiles(hw_counters=HW)}, pci="0000:09:00.0")
    fabric = scans.scan()
    assert len(fabric.counters[1].readings) == 8
    assert fabric.notices == ()
