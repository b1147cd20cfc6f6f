"""Nodes of which an experienced person can say what each port is for. docs/topology.md lists some of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ibpulse.agent.sysfs import roles
from tests.sysfs.machines import NO_LINK, VF, Machine
from tests.sysfs.published import DGX_H100, DGX_H100_RAILS, DGX_H100_STORAGE
from tests.sysfs.trees import DOWN_INFINIBAND, EFA, MLX5_FILES, PortFiles, roce

NDR = PortFiles()
HALF = PortFiles(rate="200 Gb/sec (2X NDR)\n")
HDR = PortFiles(rate="200 Gb/sec (4X HDR)\n")
STORAGE_CARD = MLX5_FILES | {"hca_type": "MT4123\n", "board_id": "MT_0000000223\n"}
OTHER_BOARD = MLX5_FILES | {"board_id": "DEL0000000040\n"}
HNS = {"node_guid": "0200:00ff:fe00:0001\n", "fw_ver": "0\n", "hw_rev": "0x30\n"}
# the root ports of the eight switches
ROOTS = tuple(f"{number}0" for number in range(1, 9))


def below_switch(switch: int, slot: int, *, deeper: bool = False) -> str:
    """A place below one of the eight switches, or below a second switch below that one."""
    root = ROOTS[switch]
    bus = f"{root[0]}{3 + slot:x}"
    place = f"{root}/{root}:01.0/{root[0]}1:00.0/{root[0]}2:0{slot}.0/{bus}:00.0"
    return f"{place}/{root[0]}{9 + slot:x}:00.0/{root[0]}{12 + slot:x}:00.0" if deeper else place


def far(card: int, function: int = 0) -> str:
    """A place on a root port without a GPU."""
    return f"e0/e0:0{card + 1}.0/e{card + 1}:00.{function}"


@dataclass(frozen=True)
class RoleNode:
    """One node: what it is, how to build it, the role of every port, and the text of every notice by subject."""

    name: str
    sentence: str
    build: Callable[[Machine], None]
    roles: Mapping[str, str]
    notices: Mapping[str, str]
    trained_down: tuple[str, ...] = ()
    expected: int = 8


def _names(role: str, *devices: str) -> dict[str, str]:
    return {f"{device}:1": role for device in devices}


RAILS = tuple(f"mlx5_{number}" for number in range(8))
EIGHT = _names("compute", *RAILS)


def add_rails(machine: Machine, port: PortFiles = NDR, *, gpus: bool = True) -> None:
    """Eight rails, each below a switch with a GPU."""
    for number, name in enumerate(RAILS):
        machine.add_nic(name, below_switch(number, 0), ports={1: port})
        if gpus:
            machine.add_gpu(below_switch(number, 1))


def _roce_and_infiniband(machine: Machine) -> None:
    add_rails(machine, roce(""))
    for number in range(2):
        machine.add_nic(f"mlx5_{8 + number}", far(number), files=STORAGE_CARD, ports={1: HDR})


def _storage_below_the_switches(machine: Machine) -> None:
    add_rails(machine)
    for number in range(4):
        place = below_switch(2 * number, 2, deeper=True)
        machine.add_nic(f"mlx5_{8 + number}", place, files=STORAGE_CARD, ports={1: HDR})


def _equally_near(machine: Machine) -> None:
    add_rails(machine)
    for number in range(8):
        machine.add_nic(f"mlx5_{8 + number}", below_switch(number, 2), files=STORAGE_CARD, ports={1: HDR})


def _trained_down_and_down(machine: Machine) -> None:
    add_rails(machine)
    for name, port in (("mlx5_3", HALF), ("mlx5_5", DOWN_INFINIBAND)):
        for file in ("state", "phys_state", "rate"):
            (machine.port(name) / file).write_text(getattr(port, file))


def _no_gpu(machine: Machine) -> None:
    add_rails(machine, gpus=False)
    machine.add_nic("mlx5_8", far(0), files=STORAGE_CARD, ports={1: roce("", "25 Gb/sec (1X EDR)\n")})


def _two_makes_without_gpu(machine: Machine) -> None:
    add_rails(machine, gpus=False)
    for number in range(2):
        machine.add_nic(f"mlx5_{8 + number}", far(number), files=STORAGE_CARD, ports={1: NDR})


EFA_RAILS = tuple(f"rdmap{79 + number}s0" for number in range(8))
EFA_IDS = ("0x1d0f", "0xefa3", "0x020000")
FAST_EFA = replace(EFA, rate="400 Gb/sec (4X NDR)\n")


def _efa(machine: Machine) -> None:
    for number, name in enumerate(EFA_RAILS):
        place = f"{40 + number}/{40 + number}:00.0"
        machine.add_nic(name, place, ids=EFA_IDS, files={}, ports={1: FAST_EFA}, driver="efa", link=NO_LINK)
        machine.add_gpu(f"{60 + number}/{60 + number}:00.0")
    for number in (73, 74):
        machine.add_nic(f"ibp{int(str(number), 16)}s0f0", f"{number}/{number}:00.0", files=STORAGE_CARD, ports={1: NDR})


def _efa_near_gpus(machine: Machine) -> None:
    for number, name in enumerate(EFA_RAILS):
        machine.add_gpu(below_switch(number, 1))
        place = below_switch(number, 2, deeper=True)
        machine.add_nic(name, place, ids=EFA_IDS, files={}, ports={1: FAST_EFA}, driver="efa")
    machine.add_nic("mlx5_0", below_switch(0, 0), ports={1: NDR})


def _virtual_functions(machine: Machine) -> None:
    add_rails(machine)
    for number in range(8):
        place = below_switch(number, 0).removesuffix("0") + "2"
        machine.add_nic(f"mlx5_{8 + number}", place, ids=VF, link=NO_LINK, files=MLX5_FILES | {"hca_type": "MT4130\n"})


def _ascend(machine: Machine) -> None:
    for number in range(2):
        machine.add_function(below_switch(number, 1), ("0x19e5", "0xd802", "0x120000"))
        machine.add_nic(
            f"hns_{number}", far(0, number), ids=("0x19e5", "0xa222", "0x020000"), files=HNS, driver="hns3",
            ports={1: replace(roce("", "100 Gb/sec (4X EDR)\n"), counters=None, hw_counters={"hw_rx_pkt": "0\n"})},
        )  # fmt: skip


def _second_ports_unused(machine: Machine) -> None:
    for number, name in enumerate(RAILS):
        machine.add_nic(name, below_switch(number, 0))
        second = below_switch(number, 0).removesuffix("0") + "1"
        machine.add_nic(f"mlx5_{8 + number}", second, ports={1: DOWN_INFINIBAND})
        machine.add_gpu(below_switch(number, 1))


def _replaced_card(machine: Machine) -> None:
    for number, name in enumerate(RAILS):
        machine.add_nic(name, below_switch(number, 0), files=OTHER_BOARD if number == 6 else None)
        machine.add_gpu(below_switch(number, 1))


def _lost_device(machine: Machine) -> None:
    add_rails(machine)
    folder = machine.folder("mlx5_2").resolve().parent
    machine.remove("mlx5_2")
    folder.rmdir()
    machine.add_nic("mlx5_8", far(0))


DGX_RAILS = _names("compute", *DGX_H100_RAILS)
NODES = (
    RoleNode(
        "DGX H100",
        "DGX H100: 8 × NDR, each below a switch with its GPU; 4 × NDR of the same make, near no GPU",
        DGX_H100.build,
        DGX_RAILS | _names("unknown", *DGX_H100_STORAGE),
        {"mlx5_1:1, mlx5_2:1, mlx5_7:1, mlx5_8:1": roles.FAR},
    ),
    RoleNode(
        "RoCE and InfiniBand",
        "8 × 400G RoCE with a GPU each (PIX); 2 × HDR InfiniBand, near no GPU",
        _roce_and_infiniband,
        EIGHT | _names("unknown", "mlx5_8", "mlx5_9"),
        {},
    ),
    RoleNode(
        "storage below the switches",
        "8 × NDR with a GPU each (PIX); 4 × HDR of another make below the same switches (PXB)",
        _storage_below_the_switches,
        EIGHT | _names("storage", "mlx5_8", "mlx5_9", "mlx5_10", "mlx5_11"),
        {"mlx5_8:1, mlx5_9:1, mlx5_10:1, mlx5_11:1": roles.NEAR_BUT_OTHER},
    ),
    RoleNode(
        "two makes equally near",
        "8 × NDR and 8 × HDR of another make, all with a GPU (PIX)",
        _equally_near,
        EIGHT | _names("storage", *(f"mlx5_{number}" for number in range(8, 16))),
        {
            "mlx5_8:1, mlx5_9:1, mlx5_10:1, mlx5_11:1 and 4 more": roles.NEAR_BUT_OTHER,
            "ports.roles": roles.TIE.format(
                count=2, gpus=8, make="mlx5_core MT_0000000838 InfiniBand", reason="are faster"
            ),
        },
    ),
    RoleNode(
        "trained down and down",
        "8 × NDR with a GPU each; one runs at 2X NDR, one is down",
        _trained_down_and_down,
        EIGHT,
        {"mlx5_3:1": roles.TRAINED_DOWN},
        ("mlx5_3:1",),
    ),
    RoleNode(
        "no GPU",
        "8 × NDR and 1 × 25G Ethernet; no GPU is visible",
        _no_gpu,
        EIGHT | _names("management", "mlx5_8"),
        {},
    ),
    RoleNode(
        "two makes, no GPU",
        "8 × NDR and 2 × NDR of another make; no GPU is visible",
        _two_makes_without_gpu,
        EIGHT | _names("compute", "mlx5_8", "mlx5_9"),
        {"ports.roles": roles.SAME_RATE.format(count=2)},
        expected=10,
    ),
    RoleNode(
        "AWS p6-b200",
        "AWS p6-b200: 8 × EFA; 2 × NDR InfiniBand, the management functions of the NVLink switch; no near GPU",
        _efa,
        _names("compute", *EFA_RAILS) | _names("unknown", "ibp115s0f0", "ibp116s0f0"),
        {},
    ),
    RoleNode(
        "AWS p5en",
        "EFA devices near GPUs, and a ConnectX that is nearer to one of them",
        _efa_near_gpus,
        _names("compute", *EFA_RAILS) | _names("unknown", "mlx5_0"),
        {},
    ),
    RoleNode(
        "SR-IOV",
        "8 × NDR with a GPU each, and a virtual function of each, all in one sysfs tree",
        _virtual_functions,
        EIGHT | _names("compute", *(f"mlx5_{number}" for number in range(8, 16))),
        {"ports.roles": roles.BOTH_FUNCTIONS},
        expected=16,
    ),
    RoleNode(
        "Ascend",
        "Ascend: 2 × Huawei RoCE (hns3), whose driver counts no bytes",
        _ascend,
        _names("unknown", "hns_0", "hns_1"),
        {
            "hns_0:1, hns_1:1": "no file of this port counts bytes.",
            "hns_0:1, hns_1:1 ": roles.ASCEND.format(driver="hns3"),
        },
        expected=0,
    ),
    RoleNode(
        "second ports unused",
        "8 × two-port NDR cards with a GPU each; every second port is down and was never used",
        _second_ports_unused,
        EIGHT | _names("unknown", *(f"mlx5_{number}" for number in range(8, 16))),
        {},
    ),
    RoleNode(
        "replaced card",
        "8 × NDR with a GPU each; one card is of another board of the same type",
        _replaced_card,
        EIGHT,
        {"mlx5_6:1": roles.ALONE_NEAR},
    ),
    RoleNode(
        "lost device",
        "8 × NDR with a GPU each, one of which lost its RDMA device; 1 × NDR of the same make, near no GPU",
        _lost_device,
        {name: role for name, role in EIGHT.items() if name != "mlx5_2:1"} | _names("unknown", "mlx5_8"),
        {"mlx5_8:1": roles.FAR},
    ),
)
