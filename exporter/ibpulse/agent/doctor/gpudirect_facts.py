"""Facts about GPUDirect RDMA: the GPU driver's modules, and the IOMMU group and PCI settings along each rail's path."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from ibpulse.agent.doctor.facts import DoctorOptions, GpuDirectFacts, PciFacts
from ibpulse.agent.sysfs.files import list_names, read_text, read_value
from ibpulse.base.deadline import call_all
from ibpulse.core.model import DevicePlace, Fabric, Gpu

ANSWER_SECONDS = 1.0
# names and offsets of include/uapi/linux/pci_regs.h
STATUS, CAPABILITY_LIST, FIRST_POINTER, HEADER_BYTES = 0x06, 0x10, 0x34, 0x40
EXPRESS, DEVICE_CONTROL, RELAXED_ORDERING = 0x10, 8, 0x0010
EXTENDED_START, ACS, ACS_CONTROL, ACS_REDIRECTS = 0x100, 0x0D, 6, 0x04 | 0x08
CONFIG_BYTES = 4096
# as many steps as the kernel takes through lists that may be loops
MAX_CAPABILITIES, MAX_EXTENDED = 48, (CONFIG_BYTES - EXTENDED_START) // 8
IOMMU_TYPES = frozenset({"identity", "DMA", "DMA-FQ"})
DRIVER_VERSION = "proc/driver/nvidia/version"


def read_gpudirect(options: DoctorOptions, fabric: Fabric) -> GpuDirectFacts:
    """Facts about GPUDirect; empty without GPUs or rails. Waits at most a second."""
    sysfs = os.path.abspath(options.sysfs)
    pairs = list(pair_rails(fabric))
    if not pairs:
        return GpuDirectFacts()
    module_folder = os.path.join(sysfs, "module")
    calls: dict[str, Callable[[], object]] = {
        "modules": lambda: frozenset(list_names(module_folder)),
        "version": partial(read_value, os.path.join(module_folder, "nvidia"), "version"),
        "proc": lambda: read_text(str(options.root / DRIVER_VERSION)).text,
    }
    calls |= {name: partial(read_function, sysfs, name) for name in _name_functions(pairs)}
    found = call_all(calls, ANSWER_SECONDS).values
    modules = found.get("modules")
    return GpuDirectFacts(
        modules=modules if isinstance(modules, frozenset) else frozenset(),
        driver_version=str(found.get("version", "")),
        driver_text=str(found.get("proc", "")),
        functions={name: facts for name, facts in found.items() if isinstance(facts, PciFacts)},
    )


def pair_rails(fabric: Fabric) -> Iterator[tuple[DevicePlace, tuple[Gpu, ...]]]:
    """The location of every device that has a rail, with its nearest GPUs; nothing on a node without GPUs."""
    rails = {port.id.device for port in fabric.ports if port.rail}
    gpus = {gpu.address: gpu for gpu in fabric.topology.gpus}
    for place in fabric.topology.devices if gpus else ():
        if place.device in rails:
            yield place, tuple(gpus[address] for address in place.gpus if address in gpus)


def find_ports_between(chain: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    """The bridges on the way between two functions that are below the one they share; empty if they share none.

    These are the ports of the switch through which the traffic of one to the other passes. If the only thing they
    share is the host bridge, the traffic passes the root complex anyway.
    """
    common = 0
    while common < min(len(chain), len(other)) and chain[common] == other[common]:
        common += 1
    return (*chain[common:-1], *other[common:-1]) if common > 1 else ()


def _name_functions(pairs: Iterable[tuple[DevicePlace, tuple[Gpu, ...]]]) -> list[str]:
    names: dict[str, None] = {}
    for place, gpus in pairs:
        between = [port for gpu in gpus for port in find_ports_between(place.chain, gpu.chain)]
        names |= dict.fromkeys((place.pci_address, *(gpu.address for gpu in gpus), *between))
    return [name for name in names if name]


def read_function(sysfs: str, address: str) -> PciFacts:
    """The IOMMU group and the settings of one PCI function."""
    folder = os.path.join(sysfs, "bus", "pci", "devices", address)
    config = read_config(os.path.join(folder, "config"))
    return PciFacts(read_iommu(folder), find_redirect(config), find_relaxed_ordering(config))


def read_iommu(folder: str) -> str | None:
    """Type of a function's IOMMU group (Documentation/ABI/testing/sysfs-kernel-iommu_groups).

    Empty without a group; None if unknown: kernels before 5.11 have no such file.
    """
    group = os.path.join(folder, "iommu_group")
    if os.path.isdir(folder) and not os.path.lexists(group):
        return ""
    kind = read_value(group, "type")
    return kind if kind in IOMMU_TYPES else None


def read_config(path: str) -> bytes:
    """The PCI configuration space; the kernel gives only 64 bytes to other users than root. Empty if unreadable."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, CONFIG_BYTES)
        finally:
            os.close(descriptor)
    except OSError:
        return b""


def find_relaxed_ordering(config: bytes) -> bool | None:
    """Whether the function may set the relaxed ordering attribute (Device Control, bit 4); None if it is not known."""
    if len(config) <= HEADER_BYTES or not config[STATUS] & CAPABILITY_LIST:
        return None
    offset = config[FIRST_POINTER] & 0xFC
    for _ in range(MAX_CAPABILITIES):
        if offset < HEADER_BYTES or offset + DEVICE_CONTROL + 2 > len(config):
            return None
        if config[offset] == EXPRESS:
            (control,) = struct.unpack_from("<H", config, offset + DEVICE_CONTROL)
            return None if control == 0xFFFF else bool(control & RELAXED_ORDERING)
        offset = config[offset + 1] & 0xFC
    return None


def find_redirect(config: bytes) -> bool | None:
    """Whether the function's ACS redirects peer requests or completions to the root complex; None if it is not known.

    A port without the capability does not redirect.
    """
    offset = EXTENDED_START
    for _ in range(MAX_EXTENDED):
        if offset + 8 > len(config):
            return None
        header, _, control = struct.unpack_from("<IHH", config, offset)
        if header == 0xFFFFFFFF:
            return None
        if header & 0xFFFF == ACS:
            return bool(control & ACS_REDIRECTS)
        offset = (header >> 20) & 0xFFC
        if offset < EXTENDED_START:
            return False
    return None
