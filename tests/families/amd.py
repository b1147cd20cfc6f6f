"""Families of nodes with AMD's GPUs and its Pensando Pollara adapters: one builder each."""

from __future__ import annotations

from tests.families import counters
from tests.families.machine import ETHERNET_CLASS, GEN4, Function, Machine, Nic
from tests.families.nvidia import roce
from tests.sysfs.trees import PortFiles

AMD = "0x1002"
PENSANDO = "0x1dd8"
ACCELERATOR_CLASS = "0x120000"
MI300X = "0x74a1"
MI355X = "0x75a3"
# the root bridges with a GPU, four on each socket
MI300X_BUSES = (0x00, 0x10, 0x60, 0x70, 0x80, 0x90, 0xE0, 0xF0)
MI355X_BUSES = (0xD0, 0x00, 0x32, 0xA0)


def ionic_mi300x(machine: Machine) -> None:
    """Eight MI300X and eight Pollara 400 with an older firmware, each pair below one PCIe switch."""
    for index, bus in enumerate(MI300X_BUSES):
        _add_pair(machine, index, "0000", bus, MI300X, newer=False)


def ionic_mi355x(machine: Machine) -> None:
    """The same with MI355X and a newer firmware in two PCI domains, and a ConnectX-6 Dx per socket as front end."""
    for index in range(8):
        domain = f"{index // 4:04x}"
        _add_pair(machine, index, domain, MI355X_BUSES[index % 4], MI355X, newer=True)
    for socket, bus in enumerate((0xD0, 0x00)):
        path = f"pci{socket:04x}:{bus:02x}/{socket:04x}:{bus:02x}:03.1/{socket:04x}:{bus + 0x20:02x}:00.0"
        function = machine.add_function(
            Function(path, device="0x101d", kind=ETHERNET_CLASS, numa=socket, link=GEN4, driver="mlx5_core")
        )
        netdev = f"fenic{socket}"
        nic = Nic(f"9c63:c003:00e1:7a{socket}0", "22.43.2026", "MT4125", "MT_0000000359")
        machine.add_rdma(function, f"mlx5_{socket}", nic, {1: roce(socket, netdev, "100 Gb/sec (4X EDR)\n")})
        machine.add_function_netdev(function, netdev, "100000")


def _add_pair(machine: Machine, index: int, domain: str, bus: int, gpu: str, *, newer: bool) -> None:
    """A GPU behind its own bridge and a Pollara behind its own switch, below one switch of the server."""

    def below(*places: tuple[int, str]) -> str:
        found = [f"pci{domain}:{bus:02x}", f"{domain}:{bus:02x}:01.1", f"{domain}:{bus + 1:02x}:00.0"]
        return "/".join([*found, *(f"{domain}:{bus + offset:02x}:{rest}" for offset, rest in places)])

    numa = index // 4
    card = below((2, "00.0"), (3, "00.0"), (4, "00.0"), (5, "00.0"))
    machine.add_function(Function(card, AMD, gpu, ACCELERATOR_CLASS, numa, driver="amdgpu"))
    accelerator = below((2, "01.0"), (6, "00.0"), (7, "00.0"), (8, "00.0"))
    machine.add_function(Function(accelerator, PENSANDO, "0x1012", ACCELERATOR_CLASS, numa, driver=""))
    path = below((2, "01.0"), (6, "00.0"), (7, "01.0"), (9, "00.0"))
    function = machine.add_function(Function(path, PENSANDO, "0x1002", ETHERNET_CLASS, numa, driver="ionic"))
    netdev = f"benic{index + 1}p1" if newer else f"enp{bus + 9}s0"
    port = PortFiles(
        link_layer="Ethernet\n",
        counters=None,
        hw_counters=counters.ionic(index, newer=newer),
        ndevs={0: netdev},
    )
    name = "AMD Pensando RoCE HCA"
    firmware = "1.117.5-a-56" if newer else "1.110.0-a-79"
    machine.add_rdma(function, f"ionic_{index}", Nic(f"0690:81ff:fe4c:1b{index}0", firmware, name, "", name), {1: port})
    machine.add_function_netdev(function, netdev, "400000")
