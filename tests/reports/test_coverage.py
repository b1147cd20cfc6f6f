"""Intervals hold the truth about as often as they say; `python -m bench.interval_coverage` is a longer check."""

from __future__ import annotations

import pytest

from ibpulse.workbench.reports.run import Run
from ibpulse.workbench.reports.span import ReportOptions
from ibpulse.workbench.simulate.workloads import Square
from tests.reports.recordings import play, run_of

RUNS = 150
RATE = 25e9
# edges lie anywhere in a tick, so a burst makes one tick more busy than its length, and a gap loses that tick
TRUTH = {
    "step_seconds": 0.5,
    "step_gap_seconds": 0.3 - 0.01,
    "step_bytes": 2 * RATE * 0.2,
    "duty_cycle_ratio": (0.2 + 0.01) / 0.5,
    "mean_bytes_per_second": 2 * RATE * 0.4,
}


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    """Half a minute of jittered steps, again and again; each begins somewhere within a step."""
    workload = Square(500_000_000, 0.4, RATE, jitter=0.05)
    options = ReportOptions(resamples=500)
    found = []
    for seed in range(RUNS):
        recording = play(workload, 32, seed, rails=1).cut(37 * seed % 200, 37 * seed % 200 + 3000)
        found.append(run_of(recording, options, place=seed))
    return found


@pytest.mark.parametrize("key", TRUTH)
def test_an_interval_of_95_percent_holds_the_truth_in_about_95_percent_of_runs(runs: list[Run], key: str) -> None:
    intervals = [run.spreads[key].interval(0.95) for run in runs]
    held = sum(low <= TRUTH[key] <= high for low, high in intervals) / RUNS
    # three standard deviations of the share of 150 runs around the 95 ± 3 % that the longer simulation checks
    assert 0.88 <= held <= 1.0
    # and it is no wider than that takes: the truth lies outside of half of it much more often
    narrow = [(0.75 * low + 0.25 * high, 0.25 * low + 0.75 * high) for low, high in intervals]
    assert 0.5 <= sum(low <= TRUTH[key] <= high for low, high in narrow) / RUNS <= 0.82
