"""What is read for GPUDirect, also from configuration spaces that are cut or damaged, and what doctor says of it."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ibpulse.agent.doctor import DoctorOptions, Finding, Level, examine, gpudirect
from ibpulse.agent.doctor.facts import Facts, GpuDirectFacts, Mount, PciFacts
from ibpulse.agent.sysfs.inventory import Inventory
from ibpulse.core.model import DevicePlace, Gpu, Topology
from tests.doctor.making import make_facts, make_port
from tests.sysfs.machines import Machine
from tests.tables import for_each
from tests.virtual.world import SECOND, World

SWITCH = "15/15:01.0/16:00.0"
NIC_PATH, GPU_PATH = f"{SWITCH}/17:00.0/18:00.0", f"{SWITCH}/17:01.0/19:00.0"
NIC, GPU, PORTS = "0000:18:00.0", "0000:19:00.0", ("0000:17:00.0", "0000:17:01.0")
ABOVE = ("pci0000:15", "0000:15:01.0", "0000:16:00.0")
CARD = Gpu(GPU, "0x10de", "0x2330", "H100 80GB", "SXM", 0, (*ABOVE, PORTS[1], GPU))
PLACE = DevicePlace("mlx5_0", "pf", NIC, 0, chain=(*ABOVE, PORTS[0], NIC), gpus=(GPU,), gpu_distance="PIX")
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.127.05  Tue Oct  8 16:30:26 UTC 2024"
READY = GpuDirectFacts(
    frozenset({"nvidia", "nvidia_peermem"}),
    "580.95.05",
    OPEN,
    {NIC: PciFacts("identity", False, True), GPU: PciFacts("identity")} | {port: PciFacts("", False) for port in PORTS},
)


def make_config(control: int = 0x2810, acs: int | None = 0x1D) -> bytes:
    """A configuration space with power management at 0x40, PCIe at 0x60, AER at 0x100 and, if any, ACS at 0x2a0."""
    config = bytearray(4096)
    struct.pack_into("<HHHH", config, 0, 0x15B3, 0x1021, 0x0406, 0x0010)
    config[0x34] = 0x40
    config[0x40:0x42] = bytes((0x01, 0x60))
    struct.pack_into("<BBHIH", config, 0x60, 0x10, 0x00, 0x0002, 0x10008FE2, control)
    # id, version and next offset of an extended capability share one word
    struct.pack_into("<I", config, 0x100, 0x0001 | 2 << 16 | (0 if acs is None else 0x2A0) << 20)
    if acs is not None:
        struct.pack_into("<IHH", config, 0x2A0, 0x000D | 1 << 16, 0x005F, acs)
    return bytes(config)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path / "sys")
    made.add_nic("mlx5_0", NIC_PATH)
    made.add_gpu(GPU_PATH)
    return made


def read(machine: Machine) -> GpuDirectFacts:
    options = DoctorOptions(sysfs=machine.root, root=machine.root.parent)
    return gpudirect.read_gpudirect(options, Inventory(machine.root).scan())


def write(machine: Machine, address: str, name: str, content: bytes) -> None:
    path = machine.root / "bus/pci/devices" / address / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)


def make_loops() -> bytes:
    """A configuration space whose lists of capabilities do not end."""
    config = bytearray(make_config(acs=None))
    config[0x41] = 0x40
    struct.pack_into("<I", config, 0x100, 0x0001 | 2 << 16 | 0x100 << 20)
    return bytes(config)


# relaxed ordering is bit 4 of device control; requests and completions are redirected by bits 2 and 3 of ACS
@for_each(
    {
        "both": (make_config(), True, True),
        "no relaxed ordering": (make_config(0x2800), False, True),
        "no answer": (make_config(0xFFFF), None, True),
        "requests": (make_config(acs=0x04), True, True),
        "completions": (make_config(acs=0x08), True, True),
        "all but these": (make_config(acs=0x73), True, False),
        "no ACS": (make_config(acs=None), True, False),
        **{f"cut at {size:#x}": (make_config()[:size], None, None) for size in (0, 1, 63, 64, 65, 0x60, 0x69)},
        **{f"cut at {size:#x}": (make_config()[:size], True, None) for size in (0x6A, 256, 0x104, 0x2A0, 0x2A7)},
        "loops": (make_loops(), None, None),
        "off the bus": (b"\xff" * 4096, None, None),
        "capabilities at 0x10": (b"\x10" * 4096, None, None),
    }
)
def test_a_configuration_space(config: bytes, relaxed: bool | None, redirect: bool | None) -> None:
    assert (gpudirect.find_relaxed_ordering(config), gpudirect.find_redirect(config)) == (relaxed, redirect)


@for_each(
    [
        ("identity\n", "identity"),
        ("DMA-FQ\n", "DMA-FQ"),
        ("unknown\n", None),
        ("x" * 9999, None),
        # a group without a type, and no group
        (None, None),
        ("", ""),
    ]
)
def test_only_known_iommu_types_are_accepted(text: str | None, kind: str | None, tmp_path: Path) -> None:
    function = tmp_path / (text or repr(text))[:9].strip()
    function.mkdir()
    if text != "":
        (function / "iommu_group").mkdir()
    if text:
        (function / "iommu_group/type").write_text(text)
    assert gpudirect.read_iommu(str(function)) == kind
    assert gpudirect.read_iommu(str(tmp_path / "none")) is None


def test_no_more_than_a_config_space_is_read(tmp_path: Path) -> None:
    (tmp_path / "config").write_bytes(make_config() + bytes(10**6))
    assert gpudirect.read_config(str(tmp_path / "config")) == make_config()
    assert gpudirect.read_config(str(tmp_path / "none")) == b""


def test_ports_between_are_those_below_the_shared_one() -> None:
    nic, gpu = ("pci0000:15", "a", "b", "c", "nic"), ("pci0000:15", "a", "b", "d", "gpu")
    assert gpudirect.find_ports_between(nic, gpu) == ("c", "d")
    assert gpudirect.find_ports_between(nic, ("pci0000:15", "e", "gpu")) == ()
    assert gpudirect.find_ports_between(nic, ("pci0000:20", "e", "gpu")) == ()
    assert gpudirect.find_ports_between((), gpu) == ()


def test_everything_on_the_path_of_a_rail_is_read(machine: Machine) -> None:
    write(machine, NIC, "config", make_config())
    write(machine, PORTS[0], "config", make_config(acs=0x1D))
    write(machine, PORTS[1], "config", make_config(acs=0)[:64])
    write(machine, GPU, "iommu_group/type", b"DMA\n")
    (machine.root / "module/nvidia").mkdir(parents=True)
    (machine.root / "module/nvidia/version").write_text("580.95.05\n")
    proc = machine.root.parent / "proc/driver/nvidia/version"
    proc.parent.mkdir(parents=True)
    proc.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n")
    found = read(machine)
    assert (found.modules, found.driver_version) == ({"nvidia"}, "580.95.05")
    assert "Open Kernel Module" in found.driver_text
    assert found.functions == {
        NIC: PciFacts("", True, True),
        GPU: PciFacts("DMA", None, None),
        PORTS[0]: PciFacts("", True, True),
        PORTS[1]: PciFacts("", None, None),
    }


def test_nothing_is_read_without_gpus(tmp_path: Path) -> None:
    made = Machine(tmp_path / "sys")
    made.add_nic("mlx5_0", NIC_PATH)
    (made.root / "module/nvidia").mkdir(parents=True)
    assert read(made) == GpuDirectFacts()


def test_files_that_hang_cost_only_their_own_answer(machine: Machine, world: World) -> None:
    write(machine, NIC, "iommu_group/type", b"DMA\n")
    world.hang("", machine.root / "bus/pci/devices" / NIC, "type")
    write(machine, PORTS[0], "config", make_config())
    began_ns = world.monotonic_ns
    found = read(machine)
    assert world.monotonic_ns - began_ns == SECOND
    assert NIC not in found.functions
    assert found.functions[PORTS[0]] == PciFacts("", True, True)


# what doctor says


def make_node(
    *,
    place: Mapping[str, Any] | None = None,
    card: Mapping[str, Any] | None = None,
    functions: Mapping[str, PciFacts] | None = None,
    direct: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Facts:
    """One rail under the same switch as its H100, ready for GPUDirect but for the changes."""
    gpu = replace(CARD, **(card or {}))
    here = replace(PLACE, **(place or {}))
    facts = make_facts(
        [make_port()], fabric={"topology": Topology((here,), (gpu,), ((here.gpu_distance,),))}, **changes
    )
    known = replace(READY, functions={**READY.functions, **(functions or {})})
    return replace(facts, gpudirect=replace(known, **(direct or {})))


def findings(facts: Facts, *, part: str = "") -> list[Finding]:
    return [one for one in examine(facts, ["gpudirect"]) if part in one.sentence]


def only(facts: Facts, part: str) -> Finding:
    found = findings(facts, part=part)
    assert len(found) == 1, findings(facts)
    return found[0]


def test_a_node_that_is_ready_has_no_warning() -> None:
    found = findings(make_node())
    assert [(one.level, one.subject, one.sentence) for one in found] == [
        (Level.OK, "", "GPU memory is open to network cards: nvidia_peermem is loaded."),
        (Level.OK, NIC, "is in IOMMU pass-through mode."),
        (Level.OK, GPU, "is in IOMMU pass-through mode."),
        (Level.OK, "mlx5_0", f"reaches GPU {GPU} through PCIe switches (PIX)."),
        (Level.OK, "mlx5_0", "has no ACS redirection between it and its GPU."),
        (Level.OK, "mlx5_0", "may use PCIe relaxed ordering."),
    ]


def test_a_node_without_gpus_or_rails_has_one_quiet_finding() -> None:
    assert findings(make_facts()) == [
        Finding(Level.OK, "", "Not checked, because no GPU is visible.", topic="gpudirect")
    ]
    no_rail = make_facts([make_port(rail=False)], fabric={"topology": Topology((PLACE,), (CARD,), (("PIX",),))})
    assert [one.sentence for one in findings(no_rail)] == ["Not checked, because no rail is visible."]


def test_a_node_that_shows_nothing_has_no_warning() -> None:
    found = findings(make_node(direct={"modules": frozenset(), "functions": {}}, place={"gpu_distance": ""}))
    assert {one.level for one in found} == {Level.OK}
    assert all("cannot be seen" in one.sentence for one in found)


@pytest.mark.parametrize(
    ("changes", "level", "part"),
    [
        ({"direct": {"modules": frozenset({"nvidia", "nv_peer_mem"})}}, Level.OK, "nv_peer_mem is loaded"),
        ({}, Level.OK, "dma-buf is available (open driver 580, Linux 6.8)"),
        ({"machine": {"kernel": "5.12.0"}}, Level.OK, "dma-buf is available"),
        ({"machine": {"kernel": "5.11.22"}}, Level.WARN, "dma-buf came to RDMA with Linux 5.12"),
        ({"machine": {"kernel": "unknown"}}, Level.OK, "dma-buf cannot be seen"),
        ({"direct": {"driver_text": CLOSED}}, Level.WARN, "is not the open one"),
        ({"direct": {"driver_text": ""}}, Level.OK, "dma-buf cannot be seen"),
        ({"direct": {"driver_version": "510.47.03"}}, Level.WARN, "is older than 515"),
        ({"direct": {"driver_version": "9" * 4000}}, Level.OK, "dma-buf cannot be seen"),
        # this machine's kernel and driver are not the node's
        ({"tree": {"mount": Mount("/", "ext4", False)}}, Level.OK, "dma-buf cannot be seen"),
        ({"direct": {"modules": frozenset({"mlx5_core"})}}, Level.OK, "does not show a loaded NVIDIA driver"),
        ({"card": {"vendor": "0x1002"}}, Level.OK, "Peer memory of these GPUs cannot be seen"),
    ],
)
def test_peer_memory(changes: Mapping[str, Any], level: Level, part: str) -> None:
    direct = {"modules": frozenset({"nvidia"})} | changes.get("direct", {})
    found = findings(make_node(**{**changes, "direct": direct}))[0]
    assert (found.level, part in found.sentence) == (level, True), found
    assert bool(found.advice) is (level is Level.WARN)


@pytest.mark.parametrize(
    ("kind", "is_kernel", "level", "sentence"),
    [
        ("identity", True, Level.OK, "is in IOMMU pass-through mode."),
        ("", True, Level.OK, "is not behind an IOMMU."),
        ("", False, Level.OK, "has an IOMMU mode that cannot be seen."),
        (None, True, Level.OK, "has an IOMMU mode that cannot be seen."),
        ("DMA", True, Level.WARN, "is behind an IOMMU that translates its addresses (type DMA)."),
        ("DMA-FQ", True, Level.WARN, "is behind an IOMMU that translates its addresses (type DMA-FQ)."),
    ],
)
@pytest.mark.parametrize("address", [NIC, GPU])
def test_iommu(address: str, kind: str | None, is_kernel: bool, level: Level, sentence: str) -> None:
    tree = {} if is_kernel else {"mount": Mount("/", "ext4", False)}
    facts = make_node(functions={address: PciFacts(kind, False, True)}, tree=tree)
    found = [one for one in findings(facts) if one.subject == address]
    assert [(one.level, one.sentence) for one in found] == [(level, sentence)]
    assert ("iommu=pt" in found[0].advice) is (level is Level.WARN)


@pytest.mark.parametrize("port", PORTS)
def test_acs_that_redirects_on_either_side_is_a_warning(port: str) -> None:
    # the other port cannot be seen, which does not hide this one
    functions = dict.fromkeys(PORTS, PciFacts()) | {port: PciFacts("", True)}
    found = only(make_node(functions=functions), "ACS")
    assert (found.level, found.subject) == (Level.WARN, "mlx5_0")
    assert found.sentence == f"has peer traffic redirected by ACS at {port}, between it and its GPU."
    assert "virtual machines" in found.advice
    found = only(make_node(functions={port: PciFacts("")}), "ACS")
    assert (found.level, "cannot be seen" in found.sentence) == (Level.OK, True)


def test_acs_above_the_shared_switch_does_not_matter() -> None:
    assert only(make_node(functions={ABOVE[1]: PciFacts("", True)}), "ACS").level is Level.OK


@pytest.mark.parametrize(
    ("enabled", "kind", "level", "part"),
    [
        (True, "pf", Level.OK, "may use"),
        (False, "pf", Level.WARN, "may not use"),
        (None, "pf", Level.OK, "cannot be seen"),
        (False, "vf", Level.OK, "cannot be seen"),
    ],
)
def test_relaxed_ordering(enabled: bool | None, kind: str, level: Level, part: str) -> None:
    facts = make_node(functions={NIC: PciFacts("identity", False, enabled)}, place={"kind": kind})
    found = only(facts, "relaxed ordering")
    assert (found.level, part in found.sentence) == (level, True), found


@pytest.mark.parametrize(
    ("word", "level", "cost"),
    [
        ("PIX", Level.OK, ""),
        ("PXB", Level.OK, ""),
        ("PHB", Level.WARN, "root complex"),
        ("NODE", Level.WARN, "host bridges"),
        ("SYS", Level.WARN, "between CPU sockets"),
    ],
)
def test_the_path_to_the_nearest_gpu(word: str, level: Level, cost: str) -> None:
    found = only(make_node(place={"gpu_distance": word}), f"({word})")
    assert (found.level, cost in found.meaning) == (level, True)


def test_a_superchip_reaches_its_gpu_through_the_cpu() -> None:
    facts = make_node(place={"gpu_distance": "NODE"}, card={"form_factor": "superchip"})
    assert only(facts, "(NODE)").level is Level.OK


def test_an_unknown_gpu_distance_is_no_warning() -> None:
    found = only(make_node(place={"gpus": (), "gpu_distance": ""}), "path to the GPUs")
    assert (found.level, "cannot be seen" in found.sentence) == (Level.OK, True)
