"""Sysfs trees as the kernel lays them out, with the exact texts that drivers write. For the tests of discovery.

Devices lie under `devices/pci…/<BDF>/infiniband/<name>` and the class directory holds relative links to them.
A file that answers EINVAL is a link to the speed of the loopback device; one that hangs is a FIFO without a writer.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

EINVAL_FILE = Path("/sys/class/net/lo/speed")

PMA_ZEROS = (
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "port_rcv_constraint_errors",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "port_xmit_discards",
    "symbol_error",
)
LEGACY_PMA = dict.fromkeys((*PMA_ZEROS, "port_xmit_packets", "port_rcv_packets", "port_xmit_wait"), "0\n")
EXTENDED_PMA = LEGACY_PMA | dict.fromkeys(
    ("unicast_xmit_packets", "unicast_rcv_packets", "multicast_xmit_packets", "multicast_rcv_packets"), "0\n"
)
MLX5_COUNTERS = EXTENDED_PMA | {
    "port_xmit_data": "205143497464492\n",
    "port_rcv_data": "205128687774249\n",
    "port_xmit_wait": "4294967295\n",
    "link_downed": "255\n",
}
MLX5_HW = {"rx_write_requests": "0\n", "out_of_sequence": "0\n", "lifespan": "10\n"}
EFA_DEVICE_HW = {"submitted_cmds": "5\n", "lifespan": "12\n"}


@dataclass(frozen=True)
class PortFiles:
    """The files of one port; `counters` or `hw_counters` None means that the folder does not exist."""

    state: str = "4: ACTIVE\n"
    phys_state: str = "5: LinkUp\n"
    rate: str = "400 Gb/sec (4X NDR)\n"
    link_layer: str = "InfiniBand\n"
    counters: Mapping[str, str] | None = field(default_factory=lambda: MLX5_COUNTERS)
    hw_counters: Mapping[str, str] | None = field(default_factory=lambda: MLX5_HW)
    ndevs: Mapping[int, str] = field(default_factory=dict)


DOWN_INFINIBAND = PortFiles("1: DOWN\n", "2: Polling\n", "10 Gb/sec (4X SDR)\n")
DOWN_ROCE = PortFiles("1: DOWN\n", "3: Disabled\n", "40 Gb/sec (4X QDR)\n", "Ethernet\n")
MLX5_FILES = {
    "node_type": "1: CA\n",
    "node_guid": "b8ce:f603:00aa:bb00\n",
    "fw_ver": "28.41.1000\n",
    "hca_type": "MT4129\n",
    "board_id": "MT_0000000838\n",
}


def roce(netdev: str, rate: str = "400 Gb/sec (4X NDR)\n") -> PortFiles:
    """An mlx5 RoCE port whose first GID belongs to `netdev`."""
    return PortFiles(rate=rate, link_layer="Ethernet\n", ndevs={0: netdev})


class Tree:
    """A sysfs root that devices are added to."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "class" / "infiniband").mkdir(parents=True)
        (root / "class" / "net").mkdir()

    def add(
        self,
        name: str,
        ports: Mapping[int, PortFiles] | None = None,
        *,
        driver: str = "mlx5_core",
        pci: str = "0000:18:00.0",
        files: Mapping[str, str] | None = None,
        hw_counters: Mapping[str, str] | None = None,
        numa_node: str = "0\n",
        below: str = "",
    ) -> Path:
        """Add a device on the PCI function `pci`, or on a child `below` it; answer its folder."""
        function = self.root / "devices" / "pci0000:15" / "0000:15:01.0" / pci
        _write(function, {"numa_node": numa_node})
        parent = function / below if below else function
        folder = parent / "infiniband" / name
        folder.mkdir(parents=True)
        (folder / "device").symlink_to(os.path.relpath(parent, folder))
        self._bind(parent, driver)
        self._fill(folder, ports, MLX5_FILES if files is None else files, hw_counters)
        return folder

    def add_virtual(self, name: str, ports: Mapping[int, PortFiles], files: Mapping[str, str]) -> Path:
        """Add a device without hardware, such as rxe; answer its folder."""
        folder = self.root / "devices" / "virtual" / "infiniband" / name
        folder.mkdir(parents=True)
        self._fill(folder, ports, files, None)
        return folder

    def add_netdev(self, name: str, speed: str = "400000\n", *, bonding: bool = False, master: str = "") -> Path:
        """Add a network device; answer its folder."""
        folder = self.root / "devices" / "virtual" / "net" / name
        _write(folder, {"speed": speed})
        if bonding:
            (folder / "bonding").mkdir()
        if master:
            (folder / "master").symlink_to(f"../{master}")
        self._link("class/net", folder)
        return folder

    def remove(self, name: str) -> None:
        """Take the device away, folder and link."""
        link = self.folder(name)
        shutil.rmtree(link.resolve())
        link.unlink()

    def folder(self, name: str) -> Path:
        """The device's entry in the class directory."""
        return self.root / "class" / "infiniband" / name

    def port(self, name: str, number: int = 1) -> Path:
        """The folder of a port."""
        return self.folder(name) / "ports" / str(number)

    def _fill(
        self,
        folder: Path,
        ports: Mapping[int, PortFiles] | None,
        files: Mapping[str, str],
        hw_counters: Mapping[str, str] | None,
    ) -> None:
        _write(folder, files)
        if hw_counters is not None:
            _write(folder / "hw_counters", hw_counters)
        (folder / "ports").mkdir()
        for number, port in ({1: PortFiles()} if ports is None else ports).items():
            _write_port(folder / "ports" / str(number), port)
        self._link("class/infiniband", folder)

    def _write_function(self, folder: Path, ids: tuple[str, str, str], files: Mapping[str, str]) -> None:
        """Write a PCI function with its vendor, device and class, which `bus/pci/devices` lists."""
        _write(folder, {"vendor": f"{ids[0]}\n", "device": f"{ids[1]}\n", "class": f"{ids[2]}\n", **files})
        self._link("bus/pci/devices", folder)

    def _bind(self, folder: Path, driver: str) -> None:
        """Give a function, or a child of one, its driver, if it has none."""
        if driver and not (folder / "driver").exists():
            target = self.root / "bus" / "pci" / "drivers" / driver
            target.mkdir(parents=True, exist_ok=True)
            (folder / "driver").symlink_to(os.path.relpath(target, folder))

    def _link(self, where: str, folder: Path) -> None:
        link = self.root / where / folder.name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(folder, link.parent))


def make_unreadable(path: Path) -> None:
    """Let the file answer EINVAL to every read, as a driver's failed query does."""
    path.unlink(missing_ok=True)
    path.symlink_to(EINVAL_FILE)


def _write_port(folder: Path, port: PortFiles) -> None:
    _write(
        folder,
        {"state": port.state, "phys_state": port.phys_state, "rate": port.rate, "link_layer": port.link_layer},
    )
    _write(folder / "gid_attrs" / "ndevs", {str(index): f"{name}\n" for index, name in port.ndevs.items()})
    for name, files in (("counters", port.counters), ("hw_counters", port.hw_counters)):
        if files is not None:
            _write(folder / name, files)


def _write(folder: Path, files: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)


EFA = PortFiles(
    rate="100 Gb/sec (4X EDR)\n",
    link_layer="Unknown\n",
    counters=None,
    hw_counters={"tx_bytes": "700\n", "rx_bytes": "900\n", "tx_pkts": "7\n", "lifespan": "12\n"},
)
BNXT_HW = {"tx_bytes": "1\n", "rx_bytes": "2\n", "lifespan": "10\n"}
RXE = PortFiles(
    rate="10 Gb/sec (1X FDR10)\n",
    link_layer="Ethernet\n",
    counters=EXTENDED_PMA | {"port_xmit_data": "0\n", "port_rcv_data": "0\n"},
    hw_counters={"sent_bytes": "0\n", "rcvd_bytes": "0\n", "sent_pkts": "0\n", "lifespan": "12\n"},
)
COMPAT_VIEW = PortFiles(counters=None, hw_counters=None)
RXE_FILES = {"fw_ver": "\n", "node_desc": "rxe\n", "node_type": "1: CA\n", "parent": "veth0\n"}


def add_efa(tree: Tree) -> None:
    """An EFA device, with counters of its own beside those of its port."""
    tree.add("rdmap144s27", {1: EFA}, driver="efa", files={"fw_ver": "0.0.0.0\n"}, hw_counters=EFA_DEVICE_HW)
