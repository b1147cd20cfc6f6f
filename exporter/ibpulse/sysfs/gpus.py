"""The GPUs of a node, found by their PCI ids alone: no driver of theirs is asked, no file of an RDMA device is opened.

Vendor, device and class are in the kernel's memory, so reading them cannot wait for a card. They are read once per PCI
function; what the function is named stays as long as it is listed.

The table below says what the ids of server GPUs stand for (from the PCI ID database, pci.ids, of 2026): an id is of one
form factor, so a node sold with SXM modules that holds PCIe cards is seen. An id that is not in it has no name here.
"""

from __future__ import annotations

import os
from pathlib import Path

from ibpulse.model import Gpu
from ibpulse.sysfs.distance import sort_addresses
from ibpulse.sysfs.files import read_text
from ibpulse.sysfs.pcie import find_chain

NVIDIA = "0x10de"
AMD = "0x1002"
# display controllers; AMD's accelerators call themselves processing accelerators
CLASSES = {NVIDIA: ("0x0300", "0x0302"), AMD: ("0x0300", "0x0302", "0x0380", "0x1200")}

SXM = "SXM"
PCIE = "PCIe"
OAM = "OAM"
SUPERCHIP = "superchip"

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
    """Lists the GPUs under a sysfs root again and again, reading only functions that it has not seen."""

    def __init__(self, sysfs: str) -> None:
        self._folder = os.path.join(sysfs, "bus", "pci", "devices")
        self._seen: dict[str, Gpu | None] = {}

    def read(self) -> tuple[Gpu, ...]:
        """The GPUs that are there now, in the order of their PCI addresses; none where the bus cannot be listed."""
        try:
            names = os.listdir(self._folder)
        except OSError:
            names = []
        self._seen = {
            name: self._seen[name] if name in self._seen else read_gpu(os.path.join(self._folder, name))
            for name in names
        }
        found = {gpu.address: gpu for gpu in self._seen.values() if gpu}
        return tuple(found[address] for address in sort_addresses(found))


def read_gpu(folder: str) -> Gpu | None:
    """The GPU at a PCI function's folder, or None when it is none, or the virtual function of one."""
    if os.path.isdir(os.path.join(folder, "infiniband")) or os.path.lexists(os.path.join(folder, "physfn")):
        return None
    vendor = read_text(os.path.join(folder, "vendor")).text
    if not read_text(os.path.join(folder, "class")).text.startswith(CLASSES.get(vendor, ("none",))):
        return None
    real = Path(folder).resolve()
    device = read_text(os.path.join(folder, "device")).text
    name, form_factor = PRODUCTS.get((vendor, device), ("", ""))
    return Gpu(
        address=real.name,
        vendor=vendor,
        device=device,
        name=name,
        form_factor=form_factor,
        numa_node=parse_node(read_text(os.path.join(folder, "numa_node")).text),
        chain=find_chain(str(real)),
    )


def parse_node(text: str) -> int | None:
    """The NUMA node that a `numa_node` file names; None for -1, where the firmware does not say."""
    return int(text) if text.isascii() and text.isdigit() else None
