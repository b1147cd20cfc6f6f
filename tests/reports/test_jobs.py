"""Reports compare the rails of the same jobs, and name the jobs."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from ibpulse.core.events import Event
from ibpulse.core.jobs import Claim, Holding, JobRecord, PlacedJob, job_details
from ibpulse.core.model import PortId
from ibpulse.core.recordings import Recording
from ibpulse.workbench.reports.formats import render_json, render_markdown, render_page, render_text
from ibpulse.workbench.reports.run import ComparedPorts, Run
from ibpulse.workbench.reports.span import Moment, ReportOptions
from tests.reports.recordings import SECOND_NS, START_NS, TICK_NS, UP, change, record, report_of, run_of

GB = 1e9
BEGIN_NS = START_NS + TICK_NS


def job(name: str, *devices: str, title: str = "") -> PlacedJob:
    return PlacedJob(Claim(name, "slurm", "file", title), tuple(PortId(device, 1) for device in devices), "gpus")


def at(seconds: float) -> int:
    return BEGIN_NS + round(seconds * SECOND_NS)


NAMES = tuple(f"mlx5_{number}:1" for number in range(8))
BUSY, QUIET = (
    job("1", *(f"mlx5_{number}" for number in range(4))),
    job("2", *(f"mlx5_{number}" for number in range(4, 8))),
)


def record_of(placed: PlacedJob, ended: float | None = None) -> JobRecord:
    return JobRecord(placed, None, 0, None if ended is None else at(ended), 0, (Holding(placed.ports),))


def with_jobs(plain: Recording, jobs: tuple[JobRecord, ...], events: tuple[Event, ...] = ()) -> Recording:
    return replace(plain, meta=replace(plain.meta, jobs=jobs, events=(*plain.meta.events, *events)))


def moved(seconds: float, placed: PlacedJob, kind: str = "job-change") -> Event:
    return Event(at(seconds), kind, "", "", details=job_details(placed))


def on_eight_rails() -> Recording:
    """30 s: rails 0 to 3 carry 20 GB/s each, but 2 half of it; rails 4 to 7 carry a fiftieth."""
    rates = np.full((8, 2, 3000), 10 * GB)
    rates[2] = 5 * GB
    rates[4:] = 0.2 * GB
    return record(rates)


def on_halves() -> Recording:
    return with_jobs(on_eight_rails(), (record_of(BUSY), record_of(QUIET)))


def verdicts(run: Run) -> tuple[object, object]:
    return run.values["idle_rails"], run.values["slow_rails"]


def test_quiet_rails_are_idle_without_jobs_and_not_in_a_job_of_their_own() -> None:
    run = run_of(on_eight_rails())
    assert verdicts(run) == (NAMES[4:], ())
    assert run.values["fairness_ratio"] == pytest.approx(71.6**2 / (8 * (3 * 400 + 100 + 4 * 0.16)))
    assert run.compared == (ComparedPorts(NAMES, pytest.approx(30.0)),)
    run = run_of(on_halves())
    assert verdicts(run) == ((), NAMES[2:3])
    assert run.values["fairness_ratio"] == pytest.approx(8 / (4 * (4 * 1300) / 70**2 + 4))
    assert run.values["active_rails"] == 8
    assert [port.sibling_ratio for port in run.ports] == pytest.approx([1, 1, 0.5, 1, 1, 1, 1, 1])
    assert [port.share_ratio for port in run.ports] == pytest.approx([2 / 7, 2 / 7, 1 / 7, 2 / 7, *[1 / 4] * 4])
    assert [port.mean_bytes_per_second for port in run.ports[3:5]] == pytest.approx([20 * GB, 0.4 * GB])
    assert run.compared == (
        ComparedPorts(NAMES[:4], pytest.approx(30.0)),
        ComparedPorts(NAMES[4:], pytest.approx(30.0)),
    )


def test_the_interval_of_fairness_is_about_the_groups() -> None:
    recording = on_halves()
    # the bytes of the jobs vary against each other, and those of the rails of a job do not
    recording.bytes_per_second[:4] *= np.repeat(np.random.default_rng(7).uniform(0.5, 1.5, 30), 100)
    spread = run_of(recording).spreads["fairness_ratio"]
    assert spread.replicates == pytest.approx(np.full(len(spread.replicates), 8 / (4 * (4 * 1300) / 70**2 + 4)))


def test_every_format_says_what_is_compared() -> None:
    report = report_of(on_halves())
    for text in (render_text(report), render_markdown(report), render_page(report)):
        plain = " ".join(text.replace("\\", "").split())
        assert "Ports: mean, share of the bytes of ports with the same jobs" in plain
        assert "compare only ports that had the same jobs" in plain
        assert "over that time" not in plain
    (found,) = json.loads(render_json(report))["recordings"]
    assert [group["ports"] for group in found["compared"]] == [[*NAMES[:4]], [*NAMES[4:]]]
    assert (found["values"]["idle_rails"], found["values"]["slow_rails"]) == ([], [NAMES[2]])
    alone = render_text(report_of(on_eight_rails()))
    assert "Ports: mean, share of all bytes" in alone
    assert "same jobs" not in alone


def test_late_rail_is_compared_from_its_start() -> None:
    rates = np.full((4, 2, 2000), 10 * GB)
    rates[2:, :, :1000] = 0.0
    rates[3, :, 1000:] = 5 * GB
    recording = with_jobs(record(rates), (record_of(job("1", "mlx5_0", "mlx5_1")),), (moved(10, BUSY),))
    names = ", ".join(NAMES[:4])
    note = f"a: {names} had the same jobs at the same time for 10.00 s, and are compared over that time."
    for options, noted in ((ReportOptions(), True), (ReportOptions(begin=Moment(10 * SECOND_NS, True)), False)):
        run = run_of(recording, options)
        assert verdicts(run) == ((), NAMES[3:4])
        assert run.compared == (ComparedPorts(NAMES[:4], pytest.approx(10.0)),)
        assert run.values["fairness_ratio"] == pytest.approx(3.5**2 / (4 * 3.25))
        assert [port.share_ratio for port in run.ports] == pytest.approx([2 / 7, 2 / 7, 2 / 7, 1 / 7])
        text = " ".join(render_text(report_of(recording, options=options)).split())
        assert (note in text) is noted
    means = [port.mean_bytes_per_second for port in run_of(recording).ports]
    assert means == pytest.approx([20 * GB, 20 * GB, 10 * GB, 5 * GB])


def test_consecutive_jobs_on_same_rails_are_compared_together() -> None:
    after = job("3", *(f"mlx5_{number}" for number in range(4)))
    next_one = replace(record_of(after), began_ns=at(18))
    jobs = (record_of(BUSY, ended=12), record_of(QUIET), next_one)
    events = (moved(12, BUSY, "job-ended"), moved(18, after, "job-began"))
    run = run_of(with_jobs(on_eight_rails(), jobs, events))
    assert [group.ports for group in run.compared] == [NAMES[:4], NAMES[4:]]
    assert [group.seconds for group in run.compared] == pytest.approx([30.0, 30.0])
    assert verdicts(run) == ((), NAMES[2:3])


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_device_that_disappears_keeps_its_siblings(comes_back: bool) -> None:
    gone_seconds = 3 if comes_back else 15
    rates = np.full((4, 2, 2000), 10 * GB)
    rates[1, :, 500 : 500 + 100 * gone_seconds] = np.nan
    rates[3] = 5 * GB
    events = (change(5, UP, None), moved(5.6, job("1", "mlx5_0", "mlx5_2", "mlx5_3")))
    if comes_back:
        events = (*events, change(8, None, UP), moved(8.4, BUSY))
    run = run_of(with_jobs(record(rates), (record_of(BUSY),), events))
    assert run.compared == (ComparedPorts(NAMES[:4], pytest.approx(20.0)),)
    assert verdicts(run) == ((), NAMES[3:4])
    carried = np.array([20, 20 - gone_seconds, 20, 10])
    assert run.values["fairness_ratio"] == pytest.approx(carried.sum() ** 2 / (4 * np.square(carried).sum()))


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


def test_the_report_lists_jobs_with_ports_and_times() -> None:
    text = render_text(report_of(two_jobs()))
    assert "Jobs of a:\n" in text
    lines = " ".join(text.split())
    assert "+0.00 s 00:00:00.000 UTC job 1 (slurm, llama) has mlx5_0:1, mlx5_1:1 until +12.01 s" in lines
    assert "+5.01 s 00:00:05.010 UTC job 2 (slurm) has mlx5_2:1, mlx5_3:1 (or up to 2.000 s earlier)" in lines
    for other in (render_markdown(report_of(two_jobs())), render_page(report_of(two_jobs()))):
        assert "Jobs of a" in other
        assert "has mlx5" in other.replace("\\", "")
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


def test_ports_and_parts_name_their_jobs() -> None:
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
