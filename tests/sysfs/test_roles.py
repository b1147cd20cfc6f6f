from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from ibpulse.agent.sysfs.inventory import Inventory
from ibpulse.agent.sysfs.roles import RoleRule, find_slow_twins
from ibpulse.core.model import COMPUTE, ByteSource, Port, PortId, PortIdentity
from tests.sysfs.machines import NIC, Machine, expand
from tests.sysfs.role_nodes import HDR, NDR, NODES, OTHER_BOARD, STORAGE_CARD, RoleNode, add_rails, below_switch, far
from tests.sysfs.trees import roce
from tests.tables import for_each

PAGE = Path(__file__).parents[2] / "docs" / "topology.md"
SOURCE = ByteSource("port_data", ("/x",), ("/y",), 4)


def make_port(
    device: str,
    gigabits: float | None = 400,
    *,
    layer: str = "InfiniBand",
    board: str = "MT_0000000838",
    source: ByteSource | None = SOURCE,
) -> Port:
    """A port of a ConnectX-7 board; no rate means that it is down."""
    identity = PortIdentity(link_layer=layer, board=board, hca_type="MT4129", driver="mlx5_core")
    rate = None if gigabits is None else gigabits * 1e9 / 8
    return Port(PortId(device, 1), identity, rate is not None, "ACTIVE" if rate else "DOWN", rate, source)


def assign(ports: Iterable[Port], patterns: Iterable[str] = ()) -> tuple[Port, ...]:
    return RoleRule({COMPUTE: tuple(patterns)}).assign(tuple(ports))[0]


def rails_of(ports: Iterable[Port], patterns: Iterable[str] = ()) -> list[str]:
    return [port.id.device for port in assign(ports, patterns) if port.rail]


@for_each(
    {
        "the highest rate": (["a", "b"], [make_port("a"), make_port("b"), make_port("c", 200)]),
        "InfiniBand before Ethernet": (
            ["ib"],
            [make_port("ib"), make_port("eth", 800, layer="Ethernet", board="other")],
        ),
        "Ethernet alone": (
            ["a", "b"],
            [make_port("a", layer="Ethernet"), make_port("b", layer="Ethernet"), make_port("m", 25, layer="Ethernet")],
        ),
        "one that is down": (["a", "b"], [make_port("a"), make_port("b", None)]),
        "a second port that no card uses": (
            ["a", "b"],
            [make_port("a"), replace(make_port("a", None), id=PortId("a", 2)), make_port("b", None)],
        ),
        "another board that is down": (["a"], [make_port("a"), make_port("b", None, board="MT_0000000001")]),
        "no byte source": (["a"], [make_port("a"), make_port("b", 800, source=None)]),
        "all down": (["a", "b"], [make_port("a", None), make_port("b", None), make_port("c", None, source=None)]),
        "sixty-four": ([f"mlx5_{n}" for n in range(64)], [make_port(f"mlx5_{n}") for n in range(64)]),
        "no ports": ([], []),
    }
)
def test_rails_are_chosen_by_rate(rails: list[str], ports: list[Port]) -> None:
    assert rails_of(ports) == rails


def test_patterns_replace_the_rule() -> None:
    assert rails_of([make_port("mlx5_0"), make_port("mlx5_1", 100, layer="Ethernet")], ["mlx5_1"]) == ["mlx5_1"]
    assert rails_of([make_port("mlx5_0"), make_port("mlx5_1")], ["*_0:1", "*_1:2"]) == ["mlx5_0"]


def test_the_order_of_the_ports_stays() -> None:
    ports = [make_port("b", 100), make_port("a")]
    assert [port.id.device for port in assign(ports)] == ["b", "a"]


def test_a_slow_port_of_the_rails_hardware_is_found() -> None:
    ports = assign([make_port("a"), make_port("b", 200), make_port("c", 200, board="other")])
    assert [port.id.device for port in find_slow_twins(ports)] == ["b"]


def test_a_port_that_is_down_is_no_slow_twin() -> None:
    ports = assign([make_port("a"), make_port("b", None)], ["a"])
    assert find_slow_twins(ports) == ()


@pytest.mark.parametrize(
    ("gigabits", "rail", "role"),
    [(10, 400, "management"), (25, 100, "management"), (25, 50, "unknown"), (40, 400, "unknown")],
)
def test_only_ethernet_far_slower_than_the_rails_is_for_management(gigabits: float, rail: float, role: str) -> None:
    slow = make_port("eth", gigabits, layer="Ethernet", board="other")
    slow = replace(slow, identity=replace(slow.identity, kind="pf"))
    assert assign([make_port("ib", rail), slow])[1].role == role
    virtual = replace(slow, identity=replace(slow.identity, kind="vf"))
    assert assign([make_port("ib", rail), virtual])[1].role == "unknown"


def test_ports_that_a_pattern_names_do_not_compete_for_the_rails() -> None:
    ports = [make_port("ib", 200, board="other"), make_port("eth", layer="Ethernet")]
    found = RoleRule({"storage": ["ib"]}).assign(ports)[0]
    assert [port.role for port in found] == ["storage", "compute"]


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


def test_the_page_lists_some_of_the_nodes() -> None:
    table = PAGE.read_text().partition("| node | roles | notices begin with |\n|---|---|---|\n")[2].partition("\n\n")[0]
    assert set(table.splitlines()) <= {table_row(node) for node in NODES}
    assert len(table.splitlines()) > 4


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
