"""Counters at uneven instants to mean rates in equal bins. Pure numpy; it must not know where counters come from.

A counter is a running sum, so what flowed between two instants is the difference of two interpolated values: a late
sample or a short hole moves no bytes to another time than the one they flowed in.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

NS_PER_SECOND = 1e9
GAP_BINS = 2.0


def bandwidth_bins(
    time_ns: npt.NDArray[np.int64],
    counters: npt.NDArray[np.uint64],
    valid: npt.NDArray[np.bool_],
    scale: npt.NDArray[np.int64],
    edges_ns: npt.NDArray[np.int64],
) -> Floats:
    """Mean bytes per second, summed over rails and directions, between each two of the equally spaced edges.

    Counters are (rails, 2, ticks) as `rates` takes them. A bin is NaN where no counter is known. Where only some are,
    for a hole longer than two bins, the others stand for them: their mean rate counts as everybody's.
    """
    edges = (edges_ns - edges_ns[0]) / NS_PER_SECOND
    total, known = np.zeros(len(edges) - 1), np.zeros(len(edges) - 1)
    series = 0
    for rail, way in np.ndindex(counters.shape[:2]):
        chosen = valid[rail, way]
        if np.count_nonzero(chosen) < 2:
            continue
        times, counts = time_ns[rail, way], counters[rail, way]
        if not chosen.all():
            times, counts = times[chosen], counts[chosen]
        values = rate_bins((times - edges_ns[0]) / NS_PER_SECOND, cumulate(counts), edges) * float(scale[rail])
        seen = ~np.isnan(values)
        total[seen] += values[seen]
        known += seen
        series += 1
    out = np.full(len(total), np.nan)
    np.divide(total * series, known, out=out, where=known > 0)
    return out


def cumulate(counter: npt.NDArray[np.uint64]) -> Floats:
    """Running sum of what a counter moved since its first value; a fall is a reset and moves nothing."""
    fell = counter[1:] < counter[:-1]
    if not fell.any():
        return np.asarray((counter - counter[0]).astype(np.float64))
    with np.errstate(over="ignore"):
        moved = np.where(fell, np.uint64(0), counter[1:] - counter[:-1])
    return np.concatenate(([0.0], np.cumsum(moved.astype(np.float64))))


def rate_bins(seconds: Floats, cumulative: Floats, edges: Floats, longest_gap: float | None = None) -> Floats:
    """Mean rate around each bin from a running sum at rising instants, NaN inside gaps longer than `longest_gap`.

    `edges` are equally spaced; two bins are the longest gap unless given. Each value is a weighted mean over one and a
    half bins (a quarter, a half, a quarter of three half bins), which keeps waves that are faster than the bins from
    passing as slow ones: of a wave as long as a bin nothing is left.

    Law: inside the series every byte counts once, so the sum of `rate * bin` is what the running sum rose by.
    """
    width = float(edges[1] - edges[0])
    halves = np.interp(np.linspace(edges[0] - width / 2, edges[-1], 2 * len(edges)), seconds, cumulative)
    moved = np.diff(halves)
    rate = (moved[:-2:2] + 2 * moved[1:-1:2] + moved[2::2]) / (2 * width)
    # the weighted mean of a bin is centred on its first half
    centres = edges[:-1] + width / 4
    limit = GAP_BINS * width if longest_gap is None else longest_gap
    unknown = (centres < seconds[0]) | (centres > seconds[-1])
    for gap in np.flatnonzero(np.diff(seconds) > limit):
        first, last = np.searchsorted(centres, seconds[gap : gap + 2])
        unknown[first:last] = True
    return np.where(unknown, np.nan, rate)
