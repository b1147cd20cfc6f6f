"""Real machines whose `nvidia-smi topo -m` was published, each with a PCI tree that explains it.

The matrix holds the published words, GPU by GPU, of the columns of the NICs. Where a source does not name the bus
numbers they are made up; the branching of a tree is what decides the words.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.sysfs.machines import EMULATED_PORT, NIC, VF, Machine

Place = tuple[str, int]
Ids = tuple[str, str, str]


@dataclass(frozen=True)
class Published:
    """One machine: where its matrix was published, and GPUs and NICs in its order, each with place and NUMA node."""

    name: str
    source: str
    gpus: tuple[Place, ...]
    nics: dict[str, Place]
    matrix: str
    nic: Ids = NIC
    ports: Ids | None = None

    def build(self, machine: Machine) -> None:
        """Write the tree of this machine."""
        for place, node in (*self.gpus, *self.nics.values()):
            if self.ports:
                machine.add_function(place.rpartition("/")[0], self.ports, node)
        for place, node in self.gpus:
            machine.add_gpu(place, node)
        for name, (place, node) in self.nics.items():
            machine.add_nic(name, place, node, ids=self.nic)

    def rows(self) -> list[list[str]]:
        """The words of the matrix, a row per GPU."""
        return [line.split() for line in self.matrix.strip().splitlines()]


def _dgx_h100_gpu(root: int, node: int) -> Place:
    """The GPU three buses above its NIC, behind a second switch."""
    bus = [f"{root + step:02x}" for step in range(7)]
    return f"{bus[0]}/{bus[0]}:01.0/{bus[1]}:00.0/{bus[2]}:02.0/{bus[4]}:00.0/{bus[5]}:00.0/{bus[6]}:00.0", node


def _dgx_h100_nic(root: int, node: int) -> Place:
    bus = [f"{root + step:02x}" for step in range(4)]
    return f"{bus[0]}/{bus[0]}:01.0/{bus[1]}:00.0/{bus[2]}:00.0/{bus[3]}:00.0", node


# roots whose NICs have the buses 18, 40, 4f, 5e, 9a, c0, ce, dc and whose GPUs have 1b, 43, 52, 61, 9d, c3, d1, df
DGX_H100_ROOTS = ((0x15, 0), (0x3D, 0), (0x4C, 0), (0x5B, 0), (0x97, 1), (0xBD, 1), (0xCB, 1), (0xD9, 1))
DGX_H100_RAILS = ("mlx5_0", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_9", "mlx5_10", "mlx5_11")
DGX_H100_STORAGE = {
    "mlx5_1": ("26/26:01.0/29:00.0", 0),
    "mlx5_2": ("26/26:01.0/29:00.1", 0),
    "mlx5_7": ("a7/a7:01.0/aa:00.0", 1),
    "mlx5_8": ("a7/a7:01.0/aa:00.1", 1),
}
_DGX_H100_NICS = DGX_H100_STORAGE | {
    name: _dgx_h100_nic(*root) for name, root in zip(DGX_H100_RAILS, DGX_H100_ROOTS, strict=True)
}

DGX_H100 = Published(
    "DGX H100",
    "'Pin vLLM process to the right NUMA Region', github.com/vllm-project/vllm/issues/13855; buses and rails: "
    "NVIDIA DGX H100 User Guide, table 'Network Modules'",
    tuple(_dgx_h100_gpu(*root) for root in DGX_H100_ROOTS),
    {f"mlx5_{number}": _DGX_H100_NICS[f"mlx5_{number}"] for number in range(12)},
    """
    PXB NODE NODE NODE NODE NODE SYS SYS SYS SYS SYS SYS
    NODE NODE NODE PXB NODE NODE SYS SYS SYS SYS SYS SYS
    NODE NODE NODE NODE PXB NODE SYS SYS SYS SYS SYS SYS
    NODE NODE NODE NODE NODE PXB SYS SYS SYS SYS SYS SYS
    SYS SYS SYS SYS SYS SYS PXB NODE NODE NODE NODE NODE
    SYS SYS SYS SYS SYS SYS NODE NODE NODE PXB NODE NODE
    SYS SYS SYS SYS SYS SYS NODE NODE NODE NODE PXB NODE
    SYS SYS SYS SYS SYS SYS NODE NODE NODE NODE NODE PXB
    """,
)


def _hgx_pair(root: str, node: int, half: int) -> tuple[Place, Place]:
    """A GPU and a NIC under a switch of their own, two of which hang on the switch of one root port."""
    top = f"{root}0/{root}0:01.0/{root}1:00.0/{root}2:0{half}.0/{root}{3 + half * 4}:00.0"
    inner = f"{root}{4 + half * 4}"
    return (
        (f"{top}/{inner}:00.0/{root}{5 + half * 4}:00.0", node),
        (f"{top}/{inner}:01.0/{root}{6 + half * 4}:00.0", node),
    )


_HGX_PAIRS = [_hgx_pair(root, node, half) for root, node in (("1", 0), ("4", 0), ("9", 1), ("c", 1)) for half in (0, 1)]

HGX_H100 = Published(
    "HGX H100 with two GPUs and two NICs to a root port",
    "Szymon Ozog, 'Writing my own communications library - a worklog of creating Penny part 1', "
    "github.com/SzymonOzog/Penny",
    tuple(gpu for gpu, _ in _HGX_PAIRS),
    {f"mlx5_ib{number}": nic for number, (_, nic) in enumerate(_HGX_PAIRS)}
    | {f"mlx5_eth{number}": (f"e0/e0:01.0/e1:00.{number}", 1) for number in range(5)},
    """
    PIX PXB NODE NODE SYS SYS SYS SYS SYS SYS SYS SYS SYS
    PXB PIX NODE NODE SYS SYS SYS SYS SYS SYS SYS SYS SYS
    NODE NODE PIX PXB SYS SYS SYS SYS SYS SYS SYS SYS SYS
    NODE NODE PXB PIX SYS SYS SYS SYS SYS SYS SYS SYS SYS
    SYS SYS SYS SYS PIX PXB NODE NODE NODE NODE NODE NODE NODE
    SYS SYS SYS SYS PXB PIX NODE NODE NODE NODE NODE NODE NODE
    SYS SYS SYS SYS NODE NODE PIX PXB NODE NODE NODE NODE NODE
    SYS SYS SYS SYS NODE NODE PXB PIX NODE NODE NODE NODE NODE
    """,
)


FLAT_VM = Published(
    "A virtual machine with every card on a root port of its own under one host bridge",
    "Output of nvidia-smi at the end of benchmark/fa3_plot.py of a public ring attention repository (module ring_fa3); "
    "the same tree by lspci: 'NCCL topology on the VM of H200', github.com/NVIDIA/nccl-tests/issues/256",
    (*((f"00/00:01.{bus - 1}/0{bus}:00.0", 0) for bus in range(6, 9)), ("00/00:02.0/09:00.0", 0)),
    {f"mlx5_{number}": (f"00/00:03.{number}/1{number}:00.0", 0) for number in range(8)},
    """
    PHB PHB PHB PHB PHB PHB PHB PHB
    PHB PHB PHB PHB PHB PHB PHB PHB
    PHB PHB PHB PHB PHB PHB PHB PHB
    PHB PHB PHB PHB PHB PHB PHB PHB
    """,
    nic=VF,
    ports=EMULATED_PORT,
)

MACHINES = (DGX_H100, HGX_H100, FLAT_VM)

# Azure/azhpc-images, topology/ndv5-topo.xml: which GPU and which NIC share a switch of the host that the VM hides
AZURE_ND_H100_V5 = (
    *(("0001", "0101", 0), ("0002", "0102", 0), ("0003", "0103", 0), ("0008", "0104", 0)),
    *(("0009", "0105", 1), ("000a", "0106", 1), ("000b", "0107", 1), ("000c", "0108", 1)),
)
