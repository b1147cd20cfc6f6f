"""The step period of a window, and where its steps begin. It must not keep anything."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ibpulse.aggregator.step import LEAST_CHANGES
from ibpulse.analysis.grid import rate_bins
from ibpulse.analysis.period import BIN_SECONDS, StepPeriod, find_period
from ibpulse.analysis.steps import NONE, Steps, find_steps
from ibpulse.reporters.series import Series

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Rhythm:
    """The period, and the steps, whose bounds are places in the series."""

    period: StepPeriod
    steps: Steps


def find_rhythm(series: Series) -> Rhythm:
    """The period of the sum over the ports, by the method of the daemon, and the steps.

    The daemon has counters, which say what flowed over a hole; a recording has not: a hole is filled by a straight
    line from the rate before it to that after, unless it is longer than two bins.
    """
    coarsest = max(series.coarsest_stride, series.resolution_ticks)
    bin_seconds = max(BIN_SECONDS, LEAST_CHANGES * coarsest * series.interval_seconds)
    span = len(series.whole) * series.interval_seconds
    bins = int(span / bin_seconds)
    known = [index for index in series.up if series.good[index].any()]
    if bins < 1 or not known:
        return Rhythm(find_period(np.zeros(0)), NONE)
    edges = span - bin_seconds * np.arange(bins, -1, -1, dtype=np.float64)
    found = np.array([_bins_of(series, index, edges) for index in known])
    # where a port is not known its siblings stand for it
    seen = np.count_nonzero(~np.isnan(found), axis=0)
    mean = np.where(seen > 0, np.nansum(found, axis=0) / np.maximum(seen, 1), np.nan)
    period = find_period(mean, bin_seconds)
    steps = (
        NONE if math.isnan(period.seconds) else find_steps(series.bandwidth, period.seconds / series.interval_seconds)
    )
    return Rhythm(period, steps)


def _bins_of(series: Series, index: int, edges: Floats) -> Floats:
    good = series.good[index]
    rates = series.rates[index].sum(axis=0)
    at = np.arange(len(good))
    if not good.all():
        rates = np.interp(at, at[good], rates[good])
    seconds = np.arange(len(good) + 1, dtype=np.float64) * series.interval_seconds
    moved = np.concatenate(([0.0], np.cumsum(rates * series.interval_seconds)))
    # what is known of a running sum is its value on either side of a known tick
    kept = np.concatenate((good, [False])) | np.concatenate(([False], good))
    return rate_bins(seconds[kept], moved[kept], edges)
