"""Places, GPUs, kinds and notices of one node; the matrices of published machines; the page about both."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ibpulse.agent.metrics.page import TABLE
from ibpulse.agent.sysfs import gpus
from ibpulse.agent.sysfs.inventory import Inventory
from ibpulse.agent.sysfs.overrides import KINDS as KEYS
from ibpulse.agent.sysfs.overrides import Override, read_overrides
from ibpulse.agent.sysfs.pcie import count_bytes
from ibpulse.agent.sysfs.roles import FAR
from ibpulse.core.model import DevicePlace, Fabric, Topology
from tests.sysfs import machines
from tests.sysfs.machines import GEN4, GEN5, NO_LINK, VF, Machine, address, expand
from tests.sysfs.opened import Opened
from tests.sysfs.published import AZURE_ND_H100_V5, MACHINES, Published
from tests.sysfs.trees import PortFiles
from tests.virtual.world import World

CARDS = ("15/15:01.0/16:00.0", "25/25:01.0/26:00.0", "35/35:01.0/36:00.0")
SWITCHED = "15/15:01.0/16:00.0/17:00.0/18:00.0"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "sys")


def scan(
    machine: Machine,
    *,
    exclude: Sequence[str] = (),
    rails: Sequence[str] = (),
    overrides: Mapping[str, Override] | None = None,
) -> Fabric:
    return Inventory(machine.root, exclude=exclude, roles={"compute": rails}, overrides=overrides).scan()


def places(fabric: Fabric) -> dict[str, DevicePlace]:
    return {place.device: place for place in fabric.topology.devices}


def kinds(fabric: Fabric) -> dict[str, str]:
    return {str(port.id): port.identity.kind for port in fabric.ports}


def rails(fabric: Fabric) -> list[str]:
    return [str(port.id) for port in fabric.ports if port.rail]


CHAIN = ("pci0000:15", "0000:15:01.0", "0000:16:00.0", "0000:17:00.0", "0000:18:00.0")


@pytest.mark.parametrize(
    ("other", "node", "word"),
    [
        (("pci0000:15", "0000:15:01.0", "0000:16:00.0", "0000:17:01.0", "0000:19:00.0"), 0, gpus.PIX),
        (("pci0000:15", "0000:15:01.0", "0000:16:00.0", "0000:17:00.0", "0000:18:00.1"), 0, gpus.PIX),
        (("pci0000:15", "0000:15:01.0", "0000:16:00.0", "0000:17:02.0", "0000:19:00.0", "0000:1a:00.0"), 0, gpus.PXB),
        (("pci0000:15", "0000:15:02.0", "0000:1b:00.0"), 0, gpus.PHB),
        (("pci0000:25", "0000:25:01.0", "0000:26:00.0"), 0, gpus.NODE),
        (("pci0000:25", "0000:25:01.0", "0000:26:00.0"), 1, gpus.SYS),
        (("pci0000:25", "0000:25:01.0", "0000:26:00.0"), None, gpus.UNKNOWN),
        ((), 0, gpus.UNKNOWN),
    ],
)
def test_a_distance_follows_the_first_place_where_two_ways_part(
    other: tuple[str, ...], node: int | None, word: str
) -> None:
    assert gpus.measure(CHAIN, 0, other, node) == word
    assert gpus.measure(other, node, CHAIN, 0) == word


def test_the_nearest_are_all_that_are_equally_near_in_the_order_of_their_addresses() -> None:
    distances = {
        "10000:01:00.0": gpus.PXB,
        "0000:9d:00.0": gpus.PXB,
        "0000:1b:00.0": gpus.PXB,
        "0000:43:00.0": gpus.SYS,
        "0000:00:00.0": "",
    }
    assert gpus.find_nearest(distances) == (("0000:1b:00.0", "0000:9d:00.0", "10000:01:00.0"), gpus.PXB)
    assert gpus.find_nearest({"0000:1b:00.0": gpus.UNKNOWN}) == ((), gpus.UNKNOWN)


def test_a_place_is_told_in_full(machine: Machine) -> None:
    machine.add_nic("mlx5_0", SWITCHED, 1)
    (place,) = scan(machine).topology.devices
    assert (place.pci_address, place.numa_node, place.local_cpus) == ("0000:18:00.0", 1, "48-95")
    assert place.chain == CHAIN
    assert place.pcie_bytes_per_second == place.pcie_max_bytes_per_second == pytest.approx(63.015e9, rel=1e-4)
    assert (place.verdicts, place.source) == ((), "sysfs")


def test_gpus_are_named_with_their_form(machine: Machine) -> None:
    machine.add_nic("mlx5_0", CARDS[0])
    for place, device in (("40/40:01.0/41:00.0", "0x2330"), ("50/50:01.0/51:00.0", "0x2331")):
        machine.add_gpu(place, ids=("0x10de", device, "0x030200"))
    machine.add_gpu("60/60:01.0/61:00.0", ids=("0x10de", "0xffff", "0x030200"))
    machine.add_gpu("70/70:01.0/71:00.0", ids=("0x1002", "0x74a1", "0x120000"))
    found = [(gpu.name, gpu.form_factor) for gpu in scan(machine).topology.gpus]
    assert found == [("H100 80GB", "SXM"), ("H100 80GB", "PCIe"), ("", ""), ("MI300X", "OAM")]


def test_gpus_of_several_forms_are_told(machine: Machine) -> None:
    machine.add_nic("mlx5_0", CARDS[0])
    for bus, device in (("40", "0x2330"), ("50", "0x2331"), ("60", "0x2331")):
        machine.add_gpu(f"{bus}/{bus}:01.0/{bus[0]}1:00.0", ids=("0x10de", device, "0x030200"))
    told = "GPUs: the GPUs of this node have different form factors (2 PCIe, 1 SXM): check whether this is intended."
    assert scan(machine).notices == (told,)


@pytest.mark.parametrize("ids", [("0x1a03", "0x2000", "0x030000"), ("0x10de", "0x22a3", "0x068000")])
def test_what_is_no_gpu_is_none(machine: Machine, ids: tuple[str, str, str]) -> None:
    machine.add_nic("mlx5_0", CARDS[0])
    machine.add_gpu("40/40:01.0/41:00.0", ids=ids)
    assert scan(machine).topology.gpus == ()


def test_the_virtual_function_of_a_gpu_is_no_gpu(machine: Machine) -> None:
    folder = machine.add_gpu("40/40:01.0/41:00.4")
    machine.add_gpu("40/40:01.0/41:00.0")
    (folder / "physfn").symlink_to("../0000:41:00.0")
    assert [gpu.address for gpu in gpus.GpuReader(str(machine.root)).read()] == ["0000:41:00.0"]


def test_a_gpu_that_comes_is_found_and_one_that_falls_off_the_bus_goes(machine: Machine) -> None:
    machine.add_nic("mlx5_0", CARDS[0])
    inventory = Inventory(machine.root)
    assert inventory.scan().topology.gpus == ()
    machine.add_gpu("40/40:01.0/41:00.0")
    assert len(inventory.scan().topology.gpus) == 1
    (machine.root / "bus/pci/devices/0000:41:00.0").unlink()
    assert inventory.scan().topology.gpus == ()


def test_a_known_function_is_not_read_again(machine: Machine, opened: Opened) -> None:
    machine.add_gpu("40/40:01.0/41:00.0")
    reader = gpus.GpuReader(str(machine.root))
    reader.read()
    opened.clear()
    reader.read()
    assert opened.paths() == [str(machine.root / "bus/pci/devices")]


def test_equal_faults_stand_in_one_notice(machine: Machine) -> None:
    for number, place in enumerate(CARDS):
        machine.add_nic(f"mlx5_{number}", place, link=machines.write_link(GEN4, 16, GEN5, 16))
    (notice,) = scan(machine).notices
    assert notice.startswith("mlx5_0, mlx5_1, mlx5_2: its PCIe link runs at 16 GT/s x16, but both ends support 32 GT/s")


def test_an_unknown_link_is_a_verdict_but_no_notice(machine: Machine) -> None:
    machine.add_nic("mlx5_0", CARDS[0], ids=machines.VF, link=NO_LINK)
    machine.rewrite("15/15:01.0", NO_LINK)
    fabric = scan(machine)
    assert ([verdict.word for verdict in places(fabric)["mlx5_0"].verdicts], fabric.notices) == (["unknown"], ())


def test_links_are_read_again_every_twelfth_scan(machine: Machine) -> None:
    machine.add_nic("mlx5_0", CARDS[0])
    inventory = Inventory(machine.root)
    inventory.scan()
    machine.rewrite(CARDS[0], {"current_link_width": "8\n"})
    widths = [inventory.scan().topology.devices[0].links[-1].width for _ in range(12)]
    assert widths == [16] * 11 + [8]


def test_another_card_under_an_old_name_is_not_taken_for_the_first(machine: Machine) -> None:
    machine.add_nic("mlx5_0", CARDS[0])
    inventory = Inventory(machine.root)
    inventory.scan()
    machine.remove("mlx5_0")
    machine.add_nic("mlx5_0", CARDS[1])
    assert inventory.scan().topology.devices[0].chain == ()
    assert inventory.scan().topology.devices[0].pci_address == "0000:26:00.0"


def test_a_link_that_hangs_holds_up_neither_others_nor_the_status_of_its_own(machine: Machine, world: World) -> None:
    for number, place in enumerate(CARDS):
        machine.add_nic(f"mlx5_{number}", place)
    world.hang("", machine.root / expand(CARDS[1]), "current_link_speed")
    inventory = Inventory(machine.root)
    fabric = inventory.scan()
    assert [str(port.id) for port in fabric.ports if port.active] == ["mlx5_0:1", "mlx5_1:1", "mlx5_2:1"]
    assert [bool(place.links) for place in fabric.topology.devices] == [True, False, True]
    assert {port.identity.numa_node for port in fabric.ports} == {"0"}
    assert fabric.notices == ("mlx5_1: its PCIe files did not answer in time; showing its last known location.",)
    (machine.port("mlx5_1") / "state").write_text("1: DOWN\n")
    assert [port.active for port in inventory.scan().ports] == [True, False, True]


def test_a_virtual_function_is_known_by_its_link_or_its_id(machine: Machine) -> None:
    machine.add_nic("mlx5_0", CARDS[0])
    machine.add_nic("mlx5_1", CARDS[1], ids=machines.VF)
    folder = machine.add_nic("mlx5_2", CARDS[2])
    (folder / "physfn").symlink_to("../0000:36:00.1")
    assert kinds(scan(machine)) == {"mlx5_0:1": "pf", "mlx5_1:1": "vf", "mlx5_2:1": "vf"}


def test_a_sub_function_is_known_by_where_it_hangs(machine: Machine) -> None:
    machine.add_nic("mlx5_0", CARDS[0])
    machine.add_nic("mlx5_1", CARDS[0], below="mlx5_core.sf.4")
    fabric = scan(machine)
    assert kinds(fabric) == {"mlx5_0:1": "pf", "mlx5_1:1": "sf"}
    assert places(fabric)["mlx5_1"].pci_address == "0000:16:00.0"
    assert rails(fabric) == ["mlx5_0:1", "mlx5_1:1"]


def test_a_second_device_on_a_function_is_no_rail(machine: Machine) -> None:
    machine.add_nic("mlx5_0", CARDS[0])
    machine.add_nic("mlx5_1", CARDS[0])
    fabric = scan(machine)
    assert (kinds(fabric), rails(fabric)) == ({"mlx5_0:1": "pf", "mlx5_1:1": "twin"}, ["mlx5_0:1"])
    assert fabric.notices == ("mlx5_1: not a rail, because it shares the PCI function of mlx5_0.",)


def test_patterns_make_even_a_twin_a_rail(machine: Machine) -> None:
    machine.add_nic("mlx5_0", CARDS[0])
    machine.add_nic("mlx5_1", CARDS[0])
    assert rails(scan(machine, rails=["mlx5_*"])) == ["mlx5_0:1", "mlx5_1:1"]


def test_a_device_that_shows_planes_stands_in_the_topology_alone(machine: Machine) -> None:
    machine.add_nic("mlx5_0", CARDS[0])
    machine.add_nic("smi1", CARDS[0], ports={number: PortFiles(hw_counters=None) for number in (1, 2, 3, 4)})
    fabric = scan(machine)
    assert kinds(fabric) == {"mlx5_0:1": "pf"}
    assert places(fabric)["smi1"].kind == "plane"


def test_an_override_of_the_numa_node_decides_the_distance(machine: Machine) -> None:
    machine.add_nic("mlx5_0", CARDS[0], 0)
    machine.add_gpu("40/40:01.0/41:00.0", 1)
    fabric = scan(machine, overrides={"mlx5_0": Override(numa_node=1)})
    assert fabric.topology.distances == (("NODE",),)
    assert (fabric.ports[0].identity.numa_node, places(fabric)["mlx5_0"].source) == ("1", "topology.file")


def test_an_override_that_names_what_is_not_there_is_told(machine: Machine) -> None:
    machine.add_nic("mlx5_0", CARDS[0])
    gone = Override(gpus=("0000:99:00.0",), distance="PIX")
    assert scan(machine, overrides={"mlx5_0": gone, "mlx5_7": Override(numa_node=1)}).notices == (
        "topology.file: it lists GPU 0000:99:00.0 for mlx5_0, but this node does not have it.",
        "topology.file: it describes mlx5_7, but there is no such device: correct the name.",
    )


def test_an_override_of_the_link_is_judged_by_the_rate_of_the_port(machine: Machine) -> None:
    machine.add_nic("mlx5_0", CARDS[0], link=NO_LINK)
    machine.rewrite("15/15:01.0", NO_LINK)
    fabric = scan(machine, overrides={"mlx5_0": Override(pcie_bytes_per_second=31.5e9)})
    assert [verdict.word for verdict in places(fabric)["mlx5_0"].verdicts] == ["slow_slot"]


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


def test_with_azures_topology_as_override_every_rail_has_its_gpu(tmp_path: Path) -> None:
    """Every device is on a host bridge of its own, as Azure's virtual machines show them."""
    machine = Machine(tmp_path / "sys")
    for number, (gpu, nic, node) in enumerate(AZURE_ND_H100_V5):
        machine.add_gpu(f"{gpu}:00/{gpu}:00:00.0", node)
        machine.add_nic(f"mlx5_ib{number}", f"{nic}:00/{nic}:00:00.0", node, ids=VF, link=NO_LINK)
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


PAGE = (Path(__file__).parents[2] / "docs" / "topology.md").read_text()


@pytest.mark.parametrize(
    ("speed", "sixteen", "eight"), re.findall(r"^\| (\d+) \(Gen\d\) \| ([\d.]+) \| ([\d.]+) \|", PAGE, re.MULTILINE)
)
def test_the_bytes_of_a_generation_are_those_of_the_code(speed: str, sixteen: str, eight: str) -> None:
    for lanes, written in ((16, sixteen), (8, eight)):
        carried = count_bytes(float(speed), lanes)
        assert carried is not None
        assert f"{carried / 1e9:.1f}" == written


def test_the_example_of_the_file_can_be_used(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "topology.yaml").write_text(example)
    overrides = read_overrides(tmp_path / "topology.yaml")
    assert overrides["mlx5_ib1"] == Override(gpus=("0002:00:00.0",), distance="PIX")
    assert all(f"  {key}:" in example for key in KEYS)


def test_the_recipes_name_metrics_of_the_table() -> None:
    (recipes,) = re.findall(r"```promql\n(.*?)```", PAGE, re.DOTALL)
    assert set(re.findall(r"ibpulse_\w+", recipes)) <= {metric.name for metric in TABLE}
