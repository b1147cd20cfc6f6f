from __future__ import annotations

from ibpulse.sysfs.identity import DeviceFacts, find_bond, find_netdev, read_facts
from tests.sysfs.drivers import RXE, RXE_FILES
from tests.sysfs.trees import PortFiles, Tree, make_unreadable, roce


def test_an_mlx5_device_is_told_in_full(tree: Tree) -> None:
    folder = tree.add("mlx5_0", numa_node="1\n")
    assert read_facts(str(tree.folder("mlx5_0"))) == DeviceFacts(
        guid="b8ce:f603:00aa:bb00",
        board="MT_0000000838",
        hca_type="MT4129",
        firmware="28.41.1000",
        driver="mlx5_core",
        pci_address="0000:18:00.0",
        numa_node="1",
        function=str(folder.parent.parent),
    )


def test_the_driver_is_read_from_its_link_and_not_from_the_name(tree: Tree) -> None:
    tree.add("mlx5_0", driver="bnxt_en")
    assert read_facts(str(tree.folder("mlx5_0"))).driver == "bnxt_en"


def test_a_virtual_device_has_no_driver_and_no_pci_address(tree: Tree) -> None:
    files = {name: text for name, text in RXE_FILES.items() if name != "parent"}
    tree.add_virtual("siw0", {1: RXE}, files)
    assert read_facts(str(tree.folder("siw0"))) == DeviceFacts()


def test_soft_roce_is_known_by_its_parent_whatever_its_name(tree: Tree) -> None:
    tree.add_virtual("roce7", {1: RXE}, RXE_FILES)
    assert read_facts(str(tree.folder("roce7"))) == DeviceFacts(driver="rdma_rxe")


def test_a_missing_firmware_version_leaves_the_rest(tree: Tree) -> None:
    tree.add("mlx5_0", files={"board_id": "MT_0000000838\n"})
    facts = read_facts(str(tree.folder("mlx5_0")))
    assert (facts.firmware, facts.board, facts.driver) == ("", "MT_0000000838", "mlx5_core")


def test_a_sub_function_has_the_address_of_its_function(tree: Tree) -> None:
    tree.add("mlx5_4", pci="0000:08:00.0", below="mlx5_core.sf.4")
    facts = read_facts(str(tree.folder("mlx5_4")))
    assert (facts.pci_address, facts.numa_node) == ("0000:08:00.0", "0")


def test_a_pci_domain_may_be_longer(tree: Tree) -> None:
    tree.add("mlx5_0", pci="10000:01:00.0")
    assert read_facts(str(tree.folder("mlx5_0"))).pci_address == "10000:01:00.0"


def test_no_numa_node_is_empty(tree: Tree) -> None:
    tree.add("mlx5_0", numa_node="-1\n")
    assert read_facts(str(tree.folder("mlx5_0"))).numa_node == ""


def test_counters_of_the_device_itself_are_seen(tree: Tree) -> None:
    tree.add("mlx5_0", hw_counters={"lifespan": "10\n"})
    assert read_facts(str(tree.folder("mlx5_0"))).shared_counters


def test_the_netdev_of_the_first_gid_is_the_ports(tree: Tree) -> None:
    folder = tree.add("mlx5_0", {1: roce("eth2")})
    (folder / "device" / "net" / "eth9").mkdir(parents=True)
    assert find_netdev(str(tree.folder("mlx5_0")), 1) == "eth2"


def test_empty_gid_slots_are_passed_over(tree: Tree) -> None:
    tree.add("mlx5_0", {1: PortFiles(ndevs={0: "", 1: "", 2: "eth2", 10: "eth3"})})
    for slot in ("0", "1"):
        make_unreadable(tree.port("mlx5_0") / "gid_attrs" / "ndevs" / slot)
    assert find_netdev(str(tree.folder("mlx5_0")), 1) == "eth2"


def test_without_gids_the_netdev_is_that_of_the_function(tree: Tree) -> None:
    folder = tree.add("mlx5_0")
    (folder / "device" / "net" / "ib0").mkdir(parents=True)
    assert find_netdev(str(tree.folder("mlx5_0")), 1) == "ib0"


def test_a_function_with_two_ports_has_a_netdev_for_each(tree: Tree) -> None:
    folder = tree.add("mlx4_0", {1: PortFiles(), 2: PortFiles()})
    for port, name in enumerate(("ib1", "ib0")):
        (folder / "device" / "net" / name).mkdir(parents=True)
        (folder / "device" / "net" / name / "dev_port").write_text(f"{port}\n")
    assert [find_netdev(str(tree.folder("mlx4_0")), port) for port in (1, 2)] == ["ib1", "ib0"]


def test_rxe_names_its_parent(tree: Tree) -> None:
    tree.add_virtual("rxe0", {1: RXE}, RXE_FILES)
    assert find_netdev(str(tree.folder("rxe0")), 1) == "veth0"


def test_a_bond_is_found_from_itself_and_from_its_members(tree: Tree) -> None:
    tree.add_netdev("bond0", bonding=True)
    tree.add_netdev("eth0", master="bond0")
    net = str(tree.root / "class" / "net")
    assert (find_bond(net, "bond0"), find_bond(net, "eth0")) == ("bond0", "bond0")


def test_a_member_of_a_bridge_is_in_no_bond(tree: Tree) -> None:
    tree.add_netdev("br0")
    tree.add_netdev("eth0", master="br0")
    assert find_bond(str(tree.root / "class" / "net"), "eth0") == ""
