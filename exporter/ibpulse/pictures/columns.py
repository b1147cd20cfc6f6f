"""Many ticks to few columns, by their highest and their mean. Pure numpy; it must not know what is drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows of columns of `ticks` ticks each, the last of which may be shorter.

    `highest` and `mean` (rows, columns) are NaN where nothing is known; `partly` says where something is missing.
    """

    highest: Floats
    mean: Floats
    partly: npt.NDArray[np.bool_]
    ticks: int

    @property
    def count(self) -> int:
        """Number of columns."""
        return int(self.highest.shape[1])


def reduce(values: Floats, seconds: Floats, most: int) -> Columns:
    """At most so many columns of (rows, ticks), NaN in holes; the mean is weighted by the seconds.

    Law: the highest value of a row is that of its columns; the mean of the columns, weighted by the seconds in them, is
    that of the row.
    """
    ticks = max(1, -(-values.shape[1] // most))
    starts = np.arange(0, values.shape[1], ticks)
    known = ~np.isnan(values)
    weight = np.where(known, seconds, 0.0)
    total = np.add.reduceat(weight, starts, axis=1)
    summed = np.add.reduceat(np.where(known, values, 0.0) * weight, starts, axis=1)
    mean = np.full(total.shape, np.nan)
    np.divide(summed, total, out=mean, where=total > 0)
    highest = np.fmax.reduceat(values, starts, axis=1)
    return Columns(highest, mean, ~np.logical_and.reduceat(known, starts, axis=1), ticks)
