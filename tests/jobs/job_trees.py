"""Nodes with jobs, in real directories under the names that Slurm and the kubelet give them.

Each case comes with the jobs that an experienced person would name, and with the rails of each. It asserts nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.jobs.job_nodes import (
    ADDRESSES,
    BOOT_ID,
    GPUS,
    OTHER_UID,
    RAILS,
    STATIC_UID,
    THIRD_UID,
    UID,
    NodeTree,
    under,
)


@dataclass(frozen=True)
class Expected:
    """One job as it should be found, with the numbers of its rails."""

    scheduler: str
    source: str
    rails: tuple[int, ...] = ()
    basis: str = ""


@dataclass(frozen=True)
class Case:
    """A node, and what is true of it; `jobs` is None if nothing tells which jobs run, and not `known` if others may."""

    name: str
    build: Callable[[NodeTree], None]
    sources: tuple[str, ...]
    jobs: Mapping[str, Expected] | None
    pods: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    known: bool = True


ALL = tuple(range(GPUS))
ALONE = Expected("slurm", "slurm-cgroup", ALL, "alone")
UNPLACED = Expected("slurm", "slurm-cgroup")
USES = "mlx5_0 hca_handle=1 hca_object=20\nmlx5_1 hca_handle=0 hca_object=0\nmlx5_2 hca_handle=3 hca_object=410\n"
UNUSED = "mlx5_0 hca_handle=0 hca_object=0\nmlx5_1 hca_handle=0 hca_object=0\n"
OTHERS = "mlx5_1 hca_handle=2 hca_object=7\nmlx5_2 hca_handle=1 hca_object=1\n"


def _systemd_pods(node: NodeTree) -> None:
    node.group(f"kubepods.slice/kubepods-pod{under(UID)}.slice/cri-containerd-abc.scope")
    node.group(f"kubepods.slice/kubepods-pod{under(UID)}.slice", rdma__current=USES)
    node.group(
        f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{under(OTHER_UID)}.slice", rdma__current=OTHERS
    )
    best = "kubepods.slice/kubepods-besteffort.slice"
    node.group(f"{best}/kubepods-besteffort-pod{under(THIRD_UID)}.slice", rdma__current=UNUSED)
    node.group(f"{best}/kubepods-besteffort-pod{STATIC_UID}.slice", rdma__current=UNUSED)


def _training_pod(node: NodeTree) -> None:
    every = "".join(f"{rail} hca_handle=1 hca_object=20\n" for rail in RAILS)
    node.group(f"kubepods.slice/kubepods-pod{under(UID)}.slice", rdma__current=every)
    for uid in (OTHER_UID, THIRD_UID):
        daemon = f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{under(uid)}.slice"
        node.group(daemon, rdma__current=UNUSED)


def _slurm_and_pods(node: NodeTree) -> None:
    node.slurm("job_31/step_0")
    node.group(f"kubepods.slice/kubepods-pod{under(UID)}.slice", rdma__current=OTHERS)


def _documented(node: NodeTree) -> None:
    node.slurm("job_20/step_0", "job_21/step_0")
    node.document(id="20", scheduler="slurm", gpus=list(ADDRESSES), boot_id=BOOT_ID)
    node.document(id="21", scheduler="slurm", name="fine-tune")


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
    Case("version 2, exclusive", lambda node: node.slurm("job_4711/step_0"), ("slurm-cgroup",), {"4711": ALONE}),
    Case(
        "version 2, Slurm 26.05",
        lambda node: node.slurm("s5K1KKYAYG5D00/step_0", "sEKNKTV3WPV500/step_extern"),
        ("slurm-cgroup",),
        {"s5K1KKYAYG5D00": UNPLACED, "sEKNKTV3WPV500": UNPLACED},
    ),
    Case(
        "version 2, a name that is not known",
        lambda node: node.slurm("job_4711/step_0", "t5K1KKYAYG5D00/step_0"),
        ("slurm-cgroup",),
        {"4711": UNPLACED},
        notices=(
            "sys/fs/cgroup/system.slice/slurmstepd.scope: t5K1KKYAYG5D00: not the name of a job, such as job_42 or "
            "s5K1KKYAYG5D00; it is not known which jobs run.",
        ),
        known=False,
    ),
    Case(
        "mapped by UUID",
        lambda node: node.map(**{"MIG-265a219d-a49f-578a-825d-222c72699c16": "12 1000", "gpu1": "12 1000"}),
        ("slurm-map",),
        {"12": Expected("slurm", "slurm-map")},
        notices=(
            "mapping: MIG-265a219d-a49f-578a-825d-222c72699c16: its name is not like 0 or 0.1, so the GPUs of its job "
            "are not known.",
        ),
        known=False,
    ),
    Case(
        "version 2, shared",
        lambda node: node.slurm("job_9/step_0", "job_10/step_batch"),
        ("slurm-cgroup",),
        {"9": UNPLACED, "10": UNPLACED},
    ),
    Case(
        "cgroups say which jobs run, documents what they hold",
        _documented,
        ("file", "slurm-cgroup"),
        {"20": Expected("slurm", "file", ALL, "all-gpus"), "21": Expected("slurm", "file")},
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
        {"12": Expected("slurm", "slurm-map", (0, 1), "gpus")},
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
        {"13": Expected("slurm", "slurm-map", (1,), "gpus")},
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
        "a pod that trains beside others",
        _training_pod,
        ("kubernetes-cgroup",),
        {UID: Expected("kubernetes", "kubernetes-cgroup", ALL, "devices")},
        (UID, OTHER_UID, THIRD_UID),
    ),
    Case(
        "Slurm and pods",
        _slurm_and_pods,
        ("slurm-cgroup", "kubernetes-cgroup"),
        {"31": UNPLACED, UID: Expected("kubernetes", "kubernetes-cgroup", (1, 2), "devices")},
        (UID,),
    ),
    Case("pods without the rdma controller", _blind_pods, ("kubernetes-cgroup",), None, (UID, OTHER_UID)),
)
