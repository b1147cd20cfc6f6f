"""A device whose reads block: the rest of the node must not notice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ibpulse.agent.sysfs.inventory import Inventory
from tests.sysfs.trees import Tree, make_hang, release

SHORT_SECONDS = 0.2
NOTICE = "mlx5_1: it did not answer in time; showing its last known ports."


@pytest.fixture
def node(tree: Tree) -> Iterator[Tree]:
    """Three devices; whatever hangs on the middle one is let go at the end."""
    for index in range(3):
        tree.add(f"mlx5_{index}", pci=f"0000:{index:02x}:00.0")
    yield tree
    for thread in hanging_threads():
        state = tree.root / "devices" / "pci0000:15" / "0000:15:01.0" / "0000:01:00.0" / "infiniband" / "mlx5_1"
        release(state / "ports" / "1" / "state")
        thread.join()


def hanging_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "sysfs-mlx5_1"]


def state_file(tree: Tree) -> Path:
    return tree.port("mlx5_1") / "state"


def test_a_device_that_hangs_from_the_start_has_no_ports(node: Tree) -> None:
    make_hang(state_file(node))
    fabric = Inventory(node.root, timeout_seconds=SHORT_SECONDS).scan()
    assert [str(port.id) for port in fabric.ports] == ["mlx5_0:1", "mlx5_2:1"]
    assert (fabric.stuck_devices, fabric.notices) == (("mlx5_1",), (NOTICE,))


def test_a_device_that_begins_to_hang_keeps_its_last_known_ports(node: Tree) -> None:
    inventory = Inventory(node.root, timeout_seconds=SHORT_SECONDS)
    before = inventory.scan()
    make_hang(state_file(node))
    fabric = inventory.scan()
    assert (fabric.ports, fabric.stuck_devices) == (before.ports, ("mlx5_1",))


def test_the_others_are_still_read(node: Tree) -> None:
    inventory = Inventory(node.root, timeout_seconds=SHORT_SECONDS)
    make_hang(state_file(node))
    inventory.scan()
    (node.port("mlx5_2") / "state").write_text("1: DOWN\n")
    fabric = inventory.scan()
    assert [port.active for port in fabric.ports] == [True, False]


def test_a_device_that_hangs_gets_no_second_thread(node: Tree) -> None:
    inventory = Inventory(node.root, timeout_seconds=SHORT_SECONDS)
    make_hang(state_file(node))
    for _ in range(5):
        assert inventory.scan().stuck_devices == ("mlx5_1",)
    assert len(hanging_threads()) == 1


def test_a_device_that_answers_again_is_read_again(node: Tree) -> None:
    inventory = Inventory(node.root, timeout_seconds=SHORT_SECONDS)
    make_hang(state_file(node))
    inventory.scan()
    fifo = state_file(node).resolve()
    (thread,) = hanging_threads()
    release(fifo)
    thread.join()
    fifo.unlink()
    fifo.write_text("4: ACTIVE\n")
    fabric = inventory.scan()
    assert [port.active for port in fabric.ports] == [True, True, True]
    assert (fabric.stuck_devices, fabric.notices) == ((), ())


def test_an_answer_that_comes_late_counts_while_the_next_is_awaited(node: Tree) -> None:
    inventory = Inventory(node.root, timeout_seconds=SHORT_SECONDS)
    make_hang(state_file(node))
    inventory.scan()
    (thread,) = hanging_threads()
    release(state_file(node).resolve())
    thread.join()
    fabric = inventory.scan()
    assert fabric.stuck_devices == ("mlx5_1",)
    assert [str(port.id) for port in fabric.ports] == ["mlx5_0:1", "mlx5_1:1", "mlx5_2:1"]


def test_a_device_that_hangs_and_is_taken_away_is_gone(node: Tree) -> None:
    inventory = Inventory(node.root, timeout_seconds=SHORT_SECONDS)
    make_hang(state_file(node))
    inventory.scan()
    link = node.folder("mlx5_1")
    target = link.readlink()
    link.unlink()
    assert inventory.scan().stuck_devices == ()
    link.symlink_to(target)
    assert inventory.scan().stuck_devices == ("mlx5_1",)
    assert len(hanging_threads()) == 1
