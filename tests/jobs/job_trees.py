"""Nodes of 8 GPUs and 8 rails with jobs, as real directories under the names that Slurm and the kubelet give them.

Each case comes with the jobs that an experienced person would name, and with the rails of each. It asserts nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ibpulse.jobs.claims import Found
from ibpulse.jobs.job_sources import Source, choose_sources
from ibpulse.model import Fabric
from ibpulse.sysfs.inventory import Inventory
from tests.sysfs.machines import Machine

GPUS = 8
ADDRESSES = tuple(f"0000:{number + 1}9:00.0" for number in range(GPUS))
RAILS = tuple(f"mlx5_{number}" for number in range(GPUS))
UID = "0b3f8c1e-5d2a-4c3b-9e7f-1a2b3c4d5e6f"
OTHER_UID = "7f3d9a10-0c4e-4d5f-8a6b-9c0d1e2f3a4b"
THIRD_UID = "c0ffee00-1111-4222-8333-444455556666"
STATIC_UID = "5f1b2c3d4e5f60718293a4b5c6d7e8f9"


class NodeTree:
    """The directories of one node: `sys`, `mapping` and `owners`; the last two do not exist until they are used."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.machine = Machine(root / "sys")
        self.cgroup, self.mapping, self.owners = root / "sys/fs/cgroup", root / "mapping", root / "owners"

    def add_rails(self) -> Fabric:
        """Eight rails, each below a switch with a GPU, as found by a scan."""
        for number, name in enumerate(RAILS):
            root = f"{number + 1}0"
            switch = f"{root}/{root}:01.0/{root[0]}1:00.0"
            self.machine.add_nic(name, f"{switch}/{root[0]}2:00.0/{root[0]}3:00.0", number // 4)
            self.machine.add_gpu(f"{switch}/{root[0]}2:01.0/{root[0]}9:00.0", number // 4)
        return Inventory(self.machine.root).scan()

    def group(self, path: str, **files: str) -> Path:
        """A cgroup with files; a double underscore in a name stands for a dot."""
        folder = self.cgroup / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name.replace("__", ".")).write_text(text)
        return folder

    def slurm(self, *paths: str, scope: str = "system.slice/slurmstepd.scope") -> None:
        """Cgroups of version 2 below Slurm's scope, all with processes."""
        self.group(f"{scope}/system", cgroup__events="populated 1\nfrozen 0\n")
        for path in paths:
            self.group(f"{scope}/{path}", cgroup__events="populated 1\nfrozen 0\n")

    def slurm_1(self, *paths: str, first: str = "slurm") -> None:
        """Cgroups of version 1 in each controller that Slurm uses."""
        for controller in ("cpuset", "devices", "freezer", "memory"):
            for path in paths:
                self.group(f"{controller}/{first}/{path}", tasks="")

    def map(self, **files: str) -> None:
        """Mapping files; `gpu0_1` stands for `0.1`."""
        self.mapping.mkdir(exist_ok=True)
        for name, text in files.items():
            (self.mapping / name.removeprefix("gpu").replace("_", ".")).write_text(text)

    def document(self, **members: object) -> Path:
        """A document about a job."""
        self.owners.mkdir(exist_ok=True)
        path = self.owners / f"{members['id']}.json"
        path.write_text(json.dumps(members))
        return path

    def sources(self) -> Mapping[str, Source]:
        """The sources of this node."""
        return choose_sources(self.cgroup, self.mapping, self.owners)

    def read(self) -> Mapping[str, Found]:
        """What each source finds."""
        return {name: source() for name, source in self.sources().items()}


@dataclass(frozen=True)
class Expected:
    """One job as it should be found, with the numbers of its rails."""

    scheduler: str
    source: str
    rails: tuple[int, ...] = ()
    basis: str = ""


@dataclass(frozen=True)
class Case:
    """A node, and what is true of it; `jobs` is None if nothing tells which jobs run."""

    name: str
    build: Callable[[NodeTree], None]
    sources: tuple[str, ...]
    jobs: Mapping[str, Expected] | None
    pods: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()


ALL = tuple(range(GPUS))
ALONE = Expected("slurm", "slurm-cgroup", ALL, "alone")
UNPLACED = Expected("slurm", "slurm-cgroup")
USES = "mlx5_0 hca_handle=1 hca_object=20\nmlx5_1 hca_handle=0 hca_object=0\nmlx5_2 hca_handle=3 hca_object=410\n"
UNUSED = "mlx5_0 hca_handle=0 hca_object=0\nmlx5_1 hca_handle=0 hca_object=0\n"
OTHERS = "mlx5_1 hca_handle=2 hca_object=7\nmlx5_2 hca_handle=1 hca_object=1\n"


def under(uid: str) -> str:
    """A UID in the names of systemd."""
    return uid.replace("-", "_")


def _nested(node: NodeTree) -> None:
    steps = ("step_extern/user/task_special", "step_batch/user/task_0", "step_0/user/task_0", "step_0/slurm", "step_1")
    node.slurm(*(f"job_4711/{step}" for step in steps))


def _left_over(node: NodeTree) -> None:
    node.slurm("job_1/step_0", "job_2/step_0")
    (node.cgroup / "system.slice/slurmstepd.scope/job_1/cgroup.events").write_text("populated 0\nfrozen 0\n")


def _systemd_pods(node: NodeTree) -> None:
    node.group(f"kubepods.slice/kubepods-pod{under(UID)}.slice/cri-containerd-abc.scope")
    node.group(f"kubepods.slice/kubepods-pod{under(UID)}.slice", rdma__current=USES)
    node.group(
        f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{under(OTHER_UID)}.slice", rdma__current=OTHERS
    )
    best = "kubepods.slice/kubepods-besteffort.slice"
    node.group(f"{best}/kubepods-besteffort-pod{under(THIRD_UID)}.slice", rdma__current=UNUSED)
    node.group(f"{best}/kubepods-besteffort-pod{STATIC_UID}.slice", rdma__current=UNUSED)


def _cgroupfs_pods(node: NodeTree) -> None:
    node.group(f"kubepods/pod{UID}/0123456789abcdef")
    node.group(f"kubepods/pod{UID}", rdma__current=USES)
    node.group(f"kubepods/burstable/pod{OTHER_UID}", rdma__current=UNUSED)
    node.group(f"kubepods/besteffort/pod{STATIC_UID}", rdma__current=UNUSED)


def _version_1_pods(node: NodeTree) -> None:
    for controller in ("memory", "rdma", "pids"):
        node.group(f"{controller}/kubepods/burstable/pod{OTHER_UID}")
    node.group(f"rdma/kubepods/burstable/pod{OTHER_UID}", rdma__current=OTHERS)


def _kind_pods(node: NodeTree) -> None:
    kubelet = "kubelet.slice/kubelet-kubepods.slice"
    node.group(f"{kubelet}/kubelet-kubepods-pod{under(UID)}.slice", rdma__current=UNUSED)
    burstable = f"{kubelet}/kubelet-kubepods-burstable.slice"
    node.group(f"{burstable}/kubelet-kubepods-burstable-pod{under(OTHER_UID)}.slice", rdma__current=USES)


def _blind_pods(node: NodeTree) -> None:
    node.group(f"kubepods.slice/kubepods-pod{under(UID)}.slice")
    node.group(f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{under(OTHER_UID)}.slice")


def _two_mapped(node: NodeTree) -> None:
    node.slurm("job_12/step_0", "job_13/step_0")
    node.map(**{f"gpu{gpu}": "12" if gpu < 4 else "13\n" for gpu in ALL})


def _shared_gpu(node: NodeTree) -> None:
    node.map(gpu0="12\n13\n", gpu1="12\n", gpu2_0="14", gpu2_1="15")


def _mapped_besides_cpu(node: NodeTree) -> None:
    node.slurm("job_12/step_0", "job_13/step_0")
    node.map(gpu5="12", gpu7="12")


def _two_documents(node: NodeTree) -> None:
    node.document(id="run-1", scheduler="flux", name="llama", namespace="team-a", gpus=list(ADDRESSES[:2]), devices=[])
    capitals = ADDRESSES[7].upper().replace("0000:", "00000000:", 1)
    node.document(id="run-2", scheduler="pbs", gpus=[capitals], devices=["mlx5_3"])


def _stale(node: NodeTree) -> None:
    node.map(gpu0="12", gpu1="13")
    os.utime(node.mapping / "0", (1, 1))
    old = node.document(id="7", scheduler="slurm", gpus=[ADDRESSES[2]])
    os.utime(old, (1, 1))
    node.document(id="8", scheduler="slurm", boot_id="of another boot", gpus=[ADDRESSES[3]])


def _unknown_gpus(node: NodeTree) -> None:
    node.map(gpu8="12", gpu1="12")
    node.document(id="a", scheduler="flux", gpus=["0000:fe:00.0"], devices=["mlx5_99"])


STALE = "it is older than the last boot of this node, so its job has ended: remove it."
CASES = (
    Case("no source", lambda node: None, (), None),
    Case("version 2, no job", lambda node: node.slurm(), ("slurm-cgroup",), {}),
    Case("version 2, exclusive", lambda node: node.slurm("job_4711/step_0"), ("slurm-cgroup",), {"4711": ALONE}),
    Case("version 2, nested steps", _nested, ("slurm-cgroup",), {"4711": ALONE}),
    Case(
        "version 2, several daemons of Slurm, another slice",
        lambda node: node.slurm("job_5/step_0", scope="hpc.slice/node7_slurmstepd.scope"),
        ("slurm-cgroup",),
        {"5": ALONE},
    ),
    Case(
        "version 2, shared",
        lambda node: node.slurm("job_9/step_0", "job_10/step_batch"),
        ("slurm-cgroup",),
        {"9": UNPLACED, "10": UNPLACED},
    ),
    Case("version 2, a cgroup without processes", _left_over, ("slurm-cgroup",), {"2": ALONE}),
    Case(
        "version 1, exclusive, nested steps",
        lambda node: node.slurm_1("uid_1000/job_4711/step_0/task_0", "uid_1000/job_4711/step_extern"),
        ("slurm-cgroup",),
        {"4711": ALONE},
    ),
    Case(
        "version 1, shared by two users",
        lambda node: node.slurm_1("uid_1000/job_3/step_0", "uid_2000/job_4/step_0", first="slurm_node7"),
        ("slurm-cgroup",),
        {"3": UNPLACED, "4": UNPLACED},
    ),
    Case(
        "mapped to four GPUs each",
        _two_mapped,
        ("slurm-map", "slurm-cgroup"),
        {
            "12": Expected("slurm", "slurm-map", (0, 1, 2, 3), "gpus"),
            "13": Expected("slurm", "slurm-map", (4, 5, 6, 7), "gpus"),
        },
    ),
    Case(
        "mapped besides a job without GPUs",
        _mapped_besides_cpu,
        ("slurm-map", "slurm-cgroup"),
        {"12": Expected("slurm", "slurm-map", (5, 7), "gpus"), "13": UNPLACED},
    ),
    Case(
        "mapped to all GPUs, besides another job",
        lambda node: node.map(**{f"gpu{gpu}": "12\n13" if gpu == 3 else "12" for gpu in ALL}),
        ("slurm-map",),
        {
            "12": Expected("slurm", "slurm-map", ALL, "all-gpus"),
            "13": Expected("slurm", "slurm-map", (3,), "gpus"),
        },
    ),
    Case(
        "jobs that share a GPU, and instances of one",
        _shared_gpu,
        ("slurm-map",),
        {
            "12": Expected("slurm", "slurm-map", (0, 1), "gpus"),
            "13": Expected("slurm", "slurm-map", (0,), "gpus"),
            "14": Expected("slurm", "slurm-map", (2,), "gpus"),
            "15": Expected("slurm", "slurm-map", (2,), "gpus"),
        },
    ),
    Case(
        "mapped to some GPUs, alone on the node",
        lambda node: node.map(gpu0="12", gpu1="12"),
        ("slurm-map",),
        {"12": Expected("slurm", "slurm-map", ALL, "alone")},
    ),
    Case(
        "documents",
        _two_documents,
        ("file",),
        {"run-1": Expected("flux", "file", (0, 1), "gpus"), "run-2": Expected("pbs", "file", (3, 7), "gpus")},
    ),
    Case(
        "stale files",
        _stale,
        ("file", "slurm-map"),
        {"13": Expected("slurm", "slurm-map", ALL, "alone")},
        notices=(f"owners: 7.json, 8.json: {STALE}", f"mapping: 0: {STALE}"),
    ),
    Case(
        "GPUs and devices that are not there",
        _unknown_gpus,
        ("file", "slurm-map"),
        {"a": Expected("flux", "file"), "12": Expected("slurm", "slurm-map", (1,), "gpus")},
        notices=(
            "job a: it holds GPU 0000:fe:00.0, which this node does not have.",
            "job a: it holds mlx5_99, which this node does not have.",
            "job 12: it holds GPU 8, which this node does not have.",
        ),
    ),
    Case(
        "pods, systemd",
        _systemd_pods,
        ("kubernetes-cgroup",),
        {
            UID: Expected("kubernetes", "kubernetes-cgroup", (0, 2), "devices"),
            OTHER_UID: Expected("kubernetes", "kubernetes-cgroup", (1, 2), "devices"),
        },
        (UID, STATIC_UID, THIRD_UID, OTHER_UID),
    ),
    Case(
        "pods, cgroupfs",
        _cgroupfs_pods,
        ("kubernetes-cgroup",),
        {UID: Expected("kubernetes", "kubernetes-cgroup", ALL, "alone")},
        (UID, STATIC_UID, OTHER_UID),
    ),
    Case(
        "pods, version 1",
        _version_1_pods,
        ("kubernetes-cgroup",),
        {OTHER_UID: Expected("kubernetes", "kubernetes-cgroup", ALL, "alone")},
        (OTHER_UID,),
    ),
    Case(
        "pods below a cgroup of the kubelet",
        _kind_pods,
        ("kubernetes-cgroup",),
        {OTHER_UID: Expected("kubernetes", "kubernetes-cgroup", ALL, "alone")},
        (UID, OTHER_UID),
    ),
    Case("pods without the rdma controller", _blind_pods, ("kubernetes-cgroup",), None, (UID, OTHER_UID)),
)
