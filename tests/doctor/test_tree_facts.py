"""What is found out of the tree itself, on trees that look like nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from ibpulse.agent.doctor import DoctorOptions
from ibpulse.agent.doctor.facts import Card, Folders, Mount
from ibpulse.agent.doctor.tree import find_cards, find_mount, read_tree
from ibpulse.agent.sysfs.inventory import Inventory
from ibpulse.core.model import PortId
from tests.sysfs.opened import Opened
from tests.sysfs.trees import COMPAT_VIEW, EFA_DEVICE_HW, PortFiles, Tree

LINES = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
23 27 0:22 / /sys rw,relatime shared:7 - sysfs sysfs rw
24 23 0:30 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 27 0:22 / /host/sys ro,nosuid - sysfs sysfs rw
31 27 0:40 / /with\\040space rw - tmpfs tmpfs rw
32 27 0:41 / /host/sys ro,nosuid - tmpfs over rw
rubbish
33 27 - -
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(LINES)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "mount"),
    [
        ("/sys", Mount("/sys", "sysfs", False)),
        ("/sys/class/infiniband", Mount("/sys", "sysfs", False)),
        ("/sys/fs/cgroup/x", Mount("/sys/fs/cgroup", "cgroup2", True)),
        ("/system", Mount("/", "ext4", False)),
        ("/with space/x", Mount("/with space", "tmpfs", False)),
        # the later mount lies on top
        ("/host/sys", Mount("/host/sys", "tmpfs", True)),
    ],
)
def test_the_mount_of_a_path_is_the_deepest_and_the_last(root: Path, path: str, mount: Mount) -> None:
    assert find_mount(root, path) == mount


def test_without_proc_the_mount_is_not_known(tmp_path: Path) -> None:
    assert find_mount(tmp_path, "/sys") is None


def test_half_a_tree_and_other_networks_are_seen(tree: Tree) -> None:
    tree.add("mlx5_0")
    (tree.root / "class/infiniband/mlx5_1").symlink_to("../../devices/pci0000:99/mlx5_1")
    (tree.root / "class/infiniband/notes").write_text("no device")
    (tree.root / "class/cxi/cxi0").mkdir(parents=True)
    facts = read_tree(DoctorOptions(sysfs=tree.root), Inventory(tree.root).scan())
    assert (facts.listed, facts.absent, facts.unsupported) == (("mlx5_0", "mlx5_1"), ("mlx5_1",), {"Slingshot": 1})


def test_devices_folders_and_lifespans_are_listed(tree: Tree) -> None:
    tree.add("mlx5_10")
    tree.add("mlx5_2", {1: PortFiles(hw_counters=None)}, pci="0000:19:00.0")
    facts = read_tree(DoctorOptions(sysfs=tree.root), Inventory(tree.root).scan())
    assert facts.listed == facts.admitted == ("mlx5_2", "mlx5_10")
    assert facts.folders == {
        PortId("mlx5_2", 1): Folders(True, False, None),
        PortId("mlx5_10", 1): Folders(True, True, 10),
    }
    assert not facts.is_kernel
    assert not facts.is_other_namespace


def test_a_device_that_is_left_out_is_listed_and_not_touched(tree: Tree, opened: Opened) -> None:
    tree.add("mlx5_0")
    tree.add("mlx5_1", pci="0000:19:00.0")
    options = DoctorOptions(sysfs=tree.root, exclude=("mlx5_1",))
    opened.clear()
    fabric = Inventory(tree.root, exclude=("mlx5_1",)).scan()
    facts = read_tree(options, fabric)
    assert (facts.listed, facts.admitted) == (("mlx5_0", "mlx5_1"), ("mlx5_0",))
    assert not [path for path in opened.paths() if "infiniband/mlx5_1" in path]


def test_a_pods_view_is_known_and_no_counter_of_the_device_is_opened(tree: Tree, opened: Opened) -> None:
    tree.add("rdmap144s27", {1: COMPAT_VIEW}, driver="efa", hw_counters=EFA_DEVICE_HW)
    opened.clear()
    facts = read_tree(DoctorOptions(sysfs=tree.root), Inventory(tree.root).scan())
    assert facts.is_other_namespace
    assert facts.shared == ("rdmap144s27",)
    assert not [path for path in opened.paths() if "rdmap144s27/hw_counters/" in path]


def test_a_tree_without_the_class_lists_nothing(tmp_path: Path) -> None:
    facts = read_tree(DoctorOptions(sysfs=tmp_path), Inventory(tmp_path).scan())
    assert facts.listed is None
    assert facts.cards is None


def function(root: Path, path: str, **files: str) -> Path:
    folder = root / "devices" / path
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("kind", "class")).write_text(f"{text}\n")
    return folder


def test_cards_are_told_from_what_is_none(tmp_path: Path) -> None:
    ids = {"vendor": "0x15b3", "device": "0x1021"}
    bridge = "pci0000:15/0000:15:01.0"
    function(tmp_path, bridge, kind="0x060400")
    bare = function(tmp_path, f"{bridge}/0000:16:00.0", kind="0x020700", **ids)
    (bare / "driver").symlink_to("../../../../bus/pci/drivers/mlx5_core")
    whole = function(tmp_path, f"{bridge}/0000:17:00.0", kind="0x020000", **ids)
    (whole / "infiniband" / "mlx5_0").mkdir(parents=True)
    parent = function(tmp_path, f"{bridge}/0000:18:00.0", kind="0x020000", **ids)
    (parent / "mlx5_core.sf.4" / "infiniband" / "mlx5_4").mkdir(parents=True)
    virtual = function(tmp_path, f"{bridge}/0000:18:00.1", kind="0x020000", **ids)
    (virtual / "physfn").symlink_to("../0000:18:00.0")
    lent = function(tmp_path, f"{bridge}/0000:19:00.0", kind="0x020700", **ids)
    (lent / "driver").symlink_to("../../../../bus/pci/drivers/vfio-pci")
    function(tmp_path, f"{bridge}/0000:1a:00.0", kind="0x010802", vendor="0x144d", device="0xa80a")
    function(tmp_path, "system/cpu")
    kind, above = ("0x15b3", "0x1021"), ("pci0000:15", "0000:15:01.0")
    assert list(find_cards(str(tmp_path))) == [
        Card((*above, "0000:16:00.0"), kind, True, "mlx5_core", False),
        Card((*above, "0000:17:00.0"), kind, False, "", True),
        Card((*above, "0000:18:00.0"), kind, False, "", True),
    ]
