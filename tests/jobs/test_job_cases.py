"""Jobs on real directories, from the sources to `/metrics` and `/api/v1/jobs`, compared with what is true of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ibpulse.core.answers.jobs import JobsAnswer
from tests.jobs.case_pages import Pages, pages_in, view_case
from tests.jobs.job_nodes import RAILS
from tests.jobs.job_trees import CASES, Case, Expected

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    with pages_in(tmp_path_factory.mktemp("ring")) as made:
        yield made


@every_case
def test_the_jobs_of_a_node_are_those_that_run_there_with_their_rails(case: Case, tmp_path: Path) -> None:
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


@every_case
def test_metrics_have_one_sample_per_port_and_job(case: Case, tmp_path: Path, pages: Pages) -> None:
    expected = []
    if case.jobs is not None:
        if case.known:
            expected.append(f"ibpulse_node_jobs {len(case.jobs)}")
        for number, name in enumerate(RAILS) if case.known else ():
            owners = sum(number in job.rails for job in case.jobs.values())
            expected.append(f'ibpulse_port_jobs{{device="{name}",port="1"}} {owners}')
        for job_id, job in case.jobs.items():
            names = ',name="llama",namespace="team-a"' if job_id == "run-1" else ""
            for number in job.rails:
                labels = f'device="{RAILS[number]}",port="1",job_id="{job_id}"'
                labels += f',scheduler="{job.scheduler}",source="{job.source}"{names}'
                expected.append(f"ibpulse_port_job_info{{{labels}}} 1")
    assert sorted(pages.samples(view_case(case, tmp_path / "node"))) == sorted(expected)


@every_case
def test_the_route_describes_what_runs(case: Case, tmp_path: Path, pages: Pages) -> None:
    answer = pages.answer(view_case(case, tmp_path / "node"))
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
