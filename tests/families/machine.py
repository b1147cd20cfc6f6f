"""A node's sysfs tree with its PCI functions: what the families are built from. It knows the layout, not the hardware.

Every bridge and function on a path has the files of `drivers/pci/pci-sysfs.c`, so that the way from a device up to its
root port can be walked, and `bus/pci/devices` lists all of them, as on a node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.sysfs.machines import write_link
from tests.sysfs.trees import PortFiles, Tree, make_unreadable

BRIDGE = ("0x1000", "0xc030", "0x060400")
DISPLAY_CLASS = "0x030200"
INFINIBAND_CLASS = "0x020700"
ETHERNET_CLASS = "0x020000"
NUMA_CPUS = {0: "0-47,96-143\n", 1: "48-95,144-191\n", -1: "0-191\n"}


GEN3 = write_link("8.0 GT/s PCIe")
GEN4 = write_link("16.0 GT/s PCIe")
GEN5 = write_link()
GEN6 = write_link("64.0 GT/s PCIe")
VIRTUAL_LINK = write_link("Unknown", 0)


@dataclass(frozen=True)
class Function:
    """A PCI function at the end of `path`: the host bridge, the bridges below it, and its own address."""

    path: str
    vendor: str = "0x15b3"
    device: str = "0x1021"
    kind: str = INFINIBAND_CLASS
    numa: int = 0
    link: Mapping[str, str] = field(default_factory=write_link)
    driver: str = "mlx5_core"

    @property
    def address(self) -> str:
        """Its address, such as `0000:18:00.0`."""
        return self.path.rsplit("/", 1)[1]


@dataclass(frozen=True)
class Nic:
    """The files of an RDMA device beside its ports."""

    guid: str
    firmware: str = "28.43.2026"
    hca_type: str = "MT4129"
    board: str = "MT_0000000838"
    description: str = ""

    def files(self, name: str) -> dict[str, str]:
        """The files of the device `name`; what its driver does not have is left out."""
        found = {"hca_type": self.hca_type, "board_id": self.board}
        always = {
            "node_type": "1: CA",
            "node_guid": self.guid,
            "sys_image_guid": self.guid,
            "node_desc": self.description or f"node7 {name}",
            "fw_ver": self.firmware,
        }
        return {key: f"{text}\n" for key, text in (always | {k: v for k, v in found.items() if v}).items()}


class Machine(Tree):
    """A sysfs root to which functions, RDMA devices and network devices are added."""

    def add_function(self, function: Function) -> Path:
        """Add the function with the bridges above it; answer its folder."""
        folder = self.root / "devices"
        numa = {"numa_node": f"{function.numa}\n", "local_cpulist": NUMA_CPUS[function.numa]}
        files = {**numa, **function.link}
        parts = function.path.split("/")
        for part in parts[:-1]:
            folder /= part
            # a host bridge is no PCI function; everything below it is one
            if not part.startswith(("pci", "LNX", "ACPI", "VMBUS")) and part.count(":") == 2 and not folder.exists():
                self._write_function(folder, BRIDGE, files)
        folder /= parts[-1]
        self._write_function(folder, (function.vendor, function.device, function.kind), files)
        self._bind(folder, function.driver)
        return folder

    def add_gpu(self, path: str, numa: int = 0, device: str = "0x2330", link: Mapping[str, str] = GEN5) -> Path:
        """Add an NVIDIA GPU, an H100 for SXM by its device id unless another is given."""
        return self.add_function(Function(path, "0x10de", device, DISPLAY_CLASS, numa, link, "nvidia"))

    def add_rdma(
        self,
        function: Path,
        name: str,
        nic: Nic,
        ports: Mapping[int, PortFiles],
        hw_counters: Mapping[str, str] | None = None,
    ) -> Path:
        """Add an RDMA device on the function at the folder `function`; answer its folder."""
        folder = function / "infiniband" / name
        folder.mkdir(parents=True)
        (folder / "device").symlink_to("../..")
        self._fill(folder, ports, nic.files(name), hw_counters)
        for number, port in ports.items():
            _write_addresses(folder / "ports" / str(number), port, nic.guid, number)
        return folder

    def add_function_netdev(self, function: Path, name: str, speed: str, dev_port: int = 0, kind: str = "1") -> Path:
        """Add a network device of the function; a speed of `EINVAL` is that of one that is down."""
        folder = function / "net" / name
        folder.mkdir(parents=True)
        for file, text in {"speed": speed, "dev_port": f"{dev_port}", "type": kind, "carrier_changes": "2"}.items():
            (folder / file).write_text(f"{text}\n")
        if speed == "EINVAL":
            make_unreadable(folder / "speed")
        (folder / "device").symlink_to("../..")
        self._link("class/net", folder)
        return folder


def _write_addresses(folder: Path, port: PortFiles, guid: str, number: int) -> None:
    infiniband = port.link_layer == "InfiniBand\n"
    files = {
        "lid": f"0x{number + 0x19:x}" if infiniband else "0x0",
        "sm_lid": "0x1" if infiniband else "0x0",
        "lid_mask_count": "0",
        "sm_sl": "0",
        "cap_mask": "0xa751e848" if infiniband else "0x04010000",
        "gids/0": f"fe80:0000:0000:0000:{guid}",
        "gids/1": "0000:0000:0000:0000:0000:0000:0000:0000",
        "pkeys/0": "0xffff",
        "gid_attrs/types/0": "IB/RoCE v1",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{text}\n")
