"""Changes between recordings, and steps before and after a change: noise is none, and a change is found."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from ibpulse.core.recordings import Recording
from ibpulse.workbench.reports.comparison import (
    ONE_RUN_EACH,
    Change,
    Report,
    StepComparison,
    assemble,
    compare_steps,
    look_next,
    step_remarks,
    verdict,
)
from ibpulse.workbench.reports.run import describe_run
from ibpulse.workbench.reports.span import ReportOptions
from ibpulse.workbench.simulate.workloads import DENSE, MOE, Fsdp
from tests.reports.recordings import LINE, play, record, report_of, wave
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
    assert gap.low <= -4.5 / 80 <= gap.high < 0
    assert change(report, "step_seconds").ratio == pytest.approx(-4.5 / 314.8, abs=0.004)
    assert "step_bytes" not in marked(report)


def test_a_change_below_the_threshold_is_not_marked() -> None:
    runs = play(DENSE, 60, 1), play(SHORTER_GAPS, 60, 101)
    assert "step_seconds" in marked(report_of(*runs))
    wider = marked(report_of(*runs, options=ReportOptions(least_change=0.03)))
    assert "step_seconds" not in wider
    assert "step_gap_seconds" in wider


def test_rails_that_fell_idle_are_a_change() -> None:
    rates = wave(10 * GB, 20, 30, 60, ports=4)
    fallen = rates.copy()
    fallen[3] = 0.0
    report = report_of(record(rates), record(fallen))
    assert change(report, "idle_rails") == Change(None, None, None, True)
    assert not change(report, "slow_rails").differs
    assert "fairness_ratio" in marked(report)


OPTIONS = ReportOptions(resamples=1000)


@cache
def dense(seed: int, shorter: bool = False) -> Recording:
    return play(SHORTER_GAPS if shorter else DENSE, 30, seed)


def steps_report(*recordings: Recording, claim: float = 0.0) -> Report:
    options = replace(OPTIONS, claim_seconds=claim)
    named = zip(("before", "after", "later"), recordings, strict=False)
    return assemble(
        [describe_run(Path(f"{name}.parquet"), one, options, place) for place, (name, one) in enumerate(named)], options
    )


def compared(before: Recording, after: Recording, claim: float = 0.0) -> StepComparison:
    return steps_report(before, after, claim=claim).steps


def square(busy: int, silent: np.ndarray, rate: float = 10 * GB, ports: int = 2) -> Recording:
    """Steps of a burst and a silence each, of whole samples."""
    one = np.concatenate([np.repeat([rate, 0.0], [busy, length]) for length in silent])
    return record(np.broadcast_to(one, (ports, 2, len(one))).copy())


def test_shorter_gaps_make_shorter_steps() -> None:
    found = compared(dense(1), dense(101, shorter=True))
    # 4.5 ms of the tail
    assert found.outcome == "shorter"
    assert found.saved_seconds == pytest.approx(0.0045, abs=0.0015)
    assert found.seconds.low <= -4.5 / 314.8 <= found.seconds.high < 0
    assert abs(found.moved_bytes.ratio) < 0.002
    assert found.possible
    assert verdict(found).startswith("steps are shorter by 4.")
    said = list(step_remarks(found))
    assert said[0] == f"O{ONE_RUN_EACH[1:]}."
    assert any("within the" in remark for remark in said)


def test_the_numbers_of_a_square_wave() -> None:
    run = compared(record(wave(10 * GB, 20, 30, 60, ports=2)), record(wave(10 * GB, 20, 30, 60, ports=2))).before
    assert run.seconds == pytest.approx(0.5)
    assert run.silent_share == pytest.approx(0.6, abs=1e-6)
    assert run.busy_seconds == pytest.approx(0.2, abs=1e-6)
    # 2 ports of 10 GB/s for 0.2 s each way, at 2 x 50 GB/s
    assert run.sent_bytes == pytest.approx(4 * GB)
    assert run.moved_bytes == pytest.approx(8 * GB)
    assert run.line_bytes_per_second == 2 * LINE
    assert run.least_wire_seconds == pytest.approx(0.04)
    assert run.wire_share == pytest.approx(0.08)


def test_there_is_no_verdict_without_the_same_work_and_enough_steps() -> None:
    found = compared(record(wave(10 * GB, 20, 30, 40)), record(wave(10.2 * GB, 20, 20, 50)))
    assert found.outcome == "other-work"
    assert verdict(found).startswith("not the same work: bytes per step changed by +2.00 %")
    # 46 of 50 GB/s on average
    rates = np.tile(np.repeat([50 * GB, 30 * GB], [40, 10]), 40)
    full = record(np.broadcast_to(rates, (1, 2, len(rates))).copy())
    assert any("overlap cannot help, fewer bytes can" in remark for remark in step_remarks(compared(full, full)))
    few = compared(record(wave(10 * GB, 20, 30, 15)), record(wave(10 * GB, 20, 20, 60)))
    assert few.outcome == "no-verdict"
    assert "whole steps; 20 or more are needed" in verdict(few)
    drift = square(20, np.repeat(np.arange(25, 35), 6))
    drifting = compared(drift, drift)
    assert drifting.before.correlation > 0.8
    assert drifting.before.group == 8
    assert verdict(drifting).startswith("no verdict: neighbouring steps of the recording before are too alike (correl")


def test_saving_beyond_busy_time_is_impossible() -> None:
    slow, fast = record(wave(10 * GB, 20, 80, 40)), record(wave(10 * GB, 20, 30, 60))
    found = compared(slow, fast)
    # 0.5 s of a second, of which the rails were busy for 0.2 s
    assert (found.outcome, found.possible) == ("shorter", False)
    assert verdict(found).endswith("; overlap alone cannot save that much")
    assert any("so something else changed too" in remark for remark in step_remarks(found))
    claimed = compared(slow, slow, claim=0.1)
    assert (claimed.claimed, claimed.possible, claimed.doubtful) == (True, True, True)
    assert any("only if the rails were slower" in remark for remark in step_remarks(claimed))
    assert not compared(slow, slow, claim=0.03).doubtful


@pytest.mark.parametrize(("saving", "busy"), [(9.94, 18.3), (3.72, 4.6)])
def test_published_savings_are_within_their_wire_time(saving: float, busy: float) -> None:
    base = describe_run(Path("before.parquet"), record(wave(10 * GB, 20, 30, 30)), OPTIONS).steps
    before = replace(base, seconds=2 * busy, busy_seconds=busy, least_wire_seconds=busy)
    after = replace(before, seconds=2 * busy - saving)
    assert compare_steps(before, after, OPTIONS).possible
    assert not compare_steps(before, after, replace(OPTIONS, claim_seconds=2 * saving)).possible


def test_the_report_says_what_to_look_at_next() -> None:
    here, there = record(wave(10 * GB, 20, 30, 30)), record(wave(10 * GB, 20, 20, 30))
    there = replace(there, meta=replace(there.meta, host="node8"))
    found = look_next(steps_report(here, there))
    assert found[0] == "the samples side by side: `ibpulse render before.parquet after.parquet -o runs.png`"
    assert found[1] == "the nodes, which differ: `ibpulse doctor` on node7 and on node8"
    assert found[2].startswith("what a step waits for: `ibpulse trace TRACE.json.gz --against=after.parquet`")
    assert len(found) == 3
    assert look_next(steps_report(here)) == look_next(steps_report(here, here, here)) == []
    one = wave(10 * GB, 20, 30, 30, ports=2)
    other = one.copy()
    other[1] = 0
    said = look_next(steps_report(record(one), record(other)))
    assert "rails that became idle, mlx5_1:1: `ibpulse doctor` on node7" in said
    assert "rails that became" not in " ".join(look_next(steps_report(record(other), record(one))))
