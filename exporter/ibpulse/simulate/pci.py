"""The PCI functions of a simulated node, as text by path: each NIC under a switch of its own, with a GPU beside it.

    host bridge - root port - switch - NIC
                                     - GPU

So each rail has one GPU that is nearest, at the distance PIX. All links run as fast as both ends can. The formats are
the kernel's: `drivers/pci/pci-sysfs.c`. It must not know of RDMA.
"""

from __future__ import annotations

from pathlib import PurePosixPath

BRIDGE_CLASS = "0x060400"
ROOT_PORT = ("0x8086", "0x352a")
SWITCH = ("0x1000", "0xc030")
GPU = ("0x10de", "0x2330")
GPU_CLASS = "0x030200"
GEN5_X16 = {
    "current_link_speed": "32.0 GT/s PCIe",
    "max_link_speed": "32.0 GT/s PCIe",
    "current_link_width": "16",
    "max_link_width": "16",
}
CPUS = ("0-47", "48-95")


def list_functions(nic_path: str, nic: tuple[str, str, str], numa_node: int, gpu: bool) -> dict[str, str]:
    """Texts by path of the NIC at `nic_path` (`devices/pci…/root port/upstream/downstream/NIC`) and what is around it.

    `nic` is its vendor, device and class; `gpu` puts a GPU under the next port of the switch.
    """
    downstream = PurePosixPath(nic_path).parent
    upstream = downstream.parent
    functions = {
        str(upstream.parent): (*ROOT_PORT, BRIDGE_CLASS),
        str(upstream): (*SWITCH, BRIDGE_CLASS),
        str(downstream): (*SWITCH, BRIDGE_CLASS),
        nic_path: nic,
    }
    if gpu:
        port, card = _beside(downstream.name), _next_bus(PurePosixPath(nic_path).name)
        functions[f"{upstream}/{port}"] = (*SWITCH, BRIDGE_CLASS)
        functions[f"{upstream}/{port}/{card}"] = (*GPU, GPU_CLASS)
    files: dict[str, str] = {}
    for path, ids in functions.items():
        facts = dict(zip(("vendor", "device", "class"), ids, strict=True)) | GEN5_X16
        facts |= {"numa_node": str(numa_node), "local_cpulist": CPUS[numa_node]}
        files |= {f"{path}/{name}": f"{text}\n" for name, text in facts.items()}
    return files


def list_bus(files: dict[str, str]) -> dict[str, str]:
    """The links of `bus/pci/devices` to the functions of these files."""
    folders = {PurePosixPath(path).parent for path in files}
    return {f"bus/pci/devices/{folder.name}": f"../../../{folder}" for folder in folders}


def _beside(address: str) -> str:
    """The next device number on the same bus."""
    return address.replace(":00.", ":01.")


def _next_bus(address: str) -> str:
    """The same function on the next bus."""
    domain, bus, rest = address.split(":")
    return f"{domain}:{int(bus, 16) + 1:02x}:{rest}"
