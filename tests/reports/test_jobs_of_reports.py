"""Reports name the jobs of the rails, with the times at which they had them."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from ibpulse.core.events import Event
from ibpulse.core.jobs.claims import Claim, PlacedJob
from ibpulse.core.jobs.job_history import Holding, JobRecord, job_details
from ibpulse.core.model import PortId
from ibpulse.core.recordings import Recording
from ibpulse.workbench.reports.formats import render_json, render_markdown, render_page, render_text
from ibpulse.workbench.reports.span import Moment, ReportOptions
from tests.reports.recordings import SECOND_NS, START_NS, TICK_NS, record, report_of, run_of

BEGIN_NS = START_NS + TICK_NS


def job(name: str, *devices: str, title: str = "") -> PlacedJob:
    return PlacedJob(Claim(name, "slurm", "file", title), tuple(PortId(device, 1) for device in devices), "gpus")


def at(seconds: float) -> int:
    return BEGIN_NS + round(seconds * SECOND_NS)


def two_jobs(title: str = "llama") -> Recording:
    """Four rails for 20 s: job 1 has two of them and ends after 12 s, job 2 has the others from 5 s on."""
    plain = record(np.full((4, 2, 2000), 10e9))
    one, two = job("1", "mlx5_0", "mlx5_1", title=title), job("2", "mlx5_2", "mlx5_3")
    events = (
        Event(at(5), "job-began", "", "", 2 * SECOND_NS, details=job_details(two)),
        Event(at(12), "job-ended", "", "", details=job_details(one)),
    )
    jobs = (
        JobRecord(one, None, 0, at(12), 0, (Holding(one.ports),)),
        JobRecord(two, at(5), 2 * SECOND_NS, None, 0, (Holding(two.ports),)),
    )
    return replace(plain, meta=replace(plain.meta, events=events, jobs=jobs))


def test_a_report_lists_the_jobs_with_their_ports_and_times() -> None:
    text = render_text(report_of(two_jobs()))
    assert "Jobs of a:\n" in text
    lines = " ".join(text.split())
    assert "+0.00 s 00:00:00.000 UTC job 1 (slurm, llama) has mlx5_0:1, mlx5_1:1 until +12.01 s" in lines
    assert "+5.01 s 00:00:05.010 UTC job 2 (slurm) has mlx5_2:1, mlx5_3:1 (or up to 2.000 s earlier)" in lines
    for other in (render_markdown(report_of(two_jobs())), render_page(report_of(two_jobs()))):
        assert "Jobs of a" in other
        assert "has mlx5" in other.replace("\\", "")


def test_the_ports_of_several_jobs_name_them_and_those_of_one_do_not() -> None:
    found = {port.port: port.jobs for port in run_of(two_jobs()).ports}
    assert found == {"mlx5_0:1": ("1",), "mlx5_1:1": ("1",), "mlx5_2:1": ("2",), "mlx5_3:1": ("2",)}
    text = render_text(report_of(two_jobs()))
    assert text.count(", job 1") == text.count(", job 2") == 2
    alone = two_jobs()
    every = tuple(PortId(f"mlx5_{number}", 1) for number in range(4))
    (one, _) = alone.meta.jobs
    owner = replace(one, job=replace(one.job, ports=every), holdings=(Holding(every),), ended_ns=None)
    alone = replace(alone, meta=replace(alone.meta, jobs=(owner,), events=()))
    assert ", job 1" not in render_text(report_of(alone))
    assert "job 1 (slurm, llama) has mlx5_0:1, mlx5_1:1, mlx5_2:1, mlx5_3:1\n" in render_text(report_of(alone))


def test_a_part_has_the_jobs_of_its_time() -> None:
    late = ReportOptions(begin=Moment(13 * SECOND_NS, True))
    run = run_of(two_jobs(), late)
    assert [record.job.claim.id for record in run.jobs] == ["2"]
    assert [port.jobs for port in run.ports] == [(), (), ("2",), ("2",)]
    text = render_text(report_of(two_jobs(), options=late))
    assert ", no known job" in text
    assert "+0.00 s" in text
    assert "job 2 (slurm) has mlx5_2:1, mlx5_3:1\n" in text
    early = run_of(two_jobs(), ReportOptions(end=Moment(4 * SECOND_NS, True)))
    assert [record.job.claim.id for record in early.jobs] == ["1"]


def test_the_json_has_the_jobs() -> None:
    (found,) = json.loads(render_json(report_of(two_jobs())))["recordings"]
    assert found["jobs"][1] == {
        "job_id": "2",
        "scheduler": "slurm",
        "source": "file",
        "name": "",
        "namespace": "",
        "basis": "gpus",
        "began": "2025-11-21T00:00:05.010000000Z",
        "began_uncertainty_seconds": 2.0,
        "ended": None,
        "ended_uncertainty_seconds": 0.0,
        "had": [{"ports": ["mlx5_2:1", "mlx5_3:1"], "from": "2025-11-21T00:00:05.010000000Z", "to": None}],
    }
    assert found["jobs_left_out"] == 0
    assert [port["jobs"] for port in found["ports"]] == [["1"], ["1"], ["2"], ["2"]]


def test_a_job_of_an_unknown_scheduler_has_only_its_id() -> None:
    recording = two_jobs("")
    one = recording.meta.jobs[0]
    unnamed = replace(one, job=replace(one.job, claim=replace(one.job.claim, scheduler="")))
    report = report_of(replace(recording, meta=replace(recording.meta, jobs=(unnamed,), events=())))
    assert "job 1 has mlx5_0:1, mlx5_1:1 until +12.01 s" in " ".join(render_text(report).split())


@pytest.mark.parametrize("title", ["<script>alert(1)</script>", "\x1b[31mred", "a|b*c\nd"])
def test_hostile_names_stay_text(title: str) -> None:
    report = report_of(two_jobs(title))
    page = render_page(report)
    assert "<script>" not in page
    for text in (render_text(report), render_markdown(report), page, render_json(report)):
        assert "\x1b" not in text
    assert "a|b" not in render_markdown(report)


def test_a_recording_without_jobs_has_no_such_list() -> None:
    text = render_text(report_of(record(np.full((2, 2, 500), 10e9))))
    assert "Jobs of" not in text
    assert "job" not in text.replace("jobs", "")
