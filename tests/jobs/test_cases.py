"""Jobs on real directories, from the sources to `/metrics` and `/api/v1/jobs`, compared with what is true of each."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from ibpulse.agent.jobs.owners import place_jobs
from ibpulse.agent.jobs.sources import merge
from ibpulse.agent.jobs.watch import JobsView
from ibpulse.core.answers.jobs import JobsAnswer
from tests.jobs.job_nodes import (
    ADDRESSES,
    BOOT_ID,
    GPUS,
    OTHER_UID,
    RAILS,
    STATIC_UID,
    THIRD_UID,
    UID,
    CaseView,
    NodeTree,
    Pages,
    pages_in,
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
        "Slurm and pods",
        _slurm_and_pods,
        ("slurm-cgroup", "kubernetes-cgroup"),
        {"31": UNPLACED, UID: Expected("kubernetes", "kubernetes-cgroup", (1, 2), "devices")},
        (UID,),
    ),
    Case("pods without the rdma controller", _blind_pods, ("kubernetes-cgroup",), None, (UID, OTHER_UID)),
)


def view_case(case: Case, root: Path) -> CaseView:
    """Build the node of a case below a directory and read it."""
    node = NodeTree(root)
    case.build(node)
    fabric = node.add_rails()
    merged = merge(node.read())
    placement = place_jobs(merged.claims or (), fabric.ports, fabric.topology, whole=merged.known)
    jobs = None if merged.claims is None else placement.jobs
    notices = (*merged.remarks, *placement.remarks)
    view = JobsView(jobs, merged.present, merged.pods, notices, whole=merged.known)
    return CaseView(view, fabric.ports, node)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    with pages_in(tmp_path_factory.mktemp("ring")) as made:
        yield made


def samples_of(case: Case) -> list[str]:
    """One sample per port and per port of a job."""
    if case.jobs is None:
        return []
    expected = [f"ibpulse_node_jobs {len(case.jobs)}"] * case.known
    for number, name in enumerate(RAILS) if case.known else ():
        owners = sum(number in job.rails for job in case.jobs.values())
        expected.append(f'ibpulse_port_jobs{{device="{name}",port="1"}} {owners}')
    for job_id, job in case.jobs.items():
        names = ',name="llama",namespace="team-a"' if job_id == "run-1" else ""
        for number in job.rails:
            labels = f'device="{RAILS[number]}",port="1",job_id="{job_id}"'
            labels += f',scheduler="{job.scheduler}",source="{job.source}"{names}'
            expected.append(f"ibpulse_port_job_info{{{labels}}} 1")
    return expected


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_jobs_are_those_that_run_on_the_node_with_their_rails_up_to_both_pages(
    case: Case, tmp_path: Path, pages: Pages
) -> None:
    view = view_case(case, tmp_path / "node")
    assert sum(port.rail for port in view.ports) == len(RAILS)
    found = None
    if view.jobs.jobs is not None:
        found = {
            job.claim.id: Expected(
                job.claim.scheduler, job.claim.source, tuple(RAILS.index(port.device) for port in job.ports), job.basis
            )
            for job in view.jobs.jobs
        }
    assert found == (None if case.jobs is None else dict(case.jobs))
    assert view.jobs.sources == case.sources
    assert sorted(view.jobs.pods) == sorted(case.pods)
    assert tuple(notice.replace(f"{view.node.root}/", "") for notice in view.jobs.notices) == case.notices
    assert sorted(pages.samples(view)) == sorted(samples_of(case))
    answer = pages.answer(view)
    JobsAnswer.model_validate(answer, strict=True)
    assert (answer["known"], answer["sources"]) == (case.jobs is not None and case.known, list(case.sources))
    told = {
        job["job_id"]: Expected(
            job["scheduler"],
            job["source"],
            tuple(int(re.fullmatch(r"mlx5_(\d):1", port)[1]) for port in job["ports"]),  # type: ignore[index]
            job["basis"],
        )
        for job in answer["jobs"]
    }
    assert told == dict(case.jobs or {})
    assert all(job["running"] and job["began"] is None and job["ended"] is None for job in answer["jobs"])
