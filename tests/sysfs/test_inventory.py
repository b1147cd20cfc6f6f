from __future__ import annotations

import os
import resource
import shutil
import threading
from pathlib import Path

import pytest

from ibpulse.agent.sysfs.device import NO_PORTS
from ibpulse.agent.sysfs.inventory import EXCLUSIVE, HALF_TREE, Inventory
from ibpulse.core.model import Fabric, Port
from tests.sysfs.opened import Opened
from tests.sysfs.trees import (
    MLX5_COUNTERS,
    PortFiles,
    Tree,
    make_unreadable,
    roce,
)
from tests.virtual.world import SECOND, World


def scan(tree: Tree) -> Fabric:
    return Inventory(tree.root).scan()


@pytest.fixture
def scanned(tree: Tree) -> Inventory:
    """An inventory of one device after its first scan."""
    tree.add("mlx5_0")
    inventory = Inventory(tree.root)
    inventory.scan()
    return inventory


def only_port(tree: Tree) -> Port:
    (port,) = scan(tree).ports
    return port


def names(fabric: Fabric) -> list[str]:
    return [str(port.id) for port in fabric.ports]


def test_links_to_devices_that_are_not_mounted_are_said(tree: Tree) -> None:
    for number in range(2):
        (tree.root / f"class/infiniband/mlx5_{number}").symlink_to(f"../../devices/pci0000:00/infiniband/mlx5_{number}")
    (tree.root / "class/infiniband/notes").write_text("no device")
    folder = tree.root / "class/infiniband"
    text = (
        f"{folder} links to devices that are not here (mlx5_0, mlx5_1): mount the whole /sys there, not a part of it."
    )
    assert (scan(tree).ports, scan(tree).notices) == ((), (text,))
    tree.add("mlx5_2")
    assert (names(scan(tree)), scan(tree).notices) == (["mlx5_2:1"], (text,))


def test_a_tree_without_the_pci_bus_does_not_show_gpus(tree: Tree) -> None:
    tree.add("mlx5_0")
    shutil.rmtree(tree.root / "bus")
    (notice,) = scan(tree).notices
    assert notice == f"{tree.root}/bus/pci is not here, so the GPUs of this node are not known: {HALF_TREE}"


def test_a_device_without_ports_is_said(tree: Tree) -> None:
    shutil.rmtree(tree.add("mlx5_0") / "ports")
    assert (scan(tree).ports, scan(tree).notices) == ((), (f"mlx5_0: {NO_PORTS}",))


def test_slingshot_is_not_supported(tree: Tree) -> None:
    for number in range(4):
        (tree.root / f"class/cxi/cxi{number}").mkdir(parents=True)
    text = "Slingshot: ibpulse does not support it, so 4 adapters of this node cannot be sampled."
    assert scan(tree).notices == (text,)
    tree.add("mlx5_0")
    assert (names(scan(tree)), scan(tree).notices) == (["mlx5_0:1"], (text,))
    shutil.rmtree(tree.root / "class/infiniband")
    assert scan(tree).notices == (text,)


@pytest.mark.parametrize(("mode", "notices"), [("Y\n", ()), ("N\n", (EXCLUSIVE,)), ("", ())])
def test_devices_that_can_leave_with_a_pod_are_noticed(tree: Tree, mode: str, notices: tuple[str, ...]) -> None:
    tree.add("mlx5_0")
    folder = tree.root / "module/ib_core/parameters"
    folder.mkdir(parents=True)
    (folder / "netns_mode").write_text(mode)
    assert scan(tree).notices == notices


def test_a_port_that_goes_down_keeps_the_text_of_its_last_rate(tree: Tree, scanned: Inventory) -> None:
    (tree.port("mlx5_0") / "state").write_text("1: DOWN\n")
    (tree.port("mlx5_0") / "rate").write_text("10 Gb/sec (4X SDR)\n")
    (port,) = scanned.scan().ports
    assert (port.rate_bytes_per_second, port.identity.rate) == (None, "400 Gb/sec (4X NDR)")


def test_a_deferred_port_is_not_active(tree: Tree) -> None:
    tree.add("mlx5_0", {1: PortFiles(state="5: ACTIVE_DEFER\n")})
    assert (only_port(tree).active, only_port(tree).state) == (False, "ACTIVE_DEFER")


def test_a_port_that_goes_away_during_the_scan_is_left_out(tree: Tree) -> None:
    tree.add("mlx5_0", {1: PortFiles(), 2: PortFiles()})
    (tree.port("mlx5_0", 2) / "state").unlink()
    assert names(scan(tree)) == ["mlx5_0:1"]


def test_a_port_number_that_is_too_high_is_said_and_the_other_ports_are_found(tree: Tree) -> None:
    tree.add("mlx5_0", {1: PortFiles(), 255: PortFiles(), 256: PortFiles(), 999: PortFiles()})
    fabric = scan(tree)
    assert names(fabric) == ["mlx5_0:1", "mlx5_0:255"]
    assert fabric.notices == ("mlx5_0: port 256, 999 is ignored, because port numbers end at 255.",)
    assert Inventory(tree.root, exclude=["mlx5_0:256", "mlx5_0:999"]).scan().notices == ()


def test_device_names_that_cannot_be_sampled_are_said_and_the_other_devices_are_found(tree: Tree) -> None:
    tree.add("mlx5_0")
    tree.add(os.fsdecode(b"mlx5_\xff"), pci="0000:19:00.0")
    tree.add("a" * 189, pci="0000:1a:00.0")
    fabric = scan(tree)
    assert names(fabric) == ["mlx5_0:1"]
    assert sorted(fabric.notices) == [
        f"{'a' * 189}: ignored, because its name has 189 bytes, too many for the ring: rename it.",
        r"mlx5_\xff: ignored, because its name is not UTF-8: rename it with `rdma dev set`.",
    ]


def test_devices_that_cannot_be_listed_are_not_taken_for_none(tree: Tree, scanned: Inventory) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            scanned.scan()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert names(scanned.scan()) == ["mlx5_0:1"]


def test_a_rate_that_cannot_be_read_leaves_the_rest_and_is_read_at_the_next_scan(tree: Tree) -> None:
    tree.add("mlx5_0")
    rate = tree.port("mlx5_0") / "rate"
    make_unreadable(rate)
    inventory = Inventory(tree.root)
    fabric = inventory.scan()
    (port,) = fabric.ports
    assert (port.active, port.rate_bytes_per_second, port.source is not None) == (True, None, True)
    assert fabric.notices == ("mlx5_0:1: rate cannot be read: Invalid argument.",)
    rate.unlink()
    rate.write_text("400 Gb/sec (4X NDR)\n")
    fabric = inventory.scan()
    assert (fabric.ports[0].rate_bytes_per_second, fabric.notices) == (50e9, ())


def test_a_state_that_cannot_be_read_is_not_active_and_says_so(tree: Tree) -> None:
    tree.add("mlx5_0")
    make_unreadable(tree.port("mlx5_0") / "state")
    port = only_port(tree)
    assert (port.active, port.state, port.problem) == (False, "", "state cannot be read: Invalid argument.")


def test_a_tree_without_rdma_is_a_notice(tmp_path: Path) -> None:
    assert Inventory(tmp_path).scan() == Fabric(
        notices=(
            f"{tmp_path}/class/infiniband does not exist: load an RDMA driver, or, in a container, mount the host's "
            "/sys and set path.sysfs to it.",
        )
    )


def test_a_tree_without_devices_is_a_notice(tree: Tree) -> None:
    assert scan(tree).notices == (f"No device in {tree.root}/class/infiniband: load the driver of your RDMA devices.",)


def test_a_second_device_with_one_port_is_no_plane(tree: Tree) -> None:
    tree.add("mlx5_0")
    tree.add("mlx5_1", {1: PortFiles(hw_counters=None)})
    assert names(scan(tree)) == ["mlx5_0:1", "mlx5_1:1"]


def test_a_slow_twin_of_the_rails_is_a_notice(tree: Tree) -> None:
    tree.add("mlx5_0")
    tree.add("mlx5_1", {1: PortFiles(rate="200 Gb/sec (4X HDR)\n")}, pci="0000:19:00.0")
    assert scan(tree).notices == (
        "mlx5_1:1: it is of the rails' model but slower, so it is not a rail: check the link, or set ports.roles.",
    )


def test_the_same_remark_on_many_ports_is_one_notice(tree: Tree) -> None:
    for index in range(6):
        tree.add(f"mlx5_{index}", {1: PortFiles(counters={})}, pci=f"0000:{index:02x}:00.0")
    assert scan(tree).notices == (
        "mlx5_0:1, mlx5_1:1, mlx5_2:1, mlx5_3:1 and 2 more: no file of this port counts bytes.",
    )


def test_nothing_of_an_excluded_port_is_touched(tree: Tree, opened: Opened) -> None:
    tree.add("mlx5_0", {1: PortFiles(), 2: PortFiles()})
    opened.clear()
    assert names(Inventory(tree.root, exclude=["mlx5_0:2"]).scan()) == ["mlx5_0:1"]
    assert not [path for path in opened.paths() if path.startswith(str(tree.port("mlx5_0", 2)))]


def test_leaving_out_the_only_port_is_no_other_namespace(tree: Tree) -> None:
    tree.add("mlx5_0")
    assert Inventory(tree.root, exclude=["mlx5_0:1"]).scan() == Fabric()


def test_leaving_out_every_device_is_a_notice(tree: Tree) -> None:
    tree.add("mlx5_0")
    assert Inventory(tree.root, exclude=["*"]).scan().notices == (
        f"ports.include and ports.exclude exclude all 1 devices in {tree.root}/class/infiniband: change these "
        "settings.",
    )


def test_the_tree_may_be_named_by_a_relative_path(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.add("mlx5_0")
    monkeypatch.chdir(tree.root.parent)
    (port,) = Inventory(Path("sys")).scan().ports
    assert port.source.transmit == (str(tree.port("mlx5_0") / "counters" / "port_xmit_data"),)


def test_devices_come_go_and_return_elsewhere(tree: Tree, scanned: Inventory) -> None:
    tree.add("mlx5_1", pci="0000:19:00.0")
    assert names(scanned.scan()) == ["mlx5_0:1", "mlx5_1:1"]
    tree.remove("mlx5_0")
    fabric = scanned.scan()
    assert (names(fabric), fabric.notices) == (["mlx5_1:1"], ())
    tree.add("mlx5_0", pci="0000:9a:00.0", files={"fw_ver": "28.43.2026\n"})
    port, _ = scanned.scan().ports
    assert (port.identity.pci_address, port.identity.firmware) == ("0000:9a:00.0", "28.43.2026")


def test_counters_that_return_under_the_same_device_are_looked_at_anew(tree: Tree) -> None:
    folder = tree.add("mlx5_0", {1: PortFiles(counters=None)})
    inventory = Inventory(tree.root)
    for _ in range(6):
        inventory.scan()
    counters = folder / "ports" / "1" / "counters"
    counters.mkdir()
    for name, text in MLX5_COUNTERS.items():
        (counters / name).write_text(text)
    assert inventory.scan().ports[0].source is not None


def test_a_scan_of_an_unchanged_port_opens_only_its_state(tree: Tree, scanned: Inventory, opened: Opened) -> None:
    opened.clear()
    scanned.scan()
    files = [path for path in opened.paths() if Path(path).is_file()]
    assert files == [str(tree.port("mlx5_0") / "state")]


def test_the_rate_is_read_again_at_the_twelfth_scan(tree: Tree, scanned: Inventory) -> None:
    (tree.port("mlx5_0") / "rate").write_text("200 Gb/sec (2X NDR)\n")
    seen = [scanned.scan().ports[0].rate_bytes_per_second for _ in range(12)]
    assert seen == [50e9] * 11 + [25e9]


def test_the_rate_is_read_again_when_the_netdev_changes(tree: Tree) -> None:
    tree.add_netdev("eth2", "400000\n")
    tree.add_netdev("eth3", "100000\n")
    tree.add("mlx5_0", {1: roce("eth2")})
    inventory = Inventory(tree.root)
    inventory.scan()
    (tree.port("mlx5_0") / "gid_attrs" / "ndevs" / "0").write_text("eth3\n")
    (port,) = inventory.scan().ports
    assert (port.identity.netdev, port.rate_bytes_per_second) == ("eth3", 12.5e9)


def test_a_missing_source_is_looked_for_three_times_and_then_left_alone(tree: Tree, opened: Opened) -> None:
    tree.add("mlx5_0", {1: PortFiles(hw_counters=None)})
    counter = tree.port("mlx5_0") / "counters" / "port_xmit_data"
    make_unreadable(counter)
    inventory = Inventory(tree.root)
    tries = []
    for _ in range(17):
        opened.clear()
        inventory.scan()
        tries.append(str(counter) in opened.paths())
    assert tries == [True] * 4 + [False] * 11 + [True, False]


def test_only_a_tree_with_a_marker_is_simulated(tree: Tree) -> None:
    assert not scan(tree).simulated
    tree.add("mlx5_0")
    assert not scan(tree).simulated
    (tree.root / "ibpulse-simulated").touch()
    assert scan(tree).simulated


NOTICE = "mlx5_1: it did not answer in time; showing its last known ports."


def hanging_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "sysfs-mlx5_1"]


@pytest.fixture
def hung(node: Tree, world: World) -> Inventory:
    """An inventory after its first scan, in which a device hung."""
    inventory = Inventory(node.root)
    world.hang("mlx5_1", node.root, "state")
    inventory.scan()
    return inventory


def test_a_device_that_hangs_from_the_start_has_no_ports_and_the_others_are_still_read(
    node: Tree, world: World
) -> None:
    inventory, began_ns = Inventory(node.root), world.monotonic_ns
    world.hang("mlx5_1", node.root, "state")
    fabric = inventory.scan()
    assert world.monotonic_ns - began_ns == SECOND
    assert [str(port.id) for port in fabric.ports] == ["mlx5_0:1", "mlx5_2:1"]
    assert (fabric.stuck_devices, fabric.notices) == (("mlx5_1",), (NOTICE,))
    (node.port("mlx5_2") / "state").write_text("1: DOWN\n")
    assert [port.active for port in inventory.scan().ports] == [True, False]
    assert len(hanging_threads()) == 1


def test_a_device_that_begins_to_hang_keeps_its_last_known_ports(node: Tree, world: World) -> None:
    inventory = Inventory(node.root)
    before = inventory.scan()
    world.hang("mlx5_1", node.root, "state")
    fabric = inventory.scan()
    assert (fabric.ports, fabric.stuck_devices) == (before.ports, ("mlx5_1",))


def test_a_device_that_answers_again_is_read_again(hung: Inventory, world: World) -> None:
    world.answer("mlx5_1")
    fabric = hung.scan()
    assert [port.active for port in fabric.ports] == [True, True, True]
    assert (fabric.stuck_devices, fabric.notices) == ((), ())


def test_an_answer_that_comes_late_counts_while_the_next_is_awaited(node: Tree, hung: Inventory, world: World) -> None:
    world.answer("mlx5_1")
    world.hang("mlx5_1", node.root, "state")
    fabric = hung.scan()
    assert fabric.stuck_devices == ("mlx5_1",)
    assert [str(port.id) for port in fabric.ports] == ["mlx5_0:1", "mlx5_1:1", "mlx5_2:1"]


def test_a_device_that_hangs_and_is_taken_away_is_gone(node: Tree, hung: Inventory) -> None:
    link = node.folder("mlx5_1")
    target = link.readlink()
    link.unlink()
    assert hung.scan().stuck_devices == ()
    link.symlink_to(target)
    assert hung.scan().stuck_devices == ("mlx5_1",)
    assert len(hanging_threads()) == 1
