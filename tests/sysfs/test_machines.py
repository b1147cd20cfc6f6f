"""The matrix of published machines, rebuilt as trees, is the published one."""

from __future__ import annotations

from pathlib import Path

import pytest

from ibpulse.agent.sysfs.inventory import Inventory
from ibpulse.agent.sysfs.overrides import read_overrides
from ibpulse.agent.sysfs.roles import FAR
from ibpulse.core.model import Topology
from tests.sysfs.machines import NO_LINK, VF, Machine, address
from tests.sysfs.published import AZURE_ND_H100_V5, DGX_A100, DGX_H100, FLAT_VM, HGX_H100, MACHINES, Published


def survey(machine: Machine) -> Topology:
    fabric = Inventory(machine.root).scan()
    # on these trees storage has the rate of the rails
    assert [notice for notice in fabric.notices if not notice.endswith(FAR)] == []
    return fabric.topology


def measured(published: Published, topology: Topology) -> list[list[str]]:
    """The words by GPU and NIC in the order of the publication."""
    rows = {place.device: row for place, row in zip(topology.devices, topology.distances, strict=True)}
    columns = {gpu.address: column for column, gpu in enumerate(topology.gpus)}
    return [[rows[nic][columns[address(place)]] for nic in published.nics] for place, _ in published.gpus]


@pytest.mark.parametrize("published", MACHINES, ids=lambda published: published.name)
def test_the_whole_matrix_is_the_published_one(tmp_path: Path, published: Published) -> None:
    machine = Machine(tmp_path / "sys")
    published.build(machine)
    topology = survey(machine)
    assert (len(topology.gpus), len(topology.devices)) == (len(published.gpus), len(published.nics))
    assert measured(published, topology) == published.rows(), published.source


def nearest(published: Published, tmp_path: Path) -> dict[str, tuple[tuple[int, ...], str]]:
    """By NIC: numbers of the nearest GPUs as published, and how near."""
    machine = Machine(tmp_path / "sys")
    published.build(machine)
    numbers = {address(place): number for number, (place, _) in enumerate(published.gpus)}
    places = survey(machine).devices
    return {place.device: (tuple(numbers[gpu] for gpu in place.gpus), place.gpu_distance) for place in places}


def test_each_rail_of_a_dgx_h100_has_the_gpu_that_nvidia_names(tmp_path: Path) -> None:
    found = nearest(DGX_H100, tmp_path)
    rails = {"mlx5_0": 0, "mlx5_3": 1, "mlx5_4": 2, "mlx5_5": 3, "mlx5_6": 4, "mlx5_9": 5, "mlx5_10": 6, "mlx5_11": 7}
    assert {name: found[name] for name in rails} == {name: ((gpu,), "PXB") for name, gpu in rails.items()}
    assert found["mlx5_1"] == ((0, 1, 2, 3), "NODE")


def test_equally_near_gpus_are_all_named(tmp_path: Path) -> None:
    found = nearest(DGX_A100, tmp_path)
    assert (found["mlx5_0"], found["mlx5_7"]) == (((0, 1), "PXB"), ((4, 5), "PXB"))
    assert found["mlx5_4"] == (tuple(range(8)), "SYS")


def test_a_gpu_under_the_same_switch_is_nearer_than_its_neighbour(tmp_path: Path) -> None:
    found = nearest(HGX_H100, tmp_path)
    assert [found[f"mlx5_ib{number}"] for number in range(8)] == [((number,), "PIX") for number in range(8)]


def azure(root: Path) -> Machine:
    """Every device on a host bridge of its own, as Azure's virtual machines show them."""
    machine = Machine(root)
    for number, (gpu, nic, node) in enumerate(AZURE_ND_H100_V5):
        machine.add_gpu(f"{gpu}:00/{gpu}:00:00.0", node)
        machine.add_nic(f"mlx5_ib{number}", f"{nic}:00/{nic}:00:00.0", node, ids=VF, link=NO_LINK)
    return machine


def test_an_azure_vm_hides_all_but_the_numa_nodes(tmp_path: Path) -> None:
    topology = survey(azure(tmp_path / "sys"))
    here, there = ["NODE"] * 4 + ["SYS"] * 4, ["SYS"] * 4 + ["NODE"] * 4
    assert [list(row) for row in topology.distances] == [here] * 4 + [there] * 4
    assert [place.kind for place in topology.devices] == ["vf"] * 8


def test_with_azures_topology_as_override_every_rail_has_its_gpu(tmp_path: Path) -> None:
    machine = azure(tmp_path / "sys")
    file = tmp_path / "topology.yaml"
    lines = [
        f"mlx5_ib{number}: {{gpus: [{gpu}:00:00.0], distance: PIX, pcie: 32 GT/s x16}}"
        for number, (gpu, _, _) in enumerate(AZURE_ND_H100_V5)
    ]
    file.write_text("\n".join(lines))
    fabric = Inventory(machine.root, overrides=read_overrides(file)).scan()
    assert fabric.notices == ()
    assert [port.identity.gpu for port in fabric.ports] == [f"{gpu}:00:00.0" for gpu, _, _ in AZURE_ND_H100_V5]
    assert {port.identity.gpu_distance for port in fabric.ports} == {"PIX"}
    assert fabric.topology.distances[0] == ("PIX", "NODE", "NODE", "NODE", "SYS", "SYS", "SYS", "SYS")
    place = fabric.topology.devices[0]
    assert (place.source, place.verdicts) == ("topology.file", ())
    assert place.pcie_bytes_per_second == pytest.approx(32e9 * 16 * 128 / 130 / 8)


def test_the_ports_of_a_virtual_machine_say_nothing_of_the_link(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "sys")
    FLAT_VM.build(machine)
    place = survey(machine).devices[0]
    assert [(link.upper, link.max_speed_gts) for link in place.links] == [("0000:00:03.0", 32.0)]
