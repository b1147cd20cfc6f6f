"""The ports of the last scan, brought up to date: a device that appears while no scan sees it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ibpulse.events import Event, EventLog
from ibpulse.ring.file import RingFile
from ibpulse.ring.reader import RingReader
from ibpulse.sampler.followed_ports import FollowedPorts
from ibpulse.sysfs.inventory import Inventory
from ibpulse.sysfs.state_poller import StatePoller
from tests.sampler.tree import eventually
from tests.sysfs.trees import PortFiles, Tree

TICK_NS = 10_000_000


class Node:
    """The followed ports of a tree, with a scan whenever the test wants one."""

    def __init__(self, directory: Path) -> None:
        self.tree = Tree(directory / "sys")
        self.tree.add("mlx5_0", {1: PortFiles()})
        self.ring = RingFile.create(directory / "ring", TICK_NS, 1000)
        self.ring.begin_segment(1, 1 - time.time_ns() // TICK_NS)
        self.log, self.inventory = EventLog(), Inventory(self.tree.root)
        self.states = StatePoller(self.tree.root, 0.05)
        self.followed = FollowedPorts(RingReader(self.ring), self.log, self.states)
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
        return time.time_ns()

    def poll(self) -> bool:
        """Poll and note changes as the supervisor does; whether a scan is wanted."""
        if self.followed.poll():
            self.followed.note({}, ())
        return self.followed.outdated

    def appeared(self) -> list[Event]:
        return [event for event in self.log.events() if event.kind == "appeared"]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.followed.close()
    made.ring.close()


def assert_true(event: Event, created_ns: int) -> None:
    """The event happened at most its uncertainty before its time."""
    assert event.time_ns - event.uncertainty_ns <= created_ns <= event.time_ns


def test_a_device_whose_scan_is_late_appeared_before_it_was_listed(node: Node) -> None:
    created_ns = node.create("mlx5_1")
    eventually(node.poll)
    # listings go on, with the device, while the scan is under way
    listed_ns = node.states.listed_ns
    eventually(lambda: node.poll() and node.states.listed_ns > listed_ns + 1_000_000_000)
    node.scan()
    (event,) = node.appeared()
    assert_true(event, created_ns)


def test_a_device_that_a_scan_just_missed_is_noticed_with_the_next_listing(node: Node) -> None:
    # so that the next listing is due when the scan ends
    time.sleep(0.1)
    created_ns = node.scan(created_meanwhile="mlx5_1")
    assert node.appeared() == []
    eventually(node.poll, seconds=5)
    node.scan()
    (event,) = node.appeared()
    assert_true(event, created_ns)


def test_a_device_that_is_created_during_a_scan_did_not_appear_before(node: Node) -> None:
    begun_ns = node.followed.begin_scan()
    created_ns = node.create("mlx5_1")
    node.followed.take_scan(node.inventory.scan(), begun_ns)
    node.followed.note({}, ())
    (event,) = node.appeared()
    assert_true(event, created_ns)
