"""Noise is not reported as a change, and a change is."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from ibpulse.workbench.reports.comparison import Change, Report
from ibpulse.workbench.reports.span import ReportOptions
from ibpulse.workbench.simulate.fsdp import DENSE, MOE, Fsdp
from tests.reports.recordings import play, record, report_of, wave
from tests.tables import for_each

GB = 1e9
SHORTER_GAPS = replace(DENSE, tail_seconds=0.95 * DENSE.tail_seconds)


def marked(report: Report) -> set[str]:
    """The rows whose change matters."""
    return {key for key, change in report.changes[0].by_key.items() if change.differs}


def change(report: Report, key: str) -> Change:
    return report.changes[0].by_key[key]


@for_each(itertools.product([DENSE, MOE], range(10)))
def test_two_halves_of_one_run_show_no_difference(workload: Fsdp, seed: int) -> None:
    recording = play(workload, 120, seed)
    report = report_of(recording.cut(0, 6000), recording.cut(6000, 12000))
    assert report.changes[0].rows >= 12
    assert marked(report) == set()


@pytest.mark.parametrize("seed", range(5))
def test_gaps_that_are_five_percent_shorter_are_shown(seed: int) -> None:
    report = report_of(play(DENSE, 60, seed), play(SHORTER_GAPS, 60, seed + 100))
    assert {"step_gap_seconds", "step_seconds", "duty_cycle_ratio"} <= marked(report)
    gap = change(report, "step_gap_seconds")
    # 4.5 ms of the tail; a gap of 90 ms holds 8 silent ticks on average
    assert gap.ratio == pytest.approx(-4.5 / 80, abs=0.02)
    assert gap.low is not None
    assert gap.high is not None
    assert gap.low <= -4.5 / 80 <= gap.high < 0
    assert change(report, "step_seconds").ratio == pytest.approx(-4.5 / 314.8, abs=0.004)
    assert "step_bytes" not in marked(report)


def test_a_change_below_the_threshold_is_not_marked() -> None:
    runs = play(DENSE, 60, 1), play(SHORTER_GAPS, 60, 101)
    assert "step_seconds" in marked(report_of(*runs))
    wider = marked(report_of(*runs, options=ReportOptions(least_change=0.03)))
    assert "step_seconds" not in wider
    assert "step_gap_seconds" in wider


def test_the_run_itself_has_not_changed() -> None:
    recording = play(DENSE, 30)
    report = report_of(recording, recording)
    assert marked(report) == set()
    assert all(change.ratio == pytest.approx(0.0) for change in report.changes[0].by_key.values() if change.ratio)
    # the two are drawn apart, else their chances would cancel
    step = change(report, "step_seconds")
    assert step.low is not None
    assert step.high is not None
    assert step.low < -0.001 < 0.001 < step.high


def test_the_intervals_hold_together() -> None:
    report = report_of(play(DENSE, 60), play(DENSE, 60, 7))
    assert report.changes[0].level == pytest.approx(1 - 0.05 / report.changes[0].rows)


def test_the_same_seed_gives_the_same_intervals_and_another_seed_others() -> None:
    runs = play(DENSE, 30), play(DENSE, 30, 7)
    one, same, other = (report_of(*runs, options=ReportOptions(seed=seed)).changes[0].by_key for seed in (3, 3, 4))
    assert one == same
    assert one["step_seconds"].low != other["step_seconds"].low


def test_rails_that_fell_idle_are_a_change() -> None:
    rates = wave(10 * GB, 20, 30, 60, ports=4)
    fallen = rates.copy()
    fallen[3] = 0.0
    report = report_of(record(rates), record(fallen))
    assert change(report, "idle_rails") == Change(None, None, None, True)
    assert not change(report, "slow_rails").differs
    assert "fairness_ratio" in marked(report)


def test_a_value_that_became_nothing_is_a_change_by_all_of_it() -> None:
    steady = np.full((1, 2, 3000), 10 * GB)
    report = report_of(record(wave(10 * GB, 20, 30, 60)), record(steady))
    # a steady flow has no step
    assert "step_gap_seconds" not in report.changes[0].by_key
    duty = change(report, "duty_cycle_ratio")
    assert (duty.ratio, duty.differs) == (pytest.approx(1.5), True)


def test_what_was_nothing_before_has_no_ratio() -> None:
    report = report_of(record(np.zeros((1, 2, 3000))), record(wave(10 * GB, 20, 30, 60)))
    assert "mean_bytes_per_second" not in report.changes[0].by_key


def test_a_row_without_an_interval_is_compared_and_never_marked() -> None:
    peak = change(report_of(play(DENSE, 30), play(MOE, 60)), "peak_bytes_per_second")
    assert peak.ratio is not None
    assert (peak.low, peak.high, peak.differs) == (None, None, False)


def test_counts_are_not_compared() -> None:
    assert "bursts" not in report_of(play(DENSE, 30), play(DENSE, 60)).changes[0].by_key


def test_every_other_recording_is_compared_with_the_first() -> None:
    report = report_of(play(DENSE, 30), play(SHORTER_GAPS, 30, 1), play(MOE, 60))
    assert report.names == ("a", "b", "c")
    means = [run.values["mean_bytes_per_second"] for run in report.runs]
    ratios = [changes.by_key["mean_bytes_per_second"].ratio for changes in report.changes]
    assert ratios == pytest.approx([means[1] / means[0] - 1, means[2] / means[0] - 1])
