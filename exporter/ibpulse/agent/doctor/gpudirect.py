"""GPUDirect RDMA: the facts, and the check of whether cards and GPUs exchange data directly, and on a short path."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from ibpulse.agent.doctor.facts import DoctorOptions, Facts, Finding, GpuDirectFacts, PciFacts, check, passed, warned
from ibpulse.agent.doctor.machine import parse_version
from ibpulse.agent.sysfs.files import list_names, read_text, read_value
from ibpulse.agent.sysfs.gpus import NEAR, NODE, NVIDIA, PHB, SUPERCHIP, SYS
from ibpulse.agent.sysfs.kinds import VF
from ibpulse.base.deadline import call_all
from ibpulse.base.text import names_text
from ibpulse.core.model import DevicePlace, Fabric, Gpu

ANSWER_SECONDS = 1.0
# names and offsets of include/uapi/linux/pci_regs.h
STATUS, CAPABILITY_LIST, FIRST_POINTER, HEADER_BYTES = 0x06, 0x10, 0x34, 0x40
EXPRESS, DEVICE_CONTROL, RELAXED_ORDERING = 0x10, 8, 0x0010
EXTENDED_START, ACS, ACS_REDIRECTS = 0x100, 0x0D, 0x04 | 0x08
CONFIG_BYTES = 4096
# as many steps as the kernel takes through lists that may be loops
MAX_CAPABILITIES, MAX_EXTENDED = 48, (CONFIG_BYTES - EXTENDED_START) // 8
IOMMU_TYPES = frozenset({"identity", "DMA", "DMA-FQ"})
DRIVER_VERSION = "proc/driver/nvidia/version"
PEER_MODULES = ("nvidia_peermem", "nv_peer_mem")
OPEN_DRIVER = "Open Kernel Module"
DMA_BUF_KERNEL, DMA_BUF_DRIVER = (5, 12), 515
UNSEEN = "cannot be seen"
STAGED = "Without it, data between GPUs and the network takes a copy through host memory."
COSTS = {
    PHB: "Data passes the CPU's PCIe root complex, which is often slower than a switch.",
    NODE: "Data passes between PCIe host bridges of the CPU, which limits bandwidth and adds latency.",
    SYS: "Data passes the link between CPU sockets, which is the slowest path and is shared with memory traffic.",
}
_MAJOR = re.compile(r"([0-9]{1,4})\.[0-9.]{1,16}")


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


@check(
    "gpudirect",
    detail="Looks for the module nvidia_peermem or a driver with dma-buf; for an IOMMU that translates; for PCIe "
    "switches that redirect peer traffic (ACS); for relaxed ordering; and for the path to the nearest GPU. The kernel "
    "shows ACS and relaxed ordering only to root. *Cannot be seen* is not a warning. Nodes without GPUs are not "
    "checked.",
)
def check_gpudirect(facts: Facts) -> Iterator[Finding]:
    """GPUDirect RDMA: peer memory, IOMMU, ACS, relaxed ordering, and the PCIe path from each rail to its GPU."""
    pairs = list(pair_rails(facts.fabric))
    if not pairs:
        what = "rail" if facts.fabric.topology.gpus else "GPU"
        yield passed("", f"Not checked, because no {what} is visible.")
        return
    yield _judge_memory(facts)
    addresses = dict.fromkeys(name for place, gpus in pairs for name in (place.pci_address, *_addresses(gpus)) if name)
    for address in addresses:
        yield _judge_iommu(address, facts)
    for place, gpus in pairs:
        yield _judge_path(place, gpus)
        yield from _judge_redirects(place, gpus, facts)
        yield _judge_ordering(place, facts)


def _addresses(gpus: Sequence[Gpu]) -> list[str]:
    return [gpu.address for gpu in gpus]


def _function(facts: Facts, address: str) -> PciFacts:
    return facts.gpudirect.functions.get(address, PciFacts())


def _judge_memory(facts: Facts) -> Finding:
    """Whether the driver offers GPU memory to network cards.

    NVIDIA's documentation of GPUDirect RDMA and of the GPU Operator names two ways: the module nvidia_peermem (once
    nv_peer_mem), or dma-buf with the open kernel modules, which exist from 515 on, and Linux 5.12 or newer.
    """
    direct = facts.gpudirect
    if not any(gpu.vendor == NVIDIA for gpu in facts.fabric.topology.gpus):
        return passed("", f"Peer memory of these GPUs {UNSEEN}: only NVIDIA's driver is known to this check.")
    loaded = [name for name in PEER_MODULES if name in direct.modules]
    if loaded:
        return passed("", f"GPU memory is open to network cards: {loaded[0]} is loaded.")
    if "nvidia" not in direct.modules:
        return passed("", f"Peer memory {UNSEEN}: the tree does not show a loaded NVIDIA driver.")
    kernel, driver = parse_version(facts.machine.kernel), _MAJOR.match(direct.driver_version)
    if not (facts.tree.is_kernel and direct.driver_text and kernel and driver):
        return passed("", f"dma-buf {UNSEEN}, and no module such as nvidia_peermem is loaded.")
    if OPEN_DRIVER not in direct.driver_text:
        reason = "the NVIDIA driver is not the open one, which dma-buf needs"
    elif int(driver[1]) < DMA_BUF_DRIVER:
        reason = f"the NVIDIA driver is older than {DMA_BUF_DRIVER}, the first with dma-buf"
    elif kernel < DMA_BUF_KERNEL:
        reason = "dma-buf came to RDMA with Linux 5.12, unless this distribution has backported it"
    else:
        return passed("", f"dma-buf is available (open driver {driver[1]}, Linux {kernel[0]}.{kernel[1]}).")
    return warned(
        "",
        f"No module such as nvidia_peermem is loaded, and {reason}.",
        STAGED,
        "Load it with modprobe nvidia-peermem, or use NVIDIA's open kernel modules on Linux 5.12 or newer.",
    )


def _judge_iommu(address: str, facts: Facts) -> Finding:
    """Whether the IOMMU translates the addresses of a function.

    Types are those of Documentation/ABI/testing/sysfs-kernel-iommu_groups. NVIDIA's documentation of GPUDirect RDMA,
    "Supported Systems", asks for an IOMMU that is off or in pass-through mode.
    """
    kind = _function(facts, address).iommu
    if kind is None or (kind == "" and not facts.tree.is_kernel):
        return passed(address, f"has an IOMMU mode that {UNSEEN}.")
    if kind in ("", "identity"):
        return passed(address, "is in IOMMU pass-through mode." if kind else "is not behind an IOMMU.")
    return warned(
        address,
        f"is behind an IOMMU that translates its addresses (type {kind}).",
        "NVIDIA supports GPUDirect RDMA only with an IOMMU that is off or in pass-through mode.",
        "Boot with iommu=pt (on Arm iommu.passthrough=1), unless this system's vendor says otherwise.",
    )


def _judge_path(place: DevicePlace, gpus: Sequence[Gpu]) -> Finding:
    word, names = place.gpu_distance, names_text(_addresses(gpus))
    if not gpus or not (word in NEAR or word in COSTS):
        return passed(place.device, f"has a path to the GPUs that {UNSEEN}.")
    if word in NEAR:
        return passed(place.device, f"reaches GPU {names} through PCIe switches ({word}).")
    if all(gpu.form_factor == SUPERCHIP for gpu in gpus):
        return passed(place.device, f"reaches GPU {names} through the CPU ({word}), as superchips do.")
    return warned(
        place.device,
        f"has no GPU under its PCIe switch; the nearest is {names} ({word}).",
        COSTS[word],
        "Move the card to a slot under a GPU's switch if there is one. In a virtual machine, describe the host's "
        "topology with topology.file.",
    )


def _judge_redirects(place: DevicePlace, gpus: Sequence[Gpu], facts: Facts) -> Iterator[Finding]:
    """Whether switch ports redirect peer traffic: ACS Control, bits 2 and 3 (include/uapi/linux/pci_regs.h)."""
    ports = dict.fromkeys(port for gpu in gpus for port in find_ports_between(place.chain, gpu.chain))
    if not ports:
        return
    redirecting = [port for port in ports if _function(facts, port).redirects]
    if redirecting:
        yield warned(
            place.device,
            f"has peer traffic redirected by ACS at {names_text(redirecting)}, between it and its GPU.",
            "The switch sends the data up to the CPU's root complex and back, which limits bandwidth.",
            "Turn ACS off on these ports (BIOS or setpci), unless virtual machines on this node need it.",
        )
    elif any(_function(facts, port).redirects is None for port in ports):
        yield passed(place.device, f"has ACS settings between it and its GPU that {UNSEEN}, at least not without root.")
    else:
        yield passed(place.device, "has no ACS redirection between it and its GPU.")


def _judge_ordering(place: DevicePlace, facts: Facts) -> Finding:
    """Whether the card may use relaxed ordering; the bit of a virtual function has no meaning (pci_regs.h, DEVCTL)."""
    enabled = None if place.kind == VF else _function(facts, place.pci_address).relaxed_ordering
    if enabled is None:
        return passed(place.device, f"has a setting of PCIe relaxed ordering that {UNSEEN}, at least not without root.")
    if enabled:
        return passed(place.device, "may use PCIe relaxed ordering.")
    return warned(
        place.device,
        "may not use PCIe relaxed ordering.",
        "On some platforms writes to GPU and host memory are then slower.",
        "Turn relaxed ordering on in the BIOS. Leave it off if the kernel log says the root port lacks it.",
    )
