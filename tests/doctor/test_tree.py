"""What is found out of the tree, its devices and its cards, and what doctor says of them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ibpulse.agent.doctor import DoctorOptions, Finding, Level, examine
from ibpulse.agent.doctor.facts import Card, Facts, Folders, Mount
from ibpulse.agent.doctor.tree import find_cards, find_mount, read_tree
from ibpulse.agent.sysfs.inventory import Inventory
from ibpulse.core.model import PortId, SamplerHealth
from tests.doctor.making import (
    assert_only,
    make_card,
    make_facts,
    make_port,
    make_port_samples,
    sentences,
    troubles,
)
from tests.sysfs.machines import Machine, address, expand
from tests.sysfs.opened import Opened
from tests.sysfs.published import DGX_H100
from tests.sysfs.role_nodes import NODES, RoleNode, add_rails, below_switch, far
from tests.sysfs.trees import COMPAT_VIEW, EFA_DEVICE_HW, PortFiles, Tree
from tests.tables import for_each

RAILS = (make_port("mlx5_0"), make_port("mlx5_1"))
TWO = ("mlx5_0", "mlx5_1")
NOT_SAMPLED = "no port has byte counters"
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
def test_the_deepest_last_mount_is_found(root: Path, path: str, mount: Mount) -> None:
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


def test_an_excluded_device_is_listed_but_not_read(tree: Tree, opened: Opened) -> None:
    tree.add("mlx5_0")
    tree.add("mlx5_1", pci="0000:19:00.0")
    options = DoctorOptions(sysfs=tree.root, exclude=("mlx5_1",))
    opened.clear()
    fabric = Inventory(tree.root, exclude=("mlx5_1",)).scan()
    facts = read_tree(options, fabric)
    assert (facts.listed, facts.admitted) == (("mlx5_0", "mlx5_1"), ("mlx5_0",))
    assert not [path for path in opened.paths() if "infiniband/mlx5_1" in path]


def test_a_pods_view_is_recognised_without_reading_counters(tree: Tree, opened: Opened) -> None:
    tree.add("rdmap144s27", {1: COMPAT_VIEW}, driver="efa", hw_counters=EFA_DEVICE_HW)
    opened.clear()
    facts = read_tree(DoctorOptions(sysfs=tree.root), Inventory(tree.root).scan())
    assert facts.is_other_namespace
    assert facts.shared == ("rdmap144s27",)
    assert not [path for path in opened.paths() if "rdmap144s27/hw_counters/" in path]


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
        Card((*above, "0000:16:00.0"), kind, True, False),
        Card((*above, "0000:17:00.0"), kind, False, True),
        Card((*above, "0000:18:00.0"), kind, False, True),
    ]


# what doctor says


def with_cards(*cards: Card, ports: Any = None, **changes: Any) -> Facts:
    """The facts with these cards besides those of the ports."""
    facts = make_facts(ports, **changes)
    return replace(facts, tree=replace(facts.tree, cards=(*(facts.tree.cards or ()), *cards)))


def unsupported(listed: tuple[str, ...] | None) -> Facts:
    tree = {"listed": listed, "admitted": listed or (), "unsupported": {"Slingshot": 4}}
    return make_facts(RAILS if listed else (), tree=tree, no_sampling="" if listed else NOT_SAMPLED)


BARE = make_card("0000:3d:00.0")
SLINGSHOT = "Slingshot: is not supported: it has no RDMA devices, and 4 adapters here cannot be sampled."
STUCK = make_facts(
    tree={"listed": (*TWO, "mlx5_2"), "admitted": (*TWO, "mlx5_2")}, fabric={"stuck_devices": ("mlx5_2",)}
)
SILENT = make_port_samples(samples=0, reads=None, rates=None, standing=None, resolution_seconds=None)
QUARANTINED = {"health": SamplerHealth(quarantined_devices=("mlx5_1",)), "missed_ticks": 60}
REMEMBERED = {"by_daemon": True, "remembered": ("mlx5_2:1",)}


@for_each(
    [
        (
            "FAIL tree path.sysfs: has no class/infiniband. ~ set path.sysfs to the mount point of the host's /sys",
            make_facts((), tree={"listed": None, "admitted": ()}, no_sampling=NOT_SAMPLED),
        ),
        (
            "FAIL tree path.sysfs: has no devices in class/infiniband. ~ Without any, `ibpulse demo` shows a simulated",
            make_facts((), tree={"listed": ()}, no_sampling=NOT_SAMPLED),
        ),
        (
            "FAIL tree ports.exclude: and ports.include exclude all 2 devices of this node.",
            make_facts((), tree={"listed": TWO, "admitted": ()}, no_sampling=NOT_SAMPLED),
        ),
        (f"FAIL tree {SLINGSHOT}", unsupported(None)),
        (f"FAIL tree {SLINGSHOT}", unsupported(())),
        (f"WARN tree {SLINGSHOT}", unsupported(TWO)),
        (
            "FAIL tree path.sysfs: class/infiniband links to devices that are not here: mlx5_1. "
            "~ Mount the whole /sys of the host",
            make_facts([RAILS[0]], tree={"listed": TWO, "admitted": TWO, "absent": ("mlx5_1",)}),
        ),
        ("FAIL devices mlx5_2: does not answer ~ Until then, add it to ports.exclude.", STUCK),
        ("FAIL devices mlx5_1: does not answer", make_facts(sampling=QUARANTINED, samples={"mlx5_1": SILENT})),
        (
            "FAIL devices mlx5_1: disappeared while doctor was running.",
            make_facts(later=[RAILS[0]], samples={"mlx5_1": make_port_samples(gone=True, errors=2)}),
        ),
        ("FAIL devices mlx5_2:1: disappeared; the daemon sampled it earlier.", make_facts(sampling=REMEMBERED)),
        ("FAIL devices 0000:3d:00.0: is a card of the rails' model, but it has no RDMA device.", with_cards(BARE)),
        (
            "FAIL devices 0000:3d:00.0: is a card of the rails' model, but it has no RDMA device. "
            "The daemon sampled mlx5_2:1 earlier.",
            with_cards(BARE, sampling=REMEMBERED),
        ),
    ]
)
def test_a_fault_of_the_tree_is_the_only_finding(line: str, facts: Facts) -> None:
    assert_only(facts, line)


@for_each(
    [
        make_facts(),
        with_cards(make_card("0000:3d:00.0", ("0x8086", "0x1592"), infiniband=False)),
        with_cards(
            make_card("0000:18:00.1"),
            ports=[make_port("mlx5_bond_0", identity={"kind": "bond", "pci_address": "0000:18:00.0"})],
        ),
    ]
)
def test_a_tree_without_a_fault_has_no_finding(facts: Facts) -> None:
    assert troubles(facts) == []


@for_each(
    [
        (Mount("/host/sys", "sysfs", True), "sysfs mounted at /host/sys, read-only."),
        (Mount("/sys", "sysfs", False), "sysfs mounted at /sys, writable."),
        (Mount("/", "ext4", False), "holds plain files, not a kernel's sysfs"),
        (None, "its mount is unknown."),
    ]
)
def test_the_mount_is_named(mount: Mount | None, words: str) -> None:
    facts = make_facts(tree={"mount": mount})
    assert words in sentences(facts, "tree")[0]
    assert troubles(facts) == []


def test_absent_and_excluded_devices_do_not_answer() -> None:
    absent = make_facts([RAILS[0]], tree={"listed": TWO, "admitted": TWO, "absent": ("mlx5_1",)})
    assert sentences(absent, "devices") == [": 1 device answers."]
    assert sentences(make_facts(tree={"listed": (*TWO, "mlx5_9")}), "devices") == [
        "mlx5_9: is excluded by ports.include and ports.exclude; none of its files is read.",
        ": 2 devices answer.",
    ]


def test_without_rails_every_infiniband_card_must_have_a_device() -> None:
    other = make_card("0000:3e:00.0", ("0x15b3", "0x101d"), infiniband=False)
    facts = with_cards(BARE, other, ports=[make_port("mlx5_an0", identity={"link_layer": "Ethernet"}, rail=False)])
    failures = [finding.subject for finding in examine(facts, ["devices"]) if finding.level is Level.FAIL]
    assert failures == ["0000:3d:00.0"]


# cards and GPUs in a PCI tree


def judge(machine: Machine, **options: object) -> list[Finding]:
    """What the check of the devices finds, without what is fine."""
    chosen = DoctorOptions(sysfs=machine.root, **options)  # type: ignore[arg-type]
    fabric = Inventory(machine.root, chosen.include, chosen.exclude, chosen.roles).scan()
    facts = Facts(chosen, fabric, read_tree(chosen, fabric))
    return [finding for finding in examine(facts, ["devices"]) if finding.level is not Level.OK]


def lose_device(machine: Machine, name: str) -> None:
    """The card stays on the bus, without its RDMA device."""
    folder = machine.folder(name).resolve().parent
    machine.remove(name)
    folder.rmdir()


def lose_card(machine: Machine, name: str, place: str) -> None:
    machine.remove(name)
    (machine.root / "bus" / "pci" / "devices" / address(place)).unlink()
    shutil.rmtree(machine.root / expand(place))


@pytest.fixture
def node(tmp_path: Path) -> Machine:
    """Eight rails with a GPU each, and a card of their model near no GPU."""
    machine = Machine(tmp_path / "sys")
    add_rails(machine)
    machine.add_nic("mlx5_8", far(0))
    return machine


@pytest.mark.parametrize("node", NODES, ids=lambda node: node.name)
def test_a_node_that_is_complete_is_not_blamed(node: RoleNode, tmp_path: Path) -> None:
    machine = Machine(tmp_path / "sys")
    node.build(machine)
    lost = {address(below_switch(2, 0))} if node.name == "lost device" else set()
    assert {finding.subject for finding in judge(machine)} == lost


def test_a_card_without_its_device_names_its_gpu(node: Machine) -> None:
    lose_device(node, "mlx5_3")
    (finding,) = judge(node)
    assert (finding.level, finding.subject) == (Level.FAIL, address(below_switch(3, 0)))
    gpu = address(below_switch(3, 1))
    assert finding.sentence == f"is a card of the rails' model near GPU {gpu}, but it has no RDMA device."


def test_a_card_far_from_the_gpus_is_no_missing_rail(node: Machine) -> None:
    lose_device(node, "mlx5_8")
    (finding,) = judge(node)
    assert (finding.level, finding.subject) == (Level.WARN, address(far(0)))
    assert finding.sentence.endswith("without an RDMA device, but not in the position of a rail.")


def test_a_missing_card_is_named_by_its_gpu(node: Machine) -> None:
    lose_card(node, "mlx5_3", below_switch(3, 0))
    (finding,) = judge(node)
    assert (finding.level, finding.subject) == (Level.WARN, address(below_switch(3, 1)))
    assert finding.sentence == "is a GPU near no rail, but 7 GPUs of its model are near one."


def test_named_rails_and_excluded_devices_are_no_finding(node: Machine) -> None:
    assert judge(node, exclude=("mlx5_3",)) == []
    lose_card(node, "mlx5_3", below_switch(3, 0))
    assert judge(node, roles={"compute": ("mlx5_[0-7]",)}) == []


def test_half_of_the_gpus_may_lack_a_rail(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "sys")
    add_rails(machine)
    for number in range(4, 8):
        lose_card(machine, f"mlx5_{number}", below_switch(number, 0))
    assert judge(machine) == []


def test_a_gpu_of_another_model_needs_no_rail(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "sys")
    DGX_H100.build(machine)
    machine.add_gpu("f0/f0:01.0/f1:00.0", ids=("0x10de", "0x27b8", "0x030000"))
    assert judge(machine) == []
