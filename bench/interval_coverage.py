"""Measures how often the intervals of a report cover the truth, on many simulated runs.

`python -m bench.interval_coverage [--runs N]` prints the table of docs/accuracy.md. The truth of a workload
comes from a one-hour run with a different seed. Each run starts at a random time, usually within a step.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ibpulse.core.recordings import RecordedPort, Recording, RecordingMeta
from ibpulse.workbench.reports.run import Run, describe_run
from ibpulse.workbench.reports.span import ReportOptions
from ibpulse.workbench.simulate.timeline import Schedule
from ibpulse.workbench.simulate.workloads import DENSE, MOE, Fsdp

TICK_NS = 10_000_000
RAILS = 8
SECONDS = 60
TRUTH_SECONDS = 3600
TRUTH_SEED = 10**6
RESAMPLES = 1000
ROWS = (
    ("step_seconds", "step time"),
    ("step_gap_seconds", "silent time per step"),
    ("step_bytes", "bytes per step"),
    ("duty_cycle_ratio", "duty cycle"),
    ("mean_bytes_per_second", "mean"),
    ("active_mean_bytes_per_second", "mean when active"),
    ("burstiness_cv_10ms", "CV at 10 ms"),
    ("burstiness_cv_100ms", "CV at 100 ms"),
)


def main() -> None:
    """Simulate, describe and count; print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.interval_coverage", description=__doc__)
    parser.add_argument("--runs", type=int, default=1000, help="simulated runs of each workload (default: 1000)")
    runs = parser.parse_args().runs
    shares = [measure(workload, runs) for workload in (DENSE, MOE)]
    print(f"| row | dense | MoE |\n|---|---:|---:|\n{rows(shares)}")


def rows(shares: list[Mapping[str, float]]) -> str:
    """The rows of the table."""
    cells = ((label, *(f"{100 * share[key]:.1f} %" for share in shares)) for key, label in ROWS)
    return "\n".join(f"| {' | '.join(one)} |" for one in cells)


def measure(workload: Fsdp, runs: int) -> dict[str, float]:
    """The fraction of runs whose interval covers the truth, row by row."""
    truth = find_truth(workload)
    held = dict.fromkeys(truth, 0)
    rng = np.random.default_rng(1)
    for seed in range(runs):
        found = describe(workload, seed, int(rng.integers(0, 400)))
        for key, exact in truth.items():
            low, high = found.spreads[key].interval(0.95)
            held[key] += low <= exact <= high
    return {key: count / runs for key, count in held.items()}


def find_truth(workload: Fsdp) -> dict[str, float]:
    """The statistics of a long run, computed from its exact bytes."""
    schedule = Schedule(workload, TRUTH_SEED, RAILS)
    end_ns = TRUTH_SECONDS * 10**9
    truth, coarse = schedule.truth(0, end_ns), schedule.truth(0, end_ns, 10 * TICK_NS)
    step = float(np.diff(schedule.step_starts_ns(0, end_ns)).mean()) / 1e9
    return {
        "step_seconds": step,
        "step_gap_seconds": (1 - truth.duty) * step,
        "step_bytes": 2 * workload.step_bytes,
        "duty_cycle_ratio": truth.duty,
        "mean_bytes_per_second": truth.mean,
        "active_mean_bytes_per_second": truth.active_mean,
        "burstiness_cv_10ms": truth.cv,
        "burstiness_cv_100ms": coarse.cv,
    }


def describe(workload: Fsdp, seed: int, first: int) -> Run:
    """The report of one minute of the workload, starting at sample `first`."""
    edges = np.arange(first, first + SECONDS * 100 + 1) * TICK_NS
    moved = Schedule(workload, seed, RAILS).cumulative_bytes(edges)
    rates = np.diff(moved, axis=0).transpose(1, 2, 0) * (1e9 / TICK_NS)
    ports = tuple(RecordedPort(f"mlx5_{rail}", 1, 50e9) for rail in range(RAILS))
    meta = RecordingMeta("simulated", TICK_NS, ports, "record")
    recording = Recording(meta, 10**18, rates, np.full(rates.shape, TICK_NS / 1e9))
    return describe_run(Path("simulated.parquet"), recording, ReportOptions(resamples=RESAMPLES), seed)


if __name__ == "__main__":
    main()
