"""What doctor says of cards and GPUs where the PCI tree shows their positions."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ibpulse.agent.doctor import DoctorOptions, Finding, Level, examine
from ibpulse.agent.doctor.facts import Facts
from ibpulse.agent.doctor.tree import read_tree
from ibpulse.agent.sysfs.inventory import Inventory
from tests.sysfs.machines import Machine, address, expand
from tests.sysfs.published import DGX_H100
from tests.sysfs.role_nodes import NODES, RoleNode, add_rails, below_switch, far


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


def test_a_card_that_lost_its_device_is_named_with_its_gpu(node: Machine) -> None:
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


def test_the_gpu_of_a_card_that_left_the_bus_is_named(node: Machine) -> None:
    lose_card(node, "mlx5_3", below_switch(3, 0))
    (finding,) = judge(node)
    assert (finding.level, finding.subject) == (Level.WARN, address(below_switch(3, 1)))
    assert finding.sentence == "is a GPU near no rail, but 7 GPUs of its model are near one."


def test_rails_that_were_named_and_devices_that_were_excluded_are_a_decision(node: Machine) -> None:
    assert judge(node, exclude=("mlx5_3",)) == []
    lose_card(node, "mlx5_3", below_switch(3, 0))
    assert judge(node, roles={"compute": ("mlx5_[0-7]",)}) == []


def test_where_half_of_the_gpus_have_a_rail_the_others_were_built_without(tmp_path: Path) -> None:
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
