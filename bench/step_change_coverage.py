"""Measures how often the interval of a change between two runs covers the truth, with correlated steps.

`python -m bench.step_change_coverage [--pairs N]` prints the table of docs/accuracy.md. Steps follow an AR(1)
process; both runs have the same mean, so the true change is 0. The columns for fixed blocks are plain percentiles of a
circular block bootstrap, computed here without ibpulse.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from ibpulse.core.statistics.recorded import find_interval, group_size, lag_correlation, resample

CORRELATIONS, STEPS = (0.0, 0.5, 0.8), (20, 50, 100, 200)
LEVEL, RESAMPLES, SETTLING = 0.95, 1000, 60


def main() -> None:
    """Simulate and count; print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.step_change_coverage", description=__doc__)
    parser.add_argument("--pairs", type=int, default=600, help="simulated pairs of runs per row (default: 600)")
    pairs = parser.parse_args().pairs
    rng = np.random.default_rng(11)
    print("| correlation | steps | block 1 | n^(1/3) | n^(1/2) | ibpulse |\n|---:|---:|---:|---:|---:|---:|")
    for correlation in CORRELATIONS:
        for steps in STEPS:
            runs = autoregressive(rng, correlation, 2 * pairs, steps).reshape(2, pairs, steps)
            blocks = (1, round(steps ** (1 / 3)), math.ceil(math.sqrt(steps)))
            shares = [*(plain_coverage(rng, runs, block) for block in blocks), own_coverage(rng, runs)]
            print(f"| {correlation} | {steps} | {' | '.join(f'{100 * share:.0f} %' for share in shares)} |", flush=True)


def autoregressive(rng: np.random.Generator, correlation: float, runs: int, steps: int) -> np.ndarray:
    """Runs of an AR(1) process around 100: (runs, steps)."""
    chance = rng.normal(0.0, 1.0, (runs, steps + SETTLING))
    for at in range(1, steps + SETTLING):
        chance[:, at] += correlation * chance[:, at - 1]
    return 100.0 + chance[:, SETTLING:]


def plain_coverage(rng: np.random.Generator, runs: np.ndarray, block: int) -> float:
    """Share of pairs whose percentile interval holds 0: circular blocks, no widening."""
    before, after = (_means(rng, each, block) for each in runs)
    low, high = np.quantile(after - before, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=1)
    return float(((low <= 0) & (high >= 0)).mean())


def _means(rng: np.random.Generator, runs: np.ndarray, block: int) -> np.ndarray:
    steps = runs.shape[1]
    sums = np.concatenate([np.zeros((len(runs), 1)), np.cumsum(np.concatenate([runs, runs[:, :block]], 1), 1)], 1)
    means = (sums[:, block : block + steps] - sums[:, :steps]) / block
    return np.asarray(means[:, rng.integers(0, steps, (RESAMPLES, math.ceil(steps / block)))].mean(axis=2))


def own_coverage(rng: np.random.Generator, runs: np.ndarray) -> float:
    """Share of pairs whose interval, as in `ibpulse report`, holds 0."""
    held = 0
    for pair in zip(*runs, strict=True):
        found = []
        for run in pair:
            sums = np.stack([run, np.ones(len(run))], axis=1)
            drawn = resample(sums, RESAMPLES, rng, size=group_size(len(run), lag_correlation(run)))
            assert drawn is not None
            found.append(drawn)
        before, after = (one.sums[:, 0] / one.sums[:, 1] for one in found)
        low, high = find_interval(after / before - 1, min(one.groups for one in found), LEVEL)
        held += low <= 0 <= high
    return held / runs.shape[1]


if __name__ == "__main__":
    main()
