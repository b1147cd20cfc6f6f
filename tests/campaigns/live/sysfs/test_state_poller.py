"""The links of all ports as the poller reads them, on trees of plain files and on a fabric that can hang."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ibpulse.model import PortId
from ibpulse.simulate.tree_files import replace_text
from ibpulse.sysfs.inventory import Inventory
from ibpulse.sysfs.link_reader import LinkReader
from ibpulse.sysfs.state_poller import LinkReading, StatePoller
from tests.fusefabric import EVERY_FILE, FuseFabric, why_not
from tests.sysfs.trees import DOWN_ROCE, PortFiles, Tree, make_hang, make_unreadable, release, roce

SECONDS = 0.05
NDR = 400e9 / 8
HDR = 200e9 / 8
PORT = PortId("mlx5_1", 1)


@contextmanager
def polling(root: Path, seconds: float = SECONDS) -> Iterator[StatePoller]:
    """A poller that follows the ports of a scan."""
    poller = StatePoller(root, seconds)
    poller.follow(Inventory(root).scan().ports)
    try:
        yield poller
    finally:
        poller.close()


def wait_for(poller: StatePoller, condition: Callable[[LinkReading | None], bool], port: PortId = PORT) -> LinkReading:
    """Poll until the reading of a port meets the condition."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        reading = poller.poll().get(port)
        if condition(reading):
            return reading or LinkReading()
        time.sleep(0.005)
    raise AssertionError(f"{port}: the last reading is {poller.poll().get(port)}")


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "it never happens"
        time.sleep(0.005)


def next_reading(poller: StatePoller, port: PortId = PORT) -> LinkReading:
    """A reading whose read began after this call."""
    now = time.time_ns()
    return wait_for(poller, lambda reading: reading is not None and reading.previous_ns > now, port)


def open_descriptors(root: Path) -> list[str]:
    """What this process holds open below `root`."""
    targets = []
    for name in os.listdir("/proc/self/fd"):
        try:
            targets.append(str(Path(f"/proc/self/fd/{name}").readlink()))
        except FileNotFoundError:
            continue
    return [target for target in targets if target.startswith(f"{root}/")]


@pytest.fixture
def node(tree: Tree) -> Tree:
    for index in range(3):
        tree.add(f"mlx5_{index}", pci=f"0000:{index:02x}:00.0")
    return tree


def read_once(tree: Tree, name: str = "mlx5_1") -> LinkReader:
    """A reader of the device's first port after one read."""
    (port,) = (port for port in Inventory(tree.root).scan().ports if port.id == PortId(name, 1))
    reader = LinkReader(str(tree.root / "class"), port)
    reader.read()
    return reader


def reading_of(reader: LinkReader) -> LinkReading:
    reader.read()
    assert reader.reading is not None
    return reader.reading


def test_a_healthy_port_reads_as_in_the_scan(node: Tree) -> None:
    began_ns = time.time_ns()
    # a period that no read exceeds, not even on a busy machine
    with polling(node.root, 0.5) as poller:
        first = wait_for(poller, lambda reading: reading is not None)
        later = next_reading(poller)
        assert list(poller.poll()) == [PortId(f"mlx5_{index}", 1) for index in range(3)]
        assert (poller.hung_devices, poller.gone) == ((), frozenset())
    assert (first.state, first.physical, first.active) == ("ACTIVE", "LinkUp", True)
    assert (first.rate_bytes_per_second, first.rate_text) == (NDR, "400 Gb/sec (4X NDR)")
    # it stopped counting; that is for others to judge
    assert first.link_downed == 255
    assert (first.problem, first.reason, first.previous_ns) == ("", "", 0)
    assert began_ns < first.taken_ns <= later.previous_ns < later.taken_ns < time.time_ns()


def test_a_link_that_goes_down_and_comes_back(node: Tree) -> None:
    folder = node.port("mlx5_1")
    with polling(node.root) as poller:
        next_reading(poller)
        before_ns = time.time_ns()
        for name, text in (("state", "1: DOWN\n"), ("phys_state", "2: Polling\n"), ("rate", "10 Gb/sec (4X SDR)\n")):
            replace_text(folder / name, text)
        done_ns = time.time_ns()
        down = wait_for(poller, lambda reading: reading is not None and reading.physical == "Polling")
        assert (down.state, down.active, down.rate_bytes_per_second) == ("DOWN", False, None)
        assert down.previous_ns <= done_ns
        assert down.taken_ns > before_ns
        for name, text in (("state", "4: ACTIVE\n"), ("phys_state", "5: LinkUp\n"), ("rate", "200 Gb/sec (4X HDR)\n")):
            replace_text(folder / name, text)
        up = wait_for(poller, lambda reading: reading is not None and reading.rate_bytes_per_second == HDR)
        assert (up.state, up.physical, up.active) == ("ACTIVE", "LinkUp", True)
        assert poller.poll()[PortId("mlx5_2", 1)].active


def test_a_state_that_cannot_be_read_keeps_the_last_values(node: Tree) -> None:
    reader = read_once(node)
    good = reading_of(reader)
    make_unreadable(node.port("mlx5_1") / "state")
    for _ in range(3):
        bad = reading_of(reader)
        assert (bad.problem, bad.reason) == ("unreadable", "state cannot be read: Invalid argument.")
        assert (bad.state, bad.active, bad.rate_bytes_per_second) == ("ACTIVE", True, NDR)
        assert good.previous_ns < bad.previous_ns <= good.taken_ns < bad.taken_ns
    (node.port("mlx5_1") / "state").unlink()
    (node.port("mlx5_1") / "state").write_text("4: ACTIVE\n")
    again = reading_of(reader)
    assert (again.problem, again.reason, again.previous_ns) == ("", "", bad.previous_ns)
    assert reading_of(reader).previous_ns > bad.taken_ns


def test_a_port_that_was_never_readable_has_a_reading_that_says_so(node: Tree) -> None:
    make_unreadable(node.port("mlx5_1") / "state")
    with polling(node.root) as poller:
        reading = wait_for(poller, lambda reading: reading is not None)
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
    with polling(tree.root) as poller:
        wait_for(poller, lambda reading: reading is not None and reading.rate_bytes_per_second == 12.5e9)
        (tree.root / "class/net/eth1/master").symlink_to("../bond0")
        poller.follow(Inventory(tree.root).scan().ports)
        wait_for(poller, lambda reading: reading is not None and reading.rate_bytes_per_second == 25e9)


def test_an_ethernet_port_that_is_down_has_no_rate(tree: Tree) -> None:
    tree.add_netdev("eth1", "100000\n")
    tree.add("mlx5_1", {1: DOWN_ROCE})
    reading = reading_of(read_once(tree))
    assert (reading.state, reading.rate_bytes_per_second, reading.rate_text) == ("DOWN", None, "40 Gb/sec (4X QDR)")


def test_a_device_that_vanishes_and_returns(node: Tree) -> None:
    with polling(node.root) as poller:
        before = next_reading(poller)
        node.remove("mlx5_1")
        wait_for(poller, lambda reading: reading is None)
        assert poller.gone == {PORT}
        assert len(poller.poll()) == 2
        assert not any("mlx5_1" in path for path in open_descriptors(node.root))
        node.add("mlx5_1", {1: PortFiles(rate="200 Gb/sec (4X HDR)\n")}, pci="0000:01:00.0")
        after = wait_for(poller, lambda reading: reading is not None)
        assert (after.rate_bytes_per_second, poller.gone) == (HDR, frozenset())
        assert before.previous_ns < after.previous_ns < after.taken_ns


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
    assert reading_of(reader).state == "INIT"


def test_ports_that_are_followed_no_more_are_forgotten_and_closed(node: Tree) -> None:
    ports = Inventory(node.root).scan().ports
    with polling(node.root) as poller:
        next_reading(poller)
        wait_until(lambda: len(open_descriptors(node.root)) == 12)
        poller.follow(ports[:1])
        assert list(poller.poll()) == [ports[0].id]
        wait_until(lambda: len(open_descriptors(node.root)) == 4)
    assert open_descriptors(node.root) == []
    assert link_threads() == []


def link_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "link-states"]


def test_a_hung_device_holds_up_nothing_else(node: Tree) -> None:
    state = (node.port("mlx5_1") / "state").resolve()
    with polling(node.root, 0.2) as poller:
        old = next_reading(poller)
        make_hang(state)
        wait_until(lambda: bool(poller.poll()) and poller.hung_devices == ("mlx5_1",))
        replace_text(node.port("mlx5_2") / "state", "1: DOWN\n")
        wait_for(poller, lambda reading: reading is not None and not reading.active, PortId("mlx5_2", 1))
        kept = poller.poll()[PORT]
        assert (kept.state, kept.problem) == ("ACTIVE", "")
        assert kept.taken_ns - old.taken_ns < 1e9
        wait_until(lambda: len(link_threads()) == 1)
        release(state)
        state.unlink()
        state.write_text("2: INIT\n")
        assert wait_for(poller, lambda reading: reading is not None and reading.state == "INIT").problem == ""
        wait_until(lambda: bool(poller.poll()) and poller.hung_devices == ())
        wait_until(lambda: link_threads() == [])


def test_a_pause_of_the_process_itself_hangs_no_device(node: Tree) -> None:
    state = (node.port("mlx5_1") / "state").resolve()
    with polling(node.root, 0.2) as poller:
        next_reading(poller)
        make_hang(state)
        # as long as nothing has been looked at since, the read may have had no time to end
        wait_until(lambda: bool(poller.poll()) and poller._devices["mlx5_1"].is_busy_since(time.monotonic()))
        time.sleep(0.5)
        poller.poll()
        assert poller.hung_devices == ()
        release(state)
        wait_until(lambda: poller._devices["mlx5_1"].changed)
        poller.poll()
        assert poller.hung_devices == ()


def test_a_slow_device_keeps_the_others_waiting_for_a_part_of_the_period_only(node: Tree) -> None:
    state = (node.port("mlx5_1") / "state").resolve()
    other = PortId("mlx5_2", 1)
    with polling(node.root, 4) as poller:
        wait_for(poller, lambda reading: reading is not None, other)
        make_hang(state)
        replace_text(node.port("mlx5_2") / "state", "1: DOWN\n")
        poller._due = 0.0
        began = time.monotonic()
        wait_for(poller, lambda reading: reading is not None and not reading.active, other)
        # a quarter of the period of 4 s, and some time for a busy machine
        assert 1 <= time.monotonic() - began < 3
        assert poller.hung_devices == ()
        release(state)


def test_many_hung_devices_are_found_together_and_have_a_thread_each(tree: Tree) -> None:
    for index in range(12):
        tree.add(f"mlx5_{index}", pci=f"0000:{index:02x}:00.0")
    states = [(tree.port(f"mlx5_{index}") / "state").resolve() for index in range(11)]
    last = PortId("mlx5_11", 1)
    with polling(tree.root, 0.5) as poller:
        next_reading(poller, last)
        for state in states:
            make_hang(state)
        began = time.monotonic()
        wait_until(lambda: bool(poller.poll()) and len(poller.hung_devices) == 11)
        # one after the other, they would take a period each
        assert time.monotonic() - began < 0.5 * 9
        next_reading(poller, last)
        wait_until(lambda: len(link_threads()) == 11)
        for state in states:
            release(state)
        wait_until(lambda: link_threads() == [])


def test_close_does_not_wait_for_a_hung_device(node: Tree) -> None:
    state = (node.port("mlx5_1") / "state").resolve()
    with polling(node.root, 0.2) as poller:
        next_reading(poller)
        make_hang(state)
        wait_until(lambda: bool(poller.poll()) and poller.hung_devices == ("mlx5_1",))
        began = time.monotonic()
    assert time.monotonic() - began < 2
    release(state)
    wait_until(lambda: link_threads() == [])


def test_frequent_calls_read_no_more_often(node: Tree) -> None:
    with polling(node.root, 0.2) as poller:
        taken: set[int] = set()
        end = time.monotonic() + 1
        while time.monotonic() < end:
            taken |= {reading.taken_ns for port, reading in poller.poll().items() if port == PORT}
            time.sleep(0.001)
    assert 2 <= len(taken) <= 7


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[FuseFabric]:
    with FuseFabric(tmp_path / "fuse", ports=3) as mounted:
        yield mounted


on_fuse = pytest.mark.skipif(why_not() != "", reason=why_not())


@on_fuse
def test_a_fabric_with_every_incident(fabric: FuseFabric) -> None:
    with polling(fabric.root, 0.2) as poller:
        assert next_reading(poller).link_downed == 0
        fabric.set("mlx5_1", down=True)
        down = wait_for(poller, lambda reading: reading is not None and not reading.active)
        assert (down.state, down.rate_bytes_per_second) == ("DOWN", None)
        assert next_reading(poller).link_downed == 1
        fabric.set("mlx5_1", texts={"rate": "200 Gb/sec (4X HDR)\n"})
        wait_for(poller, lambda reading: reading is not None and reading.rate_bytes_per_second == HDR)
        fabric.set("mlx5_1", errno=errno.EINVAL, files=("state",))
        wait_for(poller, lambda reading: reading is not None and reading.problem == "unreadable")
        fabric.set("mlx5_1", hang_seconds=60, files=EVERY_FILE)
        wait_until(lambda: bool(poller.poll()) and poller.hung_devices == ("mlx5_1",))
        next_reading(poller, PortId("mlx5_2", 1))
        fabric.set("mlx5_1", vanished=True)
        wait_until(lambda: bool(poller.poll()) and poller.gone == {PORT})
        assert poller.hung_devices == ()
        fabric.set("mlx5_1")
        back = wait_for(poller, lambda reading: reading is not None and reading.rate_bytes_per_second == NDR)
        assert (back.active, back.problem, poller.gone) == (True, "", frozenset())


@on_fuse
def test_a_port_that_goes_down_during_a_read_never_has_the_rate_of_a_port_that_is_down(fabric: FuseFabric) -> None:
    with polling(fabric.root, 5) as poller:
        good = wait_for(poller, lambda reading: reading is not None)
        for _ in range(5):
            wait_until(lambda: not poller._worker or not poller._worker.working)
            fabric.set("mlx5_1", hang_seconds=60, files=("rate",))
            poller._due = 0.0
            poller.poll()
            wait_until(lambda: fabric.hung_reads("mlx5_1") == 1)
            # the read of the state is over, that of the rate gets the rate of a port that is down
            fabric.set("mlx5_1", down=True)
            wait_until(lambda: not poller._worker or not poller._worker.working)
            assert poller.poll()[PORT] == good
            fabric.set("mlx5_1")
