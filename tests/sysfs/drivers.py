"""Devices of each driver as their ports look in sysfs: the part of a tree that tests of byte sources share."""

from __future__ import annotations

from tests.sysfs.trees import EFA_DEVICE_HW, EXTENDED_PMA, LEGACY_PMA, PortFiles, Tree

NO_FILES: dict[str, str] = {}
EFA = PortFiles(
    rate="100 Gb/sec (4X EDR)\n",
    link_layer="Unknown\n",
    counters=None,
    hw_counters={"tx_bytes": "700\n", "rx_bytes": "900\n", "tx_pkts": "7\n", "lifespan": "12\n"},
)
BNXT_HW = {"tx_bytes": "1\n", "rx_bytes": "2\n", "lifespan": "10\n"}
BNXT_ROCE = {"tx_roce_only_bytes": "3\n", "rx_roce_only_bytes": "4\n"}
HFI1_COUNTERS = LEGACY_PMA | {"port_xmit_data": "9999999999\n", "port_rcv_data": "9999999999\n"}
HFI1 = PortFiles(
    rate="100 Gb/sec (4X EDR)\n", counters=HFI1_COUNTERS, hw_counters={"SwLinkUp,32": "1\n", "lifespan": "10\n"}
)
IRDMA = PortFiles(
    rate="100 Gb/sec (4X EDR)\n",
    link_layer="Ethernet\n",
    counters=None,
    hw_counters={
        "RNR sent": "0\n",
        "ip4InOctets": "10\n",
        "ip4OutOctets": "20\n",
        "ip6InOctets": "30\n",
        "ip6OutOctets": "40\n",
        "lifespan": "10\n",
    },
)
MANA = PortFiles(
    rate="200 Gb/sec (4X HDR)\n",
    link_layer="Ethernet\n",
    counters=None,
    hw_counters={"tx_bytes": "5\n", "rx_bytes": "6\n", "lifespan": "10\n"},
)
RXE = PortFiles(
    rate="10 Gb/sec (1X FDR10)\n",
    link_layer="Ethernet\n",
    counters=EXTENDED_PMA | {"port_xmit_data": "0\n", "port_rcv_data": "0\n"},
    hw_counters={"sent_bytes": "0\n", "rcvd_bytes": "0\n", "sent_pkts": "0\n", "lifespan": "12\n"},
)
OLD_RXE = PortFiles(
    rate="10 Gb/sec (1X FDR10)\n",
    link_layer="Ethernet\n",
    counters=None,
    hw_counters={"sent_pkts": "0\n", "rcvd_pkts": "0\n", "lifespan": "12\n"},
)
COMPAT_VIEW = PortFiles(counters=None, hw_counters=None)
RXE_FILES = {"fw_ver": "\n", "node_desc": "rxe\n", "node_type": "1: CA\n", "parent": "veth0\n"}


def add_efa(tree: Tree) -> None:
    """An EFA device, with counters of its own beside those of its port."""
    tree.add("rdmap144s27", {1: EFA}, driver="efa", files={"fw_ver": "0.0.0.0\n"}, hw_counters=EFA_DEVICE_HW)


def add_bnxt(tree: Tree, *, roce_only: bool = True, counters: dict[str, str] | None = None) -> None:
    """A Broadcom device; only newer ones have the pair that counts RoCE bytes alone."""
    hw = BNXT_HW | (BNXT_ROCE if roce_only else {})
    port = PortFiles(link_layer="Ethernet\n", counters=counters, hw_counters=hw)
    tree.add("bnxt_re0", {1: port}, driver="bnxt_en", files={"hca_type": "0x1760\n"})
