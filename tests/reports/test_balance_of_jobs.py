"""Reports compare the rails of the same jobs, over the time in which they had the same ones; against closed forms."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from ibpulse.core.events import Event
from ibpulse.core.jobs.claims import PlacedJob
from ibpulse.core.jobs.job_history import Holding, JobRecord, job_details
from ibpulse.core.recordings import Recording
from ibpulse.workbench.reports.formats import render_json, render_markdown, render_page, render_text
from ibpulse.workbench.reports.run import ComparedPorts, Run
from ibpulse.workbench.reports.span import Moment, ReportOptions
from tests.reports.recordings import SECOND_NS, UP, change, record, report_of, run_of
from tests.reports.test_jobs_of_reports import at, job

GB = 1e9
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


def two_jobs() -> Recording:
    return with_jobs(on_eight_rails(), (record_of(BUSY), record_of(QUIET)))


def verdicts(run: Run) -> tuple[object, object]:
    return run.values["idle_rails"], run.values["slow_rails"]


def test_without_jobs_the_quiet_rails_are_idle() -> None:
    run = run_of(on_eight_rails())
    assert verdicts(run) == (NAMES[4:], ())
    assert run.values["fairness_ratio"] == pytest.approx(71.6**2 / (8 * (3 * 400 + 100 + 4 * 0.16)))
    assert run.compared == (ComparedPorts(NAMES, pytest.approx(30.0)),)


def test_a_quiet_job_is_neither_idle_nor_unfair_and_the_slow_rail_of_the_other_is_named() -> None:
    run = run_of(two_jobs())
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
    recording = two_jobs()
    # the bytes of the jobs vary against each other, and those of the rails of a job do not
    recording.bytes_per_second[:4] *= np.repeat(np.random.default_rng(7).uniform(0.5, 1.5, 30), 100)
    spread = run_of(recording).spreads["fairness_ratio"]
    assert spread.replicates == pytest.approx(np.full(len(spread.replicates), 8 / (4 * (4 * 1300) / 70**2 + 4)))


def test_every_format_says_what_is_compared() -> None:
    report = report_of(two_jobs())
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


def test_runs_whose_quiet_job_differs_have_the_same_fairness_and_idle_rails() -> None:
    other = two_jobs()
    other.bytes_per_second[4:] *= 40
    (changes,) = report_of(two_jobs(), other).changes
    assert changes.by_key["fairness_ratio"].ratio == pytest.approx(0.0)
    assert not any(changes.by_key[key].differs for key in ("fairness_ratio", "idle_rails", "slow_rails"))
    (without,) = report_of(on_eight_rails(), replace(other, meta=on_eight_rails().meta)).changes
    assert without.by_key["idle_rails"].differs
    assert without.by_key["fairness_ratio"].differs


def test_a_rail_that_a_job_got_late_is_compared_from_then_on() -> None:
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


def test_a_job_that_came_back_on_other_rails_compares_neither_with_the_ones_before() -> None:
    first, second = job("1", "mlx5_0", "mlx5_1"), job("1", "mlx5_2", "mlx5_3")
    rates = np.full((4, 2, 2000), 10 * GB)
    rates[:2, :, 1000:] = rates[2:, :, :1000] = 0.0
    run = run_of(with_jobs(record(rates), (record_of(first),), (moved(10, second),)))
    assert verdicts(run) == ((), ())
    assert run.values["fairness_ratio"] is None
    assert [port.sibling_ratio for port in run.ports] == [None] * 4
    assert run.compared == (ComparedPorts(NAMES[:4], 0.0),)


def test_jobs_that_follow_each_other_on_the_same_rails_are_one_comparison() -> None:
    after = job("3", *(f"mlx5_{number}" for number in range(4)))
    next_one = replace(record_of(after), began_ns=at(18))
    jobs = (record_of(BUSY, ended=12), record_of(QUIET), next_one)
    events = (moved(12, BUSY, "job-ended"), moved(18, after, "job-began"))
    run = run_of(with_jobs(on_eight_rails(), jobs, events))
    assert [group.ports for group in run.compared] == [NAMES[:4], NAMES[4:]]
    assert [group.seconds for group in run.compared] == pytest.approx([30.0, 30.0])
    assert verdicts(run) == ((), NAMES[2:3])


def test_rails_without_a_job_are_compared_with_each_other() -> None:
    plain = on_eight_rails()
    plain.bytes_per_second[5] = 0.0
    run = run_of(with_jobs(plain, (record_of(BUSY),)))
    assert verdicts(run) == (NAMES[5:6], NAMES[2:3])


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
