from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ibpulse.agent.sysfs.inventory import Inventory
from tests.sysfs.machines import NIC, Machine, expand
from tests.sysfs.role_nodes import HDR, NDR, NODES, OTHER_BOARD, STORAGE_CARD, RoleNode, add_rails, below_switch, far
from tests.sysfs.trees import roce

PAGE = Path(__file__).parents[2] / "docs" / "topology.md"


def build(node: RoleNode, tmp_path: Path) -> Machine:
    machine = Machine(tmp_path / "sys")
    node.build(machine)
    return machine


@pytest.mark.parametrize("node", NODES, ids=lambda node: node.name)
def test_every_port_has_the_role_that_an_experienced_person_gives_it(node: RoleNode, tmp_path: Path) -> None:
    inventory = Inventory(build(node, tmp_path).root)
    for _ in range(2):
        fabric = inventory.scan()
        assert {str(port.id): port.role for port in fabric.ports} == node.roles
        assert [port.rail for port in fabric.ports] == [port.role == "compute" for port in fabric.ports]
        assert tuple(str(port.id) for port in fabric.ports if port.trained_down) == node.trained_down
        assert set(fabric.notices) == {f"{subject.strip()}: {text}" for subject, text in node.notices.items()}
        assert fabric.rail_functions == node.expected


def table_row(node: RoleNode) -> str:
    counts = [f"{list(node.roles.values()).count(role)} {role}" for role in dict.fromkeys(node.roles.values())]
    notices = [notice.partition(":")[0].partition(",")[0] for notice in node.notices.values()]
    return f"| {node.sentence} | {', '.join(counts)} | {'; '.join(notices) or '–'} |"


@pytest.mark.parametrize("node", NODES, ids=lambda node: node.name)
def test_the_page_lists_the_node(node: RoleNode) -> None:
    assert table_row(node) in PAGE.read_text().splitlines()


def test_a_gpu_that_falls_off_the_bus_changes_no_role(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "sys")
    add_rails(machine)
    inventory = Inventory(machine.root)
    before = inventory.scan()
    gpu = machine.root / expand(below_switch(4, 1))
    (machine.root / "bus" / "pci" / "devices" / gpu.name).unlink()
    shutil.rmtree(gpu)
    after = inventory.scan()
    assert (len(before.topology.gpus), len(after.topology.gpus)) == (8, 7)
    assert [port.role for port in after.ports] == [port.role for port in before.ports] == ["compute"] * 8


def test_the_make_that_is_nearest_to_most_gpus_is_chosen_however_many_ports_others_have(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "sys")
    add_rails(machine, HDR)
    places = [below_switch(switch, 2) for switch in range(2)] + [far(card) for card in range(8)]
    for number, place in enumerate(places, 8):
        machine.add_nic(f"mlx5_{number}", place, files=STORAGE_CARD, ports={1: NDR})
    fabric = Inventory(machine.root).scan()
    assert [port.role for port in fabric.ports] == ["compute"] * 8 + ["storage"] * 2 + ["unknown"] * 8


def test_a_card_of_another_board_near_a_gpu_that_has_a_rail_is_for_storage(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "sys")
    add_rails(machine)
    machine.add_nic("mlx5_8", below_switch(3, 2, deeper=True), files=OTHER_BOARD)
    assert Inventory(machine.root).scan().ports[8].role == "storage"


def count_functions(machine: Machine) -> int:
    return Inventory(machine.root).scan().rail_functions


def test_a_lost_function_counts_where_a_rail_would_be_near_a_gpu(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "sys")
    add_rails(machine)
    machine.add_function(far(0), NIC)
    assert count_functions(machine) == 8
    machine.add_function(below_switch(0, 2), ("0x15b3", "0x1017", "0x020700"))
    machine.add_function(below_switch(0, 0).removesuffix("0") + "1", NIC)
    assert count_functions(machine) == 8
    lost = machine.add_function(below_switch(0, 3), NIC)
    assert count_functions(machine) == 9
    (lost / "physfn").symlink_to("../somewhere")
    assert count_functions(machine) == 8


def test_without_gpus_a_lost_function_counts_if_all_ports_of_its_kind_are_rails(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "sys")
    add_rails(machine, gpus=False)
    machine.add_function(far(0), NIC)
    assert count_functions(machine) == 9
    machine.add_nic("mlx5_8", far(1), ports={1: HDR})
    assert count_functions(machine) == 8


def test_the_second_function_of_a_bond_is_not_missing(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "sys")
    machine.add_netdev("bond0", "400000\n", bonding=True)
    machine.add_nic("mlx5_bond_0", far(0), ports={1: roce("bond0")})
    machine.add_nic("mlx5_1", far(1, 1), ports={1: roce("")})
    machine.add_function(far(0, 1), NIC)
    assert count_functions(machine) == 2


def test_patterns_take_precedence_over_the_topology(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "sys")
    add_rails(machine)
    fabric = Inventory(machine.root, roles={"storage": ["mlx5_7"], "management": ["mlx5_6:1"]}).scan()
    assert [port.role for port in fabric.ports] == ["compute"] * 6 + ["management", "storage"]
    fabric = Inventory(machine.root, roles={"compute": ["mlx5_0"], "storage": ["mlx5_1"]}).scan()
    assert [port.role for port in fabric.ports] == ["compute", "storage"] + ["unknown"] * 6


def test_a_port_that_matches_two_roles_is_a_notice(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "sys")
    add_rails(machine)
    fabric = Inventory(machine.root, roles={"storage": ["mlx*_7"], "compute": ["mlx5_?"]}).scan()
    assert [port.role for port in fabric.ports] == ["compute"] * 8
    assert fabric.notices == (
        "mlx5_7:1: it matches ports.roles for compute and storage; it counts as compute. Change the patterns.",
    )
