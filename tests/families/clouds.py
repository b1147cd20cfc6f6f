"""Families of cloud instances, of other vendors' devices, of old kernels and of a pod's own view: one builder each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.families import counters
from tests.families.machine import (
    ETHERNET_CLASS,
    GEN3,
    GEN4,
    VIRTUAL_LINK,
    Function,
    Machine,
    Nic,
)
from tests.families.nvidia import CONNECTX7, find_slot, make_nic, roce
from tests.sysfs.machines import write_link
from tests.sysfs.trees import PortFiles, make_unreadable

VMBUS = "LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00"
# what a virtual function is refused by its host; the reference leaves open which, so half of the error files stand
REFUSED_TO_VFS = ("VL15_dropped", "link_downed", "link_error_recovery", "port_xmit_wait", "symbol_error")
BROADCOM = "0x14e4"
INTEL = "0x8086"
AMAZON = "0x1d0f"
MICROSOFT = "0x1414"


def azure_vf(machine: Machine) -> None:
    """Eight InfiniBand VFs and eight GPUs, each on a virtual host bridge of its own, and a front-end Ethernet VF."""
    for index in range(8):
        path = f"{VMBUS}/47505500-000{index + 1}-0000-3130-444532333330/pci000{index + 1}:00/000{index + 1}:00:00.0"
        machine.add_gpu(path, index // 4, link=VIRTUAL_LINK)
        path = f"{VMBUS}/00000000-010{index + 1}-0000-3135-423331303142/pci010{index + 1}:00/010{index + 1}:00:00.0"
        function = machine.add_function(Function(path, device="0x101e", numa=index // 4, link=VIRTUAL_LINK))
        name = f"mlx5_ib{index}"
        nic = Nic(f"0015:5dff:fd34:{index + 1:04x}", "28.41.1000", "MT4126", "MSF0000000012")
        port = PortFiles(counters=counters.idle_pma() | _traffic(index), hw_counters=counters.mlx5(index))
        machine.add_rdma(function, name, nic, {1: port})
        machine.add_function_netdev(function, f"ib{index}", "400000", kind="32")
        for file in REFUSED_TO_VFS:
            make_unreadable(machine.port(name) / "counters" / file)
    path = f"{VMBUS}/1f3c0d5e-7e4d-4d3b-9c58-0b5b8d1c6a01/pci4db1:00/4db1:00:02.0"
    function = machine.add_function(
        Function(path, device="0x1018", kind=ETHERNET_CLASS, numa=-1, link=VIRTUAL_LINK, driver="mlx5_core")
    )
    front = roce(9, "enP19889s1", "100 Gb/sec (4X EDR)\n")
    machine.add_rdma(
        function, "mlx5_an0", Nic("6045:bdff:fe0a:91c2", "16.30.1284", "MT4120", "MSF0000000045"), {1: front}
    )
    machine.add_function_netdev(function, "enP19889s1", "100000")


def _traffic(index: int) -> dict[str, str]:
    live = ("port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets", "unicast_xmit_packets")
    return {name: text for name, text in counters.pma(index).items() if name in live}


def _add_efa(machine: Machine, port_of: Callable[[int], PortFiles]) -> None:
    switch = "pci0000:44/0000:44:01.0/0000:45:00.0"
    for number in range(2):
        path = f"{switch}/0000:46:{number:02x}.0/0000:{0x4F + number:02x}:00.0"
        function = machine.add_function(Function(path, AMAZON, "0xefa2", ETHERNET_CLASS, 0, VIRTUAL_LINK, "efa"))
        nic = Nic(f"0000:0000:0000:000{number + 1:x}", "0.0.0.0", "", "", "EFA")
        machine.add_rdma(function, f"rdmap{0x4F + number}s0", nic, {1: port_of(number)}, counters.EFA_DEVICE)
    machine.add_gpu(f"{switch}/0000:46:04.0/0000:53:00.0", link=VIRTUAL_LINK)


def efa_old_kernel(machine: Machine) -> None:
    """Two EFA devices of an instance on kernel 6.12: every rate says 100 Gb/sec."""
    _add_efa(machine, lambda number: _efa_port(number, "100 Gb/sec (4X EDR)\n", newer=False))


def efa_new_kernel(machine: Machine) -> None:
    """The same on kernel 7.3: the rate is the device's own, and retransmissions are counted."""
    _add_efa(machine, lambda number: _efa_port(number, "200 Gb/sec (4X HDR)\n", newer=True))


def _efa_port(number: int, rate: str, *, newer: bool) -> PortFiles:
    return PortFiles(rate=rate, link_layer="Unknown\n", counters=None, hw_counters=counters.efa(number, newer=newer))


def irdma_old_kernel(machine: Machine) -> None:
    """Two ports of an Intel E810 on kernel 6.12."""
    _add_irdma(machine, newer=False)


def irdma_new_kernel(machine: Machine) -> None:
    """Two ports of an Intel device on kernel 7.3: names with spaces, prefixes dropped."""
    _add_irdma(machine, newer=True)


def _add_irdma(machine: Machine, *, newer: bool) -> None:
    for number in range(2):
        path = f"pci0000:37/0000:37:01.0/0000:38:00.{number}"
        function = machine.add_function(Function(path, INTEL, "0x1592", ETHERNET_CLASS, 0, GEN4, "ice"))
        netdev = f"ens1f{number}"
        machine.add_function_netdev(function, netdev, "100000")
        port = PortFiles(
            rate="100 Gb/sec (4X EDR)\n",
            link_layer="Ethernet\n",
            counters=None,
            hw_counters=counters.irdma(newer=newer),
            ndevs={0: netdev},
        )
        nic = Nic(f"b696:91ff:fea0:8e3{number}", "1.71", "", "")
        machine.add_rdma(function, f"rocep56s0f{number}", nic, {1: port})


def bnxt_old_kernel(machine: Machine) -> None:
    """Two Broadcom ports on kernel 6.12: no counters folder."""
    for number in range(2):
        _add_bnxt(machine, number, _bnxt_port(number, roce_only=True))


def bnxt_new_kernel(machine: Machine) -> None:
    """Two Broadcom ports on kernel 7.3: one has counters, those of the other answer EINVAL."""
    _add_bnxt(machine, 0, replace(_bnxt_port(0, roce_only=True), counters=counters.pma()))
    _add_bnxt(machine, 1, replace(_bnxt_port(1, roce_only=False), counters=counters.pma()))
    for file in sorted((machine.port("bnxt_re1") / "counters").iterdir()):
        make_unreadable(file)


def _bnxt_port(number: int, *, roce_only: bool) -> PortFiles:
    return PortFiles(
        link_layer="Ethernet\n",
        counters=None,
        hw_counters=counters.bnxt(roce_only=roce_only),
        ndevs={0: f"ens{number + 2}np0"},
    )


def _add_bnxt(machine: Machine, number: int, port: PortFiles) -> None:
    path = f"{find_slot(number * 4)}"
    function = machine.add_function(Function(path, BROADCOM, "0x1760", ETHERNET_CLASS, number, driver="bnxt_en"))
    machine.add_function_netdev(function, port.ndevs[0], "400000")
    nic = Nic(f"be97:e1ff:fe00:4a{number}0", "230.2.49.0", "0x1760", "")
    machine.add_rdma(function, f"bnxt_re{number}", nic, {1: port})
    machine.add_gpu(find_slot(number * 4, 1), number)


def hfi1(machine: Machine) -> None:
    """Two Omni-Path devices; the second has no hw_counters, so that only its flits can be read."""
    for number in range(2):
        bus = 0x17 + number * 0x80
        path = f"pci0000:{bus:02x}/0000:{bus:02x}:00.0/0000:{bus + 1:02x}:00.0"
        function = machine.add_function(Function(path, INTEL, "0x24f0", "0x020800", number, GEN3, "hfi1"))
        port = PortFiles(
            rate="100 Gb/sec (4X EDR)\n",
            counters=counters.legacy_pma(port_xmit_wait=0),
            hw_counters=counters.HFI1_PORT if number == 0 else None,
        )
        nic = Nic(f"0011:7501:0174:3e{number}2", "1.27.0", "", "Intel Omni-Path HFI Adapter 100 Series")
        machine.add_rdma(function, f"hfi1_{number}", nic, {1: port}, counters.HFI1_DEVICE)


def mana(machine: Machine) -> None:
    """Azure's own adapter: a rate that answers EINVAL, counters of the port and of the device."""
    path = f"{VMBUS}/7870f1b5-0001-0000-3130-444532333330/pci7870:00/7870:00:00.0"
    function = machine.add_function(Function(path, MICROSOFT, "0x00ba", ETHERNET_CLASS, 0, VIRTUAL_LINK, "mana"))
    port = PortFiles(link_layer="Ethernet\n", counters=None, hw_counters=counters.MANA_PORT, ndevs={0: "enP30832s1"})
    machine.add_rdma(function, "mana_0", Nic("7c1e:52ff:fe0a:11b4", "0.0.0", "", ""), {1: port}, counters.MANA_DEVICE)
    make_unreadable(machine.port("mana_0") / "rate")
    machine.add_function_netdev(function, "enP30832s1", "200000")


RXE_PORT = PortFiles(
    rate="10 Gb/sec (1X FDR10)\n",
    link_layer="Ethernet\n",
    counters=None,
    hw_counters=counters.OLD_RXE,
    ndevs={0: "veth0"},
)


def rxe_old_kernel(machine: Machine) -> None:
    """Soft RoCE on kernel 6.12: packets are counted, bytes are not."""
    _add_rxe(machine, RXE_PORT)


def rxe_new_kernel(machine: Machine) -> None:
    """Soft RoCE on kernel 7.3: counters, and bytes in hw_counters too."""
    _add_rxe(machine, replace(RXE_PORT, counters=counters.rxe_pma(), hw_counters=counters.RXE))


def _add_rxe(machine: Machine, port: PortFiles) -> None:
    machine.add_netdev("veth0", "10000\n")
    files = {
        "fw_ver": "\n",
        "node_desc": "rxe\n",
        "node_guid": "5054:00ff:fe12:3456\n",
        "node_type": "1: CA\n",
        "parent": "veth0\n",
        "sys_image_guid": "5054:00ff:fe12:3456\n",
    }
    machine.add_virtual("rxe0", {1: port}, files)


def compat_view(machine: Machine) -> None:
    """A pod's own view: status files alone, and hw_counters of an EFA device that must never be opened."""
    function = machine.add_function(Function(find_slot(0)))
    machine.add_rdma(function, "mlx5_0", make_nic(CONNECTX7, 0), {1: PortFiles(counters=None, hw_counters=None)})
    path = "pci0000:4c/0000:4c:01.0/0000:4f:00.0"
    function = machine.add_function(Function(path, AMAZON, "0xefa2", ETHERNET_CLASS, 0, VIRTUAL_LINK, "efa"))
    port = PortFiles(rate="100 Gb/sec (4X EDR)\n", link_layer="Unknown\n", counters=None, hw_counters=None)
    nic = Nic("0000:0000:0000:0001", "0.0.0.0", "", "", "EFA")
    machine.add_rdma(function, "rdmap79s0", nic, {1: port}, counters.EFA_DEVICE)


def old_kernel(machine: Machine) -> None:
    """A kernel 3.10: an X722 whose counters say that there are none, and InfiniBand without the word SDR."""
    function = machine.add_function(
        Function(
            "pci0000:05/0000:05:02.0/0000:09:00.0",
            INTEL,
            "0x37d2",
            ETHERNET_CLASS,
            0,
            write_link("2.5 GT/s", 1),
            "i40e",
        )
    )
    machine.add_function_netdev(function, "eno1", "1000")
    silent = PortFiles(
        rate="10 Gb/sec (4X)\n",
        link_layer="Ethernet\n",
        counters=dict.fromkeys(counters.LEGACY_NAMES, "N/A (no PMA)\n"),
        hw_counters=None,
    )
    machine.add_rdma(function, "i40iw0", Nic("a4bf:0112:b7c4:0000", "0.2", "", ""), {1: silent})
    function = machine.add_function(
        Function(
            "pci0000:80/0000:80:03.0/0000:82:00.0",
            device="0x1003",
            numa=1,
            link=write_link("8 GT/s", 8),
            driver="mlx4_core",
        )
    )
    port = PortFiles(rate="10 Gb/sec (4X)\n", counters=counters.pma(), hw_counters=None)
    machine.add_rdma(function, "mlx4_0", Nic("f452:1403:0093:e2a0", "2.42.5000", "MT4099", "MT_1100120019"), {1: port})
