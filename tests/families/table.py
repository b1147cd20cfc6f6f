"""The families of hardware and kernels that the program has to get right: one row each, with where its facts are from.

A row is the only place where a family is named. `provenance` says which facts of which source the tree follows, so
that a reader can tell what was read from what was assumed; kernel files are those of 6.12 and 7.3 alike unless a
version is given, under `drivers/infiniband/` (`mlx5/` is short for `hw/mlx5/`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.families import amd, clouds, nvidia
from tests.families.machine import Machine


@dataclass(frozen=True)
class Family:
    """One family: its name, what it is in a sentence, its sources, and the function that writes its tree."""

    name: str
    sentence: str
    provenance: tuple[str, ...]
    add: Callable[[Machine], None]

    def build(self, root: Path) -> Machine:
        """Write the tree under `root`, which must not be there yet."""
        machine = Machine(root)
        self.add(machine)
        return machine


MLX5_NAMES = "mlx5/counters.c: the names of hw_counters; lifespan 10 ms is the default of core/sysfs.c at HZ=1000"
PMA_TABLE = "core/sysfs.c get_counter_table: the 21 files of the extended table, their formats and their widths"

FAMILIES = (
    Family(
        "connectx7_ndr",
        "A server with eight ConnectX-7 at 400 Gb/s InfiniBand, each below one PCIe switch with its GPU.",
        (
            PMA_TABLE,
            MLX5_NAMES,
            "core/sysfs.c rate_show, state_show, phys_state_show: '400 Gb/sec (4X NDR)', '4: ACTIVE', '5: LinkUp'",
            "drivers/pci/pci-sysfs.c: link speed and width of every bridge on the way, '32.0 GT/s PCIe'",
        ),
        nvidia.connectx7_ndr,
    ),
    Family(
        "connectx7_saturated",
        "A ConnectX-7 of which four counters stand at their ends, beside one that has had little trouble.",
        ("leptonai/gpud pull request 943: the values of all 21 files of mlx5_1, board MT_0000000838, 28.41.1000",),
        nvidia.connectx7_saturated,
    ),
    Family(
        "connectx8_xdr",
        "Four ConnectX-8 at 800 Gb/s InfiniBand: the planes are inside the device, and one port shows their sum.",
        (
            "core/sysfs.c rate_show: '800 Gb/sec (4X XDR)'",
            "mlx5/main.c: a planarised device is one device with an aggregated port; hca_type MT4131 is 0x1023",
        ),
        nvidia.connectx8_xdr,
    ),
    Family(
        "mlx5_roce",
        "Four ConnectX-7 at 400 Gb/s Ethernet; one kernel label says '8X HDR' for the same speed.",
        (
            "mlx5/main.c mlx5_query_port_roce: 400 Gb/s appears as 4X NDR or as 8X HDR; lid is 0x0",
            "mlx5/counters.c: np_, rp_ and roce_ counters live on Ethernet",
        ),
        nvidia.mlx5_roce,
    ),
    Family(
        "roce_down",
        "Four RoCE rails of which one is down: its rate file says '40 Gb/sec (4X QDR)'.",
        (
            "mlx5/main.c mlx5_query_port_roce: starts from 4X QDR and ignores the failed translation",
            "net/core/net-sysfs.c speed_show: EINVAL while the network device is down",
            "core/sysfs.c: gid_attrs/ndevs of an empty slot has no name",
        ),
        nvidia.roce_down,
    ),
    Family(
        "infiniband_down",
        "Four InfiniBand rails of which one is polling: its rate file says '10 Gb/sec (4X SDR)'.",
        ("leptonai/gpud pull request 482: a polling port prints the rate of SDR", PMA_TABLE),
        nvidia.infiniband_down,
    ),
    Family(
        "azure_vf",
        "An Azure instance: eight InfiniBand virtual functions and a front-end Ethernet one that is no rail.",
        (
            "hca_type MT4126 is the PCI id 0x101e of any ConnectX VF; the product is told by firmware major 28",
            "Azure/Moneo net_exporter.py and pull requests 7 and 19: data files, xmit_discards, rcv_errors and the"
            " constraint errors read in a VF",
            "assumed: the other error files answer EINVAL, which the hypervisor's policy decides",
            "a virtual host bridge for each device; link status of a VF is 'Unknown' and 0",
        ),
        clouds.azure_vf,
    ),
    Family(
        "bond",
        "A RoCE bond: one device for both 200 Gb/s ports of a card.",
        (
            "mlx5/main.c: mlx5_bond_N is one device with one port for two network devices, rate of one of them",
            "deepseek-ai/DeepEP pull request 671: two rails of 200 print 200 while 372 Gb/s flow",
        ),
        nvidia.bond,
    ),
    Family(
        "roce_multiplane",
        "A ConnectX-8 with four RoCE planes: twelve ports, data on 3, 6, 9 and 12.",
        (
            "scitix/sichek pull request 98: twelve ports, netdevs eth_rX_p0 to p3 on 3, 6, 9, 12, port 1 is down",
            "assumed: a plane is '200 Gb/sec (1X XDR)', and the counters of the other ports stand at 0",
        ),
        nvidia.roce_multiplane,
    ),
    Family(
        "smi_planes",
        "Two XDR rails, and an SMI device that shows the four planes of the first once more.",
        (
            "core/device.c, mlx5/mad.c: a sub-device of type SMI is a second device on the same function; its ports"
            " are the planes, with counters from PPCNT and no hw_counters",
        ),
        nvidia.smi_planes,
    ),
    Family(
        "switchdev",
        "An uplink in switchdev mode: sixteen ports show the counters of one function.",
        (
            "mlx5/ib_rep.c: a port per virtual port; mlx5/mad.c process_pma_cmd never sets other_vport",
            "mlx5/counters.c: in switchdev mode hw_counters is a folder of the device",
        ),
        nvidia.switchdev,
    ),
    Family(
        "efa_old_kernel",
        "Two EFA devices on kernel 6.12, where every rate file says '100 Gb/sec (4X EDR)'.",
        (
            "efa/efa_verbs.c 6.12: link layer 'Unknown', hard-wired rate, no counters/, hw_counters of port and device",
            "core/sysfs.c: lifespan 10 ms reads 12 at HZ=250",
            "assumed: the devices and a GPU lie below one switch, and link files say 'Unknown'",
        ),
        clouds.efa_old_kernel,
    ),
    Family(
        "efa_new_kernel",
        "Two EFA devices on kernel 7.3, which says the device's own rate and counts retransmissions.",
        ("efa/efa_verbs.c 7.3: 200 Gb/s is labelled 4X HDR; retrans_* and *_remote_*_events are new",),
        clouds.efa_new_kernel,
    ),
    Family(
        "irdma_old_kernel",
        "Two ports of an Intel E810 on kernel 6.12.",
        ("irdma/verbs.c 6.12 irdma_hw_stat_names: ip4InOctets, tcpRetransSegs, cnpHandled; no counters/",),
        clouds.irdma_old_kernel,
    ),
    Family(
        "irdma_new_kernel",
        "Two ports of an Intel device on kernel 7.3: names with spaces.",
        ("irdma/verbs.c 7.3 irdma_hw_stat_names: 'RNR sent', 'Nak Sequence Error', RetransSegs without its prefix",),
        clouds.irdma_new_kernel,
    ),
    Family(
        "bnxt_old_kernel",
        "Two Broadcom ports on kernel 6.12, without a counters folder.",
        ("bnxt_re/hw_counters.c 6.12: tx_roce_only_bytes come from a firmware query, tx_bytes from a 1 s DMA",),
        clouds.bnxt_old_kernel,
    ),
    Family(
        "bnxt_new_kernel",
        "Two Broadcom ports on kernel 7.3: one with counters, one whose counters answer EINVAL.",
        (
            "bnxt_re/ib_verbs.c 7.3: process_mad, so counters/ exists",
            "prometheus/procfs pull request 675: Invalid argument from all of them",
        ),
        clouds.bnxt_new_kernel,
    ),
    Family(
        "hfi1",
        "Two Omni-Path devices: one counts words in hw_counters, the other only flits in counters.",
        (
            "hfi1/mad.c pma_get_ib_portcounters: flits unconverted, port_xmit_wait stays 0",
            "netdata pull request 9091 and node_exporter issue 2023: names of hw_counters such as 'SwLinkUp,32'",
        ),
        clouds.hfi1,
    ),
    Family(
        "mana",
        "Azure's own adapter on kernel 7.3: bytes in hw_counters, and a rate file that answers EINVAL.",
        (
            "mana/counters.c 7.3: names of the port's and the device's counters",
            "prometheus/node_exporter issue 3810: reading ports/1/rate answers Invalid argument",
        ),
        clouds.mana,
    ),
    Family(
        "rxe_old_kernel",
        "Soft RoCE on kernel 6.12: packets only.",
        ("sw/rxe/rxe_hw_counters.c 6.12: no bytes; no process_mad, so no counters/",),
        clouds.rxe_old_kernel,
    ),
    Family(
        "rxe_new_kernel",
        "Soft RoCE on kernel 7.3: counters, of which five live, and bytes in hw_counters.",
        ("sw/rxe/rxe_mad.c 7.3, and the tree of a 7.3.4 machine: no device link, fw_ver empty, lifespan 12",),
        clouds.rxe_new_kernel,
    ),
    Family(
        "ionic_mi300x",
        "Eight MI300X, each with a Pollara 400 of AMD Pensando below the same switch, on the firmware of 2019.",
        (
            "ionic/ionic_ibdev.c, ionic_hw_stats.c 6.18: one Ethernet port, hca_type, no process_mad and so no"
            " counters/; the device is a child of the PCI function of the driver ionic; the firmware gives the names",
            "Pensando's firmware of 2019, rdma_stats_hdrs: the names, each of 64 bits, with 'resp_rx_outouf_seq'",
            "ROCm/omnistat issue 301 and collector_network.py: unicast and multicast are added, in bytes",
            "a published summary of a Supermicro AS-8126GS-TNMR with MI325X: the buses, a PEX890xx with a GPU behind"
            " bridges and a Pollara behind a switch of its own, which also has processing accelerators",
            "assumed: MI300X takes the place of MI325X, all eight adapters are Pollara; the ports of their switches,"
            " and fw_ver",
        ),
        amd.ionic_mi300x,
    ),
    Family(
        "ionic_mi355x",
        "Eight MI355X, each with a Pollara 400, on a firmware that counts what it sends again; two front-end ports.",
        (
            "RCCL's telemetry, rcclHwcAinic: names of retransmissions, timeouts and CCL CTS, and which names of mlx5"
            " and bnxt_re mean the same",
            "a published session on a Dell XE9785L: the root bridges of both PCI domains, two ConnectX-6 Dx",
            "assumed: the way from a root bridge to GPU and adapter is that of ionic_mi300x; one NUMA node per socket",
        ),
        amd.ionic_mi355x,
    ),
    Family(
        "compat_view",
        "A pod's own view of sysfs: no counters, and hw_counters of a device that crash some kernels when read.",
        (
            "core/device.c: a compat device has status files alone, is_full_dev is false",
            "kernels before 'Don't expose hw_counters outside of init net namespace' show those of the device",
        ),
        clouds.compat_view,
    ),
    Family(
        "limited_functions",
        "Four rails beside four functions that Fabric Manager keeps for NVLink: their counters answer EINVAL.",
        (
            "prometheus/node_exporter issue 3434, leptonai/gpud issue 1164: two functions per card, ACCESS_REG err -22",
            "core/sysfs.c get_perf_mad: every failure is EINVAL",
            "assumed: the data files fail like the others, and the ports are ACTIVE at 400 Gb/s",
        ),
        nvidia.limited_functions,
    ),
    Family(
        "old_kernel",
        "A kernel 3.10: a device that says 'N/A (no PMA)', and a rate without the word SDR.",
        (
            "prometheus/node_exporter issue 966: the counters of i40iw",
            "core/sysfs.c of kernels up to 4.x: '10 Gb/sec (4X)'; drivers/pci: '8 GT/s' without 'PCIe'",
        ),
        clouds.old_kernel,
    ),
)

BY_NAME = {family.name: family for family in FAMILIES}
