"""Families of NVIDIA's mlx5 devices on bare metal: one builder each. What they follow is told in `table.py`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.families import counters
from tests.families.machine import ETHERNET_CLASS, GEN6, INFINIBAND_CLASS, Function, Machine, Nic
from tests.sysfs.machines import write_link
from tests.sysfs.trees import DOWN_INFINIBAND, DOWN_ROCE, PortFiles, make_unreadable

# the root ports of a server with two sockets, four on each
BUSES = (0x15, 0x37, 0x4C, 0x5D, 0x97, 0xB7, 0xC8, 0xD9)
H100 = "0x2330"
B200 = "0x2901"


@dataclass(frozen=True)
class Card:
    """What is plugged into the slots: its PCI device id, its link, the files of its RDMA device, the GPU beside it."""

    device: str = "0x1021"
    link: Mapping[str, str] = field(default_factory=write_link)
    firmware: str = "28.43.2026"
    hca_type: str = "MT4129"
    board: str = "MT_0000000838"
    gpu: str = H100


CONNECTX7 = Card()
CONNECTX8 = Card("0x1023", GEN6, "40.45.1020", "MT4131", "NVD0000000066", B200)


def infiniband(index: int, rate: str = "400 Gb/sec (4X NDR)\n") -> PortFiles:
    """An ACTIVE InfiniBand port with all counters."""
    return PortFiles(rate=rate, counters=counters.pma(index), hw_counters=counters.mlx5(index))


def roce(index: int, netdev: str, rate: str = "400 Gb/sec (4X NDR)\n") -> PortFiles:
    """An ACTIVE RoCE port with all counters."""
    return PortFiles(
        rate=rate,
        link_layer="Ethernet\n",
        counters=counters.pma(index, symbol_error=0),
        hw_counters=counters.mlx5(index, roce=True),
        ndevs={0: netdev},
    )


def find_slot(index: int, place: int = 0, function: int = 0) -> str:
    """Path of a function below the PCIe switch of slot `index`: the NIC at place 0, the GPU at place 1."""
    bus = BUSES[index]
    root = f"pci0000:{bus:02x}/0000:{bus:02x}:01.0/0000:{bus + 1:02x}:00.0"
    return f"{root}/0000:{bus + 2:02x}:{place:02x}.0/0000:{bus + 3 + place:02x}:00.{function}"


def socket_of(index: int) -> int:
    """NUMA node of a slot."""
    return index // 4


def make_nic(card: Card, index: int) -> Nic:
    """The files of the device in slot `index`; each has a GUID of its own."""
    return Nic(f"b8ce:f603:00aa:b{index:x}00", card.firmware, card.hca_type, card.board)


def add_slot(machine: Machine, index: int, card: Card = CONNECTX7, kind: str = INFINIBAND_CLASS) -> Path:
    """Plug the card into slot `index`; answer the folder of its function."""
    function = Function(find_slot(index), device=card.device, kind=kind, numa=socket_of(index), link=card.link)
    return machine.add_function(function)


def add_rail(machine: Machine, index: int, port: PortFiles, card: Card = CONNECTX7) -> Path:
    """An InfiniBand rail and its IPoIB netdev in slot `index`, and a GPU below the same switch."""
    function = add_slot(machine, index, card)
    machine.add_rdma(function, f"mlx5_{index}", make_nic(card, index), {1: port})
    speed = port.rate.split(" ")[0] + "000"
    netdev = f"ibp{BUSES[index] + 3}s0"
    machine.add_function_netdev(function, netdev, speed if port.state.startswith("4") else "EINVAL", kind="32")
    machine.add_gpu(find_slot(index, 1), socket_of(index), card.gpu)
    return function


def add_roce_rail(machine: Machine, index: int, port: PortFiles, speed: str) -> Path:
    """A RoCE rail in slot `index` with its netdev of the given speed in Mb/s, and a GPU below the same switch."""
    function = add_slot(machine, index, kind=ETHERNET_CLASS)
    machine.add_rdma(function, f"mlx5_{index}", make_nic(CONNECTX7, index), {1: port})
    machine.add_function_netdev(function, name_netdev(index), speed)
    machine.add_gpu(find_slot(index, 1), socket_of(index))
    return function


def name_netdev(index: int, port: int = 0) -> str:
    """Name of the network device of a port of the card in slot `index`."""
    return f"enp{BUSES[index] + 3}s0f{port}np{port}"


def connectx7_ndr(machine: Machine) -> None:
    """Eight rails of 400 Gb/s, each with its GPU below the same PCIe switch."""
    for index in range(8):
        add_rail(machine, index, infiniband(index))


def connectx7_saturated(machine: Machine) -> None:
    """Two rails; four counters of the first stand at their ends, as published."""
    card = replace(CONNECTX7, firmware="28.41.1000")
    add_rail(machine, 0, PortFiles(counters=counters.PUBLISHED_PMA, hw_counters=counters.mlx5()), card)
    add_rail(machine, 1, infiniband(1), card)


def connectx8_xdr(machine: Machine) -> None:
    """Four rails of 800 Gb/s, each the sum of its planes as the device itself shows it."""
    for index in range(4):
        add_rail(machine, index, infiniband(index, "800 Gb/sec (4X XDR)\n"), CONNECTX8)


def mlx5_roce(machine: Machine) -> None:
    """Four RoCE rails; the label of the last names lanes of another generation."""
    for index in range(4):
        rate = "400 Gb/sec (8X HDR)\n" if index == 3 else "400 Gb/sec (4X NDR)\n"
        add_roce_rail(machine, index, roce(index, name_netdev(index), rate), "400000")


def roce_down(machine: Machine) -> None:
    """Four RoCE rails; the third is down, and its rate file says 40 Gb/sec."""
    for index in range(4):
        port = roce(index, name_netdev(index))
        if index == 2:
            down = DOWN_ROCE
            port = replace(port, state=down.state, phys_state=down.phys_state, rate=down.rate, ndevs={})
        add_roce_rail(machine, index, port, "EINVAL" if index == 2 else "400000")


def infiniband_down(machine: Machine) -> None:
    """Four rails; the second is polling, and its rate file says 10 Gb/sec."""
    for index in range(4):
        port = infiniband(index)
        if index == 1:
            down = DOWN_INFINIBAND
            port = replace(port, state=down.state, phys_state=down.phys_state, rate=down.rate)
        add_rail(machine, index, port)


def bond(machine: Machine) -> None:
    """A device that is the bond of both ports of a card: the device says 200 Gb/s, the bond 400."""
    first = add_slot(machine, 0, kind=ETHERNET_CLASS)
    second = machine.add_function(Function(find_slot(0, function=1), kind=ETHERNET_CLASS))
    port = roce(0, "bond0", "200 Gb/sec (4X HDR)\n")
    machine.add_rdma(first, "mlx5_bond_0", make_nic(CONNECTX7, 0), {1: port})
    master = machine.add_netdev("bond0", "400000\n", bonding=True)
    for number, function in enumerate((first, second)):
        netdev = machine.add_function_netdev(function, name_netdev(0, number), "200000")
        (netdev / "master").symlink_to(os.path.relpath(master, netdev))
    machine.add_gpu(find_slot(0, 1))


def roce_multiplane(machine: Machine) -> None:
    """A device of twelve ports, of which four carry data: one per plane, each with a netdev of its own."""
    function = add_slot(machine, 0, CONNECTX8, ETHERNET_CLASS)
    ports = {}
    for number in range(1, 13):
        plane, rest = divmod(number, 3)
        netdev = f"eth_r0_p{plane - 1}"
        if rest:
            ports[number] = replace(DOWN_ROCE, counters=counters.idle_pma(), hw_counters=counters.idle_mlx5())
        else:
            ports[number] = roce(number, netdev, "200 Gb/sec (1X XDR)\n")
            machine.add_function_netdev(function, netdev, "200000", dev_port=number - 1)
    machine.add_rdma(function, "mlx5_0", make_nic(CONNECTX8, 0), ports)
    machine.add_gpu(find_slot(0, 1), device=CONNECTX8.gpu)


def smi_planes(machine: Machine) -> None:
    """Two XDR rails; the first has a second device beside it that shows its four planes."""
    for index in range(2):
        function = add_rail(machine, index, infiniband(index, "800 Gb/sec (4X XDR)\n"), CONNECTX8)
        if index == 0:
            quarter = dict.fromkeys(("port_xmit_data", "port_rcv_data"), counters.WORDS // 4)
            plane = PortFiles(rate="200 Gb/sec (1X XDR)\n", counters=counters.pma(0, **quarter), hw_counters=None)
            machine.add_rdma(function, "smi1", make_nic(CONNECTX8, index), dict.fromkeys(range(1, 5), plane))


def switchdev(machine: Machine) -> None:
    """An uplink device in switchdev mode: sixteen ports that all show its counters, hw_counters of the device."""
    function = add_slot(machine, 0, kind=ETHERNET_CLASS)
    uplink = replace(roce(0, name_netdev(0)), hw_counters=None)
    machine.add_rdma(
        function, "mlx5_0", make_nic(CONNECTX7, 0), dict.fromkeys(range(1, 17), uplink), counters.mlx5(roce=True)
    )
    machine.add_function_netdev(function, name_netdev(0), "400000")
    machine.add_gpu(find_slot(0, 1))


def limited_functions(machine: Machine) -> None:
    """Four rails beside the four functions that manage NVLink, whose counters all answer EINVAL."""
    for index in range(4):
        add_rail(machine, index, infiniband(index))
    for number in range(4):
        card, function = divmod(number, 2)
        path = find_slot(4 + card, function=function)
        folder = machine.add_function(Function(path, numa=1))
        name = f"mlx5_{8 + number}"
        nic = Nic(f"cc40:f303:0027:f63{number:x}", board="NVD0000000054")
        machine.add_rdma(folder, name, nic, {1: infiniband(number)})
        for file in sorted((machine.port(name) / "counters").iterdir()):
            make_unreadable(file)
