"""The ports of the last scan, brought up to date: a device that appears while no scan sees it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ibpulse.agent.sampler.followed_ports import FollowedPorts
from ibpulse.agent.sysfs.inventory import Inventory
from ibpulse.agent.sysfs.links import StatePoller
from ibpulse.core.events import Event, EventLog
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.reader import RingReader
from tests.sysfs.trees import PortFiles, Tree
from tests.virtual.clock import NodeClock
from tests.virtual.world import SECOND, World

TICK_NS = 10_000_000


class Node:
    """The followed ports of a tree, with a scan whenever the test wants one."""

    def __init__(self, folder: Path) -> None:
        self.world = World()
        self.clock = NodeClock(self.world)
        self.tree = Tree(folder / "sys")
        self.tree.add("mlx5_0", {1: PortFiles()})
        self.ring = RingFile.create(folder / "ring", TICK_NS, 1000, self.clock)
        self.ring.begin_segment(1, 1 - self.clock.time_ns() // TICK_NS)
        self.log, self.inventory = EventLog(), Inventory(self.tree.root)
        self.states = StatePoller(self.tree.root, 0.05, clock=self.clock)
        self.followed = FollowedPorts(RingReader(self.ring), self.log, self.states, self.clock)
        self.scan()

    def scan(self, *, created_meanwhile: str = "") -> int:
        """A scan; a device is created after it has listed the devices. Returns the wall time of that."""
        begun_ns = self.followed.begin_scan()
        found = self.inventory.scan()
        created_ns = self.create(created_meanwhile) if created_meanwhile else 0
        self.followed.take_scan(found, begun_ns)
        self.followed.note({}, ())
        return created_ns

    def create(self, device: str) -> int:
        self.tree.add(device, {1: PortFiles()})
        self.clock.sleep(0.01)
        return self.clock.time_ns()

    def poll(self) -> bool:
        """Poll and note changes as the supervisor does; whether a scan is wanted."""
        if self.followed.poll():
            self.followed.note({}, ())
        return self.followed.outdated

    def poll_until_outdated(self) -> float:
        """The seconds until a scan is wanted."""
        begun = self.clock.monotonic()
        while not self.poll():
            self.clock.sleep(0.02)
            assert self.clock.monotonic() < begun + 5
        return self.clock.monotonic() - begun

    def appeared(self) -> list[Event]:
        return [event for event in self.log.events() if event.kind == "appeared"]


@pytest.fixture
def node(folder: Path) -> Iterator[Node]:
    made = Node(folder)
    yield made
    made.followed.close()
    made.world.close()
    made.ring.close()


def assert_appeared(node: Node, created_ns: int) -> None:
    """The one event happened at most its uncertainty before its time."""
    (event,) = node.appeared()
    assert event.time_ns - event.uncertainty_ns <= created_ns <= event.time_ns


def test_a_device_whose_scan_is_late_appeared_before_it_was_listed(node: Node) -> None:
    created_ns = node.create("mlx5_1")
    node.poll_until_outdated()
    # listings go on, with the device, while the scan is under way
    listed_ns = node.states.listed_ns
    while node.states.listed_ns <= listed_ns + SECOND:
        assert node.poll()
        node.clock.sleep(0.02)
    node.scan()
    assert_appeared(node, created_ns)


def test_a_device_that_a_scan_just_missed_is_noticed_with_the_next_listing(node: Node) -> None:
    # so that the next listing is due when the scan ends
    node.clock.sleep(0.1)
    created_ns = node.scan(created_meanwhile="mlx5_1")
    assert node.appeared() == []
    assert node.poll_until_outdated() < 1.5
    node.scan()
    assert_appeared(node, created_ns)


def test_a_device_that_is_created_during_a_scan_did_not_appear_before(node: Node) -> None:
    begun_ns = node.followed.begin_scan()
    created_ns = node.create("mlx5_1")
    node.followed.take_scan(node.inventory.scan(), begun_ns)
    node.followed.note({}, ())
    assert_appeared(node, created_ns)


def test_a_device_that_the_kernel_announces_is_dated_by_it(node: Node) -> None:
    node.poll()
    node.clock.sleep(0.5)
    unchanged_ns = node.clock.time_ns()
    created_ns = node.create("mlx5_1")
    node.followed.hurry(unchanged_ns)
    assert node.poll_until_outdated() < 0.1
    node.scan()
    assert_appeared(node, created_ns)
    (event,) = node.appeared()
    assert event.time_ns - event.uncertainty_ns == unchanged_ns


def test_a_second_announcement_does_not_date_what_came_with_the_first(node: Node) -> None:
    unchanged_ns = node.clock.time_ns()
    created_ns = node.create("mlx5_1")
    node.followed.hurry(unchanged_ns)
    node.clock.sleep(0.1)
    node.followed.hurry(node.clock.time_ns())
    node.scan()
    assert_appeared(node, created_ns)
