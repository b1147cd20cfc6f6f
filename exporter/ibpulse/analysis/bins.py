"""Maximum, mean or minimum per bin of rates on a regular grid with holes. Pure numpy; it must not know clocks."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

Statistic = Literal["max", "mean", "min"]
Values = npt.NDArray[np.float32]

_FOLDS = {"max": np.fmax, "min": np.fmin}


class BinGrid:
    """Bins `first + k * width <= tick < first + (k + 1) * width` of rows of two directions, filled run by run.

    Law: a bin's value depends on its good samples alone, not on how they were cut into runs. A bin without a good
    sample is a hole (NaN).
    """

    def __init__(self, rows: int, first: int, points: int, width: int, statistic: Statistic) -> None:
        shape = (rows, 2, points)
        self._first, self._points, self._width, self._statistic = first, points, width, statistic
        self._out = np.full(shape, np.nan, dtype=np.float32)
        summed = statistic == "mean" and width > 1
        self._sums = np.zeros(shape if summed else 0, dtype=np.float64)
        self._counts = np.zeros(shape if summed else 0, dtype=np.int64)

    def add(self, row: int, tick: int, values: Values) -> None:
        """Take a run of one row: `values` is float32 (2, ticks), NaN in holes, its first column at `tick`."""
        begin, count = tick - self._first, values.shape[-1]
        if count == 0:
            return
        if begin < 0 or begin + count > self._points * self._width:
            raise ValueError(f"ticks {begin}..{begin + count} lie outside the grid of {self._points * self._width}")
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

    def values(self) -> Values:
        """Value of every bin: float32 (rows, 2, points), NaN in holes."""
        if self._sums.size:
            np.divide(self._sums, self._counts, out=self._out, where=self._counts > 0, casting="same_kind")
        return self._out


def _edges(begin: int, count: int, width: int) -> npt.NDArray[np.intp]:
    """Where each bin begins inside a run of `count` ticks that begins `begin` ticks into the grid."""
    lead = width - begin % width
    return np.concatenate(([0], np.arange(lead, count, width))).astype(np.intp)
