"""Jobs on real directories, from the sources to `/metrics` and `/api/v1/jobs`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from ibpulse.agent.jobs.owners import place_jobs
from ibpulse.agent.jobs.watch import JobsView, merge
from ibpulse.core.answers.jobs import JobsAnswer
from tests.jobs.job_nodes import ADDRESSES, GPUS, RAILS, UID, CaseView, NodeTree, Pages, pages_in, under

MIG = "MIG-265a219d-a49f-578a-825d-222c72699c16"
# scheduler, source, the numbers of its rails and what they follow from
Job = tuple[str, str, tuple[int, ...], str]


@dataclass(frozen=True)
class Case:
    """A node, and what is true of it; `jobs` is None if nothing tells which jobs run, and not `known` if others may."""

    name: str
    build: Callable[[NodeTree], None]
    sources: tuple[str, ...] = ()
    jobs: Mapping[str, Job] | None = None
    notices: tuple[str, ...] = ()
    known: bool = True


def _slurm_and_pods(node: NodeTree) -> None:
    node.slurm("job_31/step_0")
    uses = "mlx5_1 hca_handle=2 hca_object=7\nmlx5_2 hca_handle=1 hca_object=1\n"
    node.group(f"kubepods.slice/kubepods-pod{under(UID)}.slice", rdma__current=uses)


def _documents(node: NodeTree) -> None:
    node.document(id="run-1", scheduler="flux", name="llama", namespace="team-a", gpus=list(ADDRESSES[:2]))
    node.document(id="run-2", scheduler="pbs", gpus=[ADDRESSES[1]], devices=["mlx5_3"])


CASES = (
    Case("no source", lambda node: None),
    Case(
        "pods without the rdma controller",
        lambda node: node.group(f"kubepods.slice/kubepods-pod{under(UID)}.slice"),
        ("kubernetes-cgroup",),
    ),
    Case(
        "a job alone",
        lambda node: node.slurm("job_4711/step_0"),
        ("slurm-cgroup",),
        {"4711": ("slurm", "slurm-cgroup", tuple(range(GPUS)), "alone")},
    ),
    Case(
        "jobs that cannot be placed",
        lambda node: node.map(**{MIG: "12 1000", "gpu1": "12 1000"}),
        ("slurm-map",),
        {"12": ("slurm", "slurm-map", (), "")},
        (f"mapping: {MIG}: its name is not like 0 or 0.1, so the GPUs of its job are not known.",),
        known=False,
    ),
    Case(
        "documents with a GPU in common",
        _documents,
        ("file",),
        {"run-1": ("flux", "file", (0, 1), "gpus"), "run-2": ("pbs", "file", (1, 3), "gpus")},
    ),
    Case(
        "Slurm and pods",
        _slurm_and_pods,
        ("slurm-cgroup", "kubernetes-cgroup"),
        {"31": ("slurm", "slurm-cgroup", (), ""), UID: ("kubernetes", "kubernetes-cgroup", (1, 2), "devices")},
    ),
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


def samples_of(case: Case) -> Iterator[str]:
    """One sample per port and per port of a job."""
    jobs = case.jobs or {}
    if case.jobs is not None and case.known:
        yield f"ibpulse_node_jobs {len(jobs)}"
        for number, name in enumerate(RAILS):
            owners = sum(number in rails for _, _, rails, _ in jobs.values())
            yield f'ibpulse_port_jobs{{device="{name}",port="1"}} {owners}'
    for job_id, (scheduler, source, rails, _) in jobs.items():
        names = ',name="llama",namespace="team-a"' if job_id == "run-1" else ""
        for number in rails:
            labels = f'device="{RAILS[number]}",port="1",job_id="{job_id}",scheduler="{scheduler}",source="{source}"'
            yield f"ibpulse_port_job_info{{{labels}{names}}} 1"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_metrics_and_the_list_have_the_jobs_of_the_node_with_their_rails(
    case: Case, tmp_path: Path, pages: Pages
) -> None:
    view = view_case(case, tmp_path / "node")
    assert tuple(notice.replace(f"{view.node.root}/", "") for notice in view.jobs.notices) == case.notices
    assert sorted(pages.samples(view)) == sorted(samples_of(case))
    answer = pages.answer(view)
    JobsAnswer.model_validate(answer, strict=True)
    assert (answer["known"], answer["sources"]) == (case.jobs is not None and case.known, list(case.sources))
    found = {
        job["job_id"]: (job["scheduler"], job["source"], tuple(int(port[5]) for port in job["ports"]), job["basis"])
        for job in answer["jobs"]
    }
    assert found == dict(case.jobs or {})
    assert all(job["running"] and job["began"] is None and job["ended"] is None for job in answer["jobs"])
