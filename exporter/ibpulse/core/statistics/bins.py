"""Equal bins: maximum, mean or minimum of rates, and mean rates from counters read at irregular times."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Floats, Singles

Statistic = Literal["max", "mean", "min"]

_FOLDS = {"max": np.fmax, "min": np.fmin}
GAP_BINS = 2.0


class BinGrid:
    """Bins `first + k * width <= tick < first + (k + 1) * width` for rows of two directions, filled run by run.

    Law: the value of a bin depends only on its good samples, not on how they were split into runs. A bin without a good
    sample is NaN.
    """

    def __init__(self, rows: int, first: int, points: int, width: int, statistic: Statistic) -> None:
        shape = (rows, 2, points)
        self._first, self._points, self._width, self._statistic = first, points, width, statistic
        self._out = np.full(shape, np.nan, dtype=np.float32)
        summed = statistic == "mean" and width > 1
        self._sums = np.zeros(shape if summed else 0, dtype=np.float64)
        self._counts = np.zeros(shape if summed else 0, dtype=np.int64)

    def add(self, row: int, tick: int, values: Singles) -> None:
        """Add a run to one row: `values` is float32 (2, samples), NaN where data is missing, starting at `tick`."""
        begin, count = tick - self._first, values.shape[-1]
        if count == 0:
            return
        if begin < 0 or begin + count > self._points * self._width:
            raise ValueError(f"samples {begin}..{begin + count} lie outside the grid of {self._points * self._width}")
        if self._width == 1:
            self._out[row, :, begin : begin + count] = values
            return
        edges = _edges(begin, count, self._width)
        first_bin = begin // self._width
        target = np.s_[row, :, first_bin : first_bin + len(edges)]
        if self._statistic == "mean":
            good = ~np.isnan(values)
            self._sums[target] += np.add.reduceat(np.where(good, values, 0), edges, axis=-1, dtype=np.float64)
            self._counts[target] += np.add.reduceat(good, edges, axis=-1, dtype=np.int64)
        else:
            fold = _FOLDS[self._statistic]
            self._out[target] = fold(self._out[target], fold.reduceat(values, edges, axis=-1))

    def values(self) -> Singles:
        """Value of every bin: float32 (rows, 2, points), NaN where data is missing."""
        if self._sums.size:
            np.divide(self._sums, self._counts, out=self._out, where=self._counts > 0, casting="same_kind")
        return self._out


def _edges(begin: int, count: int, width: int) -> npt.NDArray[np.intp]:
    """Offset of each bin within a run of `count` samples that begins `begin` samples into the grid."""
    lead = width - begin % width
    return np.concatenate(([0], np.arange(lead, count, width))).astype(np.intp)


def choose_edges(times_ns: npt.NDArray[np.int64], window_ns: int, bin_seconds: float) -> npt.NDArray[np.int64]:
    """Edges of at least one whole bin between the oldest and the newest sample; the newest sample is the last edge."""
    width_ns = round(bin_seconds * SECOND_NS)
    newest_ns = int(times_ns.max())
    bins = min(window_ns, newest_ns - int(times_ns.min())) // width_ns
    return newest_ns - width_ns * np.arange(max(1, bins), -1, -1, dtype=np.int64)


def bandwidth_bins(
    time_ns: npt.NDArray[np.int64],
    counters: npt.NDArray[np.uint64],
    valid: npt.NDArray[np.bool_],
    scale: npt.NDArray[np.int64],
    edges_ns: npt.NDArray[np.int64],
) -> Floats:
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


def cumulate(counter: npt.NDArray[np.uint64]) -> Floats:
    """Running sum of a counter's increase since its first value; a decrease is a reset and adds nothing."""
    fell = counter[1:] < counter[:-1]
    if not fell.any():
        return np.asarray((counter - counter[0]).astype(np.float64))
    with np.errstate(over="ignore"):
        moved = np.where(fell, np.uint64(0), counter[1:] - counter[:-1])
    return np.concatenate(([0.0], np.cumsum(moved.astype(np.float64))))


def rate_bins(seconds: Floats, cumulative: Floats, edges: Floats, longest_gap: float | None = None) -> Floats:
    """Mean rate around each bin, from a running sum at increasing times; NaN inside gaps longer than `longest_gap`.

    `edges` are equally spaced; `longest_gap` defaults to two bins. Each value is a weighted mean over one and a half
    bins (weights 1/4, 1/2, 1/4 on three half bins). This low-pass filter prevents aliasing: a wave with the period of
    one bin is removed completely.

    Law: inside the series every byte counts once: the sum of `rate * bin` equals the increase of the running sum.
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
