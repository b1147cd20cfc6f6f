"""Finds the GPUs of a node by PCI id, and the distance between PCI functions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from ibpulse.agent.sysfs.files import list_names, read_value
from ibpulse.agent.sysfs.pcie import find_chain
from ibpulse.core.model import Gpu

PIX, PXB, PHB, NODE, SYS = WORDS = ("PIX", "PXB", "PHB", "NODE", "SYS")
NEAR = (PIX, PXB)
UNKNOWN = ""

# the port that a card is plugged into, and the card
ONE_BRIDGE = 2
NVIDIA = "0x10de"
AMD = "0x1002"
# display controllers; AMD's accelerators call themselves processing accelerators
CLASSES = {NVIDIA: ("0x0300", "0x0302"), AMD: ("0x0300", "0x0302", "0x0380", "0x1200")}
SXM = "SXM"
PCIE = "PCIe"
OAM = "OAM"
SUPERCHIP = "superchip"


def measure(chain: tuple[str, ...], numa_node: int | None, other: tuple[str, ...], other_node: int | None) -> str:
    """The distance between two functions, given the chain (`pcie.find_chain`) and the NUMA node of each."""
    if not chain or not other:
        return UNKNOWN
    if chain[0] != other[0]:
        if numa_node is None or other_node is None:
            return UNKNOWN
        return NODE if numa_node == other_node else SYS
    common = 1
    while common < min(len(chain), len(other)) and chain[common] == other[common]:
        common += 1
    if common == 1:
        return PHB
    return PIX if max(len(chain), len(other)) - common <= ONE_BRIDGE else PXB


def find_nearest(distances: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    """The nearest addresses in order, and their distance; empty if no distance is known."""
    known = {address: word for address, word in distances.items() if word in WORDS}
    if not known:
        return (), UNKNOWN
    nearest = min(known.values(), key=WORDS.index)
    return tuple(sort_addresses(address for address, word in known.items() if word == nearest)), nearest


def sort_addresses(addresses: Iterable[str]) -> list[str]:
    """PCI addresses in numerical order; domains with more than four digits come last."""
    return sorted(addresses, key=lambda address: (len(address), address))


PRODUCTS: dict[tuple[str, str], tuple[str, str]] = {
    (NVIDIA, "0x1db1"): ("V100 16GB", SXM),
    (NVIDIA, "0x1db4"): ("V100 16GB", PCIE),
    (NVIDIA, "0x1db5"): ("V100 32GB", SXM),
    (NVIDIA, "0x1db6"): ("V100 32GB", PCIE),
    (NVIDIA, "0x1db8"): ("V100 32GB", SXM),
    (NVIDIA, "0x20b0"): ("A100 40GB", SXM),
    (NVIDIA, "0x20b1"): ("A100 40GB", PCIE),
    (NVIDIA, "0x20b2"): ("A100 80GB", SXM),
    (NVIDIA, "0x20b3"): ("A100 64GB", SXM),
    (NVIDIA, "0x20b5"): ("A100 80GB", PCIE),
    (NVIDIA, "0x20b7"): ("A30", PCIE),
    (NVIDIA, "0x20bd"): ("A800 40GB", SXM),
    (NVIDIA, "0x20f1"): ("A100 40GB", PCIE),
    (NVIDIA, "0x20f3"): ("A800 80GB", SXM),
    (NVIDIA, "0x20f5"): ("A800 80GB", PCIE),
    (NVIDIA, "0x20f6"): ("A800 40GB", PCIE),
    (NVIDIA, "0x2235"): ("A40", PCIE),
    (NVIDIA, "0x2236"): ("A10", PCIE),
    (NVIDIA, "0x2321"): ("H100 NVL 94GB", PCIE),
    (NVIDIA, "0x2322"): ("H800", PCIE),
    (NVIDIA, "0x2324"): ("H800 80GB", SXM),
    (NVIDIA, "0x2329"): ("H20", SXM),
    (NVIDIA, "0x232c"): ("H20 HBM3e", SXM),
    (NVIDIA, "0x2330"): ("H100 80GB", SXM),
    (NVIDIA, "0x2331"): ("H100 80GB", PCIE),
    (NVIDIA, "0x2335"): ("H200 141GB", SXM),
    (NVIDIA, "0x2337"): ("H100 64GB", SXM),
    (NVIDIA, "0x2338"): ("H100 96GB", SXM),
    (NVIDIA, "0x2339"): ("H100 94GB", SXM),
    (NVIDIA, "0x233b"): ("H200 NVL", PCIE),
    (NVIDIA, "0x2342"): ("GH200", SUPERCHIP),
    (NVIDIA, "0x2348"): ("GH200 144GB", SUPERCHIP),
    (NVIDIA, "0x26b5"): ("L40", PCIE),
    (NVIDIA, "0x26b9"): ("L40S", PCIE),
    (NVIDIA, "0x27b8"): ("L4", PCIE),
    (NVIDIA, "0x2901"): ("B200", SXM),
    (NVIDIA, "0x2909"): ("B200 168GB", SXM),
    (NVIDIA, "0x2941"): ("GB200", SUPERCHIP),
    (NVIDIA, "0x29bc"): ("B100", SXM),
    (NVIDIA, "0x2bb5"): ("RTX PRO 6000 Blackwell Server", PCIE),
    (NVIDIA, "0x3182"): ("B300", SXM),
    (NVIDIA, "0x31c2"): ("GB300", SUPERCHIP),
    (NVIDIA, "0x31c3"): ("GB300", SUPERCHIP),
    (AMD, "0x740f"): ("MI210", PCIE),
    (AMD, "0x74a0"): ("MI300A", ""),
    (AMD, "0x74a1"): ("MI300X", OAM),
    (AMD, "0x74a2"): ("MI308X", OAM),
    (AMD, "0x74a5"): ("MI325X", OAM),
    (AMD, "0x75a0"): ("MI350X", OAM),
    (AMD, "0x75a3"): ("MI355X", OAM),
}


class GpuReader:
    """Lists the GPUs under a sysfs root repeatedly, reading only new functions."""

    def __init__(self, sysfs: str) -> None:
        self._folder = os.path.join(sysfs, "bus", "pci", "devices")
        self._seen: dict[str, Gpu | None] = {}

    def read(self) -> tuple[Gpu, ...]:
        """The current GPUs in the order of their PCI addresses; empty if the bus cannot be listed."""
        self._seen = {
            name: self._seen[name] if name in self._seen else read_gpu(os.path.join(self._folder, name))
            for name in list_names(self._folder)
        }
        found = {gpu.address: gpu for gpu in self._seen.values() if gpu}
        return tuple(found[address] for address in sort_addresses(found))


def read_gpu(folder: str) -> Gpu | None:
    """The GPU at a PCI function's folder, or None if it is not a GPU or only the virtual function of one."""
    if os.path.isdir(os.path.join(folder, "infiniband")) or os.path.lexists(os.path.join(folder, "physfn")):
        return None
    vendor = read_value(folder, "vendor")
    if not read_value(folder, "class").startswith(CLASSES.get(vendor, ("none",))):
        return None
    real = Path(folder).resolve()
    device = read_value(folder, "device")
    name, form_factor = PRODUCTS.get((vendor, device), ("", ""))
    return Gpu(
        address=real.name,
        vendor=vendor,
        device=device,
        name=name,
        form_factor=form_factor,
        numa_node=parse_node(read_value(folder, "numa_node")),
        chain=find_chain(str(real)),
    )


def parse_node(text: str) -> int | None:
    """The NUMA node in a `numa_node` file; None for -1, which means unknown."""
    return int(text) if text.isascii() and text.isdigit() else None
