"""What is read for GPUDirect, on trees with GPUs, and on configuration spaces that are cut, looped or made of ones."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from ibpulse.agent.doctor import DoctorOptions
from ibpulse.agent.doctor.facts import GpuDirectFacts, PciFacts
from ibpulse.agent.doctor.gpudirect import (
    find_ports_between,
    find_redirect,
    find_relaxed_ordering,
    read_config,
    read_gpudirect,
    read_iommu,
)
from ibpulse.agent.sysfs.inventory import Inventory
from tests.sysfs.machines import Machine

SWITCH = "15/15:01.0/16:00.0"
NIC, GPU = f"{SWITCH}/17:00.0/18:00.0", f"{SWITCH}/17:01.0/19:00.0"
NIC_ADDRESS, GPU_ADDRESS, PORTS = "0000:18:00.0", "0000:19:00.0", ("0000:17:00.0", "0000:17:01.0")


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
    made.add_nic("mlx5_0", NIC)
    made.add_gpu(GPU)
    return made


def read(machine: Machine) -> GpuDirectFacts:
    options = DoctorOptions(sysfs=machine.root, root=machine.root.parent)
    return read_gpudirect(options, Inventory(machine.root).scan())


def write(machine: Machine, address: str, name: str, content: bytes) -> None:
    path = machine.root / "bus/pci/devices" / address / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)


@pytest.mark.parametrize(("control", "enabled"), [(0x2810, True), (0x2800, False), (0xFFFF, None), (0x0010, True)])
def test_relaxed_ordering_is_bit_4_of_device_control(control: int, enabled: bool | None) -> None:
    assert find_relaxed_ordering(make_config(control)) is enabled


@pytest.mark.parametrize(
    ("acs", "redirects"), [(0x1D, True), (0x04, True), (0x08, True), (0x00, False), (0x73, False), (None, False)]
)
def test_requests_or_completions_are_redirected_by_bits_2_and_3(acs: int | None, redirects: bool) -> None:
    assert find_redirect(make_config(acs=acs)) is redirects


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 0x60, 0x69])
def test_a_config_that_is_cut_before_device_control_says_nothing(size: int) -> None:
    assert find_relaxed_ordering(make_config()[:size]) is None
    assert find_redirect(make_config()[:size]) is None


@pytest.mark.parametrize("size", [0x6A, 256, 0x104, 0x2A0, 0x2A7])
def test_a_config_that_is_cut_before_acs_control_still_has_device_control(size: int) -> None:
    assert find_relaxed_ordering(make_config()[:size]) is True
    assert find_redirect(make_config()[:size]) is None


def test_lists_that_are_loops_end() -> None:
    config = bytearray(make_config(acs=None))
    config[0x41] = 0x40
    struct.pack_into("<I", config, 0x100, 0x0001 | 2 << 16 | 0x100 << 20)
    assert find_relaxed_ordering(bytes(config)) is None
    assert find_redirect(bytes(config)) is None


@pytest.mark.parametrize("byte", [b"\xff", b"\x00", b"\x10"])
def test_a_function_that_fell_off_the_bus_says_nothing(byte: bytes) -> None:
    assert find_relaxed_ordering(byte * 4096) is None
    assert find_redirect(b"\xff" * 4096) is None


def test_a_function_without_a_list_of_capabilities_says_nothing() -> None:
    config = bytearray(make_config())
    config[0x06] = 0
    assert find_relaxed_ordering(bytes(config)) is None


def test_no_more_than_a_config_space_is_read(tmp_path: Path) -> None:
    (tmp_path / "config").write_bytes(make_config() + bytes(10**6))
    assert read_config(str(tmp_path / "config")) == make_config()
    assert read_config(str(tmp_path / "none")) == b""


def test_ports_between_are_those_below_the_shared_one() -> None:
    nic, gpu = ("pci0000:15", "a", "b", "c", "nic"), ("pci0000:15", "a", "b", "d", "gpu")
    assert find_ports_between(nic, gpu) == ("c", "d")
    assert find_ports_between(nic, ("pci0000:15", "e", "gpu")) == ()
    assert find_ports_between(nic, ("pci0000:20", "e", "gpu")) == ()
    assert find_ports_between((), gpu) == ()


@pytest.mark.parametrize(
    ("text", "kind"),
    [("identity\n", "identity"), ("DMA\n", "DMA"), ("DMA-FQ\n", "DMA-FQ"), ("unknown\n", None), ("x" * 9999, None)],
)
def test_the_type_of_an_iommu_group_is_one_that_is_known(tmp_path: Path, text: str, kind: str | None) -> None:
    (tmp_path / "iommu_group").mkdir()
    (tmp_path / "iommu_group/type").write_text(text)
    assert read_iommu(str(tmp_path)) == kind


def test_a_function_without_a_group_is_not_behind_an_iommu_and_one_that_is_not_there_is_unknown(tmp_path: Path) -> None:
    assert read_iommu(str(tmp_path)) == ""
    assert read_iommu(str(tmp_path / "none")) is None
    (tmp_path / "iommu_group").mkdir()
    assert read_iommu(str(tmp_path)) is None


def test_everything_on_the_path_of_a_rail_is_read(machine: Machine) -> None:
    write(machine, NIC_ADDRESS, "config", make_config())
    write(machine, PORTS[0], "config", make_config(acs=0x1D))
    write(machine, PORTS[1], "config", make_config(acs=0)[:64])
    write(machine, GPU_ADDRESS, "iommu_group/type", b"DMA\n")
    (machine.root / "module/nvidia").mkdir(parents=True)
    (machine.root / "module/nvidia/version").write_text("580.95.05\n")
    proc = machine.root.parent / "proc/driver/nvidia/version"
    proc.parent.mkdir(parents=True)
    proc.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n")
    found = read(machine)
    assert (found.modules, found.driver_version) == ({"nvidia"}, "580.95.05")
    assert "Open Kernel Module" in found.driver_text
    assert found.functions == {
        NIC_ADDRESS: PciFacts("", True, True),
        GPU_ADDRESS: PciFacts("DMA", None, None),
        PORTS[0]: PciFacts("", True, True),
        PORTS[1]: PciFacts("", None, None),
    }


def test_nothing_is_read_without_gpus(tmp_path: Path) -> None:
    made = Machine(tmp_path / "sys")
    made.add_nic("mlx5_0", NIC)
    (made.root / "module/nvidia").mkdir(parents=True)
    assert read(made) == GpuDirectFacts()


def test_files_that_hang_cost_only_their_own_answer(machine: Machine) -> None:
    os.mkfifo(machine.root / "bus/pci/devices" / NIC_ADDRESS / "config")
    write(machine, PORTS[0], "config", make_config())
    found = read(machine)
    assert NIC_ADDRESS not in found.functions
    assert found.functions[PORTS[0]] == PciFacts("", True, True)
