"""Rows of recordings with missing samples, against those of the complete recordings."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from ibpulse.core.recordings import Recording
from ibpulse.workbench.reports.formats import render_json, render_markdown, render_page, render_text
from ibpulse.workbench.reports.rows import rows
from ibpulse.workbench.reports.run import Run
from ibpulse.workbench.reports.span import ReportOptions
from ibpulse.workbench.simulate.workloads import DENSE, MOE
from tests.reports.recordings import TICK_NS, play, record, report_of, run_of, wave

TICK = TICK_NS / 1e9
OPTIONS = ReportOptions(resamples=1000)
SEEDS = range(4)
SHAPES = ("Bursts", "Steps", "Overlap, bounds from the wire", "Signature")
ROWS = {row.key: row for row in rows(OPTIONS.timescales_ns)}
COUNTS = ("bursts", "gaps", "steps")
LENGTHS = ("burst_seconds_p50", "burst_seconds_p95", "gap_seconds_p50", "gap_seconds_p95")
UNCHANGED = ("line_bytes_per_second", "rails", "active_rails", "idle_rails", "slow_rails", "signature")
# about the recording, not about the traffic, or how clear it is
EVIDENCE = (
    "censored_seconds",
    "step_period_score",
    "signature_confidence",
    "window_seconds",
    "observed_ratio",
    "holes",
    "hole_seconds_longest",
)
PATTERNS = {"dense": play(DENSE, 60), "moe": play(MOE, 180), "wave": record(wave(10e9, 20, 30, 120))}


def lost_samples(count: int, share: float, kind: str, seed: int) -> np.ndarray:
    """Which samples are lost: single ones, or all during freezes of 30 to 80 ms."""
    rng = np.random.default_rng(seed)
    lost = np.zeros(count, dtype=np.bool_)
    if kind == "single":
        lost[rng.choice(count, round(share * count), replace=False)] = True
    while (left := round(share * count) - int(lost.sum())) > 0:
        first = rng.integers(count)
        lost[first : first + min(left, rng.integers(3, 9))] = True
    return lost


def without(recording: Recording, lost: np.ndarray) -> Recording:
    rates, seconds = recording.bytes_per_second.copy(), recording.seconds.copy()
    rates[..., lost], seconds[..., lost] = np.nan, 0.0
    return Recording(recording.meta, recording.start_ns, rates, seconds)


def number(run: Run, key: str) -> float:
    found = run.values[key]
    assert isinstance(found, int | float), key
    return float(found)


def rounding(truth: float) -> float:
    """Variances are differences of squares."""
    return 1e-6 + 1e-9 * abs(truth)


def is_true(run: Run, full: Run, key: str, samples: np.ndarray) -> bool:
    """Whether a shown row agrees with the complete recording within what is stated; `samples` are its active ones."""
    if key in EVIDENCE or run.values[key] is None:
        return True
    if key in UNCHANGED:
        return run.values[key] == full.values[key]
    found, truth = number(run, key), number(full, key)
    if key in run.spreads:
        low, high = run.spreads[key].interval(0.999)
        return low - rounding(truth) <= truth <= high + rounding(truth)
    if ROWS[key].missing == "none":
        return not run.missing_ratio and found == truth
    if key in LENGTHS:
        return abs(found - truth) <= TICK + 1e-9
    if key in COUNTS or key in ("peak_bytes_per_second", "peak_utilization_ratio"):
        return found <= truth
    if key == "step_period_seconds":
        return abs(found / truth - 1) <= 2e-3
    if key in ("active_p50_bytes_per_second", "active_p95_bytes_per_second"):
        # the rank of a quantile of n samples has this standard deviation
        part, count = {"p50": 0.5, "p95": 0.95}[key[7:10]], len(samples) * number(run, "observed_ratio")
        doubt = 4 * np.sqrt(part * (1 - part) / count)
        low, high = np.quantile(samples, [max(0.0, part - doubt), min(1.0, part + doubt)])
        return bool(low * (1 - 1e-9) <= found <= high * (1 + 1e-9))
    # those that follow from rows with an interval
    follows = {
        "utilization_ratio": lambda: number(run, "mean_bytes_per_second") / number(run, "line_bytes_per_second"),
        "peak_to_mean_ratio": lambda: number(run, "peak_bytes_per_second") / number(run, "mean_bytes_per_second"),
        "step_silent_ratio": lambda: number(run, "step_gap_seconds") / number(run, "step_seconds"),
        "wire_seconds_lower": lambda: number(run, "step_bytes") / number(run, "line_bytes_per_second"),
        "exposed_seconds_lower": lambda: 0.0,
        "exposed_seconds_upper": lambda: number(run, "step_seconds") - number(run, "step_gap_seconds"),
    }
    return key in follows and found == pytest.approx(follows[key](), rel=1e-3)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("kind", ["single", "freeze"])
def test_shown_rows_equal_those_without_gaps(pattern: str, kind: str) -> None:
    recording = PATTERNS[pattern]
    full = run_of(recording, OPTIONS)
    bandwidth = recording.bytes_per_second.sum(axis=(0, 1))
    active, faults, inside = bandwidth[bandwidth > OPTIONS.active_bytes_per_second], [], []
    for share in (0.0, 0.05, 0.15, 0.4):
        for seed in SEEDS:
            run = run_of(without(recording, lost_samples(recording.ticks, share, kind, seed)), OPTIONS)
            assert run.missing_ratio == pytest.approx(share, abs=1e-4)
            faults += [(share, seed, key) for key in ROWS if not is_true(run, full, key, active)]
            for key, spread in run.spreads.items():
                low, high = spread.interval(0.95)
                truth = number(full, key)
                inside.append(low - rounding(truth) <= truth <= high + rounding(truth))
            shapes = [key for key, row in ROWS.items() if row.section in SHAPES or key.startswith("peak")]
            assert share <= 0.05 or all(run.values[key] is None for key in shapes)
            assert share > 0.05 or all(run.values[key] is not None for key in (*LENGTHS, "step_seconds"))
    assert not faults, faults
    assert np.mean(inside) >= 0.95


def test_a_report_begins_with_its_missing_samples() -> None:
    dense = PATTERNS["dense"]
    many, few = (without(dense, lost_samples(6000, share, "freeze", 1)) for share in (0.43, 0.02))
    report = report_of(many, few, options=OPTIONS)
    sentence = "43 % of a is missing on at least one rail: "
    assert render_text(report).startswith(sentence)
    assert render_markdown(report).startswith(f"# Report\n\n**{sentence}")
    assert f"<h1>a, b</h1>\n<p><strong>{sentence}" in render_page(report)
    assert json.loads(render_json(report))["missing"].startswith(sentence)
    assert "2 % of b is missing on at least one rail: numbers of bursts, gaps" in " ".join(render_text(report).split())
    assert "missing on" not in render_text(report_of(dense, options=OPTIONS))


def test_nothing_is_compared_that_missing_samples_change_and_counts_are_the_least() -> None:
    dense = PATTERNS["dense"]
    report = report_of(dense, without(dense, lost_samples(6000, 0.15, "single", 0)), options=OPTIONS)
    changed = {key for key in report.changes[0].by_key if ROWS[key].section in SHAPES or key.startswith("peak")}
    assert not changed
    assert report.steps is None
    run = without(PATTERNS["dense"], lost_samples(6000, 0.02, "freeze", 1))
    report = report_of(run, options=OPTIONS)
    count = report.runs[0].values["bursts"]
    assert f"bursts                 ≥ {count}" in render_text(report)
    found = json.loads(render_json(report))["recordings"][0]["intervals"]["bursts"]
    assert found == [count, None]


def test_quantile_is_unknown_with_many_cut_runs() -> None:
    # nine gaps of 50 ms, and one that the end cuts off: its length may be the only one of more than 95 %
    rates = np.concatenate([np.tile(np.repeat([1e9, 0.0], [5, 5]), 10), np.zeros(95)])
    report = report_of(record(np.broadcast_to(rates, (1, 2, len(rates)))), options=replace(OPTIONS, trim=False))
    values = report.runs[0].values
    assert (values["gap_seconds_p50"], values["gap_seconds_p95"]) == (pytest.approx(0.05), None)
    assert "gap length, p95: unknown, because too many gaps are cut off" in render_text(report)


def test_freezes_do_not_lengthen_silence() -> None:
    dense, truth = PATTERNS["dense"], number(run_of(PATTERNS["dense"], OPTIONS), "step_gap_seconds")
    runs = [run_of(without(dense, lost_samples(dense.ticks, 0.05, "freeze", seed)), OPTIONS) for seed in range(12)]
    assert np.mean([number(run, "step_gap_seconds") for run in runs]) == pytest.approx(truth, rel=0.01)
