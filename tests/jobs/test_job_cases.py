"""Jobs on real directories, from the sources to `/metrics` and `/api/v1/jobs`, compared with what is true of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from ibpulse.aggregator.snapshot import PortSnapshot, Snapshot
from ibpulse.exposition.page import TextFormat, table_text
from ibpulse.jobs.job_sources import merge
from ibpulse.jobs.job_watch import JobsView
from ibpulse.jobs.owners import place_jobs
from ibpulse.metrics import job_rows
from ibpulse.sysfs.inventory import Inventory
from ibpulse.web.routes.jobs_route import describe_jobs
from ibpulse.web.schemas import JobsAnswer
from tests.exposition.snapshots import node as make_snapshot
from tests.jobs.job_trees import CASES, RAILS, Case, Expected, NodeTree
from tests.web.rings import Node, full_node

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    """A snapshot of which only the ports and the jobs matter, and these are replaced."""
    return make_snapshot(tmp_path_factory.mktemp("ring"), 1)


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    made = full_node(tmp_path_factory.mktemp("ring"))
    yield made
    made.ring.close()


def view_of(case: Case, root: Path) -> tuple[JobsView, NodeTree]:
    node = NodeTree(root)
    case.build(node)
    fabric = node.add_rails()
    assert sum(port.rail for port in fabric.ports) == len(RAILS)
    merged = merge(node.read())
    placement = place_jobs(merged.claims or (), fabric.ports, fabric.topology)
    jobs = None if merged.claims is None else placement.jobs
    return JobsView(jobs, merged.present, merged.pods, (*merged.remarks, *placement.remarks)), node


def found(view: JobsView) -> dict[str, Expected] | None:
    if view.jobs is None:
        return None
    return {
        job.claim.id: Expected(
            job.claim.scheduler, job.claim.source, tuple(RAILS.index(port.device) for port in job.ports), job.basis
        )
        for job in view.jobs
    }


@every_case
def test_the_jobs_of_a_node_are_those_that_run_there_with_their_rails(case: Case, tmp_path: Path) -> None:
    view, node = view_of(case, tmp_path / "node")
    assert found(view) == (None if case.jobs is None else dict(case.jobs))
    assert view.sources == case.sources
    assert sorted(view.pods) == sorted(case.pods)
    assert tuple(notice.replace(f"{node.root}/", "") for notice in view.notices) == case.notices


@every_case
def test_metrics_have_one_sample_per_port_and_job(case: Case, tmp_path: Path, base: Snapshot) -> None:
    view, node = view_of(case, tmp_path / "node")
    ports = Inventory(node.machine.root).scan().ports
    snapshot = replace(base, ports=tuple(map(PortSnapshot, ports)), jobs=view.jobs, job_statistics=())
    text = table_text(job_rows.ROWS, snapshot, TextFormat.PROMETHEUS, ())
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    expected = []
    if case.jobs is not None:
        expected.append(f"ibpulse_node_jobs {len(case.jobs)}")
        for number, name in enumerate(RAILS):
            owners = sum(number in job.rails for job in case.jobs.values())
            expected.append(f'ibpulse_port_jobs{{device="{name}",port="1"}} {owners}')
        for job_id, job in case.jobs.items():
            names = ""
            if job_id == "run-1":
                names = ',name="llama",namespace="team-a"'
            for number in job.rails:
                labels = f'device="{RAILS[number]}",port="1",job_id="{job_id}"'
                labels += f',scheduler="{job.scheduler}",source="{job.source}"{names}'
                expected.append(f"ibpulse_port_job_info{{{labels}}} 1")
    assert sorted(samples) == sorted(expected)


@every_case
def test_the_route_describes_what_runs(case: Case, tmp_path: Path, ring: Node) -> None:
    view, _ = view_of(case, tmp_path / "node")
    answer = orjson.loads(orjson.dumps(describe_jobs(ring.parts(jobs=lambda: view))))
    JobsAnswer.model_validate(answer, strict=True)
    assert (answer["known"], answer["sources"]) == (case.jobs is not None, list(case.sources))
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
