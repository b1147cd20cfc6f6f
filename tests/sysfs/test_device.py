from __future__ import annotations

import pytest

from ibpulse.agent.sysfs import device
from ibpulse.agent.sysfs.inventory import identify_devices
from ibpulse.core.model import DeviceIdentity, PortId, PortIdentity
from tests.sysfs.trees import RXE, RXE_FILES, PortFiles, Tree, make_unreadable, roce
from tests.tables import for_each


def test_an_mlx5_device_is_told_in_full(tree: Tree) -> None:
    folder = tree.add("mlx5_0", numa_node="1\n")
    assert device.read_facts(str(tree.folder("mlx5_0"))) == device.DeviceFacts(
        PortIdentity(
            guid="b8ce:f603:00aa:bb00",
            board="MT_0000000838",
            hca_type="MT4129",
            firmware="28.41.1000",
            driver="mlx5_core",
            pci_address="0000:18:00.0",
            numa_node="1",
        ),
        function=str(folder.parent.parent),
    )


def test_a_virtual_device_has_no_driver_and_no_pci_address(tree: Tree) -> None:
    files = {name: text for name, text in RXE_FILES.items() if name != "parent"}
    tree.add_virtual("siw0", {1: RXE}, files)
    assert device.read_facts(str(tree.folder("siw0"))) == device.DeviceFacts()


def test_soft_roce_is_known_by_its_parent_whatever_its_name(tree: Tree) -> None:
    tree.add_virtual("roce7", {1: RXE}, RXE_FILES)
    assert device.read_facts(str(tree.folder("roce7"))) == device.DeviceFacts(PortIdentity(driver="rdma_rxe"))


def test_what_a_device_does_not_say_is_empty(tree: Tree) -> None:
    files = {"board_id": "MT_0000000838\n"}
    tree.add("mlx5_0", pci="10000:01:00.0", numa_node="-1\n", files=files, hw_counters={"lifespan": "10\n"})
    facts = device.read_facts(str(tree.folder("mlx5_0")))
    assert facts.identity == PortIdentity(board="MT_0000000838", driver="mlx5_core", pci_address="10000:01:00.0")
    assert facts.shared_counters


def test_a_sub_function_has_the_address_of_its_function(tree: Tree) -> None:
    tree.add("mlx5_4", pci="0000:08:00.0", below="mlx5_core.sf.4")
    facts = device.read_facts(str(tree.folder("mlx5_4"))).identity
    assert (facts.pci_address, facts.numa_node) == ("0000:08:00.0", "0")


def test_the_netdev_of_the_first_gid_is_the_ports(tree: Tree) -> None:
    folder = tree.add("mlx5_0", {1: roce("eth2")})
    (folder / "device" / "net" / "eth9").mkdir(parents=True)
    assert device.find_netdev(str(tree.folder("mlx5_0")), 1) == "eth2"


def test_empty_gid_slots_are_passed_over(tree: Tree) -> None:
    tree.add("mlx5_0", {1: PortFiles(ndevs={0: "", 1: "", 2: "eth2", 10: "eth3"})})
    for slot in ("0", "1"):
        make_unreadable(tree.port("mlx5_0") / "gid_attrs" / "ndevs" / slot)
    assert device.find_netdev(str(tree.folder("mlx5_0")), 1) == "eth2"


def test_without_gids_the_netdev_is_that_of_the_function(tree: Tree) -> None:
    folder = tree.add("mlx5_0")
    (folder / "device" / "net" / "ib0").mkdir(parents=True)
    assert device.find_netdev(str(tree.folder("mlx5_0")), 1) == "ib0"


def test_a_function_with_two_ports_has_a_netdev_for_each(tree: Tree) -> None:
    folder = tree.add("mlx4_0", {1: PortFiles(), 2: PortFiles()})
    for port, name in enumerate(("ib1", "ib0")):
        (folder / "device" / "net" / name).mkdir(parents=True)
        (folder / "device" / "net" / name / "dev_port").write_text(f"{port}\n")
    assert [device.find_netdev(str(tree.folder("mlx4_0")), port) for port in (1, 2)] == ["ib1", "ib0"]


def test_a_bond_is_found_from_itself_and_from_its_members(tree: Tree) -> None:
    tree.add_netdev("bond0", bonding=True)
    tree.add_netdev("eth0", master="bond0")
    net = str(tree.root / "class" / "net")
    assert (device.find_bond(net, "bond0"), device.find_bond(net, "eth0")) == ("bond0", "bond0")


def test_a_member_of_a_bridge_is_in_no_bond(tree: Tree) -> None:
    tree.add_netdev("br0")
    tree.add_netdev("eth0", master="br0")
    assert device.find_bond(str(tree.root / "class" / "net"), "eth0") == ""


@pytest.mark.parametrize(
    ("before", "now", "explained"),
    [
        (("a", "", 7), ("b", "", 7), "GUID b instead of a"),
        # moved to another slot, or its driver was loaded again
        (("a", "0000:18:00.0", 7), ("a", "0000:19:00.0", 8), ""),
        # another device has its GUID, too, since or no longer
        (("a", "0000:18:00.0", 7), ("", "0000:18:00.0", 7), ""),
        (("", "0000:18:00.0", 7), ("a", "0000:18:00.0", 7), ""),
        (("a", "0000:18:00.0", 7), ("", "0000:18:00.1", 7), "at 0000:18:00.1 instead of 0000:18:00.0"),
        (("", "mlx5_core.sf.4", 7), ("", "mlx5_core.sf.5", 7), "at mlx5_core.sf.5 instead of mlx5_core.sf.4"),
        (("", "0000:18:00.0", 7), ("", "0000:18:00.0", 8), ""),
        (("", "", 7), ("", "", 8), "its directory in sysfs is a new one"),
        (("", "", 7), ("", "", 7), ""),
        # the GUID could not be read
        (("a", "", 7), ("", "", 8), ""),
        (("", "", 0), ("a", "0000:18:00.0", 7), ""),
    ],
)
def test_devices_differ_in_what_is_known_of_both(
    before: tuple[str, str, int], now: tuple[str, str, int], explained: str
) -> None:
    old, new = DeviceIdentity(*before), DeviceIdentity(*now)
    assert new.is_another(old) == bool(explained)
    if explained:
        assert new.explain(old) == explained
    read = DeviceIdentity.parse(str(new))
    assert (read.guid, read.function, read.is_another(old)) == (new.guid, new.function, bool(explained))


@pytest.mark.parametrize("text", ["", "a", "a b", "a b c", "a b -1", "\N{REPLACEMENT CHARACTER}"])
def test_a_damaged_identity_is_unknown(text: str) -> None:
    assert DeviceIdentity.parse(text) == DeviceIdentity()


def test_a_guid_of_0_or_of_several_devices_identifies_none() -> None:
    guids = {"mlx5_0": "b8ce:f603:00aa:bb00", "mlx5_1": "b8ce:f603:00aa:cc00", "mlx5_2": "b8ce:f603:00aa:bb00"}
    guids |= {"rxe0": "0000:0000:0000:0000", "siw0": ""}
    views = [
        device.DeviceView(name, identity=device.identify(device.DeviceFacts(PortIdentity(guid=guid)), name, 7))
        for name, guid in guids.items()
    ]
    found = identify_devices(views)
    assert {name: each.guid for name, each in found.items() if each.guid} == {"mlx5_1": "b8ce:f603:00aa:cc00"}


def test_a_pattern_covers_a_port() -> None:
    for pattern in ("mlx5_0", "mlx5_*", "mlx5_0:1", "mlx5_0:*", "*:1", "mlx5_[0-3]"):
        assert device.match_port(pattern, PortId("mlx5_0", 1)), pattern
    for pattern in ("mlx5_1", "mlx5_0:2", "MLX5_0", "mlx5"):
        assert not device.match_port(pattern, PortId("mlx5_0", 1)), pattern


# patterns, and whether the device and its two ports are admitted
@for_each(
    {
        "all": ((), (), (True, True, True)),
        "one port": (("mlx5_0:2",), (), (True, False, True)),
        "another device": (("mlx5_1",), (), (False, False, False)),
        "exclude wins": (("mlx5_*",), ("mlx5_0",), (False, False, False)),
        "a device with one port excluded": ((), ("mlx5_0:1",), (True, False, True)),
    }
)
def test_patterns_admit(include: tuple[str, ...], exclude: tuple[str, ...], admitted: tuple[bool, bool, bool]) -> None:
    selection = device.Selection(include, exclude)
    ports = [selection.admits_port(PortId("mlx5_0", number)) for number in (1, 2)]
    assert (selection.admits_device("mlx5_0"), *ports) == admitted
