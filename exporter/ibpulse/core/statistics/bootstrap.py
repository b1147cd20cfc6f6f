"""Confidence intervals for the statistics of a run, by resampling whole units of it (block bootstrap).

A unit is a step, or a block of time if no steps were found. Every statistic is a quotient of sums over units, so a
resampled run is a weighted sum of units. Because neighbouring units are correlated, units are resampled in groups of
consecutive units whose size is the cube root of the number of units (Carlstein, 1986), or larger where the units are
strongly correlated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from ibpulse.core.arrays import Floats

MIN_UNITS = 20
"""Minimum number of units: with fewer, a 95 % interval covers the true value in less than 90 % of runs."""

STRONG_CORRELATION = 0.5
"""Correlation of neighbouring units above which groups of the cube root of their number give too narrow intervals."""

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Resampling:
    """`sums` is (resamples, fields); `groups` is the number of groups of units drawn for each resample."""

    sums: Floats
    groups: int


def lag_correlation(values: Floats) -> float:
    """Correlation of neighbouring values (n,), without the bias of short series; 0 if all are equal to within 1e-9.

    The usual estimate r is too low by about (1 + 4 r) / n (Kendall, 1954; Marriott and Pope, 1954).
    """
    around = values - values.mean()
    spread = float(np.square(around).sum())
    if len(values) < 2 or spread <= len(values) * (1e-9 * float(np.abs(values).max())) ** 2:
        return 0.0
    found = float((around[1:] * around[:-1]).sum()) / spread
    return min(1.0, found + (1 + 4 * found) / len(values))


def group_size(units: int, correlation: float = 0.0) -> int:
    """Number of consecutive units to draw together: their number's cube root, above a correlation of 0.5 its root."""
    return math.ceil(math.sqrt(units)) if correlation > STRONG_CORRELATION else max(1, round(units ** (1 / 3)))


def resample(
    sums: Floats, resamples: int, rng: np.random.Generator, begun: Floats | None = None, size: int | None = None
) -> Resampling | None:
    """Sums over units drawn with replacement, from the sums (units, fields) of each unit; None if there are too few.

    A window that starts and ends at arbitrary times has a partial unit at either end. For such a window, `begun` holds
    the sums (units, fields) of a first part of each unit, uniformly distributed in length; each resample then includes
    the first part of one unit and the remainder of another. `size` units are drawn together, by default as many as
    `group_size` says.

    Law: without `begun`, the mean over all resamples converges to the sums of the run itself.
    """
    units = len(sums)
    if units < MIN_UNITS:
        return None
    groups = units // (size or group_size(units))
    firsts = np.arange(groups) * units // groups
    grouped = np.add.reduceat(sums, firsts, axis=0)
    weights = rng.multinomial(groups, np.full(groups, 1 / groups), size=resamples)
    drawn = weights.astype(np.float64) @ grouped
    if begun is not None:
        first, last = rng.integers(0, units, (2, resamples))
        drawn += (sums - begun)[first] + begun[last]
    return Resampling(drawn, groups)


def find_interval(replicates: Floats, groups: int, level: float) -> tuple[float, float]:
    """The expanded percentile interval of the replicates of a statistic; NaN if no replicate is finite.

    With few groups, plain percentiles give intervals that are too narrow. They are widened by the factors of Student's
    t distribution and of the sample standard deviation. Source: Hesterberg, 2015, section 5.
    """
    known = replicates[np.isfinite(replicates)]
    if not len(known):
        return math.nan, math.nan
    tail = (1 - level) / 2
    moved = _NORMAL.cdf(math.sqrt(groups / (groups - 1)) * student_quantile(tail, groups - 1))
    low, high = np.quantile(known, [moved, 1 - moved])
    return float(low), float(high)


def student_quantile(probability: float, freedom: int) -> float:
    """The quantile of Student's t distribution, within 1 % for 5 or more degrees of freedom and up to 99.5 %.

    Source: the Cornish-Fisher expansion, Abramowitz and Stegun 26.7.5.
    """
    z = _NORMAL.inv_cdf(probability)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / freedom**power for power, term in enumerate(terms, 1))
