"""Finds the step period of a series of rates: candidates from the periodogram, scored by the autocorrelation.

The method follows AUTOPERIOD (Vlachos, Yu and Castelli, 2005). The series are equal bins, filled from samples, or from
counters that are read at irregular times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Bools, Counts, Floats, Rows, Words, running_sum
from ibpulse.core.statistics.moments import quantile

GAP_BINS = 2.0


def choose_edges(times_ns: Counts, window_ns: int, bin_seconds: float) -> Counts:
    """Edges of at least one whole bin between the oldest and the newest sample; the newest sample is the last edge."""
    width_ns = round(bin_seconds * SECOND_NS)
    newest_ns = int(times_ns.max())
    bins = min(window_ns, newest_ns - int(times_ns.min())) // width_ns
    return newest_ns - width_ns * np.arange(max(1, bins), -1, -1, dtype=np.int64)


def bandwidth_bins(time_ns: Counts, counters: Words, valid: Bools, scale: Counts, edges_ns: Counts) -> Floats:
    """Mean bytes per second, summed over rails and directions, between consecutive, equally spaced edges.

    Counters are (rails, 2, samples), as for `rates`. A bin is NaN if no counter is known. Counters with more than two
    bins of missing data are assumed to have the mean rate of the others.
    """
    edges = (edges_ns - edges_ns[0]) / SECOND_NS
    total, known = np.zeros(len(edges) - 1), np.zeros(len(edges) - 1)
    series = 0
    for rail, way in np.ndindex(counters.shape[:2]):
        chosen = valid[rail, way]
        if np.count_nonzero(chosen) < 2:
            continue
        times, counts = time_ns[rail, way], counters[rail, way]
        if not chosen.all():
            times, counts = times[chosen], counts[chosen]
        values = rate_bins((times - edges_ns[0]) / SECOND_NS, cumulate(counts), edges) * float(scale[rail])
        seen = ~np.isnan(values)
        total[seen] += values[seen]
        known += seen
        series += 1
    out = np.full(len(total), np.nan)
    np.divide(total * series, known, out=out, where=known > 0)
    return out


def cumulate(counter: Words) -> Floats:
    """Running sum of a counter's increase since its first value; a decrease is a reset and adds nothing."""
    fell = counter[1:] < counter[:-1]
    if not fell.any():
        return np.asarray((counter - counter[0]).astype(np.float64))
    with np.errstate(over="ignore"):
        moved = np.where(fell, np.uint64(0), counter[1:] - counter[:-1])
    return running_sum(moved.astype(np.float64))


def rate_bins(seconds: Floats, cumulative: Floats, edges: Floats) -> Floats:
    """Mean rate around each bin, from a running sum at increasing times; NaN inside gaps longer than two bins.

    `edges` are equally spaced. Each value is a weighted mean over one and a half bins (weights 1/4, 1/2, 1/4 on three
    half bins). This low-pass filter prevents aliasing: a wave with the period of one bin is removed completely.

    Law: inside the series every byte counts once: the sum of `rate * bin` equals the increase of the running sum.
    """
    width = float(edges[1] - edges[0])
    halves = np.interp(np.linspace(edges[0] - width / 2, edges[-1], 2 * len(edges)), seconds, cumulative)
    moved = np.diff(halves)
    rate = (moved[:-2:2] + 2 * moved[1:-1:2] + moved[2::2]) / (2 * width)
    # the weighted mean of a bin is centred on its first half
    centres = edges[:-1] + width / 4
    unknown = (centres < seconds[0]) | (centres > seconds[-1])
    for gap in np.flatnonzero(np.diff(seconds) > GAP_BINS * width):
        first, last = np.searchsorted(centres, seconds[gap : gap + 2])
        unknown[first:last] = True
    return np.where(unknown, np.nan, rate)


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


MIN_SCORE = 0.4
# the shortest period in bins, and the number of periods that the series must contain
MIN_BINS, MIN_PERIODS = 4, 4
# the least sigma/mu of the bins; below it, the residue of faster waves that the bins let through could pass as a slow
# wave
MIN_VARIATION = 0.1
# the fraction of bins that must be known
MIN_KNOWN = 0.5
# the number of peaks of the periodogram that are tried, all above this quantile
CANDIDATES, HIGH = 24, 0.9
# the factor by which a longer candidate must outscore a shorter one
MARGIN = 1.2


@dataclass(frozen=True, slots=True)
class StepPeriod:
    """`seconds` is NaN if no period was found; `score`, 0 to 1, is then the score of the best rejected candidate."""

    seconds: float
    score: float


NONE = StepPeriod(float("nan"), 0.0)


def find_period(values: Floats, bin_seconds: float = BIN_SECONDS) -> StepPeriod:
    """Period of `values`, the rates of equal bins of `bin_seconds`; NaN marks unknown bins.

    The score of a period T is the mean autocorrelation at T..4T minus that at T/2..3.5T, limited to 1: it is 1 for a
    wave that repeats exactly and about 0 for noise. If the best period is shorter than `MIN_BINS`, none is returned,
    because it cannot be distinguished from its beat with the bins.

    Law: invariant under scaling of the values; the period is proportional to `bin_seconds`.
    """
    known = ~np.isnan(values)
    if len(values) < MIN_BINS * MIN_PERIODS or known.mean() < MIN_KNOWN:
        return NONE
    centre = float(values[known].mean())
    signal = np.where(known, values - centre, 0.0)
    if not np.sqrt(np.square(signal).sum() / known.sum()) > MIN_VARIATION * abs(centre):
        return NONE
    likeness = _autocorrelation(signal, known)
    lag, score = _best_lag(likeness, _candidate_frequencies(signal), len(values))
    if lag < MIN_BINS:
        return NONE
    if score < MIN_SCORE:
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
    moved = running_sum(rates * interval_seconds)
    # the running sum is known only on either side of a known sample
    kept = np.concatenate((good, [False])) | np.concatenate(([False], good))
    return rate_bins(seconds[kept], moved[kept], edges)


def _candidate_frequencies(signal: Floats) -> Floats:
    """Frequencies, per bin, of the highest peaks of the periodogram, interpolated between its points."""
    size = 4 * _fast_length(len(signal))
    power = np.square(np.abs(np.fft.rfft(signal * np.hanning(len(signal)), size)))
    inner = power[1:-1]
    high = (inner > power[:-2]) & (inner >= power[2:]) & (inner > quantile(power, HIGH))
    places = np.flatnonzero(high) + 1
    places = places[np.argsort(power[places])[::-1][:CANDIDATES]]
    return np.asarray((places + _vertex(power, places)) / size)


def _autocorrelation(signal: Floats, known: Bools) -> Floats:
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


def _best_lag(likeness: Floats, frequencies: Floats, bins: int) -> tuple[float, float]:
    """Lag in bins and score of the best candidate; among nearly equal candidates, the shortest."""
    periods = np.outer(np.arange(1, MULTIPLES + 1), 1 / frequencies).ravel()
    # half the distance between two points of the periodogram before padding, as a change of the period
    reach = np.minimum(periods / (2 * bins), 0.1)
    lags = periods[:, None] * (1 + reach[:, None] * OFFSETS)
    scores = _comb_scores(likeness, lags, bins)
    scores[(lags < MIN_LAG) | (lags > bins / MIN_PERIODS)] = -1.0
    if not scores.size or scores.max() <= 0:
        return 0.0, 0.0
    shortest = lags[scores * MARGIN >= scores.max()].min()
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


def _vertex(values: Floats, places: Rows) -> Floats:
    """Offset, within ± half a bin, of the vertex of the parabola through each place and its neighbours."""
    before, here, after = values[places - 1], values[places], values[places + 1]
    bend = before - 2 * here + after
    offset = np.zeros(len(places))
    np.divide(before - after, 2 * bend, out=offset, where=bend < 0)
    return np.clip(offset, -0.5, 0.5)


def _fast_length(size: int) -> int:
    """The smallest power of two that is at least `size`."""
    return 1 << (size - 1).bit_length()
