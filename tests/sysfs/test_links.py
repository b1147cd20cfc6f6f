"""The links of all ports as the poller reads them, on trees of plain files in virtual time."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from ibpulse.agent.sysfs.inventory import Inventory
from ibpulse.agent.sysfs.links import LinkReader, LinkReading, StatePoller
from ibpulse.core.model import PortId
from ibpulse.workbench.simulate.tree import replace_text
from tests.clocks import GivenClock
from tests.sysfs.trees import DOWN_ROCE, PortFiles, Tree, make_unreadable, roce
from tests.virtual.clock import NodeClock
from tests.virtual.world import SECOND, START_NS, Gate, World

NDR = 400e9 / 8
HDR = 200e9 / 8
PORT = PortId("mlx5_1", 1)
# between two looks
LOOK_NS = 10_000_000


class Polling:
    """A poller that follows the ports of a scan, and is asked a hundred times a second; a round takes a second."""

    def __init__(self, root: Path, world: World) -> None:
        self.root, self.world = root, world
        self.clock = NodeClock(world)
        self.poller = StatePoller(root, clock=self.clock)
        self.follow()

    def follow(self) -> None:
        """Scan, and follow what is there."""
        self.poller.follow(Inventory(self.root).scan().ports)

    def run(self, seconds: float) -> Mapping[PortId, LinkReading]:
        """Ask for some time; the last answer."""
        for _ in range(round(seconds * SECOND) // LOOK_NS):
            self.poller.poll()
            self.world.pause(LOOK_NS)
        return self.poller.poll()

    def hang(self, device: str, *files: str) -> Gate:
        return self.world.hang(device, self.root, *files)


@contextmanager
def polling(root: Path) -> Iterator[Polling]:
    with closing(World()) as world:
        made = Polling(root, world)
        try:
            yield made
        finally:
            made.poller.close()


@pytest.fixture
def polled(node: Tree) -> Iterator[Polling]:
    with polling(node.root) as made:
        yield made


def open_descriptors(root: Path) -> list[str]:
    """What this process holds open below `root`."""
    targets = []
    for name in os.listdir("/proc/self/fd"):
        try:
            targets.append(str(Path(f"/proc/self/fd/{name}").readlink()))
        except FileNotFoundError:
            continue
    return [target for target in targets if target.startswith(f"{root}/")]


def read_once(tree: Tree, name: str = "mlx5_1") -> LinkReader:
    """A reader of the device's first port after one read; its clock counts how often it was asked."""
    (port,) = (port for port in Inventory(tree.root).scan().ports if port.id == PortId(name, 1))
    times = itertools.count(1)
    reader = LinkReader(str(tree.root / "class"), port, GivenClock(lambda: 0.0, lambda: next(times)))  # type: ignore[arg-type]
    reader.read()
    return reader


def reading_of(reader: LinkReader) -> LinkReading:
    reader.read()
    assert reader.reading is not None
    return reader.reading


def test_a_link_that_goes_down_and_comes_back(node: Tree, polled: Polling) -> None:
    folder = node.port("mlx5_1")
    polled.run(1)
    for name, text in (("state", "1: DOWN\n"), ("phys_state", "2: Polling\n"), ("rate", "10 Gb/sec (4X SDR)\n")):
        replace_text(folder / name, text)
    assert polled.run(0.4)[PORT].active
    down = polled.run(0.2)[PORT]
    assert (down.state, down.physical, down.active) == ("DOWN", "Polling", False)
    assert down.rate_bytes_per_second is None
    assert (down.previous_ns, down.taken_ns) == (START_NS + SECOND // 2, START_NS + 3 * SECOND // 2)
    for name, text in (("state", "4: ACTIVE\n"), ("phys_state", "5: LinkUp\n"), ("rate", "200 Gb/sec (4X HDR)\n")):
        replace_text(folder / name, text)
    up = polled.run(1)[PORT]
    assert (up.state, up.physical, up.active, up.rate_bytes_per_second) == ("ACTIVE", "LinkUp", True, HDR)
    assert polled.poller.poll()[PortId("mlx5_2", 1)].active


def test_a_state_that_cannot_be_read_keeps_the_last_values(node: Tree) -> None:
    reader = read_once(node)
    good = reading_of(reader)
    # each read begins at one time and has the state at the next
    assert (good.previous_ns, good.taken_ns) == (1, 4)
    make_unreadable(node.port("mlx5_1") / "state")
    for taken_ns in (6, 8, 10):
        bad = reading_of(reader)
        assert (bad.problem, bad.reason) == ("unreadable", "state cannot be read: Invalid argument.")
        assert (bad.state, bad.active, bad.rate_bytes_per_second) == ("ACTIVE", True, NDR)
        assert (bad.previous_ns, bad.taken_ns) == (3, taken_ns)
    (node.port("mlx5_1") / "state").unlink()
    (node.port("mlx5_1") / "state").write_text("4: ACTIVE\n")
    again = reading_of(reader)
    assert (again.problem, again.reason, again.previous_ns) == ("", "", 3)
    assert reading_of(reader).previous_ns == 11


def test_a_port_that_was_never_readable_has_a_reading_that_says_so(node: Tree) -> None:
    make_unreadable(node.port("mlx5_1") / "state")
    with polling(node.root) as polled:
        reading = polled.run(0.1)[PORT]
    assert (reading.problem, reading.state, reading.active, reading.previous_ns) == ("unreadable", "", False, 0)


@pytest.mark.parametrize("text", ["", "\n", "1: DO", "4: ACTIVE" + " " * 5000 + "\n"])
def test_one_incomplete_state_is_ignored_and_a_second_one_is_a_problem(node: Tree, text: str) -> None:
    reader = read_once(node)
    good = reading_of(reader)
    (node.port("mlx5_1") / "state").write_text(text)
    assert reading_of(reader) is good
    bad = reading_of(reader)
    assert (bad.problem, bad.reason) == ("unreadable", "state is empty or has no line end.")
    assert (bad.state, bad.active) == ("ACTIVE", True)
    (node.port("mlx5_1") / "state").write_text("1: DOWN\n")
    assert reading_of(reader).state == "DOWN"


def test_other_files_keep_their_last_line_while_they_fail(node: Tree) -> None:
    folder = node.port("mlx5_1")
    reader = read_once(node)
    make_unreadable(folder / "rate")
    (folder / "phys_state").write_text("")
    (folder / "counters" / "link_downed").write_text("1")
    reading = reading_of(reader)
    assert (reading.rate_bytes_per_second, reading.physical, reading.link_downed) == (NDR, "LinkUp", 255)
    assert reading.problem == ""


def test_other_files_may_be_missing_or_hold_anything(tree: Tree) -> None:
    tree.add("mlx5_1", {1: PortFiles(rate="\n", phys_state="\n", counters=None, hw_counters=None)})
    folder = tree.port("mlx5_1")
    (folder / "rate").unlink()
    (folder / "phys_state").write_bytes(b"5: \xff\xfe\n")
    reading = reading_of(read_once(tree))
    assert (reading.active, reading.rate_bytes_per_second, reading.rate_text) == (True, None, "")
    assert (reading.physical, reading.link_downed) == ("\ufffd\ufffd", None)


@pytest.mark.parametrize(("text", "count"), [("3\n", 3), ("N/A (no PMA)\n", None), ("-1\n", None)])
def test_link_downed_may_be_a_hardware_counter(tree: Tree, text: str, count: int | None) -> None:
    tree.add("mlx5_1", {1: PortFiles(counters={}, hw_counters={"link_downed": text})})
    assert reading_of(read_once(tree)).link_downed == count


def test_a_file_that_appears_later_is_found(tree: Tree) -> None:
    tree.add("mlx5_1", {1: PortFiles(counters={}, hw_counters=None)})
    reader = read_once(tree)
    assert reading_of(reader).link_downed is None
    (tree.port("mlx5_1") / "counters" / "link_downed").write_text("2\n")
    assert reading_of(reader).link_downed == 2


def test_the_rate_of_an_ethernet_port_is_the_speed_of_its_network_device(tree: Tree) -> None:
    tree.add_netdev("eth1", "100000\n")
    tree.add("mlx5_1", {1: roce("eth1", rate="40 Gb/sec (4X QDR)\n")})
    reader = read_once(tree)
    assert reading_of(reader).rate_bytes_per_second == 12.5e9
    (tree.root / "class/net/eth1/speed").write_text("25000\n")
    assert reading_of(reader).rate_bytes_per_second == 3.125e9


def test_the_rate_of_a_bond_counts_from_the_scan_that_finds_it(tree: Tree) -> None:
    tree.add_netdev("eth1", "100000\n")
    tree.add_netdev("bond0", "200000\n", bonding=True)
    tree.add("mlx5_1", {1: roce("eth1")})
    with polling(tree.root) as polled:
        assert polled.run(0.1)[PORT].rate_bytes_per_second == 12.5e9
        (tree.root / "class/net/eth1/master").symlink_to("../bond0")
        assert polled.run(1)[PORT].rate_bytes_per_second == 12.5e9
        polled.follow()
        assert polled.run(1)[PORT].rate_bytes_per_second == 25e9


def test_an_ethernet_port_that_is_down_has_no_rate(tree: Tree) -> None:
    tree.add_netdev("eth1", "100000\n")
    tree.add("mlx5_1", {1: DOWN_ROCE})
    reading = reading_of(read_once(tree))
    assert (reading.state, reading.rate_bytes_per_second, reading.rate_text) == ("DOWN", None, "40 Gb/sec (4X QDR)")


def test_a_device_that_vanishes_and_returns(node: Tree, polled: Polling) -> None:
    polled.run(1)
    node.remove("mlx5_1")
    assert PORT not in polled.run(1)
    assert polled.poller.gone == {PORT}
    assert len(polled.poller.poll()) == 2
    assert not any("mlx5_1" in path for path in open_descriptors(node.root))
    node.add("mlx5_1", {1: PortFiles(rate="200 Gb/sec (4X HDR)\n")}, pci="0000:01:00.0")
    after = polled.run(1)[PORT]
    assert (after.rate_bytes_per_second, polled.poller.gone) == (HDR, frozenset())
    # the last good read was before it vanished
    assert (after.previous_ns, after.taken_ns) == (START_NS + SECOND // 2, START_NS + 5 * SECOND // 2)


def test_a_port_without_its_state_is_gone(node: Tree) -> None:
    reader = read_once(node)
    (node.port("mlx5_1") / "state").unlink()
    reader.read()
    assert (reader.gone, reader.reading) == (True, None)


def test_another_device_under_the_same_name_is_read_anew(node: Tree) -> None:
    reader = read_once(node)
    (node.port("mlx5_2") / "state").write_text("2: INIT\n")
    # the files of the first device stay, as those of a renamed one do
    link = node.folder("mlx5_1")
    target = node.folder("mlx5_2").readlink()
    link.unlink()
    link.symlink_to(target)
    # nothing of it is compared with the first one, and the devices are scanned again
    reader.read()
    assert (reader.gone, reader.reading) == (True, None)
    assert reading_of(reader).state == "INIT"
    assert not reader.gone


def test_ports_that_are_followed_no_more_are_forgotten_and_closed(node: Tree) -> None:
    ports = Inventory(node.root).scan().ports
    with polling(node.root) as polled:
        polled.run(0.1)
        assert len(open_descriptors(node.root)) == 12
        polled.poller.follow(ports[:1])
        assert list(polled.run(1.1)) == [ports[0].id]
        assert len(open_descriptors(node.root)) == 4
    assert open_descriptors(node.root) == []
    assert link_threads() == []


def link_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "link-states"]


def test_a_hung_device_holds_up_nothing_else(node: Tree, polled: Polling) -> None:
    old = polled.run(0.2)[PORT]
    polled.hang("mlx5_1")
    replace_text(node.port("mlx5_2") / "state", "1: DOWN\n")
    # read from 0.5 s on, given up 0.25 s later; a read hangs after a second, and at a second look 0.1 s later
    assert polled.run(0.55)[PortId("mlx5_2", 1)].active
    assert not polled.run(0.1)[PortId("mlx5_2", 1)].active
    polled.run(0.75)
    assert polled.poller.hung_devices == ()
    kept = polled.run(0.05)[PORT]
    assert polled.poller.hung_devices == ("mlx5_1",)
    assert kept == old
    assert len(link_threads()) == 1
    replace_text(node.port("mlx5_1") / "state", "2: INIT\n")
    polled.world.answer("mlx5_1")
    reading = polled.run(0.1)[PORT]
    assert (reading.state, reading.problem) == ("INIT", "")
    assert polled.poller.hung_devices == ()
    assert link_threads() == []


def test_a_pause_of_the_process_itself_hangs_no_device(node: Tree, polled: Polling) -> None:
    polled.run(0.49)
    polled.hang("mlx5_1")
    polled.run(0.02)
    # as long as nothing has been looked at since, the read may have had no time to end
    polled.world.pause(5 * SECOND)
    polled.poller.poll()
    assert polled.poller.hung_devices == ()
    polled.world.answer("mlx5_1")
    polled.run(1)
    assert polled.poller.hung_devices == ()


def test_many_hung_devices_are_found_together_and_have_a_thread_each(tree: Tree) -> None:
    for index in range(12):
        tree.add(f"mlx5_{index}", pci=f"0000:{index:02x}:00.0")
    hung = [f"mlx5_{index}" for index in range(11)]
    with polling(tree.root) as polled:
        polled.run(0.2)
        for device in hung:
            polled.hang(device)
        # the first keeps the others waiting for a quarter of a second
        polled.run(0.3 + 0.26 + 1.12)
        assert polled.poller.hung_devices == tuple(hung)
        assert len(link_threads()) == 11
        assert polled.poller.poll()[PortId("mlx5_11", 1)].taken_ns > START_NS + SECOND // 2
        for device in hung:
            polled.world.answer(device)
        polled.run(0.1)
        assert link_threads() == []


def test_close_does_not_wait_for_a_hung_device(node: Tree, polled: Polling) -> None:
    polled.run(0.5)
    polled.hang("mlx5_1")
    polled.run(2)
    began_ns = polled.world.monotonic_ns
    polled.poller.close()
    assert polled.world.monotonic_ns - began_ns <= SECOND
    assert len(link_threads()) == 1
    polled.world.answer("mlx5_1")
    polled.world.pause(LOOK_NS)
    assert link_threads() == []


def test_a_port_that_goes_down_during_a_read_never_has_the_rate_of_a_port_that_is_down(
    node: Tree, polled: Polling
) -> None:
    folder = node.port("mlx5_1")
    good = polled.run(0.5)[PORT]
    polled.hang("mlx5_1", "rate")
    polled.run(0.6)
    # the read of the state is over, that of the rate gets the rate of a port that is down
    replace_text(folder / "state", "1: DOWN\n")
    replace_text(folder / "rate", "10 Gb/sec (4X SDR)\n")
    polled.world.answer("mlx5_1")
    assert polled.run(0.1)[PORT] == good
    down = polled.run(1)[PORT]
    assert (down.state, down.rate_bytes_per_second) == ("DOWN", None)
