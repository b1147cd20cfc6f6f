"""Finds the step period of a series of rates: candidates from the periodogram, scored by the autocorrelation.

The method follows AUTOPERIOD (Vlachos, Yu and Castelli, 2005).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ibpulse.core.arrays import Bools, Floats
from ibpulse.core.statistics.bins import rate_bins
from ibpulse.core.statistics.quantiles import quantile

BIN_SECONDS = 0.05
"""Bin width that averages out layers and collectives but keeps steps of 0.25 s and longer."""

MIN_CHANGES = 2
"""Minimum number of counter changes per bin; with fewer, the bins beat with the counter's refresh."""

MULTIPLES = 4
REFINING_MULTIPLES = 8
OFFSETS = np.linspace(-1, 1, 9)
# shorter periods, in bins, cannot be detected
MIN_LAG = 2
# lags up to this factor longer than a candidate belong to it
NEIGHBOURS = 1.25
# points per bin of the autocorrelation; a peak between two bins keeps its height
FINENESS = 4
# beyond this fraction of the window, too few pairs of bins are left to correlate
MAX_LAG = 0.8


@dataclass(frozen=True, slots=True)
class PeriodOptions:
    """Requirements for a period.

    `least_score`: the minimum score. `least_bins`: the minimum length of a period in bins. `least_periods`: how many
    periods the series must contain. `least_variation`: minimum sigma/mu of the bins; below it, the residue of faster
    waves that the bins let through could pass as a slow wave. `least_known`: the fraction of bins that must be known.
    `candidates`: the number of periodogram peaks tried, all above the `percentile`. `margin`: the factor by which a
    longer candidate must outscore a shorter one.
    """

    least_score: float = 0.4
    least_bins: int = 4
    least_periods: int = 4
    least_variation: float = 0.1
    least_known: float = 0.5
    candidates: int = 24
    percentile: float = 90.0
    margin: float = 1.2


@dataclass(frozen=True, slots=True)
class StepPeriod:
    """`seconds` is NaN if no period was found; `score`, 0 to 1, is then the score of the best rejected candidate."""

    seconds: float
    score: float


NONE = StepPeriod(float("nan"), 0.0)


def find_period(values: Floats, bin_seconds: float = BIN_SECONDS, options: PeriodOptions | None = None) -> StepPeriod:
    """Period of `values`, the rates of equal bins of `bin_seconds`; NaN marks unknown bins.

    The score of a period T is the mean autocorrelation at T..4T minus that at T/2..3.5T, limited to 1: it is 1 for a
    wave that repeats exactly and about 0 for noise. If the best period is shorter than `least_bins`, none is returned,
    because it cannot be distinguished from its beat with the bins.

    Law: invariant under scaling of the values; the period is proportional to `bin_seconds`.
    """
    chosen = options or PeriodOptions()
    known = ~np.isnan(values)
    if len(values) < chosen.least_bins * chosen.least_periods or known.mean() < chosen.least_known:
        return NONE
    centre = float(values[known].mean())
    signal = np.where(known, values - centre, 0.0)
    if not np.sqrt(np.square(signal).sum() / known.sum()) > chosen.least_variation * abs(centre):
        return NONE
    likeness = _autocorrelation(signal, known)
    lag, score = _best_lag(likeness, _candidate_frequencies(signal, chosen), len(values), chosen)
    if lag < chosen.least_bins:
        return NONE
    if score < chosen.least_score:
        return StepPeriod(float("nan"), score)
    return StepPeriod(_refine(likeness, lag * FINENESS, len(values) * FINENESS) / FINENESS * bin_seconds, score)


def choose_bin_seconds(coarsest_ticks: int, interval_seconds: float) -> float:
    """Bin width for finding the period of rails whose slowest counter changes every `coarsest_ticks`."""
    return max(BIN_SECONDS, MIN_CHANGES * coarsest_ticks * interval_seconds)


def find_rails_period(bins: Sequence[Floats], bin_seconds: float) -> StepPeriod:
    """Period of the sum over the rails, from equal bins of each; a rail's unknown bins take the mean of the others."""
    if not len(bins):
        return NONE
    known = np.count_nonzero(~np.isnan(bins), axis=0)
    mean = np.where(known > 0, np.nansum(bins, axis=0) / np.maximum(known, 1), np.nan)
    return find_period(mean, bin_seconds)


def find_sampled_period(
    rails: Sequence[tuple[Floats, Bools]], interval_seconds: float, coarsest_ticks: int = 1
) -> StepPeriod:
    """Period of the sum over rails whose samples are given: rates (samples,), and which of them are known.

    Unlike the daemon, samples have no counters that cover missing data: missing rates are interpolated linearly, unless
    they span more than two bins.
    """
    bin_seconds = choose_bin_seconds(coarsest_ticks, interval_seconds)
    span = max((len(rates) for rates, _ in rails), default=0) * interval_seconds
    bins = int(span / bin_seconds)
    if bins < 1:
        return NONE
    edges = span - bin_seconds * np.arange(bins, -1, -1, dtype=np.float64)
    return find_rails_period([_bins_of(*rail, interval_seconds, edges) for rail in rails], bin_seconds)


def _bins_of(rates: Floats, good: Bools, interval_seconds: float, edges: Floats) -> Floats:
    at = np.arange(len(good))
    if not good.all():
        rates = np.interp(at, at[good], rates[good])
    seconds = np.arange(len(good) + 1, dtype=np.float64) * interval_seconds
    moved = np.concatenate(([0.0], np.cumsum(rates * interval_seconds)))
    # the running sum is known only on either side of a known sample
    kept = np.concatenate((good, [False])) | np.concatenate(([False], good))
    return rate_bins(seconds[kept], moved[kept], edges)


def _candidate_frequencies(signal: Floats, options: PeriodOptions) -> Floats:
    """Frequencies, per bin, of the highest peaks of the periodogram, interpolated between its points."""
    size = 4 * _fast_length(len(signal))
    power = np.square(np.abs(np.fft.rfft(signal * np.hanning(len(signal)), size)))
    inner = power[1:-1]
    high = (inner > power[:-2]) & (inner >= power[2:]) & (inner > quantile(power, options.percentile / 100))
    places = np.flatnonzero(high) + 1
    places = places[np.argsort(power[places])[::-1][: options.candidates]]
    return np.asarray((places + _vertex(power, places)) / size)


def _autocorrelation(signal: Floats, known: npt.NDArray[np.bool_]) -> Floats:
    """Unbiased autocorrelation over known pairs, 1 at lag 0, at every quarter of a bin."""
    size = _fast_length(2 * len(signal))
    farthest = int(len(signal) * MAX_LAG) + 2
    spectrum = np.square(np.abs(np.fft.rfft(signal, size)))
    spectrum[-1] /= 2
    products = np.fft.irfft(spectrum, FINENESS * size)[: farthest * FINENESS] * FINENESS
    lags = np.arange(farthest * FINENESS) / FINENESS
    if known.all():
        pairs = len(signal) - lags
    else:
        count = np.fft.irfft(np.square(np.abs(np.fft.rfft(known.astype(np.float64), size))), size)[:farthest]
        pairs = np.interp(lags, np.arange(farthest), count)
    mean = products / np.maximum(pairs, 1.0)
    return np.asarray(mean / mean[0])


def _best_lag(likeness: Floats, frequencies: Floats, bins: int, options: PeriodOptions) -> tuple[float, float]:
    """Lag in bins and score of the best candidate; among nearly equal candidates, the shortest."""
    periods = np.outer(np.arange(1, MULTIPLES + 1), 1 / frequencies).ravel()
    # half the distance between two points of the periodogram before padding, as a change of the period
    reach = np.minimum(periods / (2 * bins), 0.1)
    lags = periods[:, None] * (1 + reach[:, None] * OFFSETS)
    scores = _comb_scores(likeness, lags, bins)
    scores[(lags < MIN_LAG) | (lags > bins / options.least_periods)] = -1.0
    if not scores.size or scores.max() <= 0:
        return 0.0, 0.0
    shortest = lags[scores * options.margin >= scores.max()].min()
    # its neighbours are the same period, measured more precisely
    scores[(lags < shortest) | (lags > shortest * NEIGHBOURS)] = -1.0
    best = scores.argmax()
    return float(lags.flat[best]), min(float(scores.flat[best]), 1.0)


def _comb_scores(likeness: Floats, lags: Floats, bins: int) -> Floats:
    """Mean autocorrelation at the multiples of each lag minus that at the midpoints before them."""
    multiples = np.arange(1, MULTIPLES + 1)
    at = np.arange(len(likeness)) / FINENESS
    teeth = lags[..., None] * multiples
    seen = teeth <= MAX_LAG * bins
    contrast = np.interp(teeth, at, likeness) - np.interp(teeth - lags[..., None] / 2, at, likeness)
    return np.asarray((contrast * seen).sum(axis=-1) / np.maximum(seen.sum(axis=-1), 1))


def _refine(likeness: Floats, lag: float, bins: int) -> float:
    """The lag, in points of the autocorrelation, whose multiples best fit the peaks nearby."""
    products, squares = 0.0, 0.0
    for multiple in range(1, min(REFINING_MULTIPLES, int(MAX_LAG * bins / lag)) + 1):
        centre, reach = lag * multiple, max(1.0, lag / 8)
        first, last = max(1, round(centre - reach)), min(round(centre + reach), len(likeness) - 2)
        place = first + int(likeness[first : last + 1].argmax()) if last >= first else 0
        if likeness[place] > 0 and place:
            peak = place + float(_vertex(likeness, np.array([place]))[0])
            products += float(likeness[place]) * multiple * peak
            squares += float(likeness[place]) * multiple**2
            lag = products / squares
    return lag


def _vertex(values: Floats, places: npt.NDArray[np.intp]) -> Floats:
    """Offset, within ± half a bin, of the vertex of the parabola through each place and its neighbours."""
    before, here, after = values[places - 1], values[places], values[places + 1]
    bend = before - 2 * here + after
    offset = np.zeros(len(places))
    np.divide(before - after, 2 * bend, out=offset, where=bend < 0)
    return np.clip(offset, -0.5, 0.5)


def _fast_length(size: int) -> int:
    """The smallest power of two that is at least `size`."""
    return 1 << (size - 1).bit_length()
