"""Peaks of rates where nothing is missing, reset or implausible: those of `rates` in a fraction of the operations.

For short spans that are read several times a second, where each operation on arrays costs more than its arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Counts, Floats
from ibpulse.core.statistics.plausible import (
    STEPS,
    SURE_STEPS,
    LineRate,
    Pairs,
    limit_by_sample_before,
    lower_bound,
    uncertainty_steps,
)


def plain_peaks(
    stamps: Counts, counters: Counts, scale: npt.NDArray[np.int64], lines: Sequence[LineRate], interval_ns: int
) -> Floats | None:
    """The certain part of the rates of consecutive samples: (ports, 2, ticks - 1); None if `rates` is needed.

    `stamps` (ports, 3, ticks) are the monotonic ns before, between and after the two reads, `counters` (ports, 2,
    ticks) the values; all are present, ticks are `interval_ns` apart and samples one tick.
    """
    moved = counters[..., 1:] - counters[..., :-1]
    middles = (stamps[:, :-1] + stamps[:, 1:]) >> 1
    elapsed = middles[..., 1:] - middles[..., :-1]
    least = int(elapsed.min())
    # a counter that was not read is negative, and so is what moved to it
    if least <= 0 or moved.min() < 0 or counters[..., 0].min() < 0:
        return None
    rates: Floats = moved.astype(np.float64) * scale[:, None, None] * float(SECOND_NS) / elapsed
    if (rates.max(axis=(1, 2)) > [line.lowest for line in lines]).any():
        return None
    longest = int((np.maximum(stamps[:, 1], stamps[:, 2]) - stamps[:, 0]).max())
    if (longest + max(0, interval_ns - least)) * STEPS < SURE_STEPS * least:
        return rates
    widths = np.abs(stamps[:, 1:] - stamps[:, :-1])
    steps = uncertainty_steps(widths[..., 1:] + widths[..., :-1], elapsed, interval_ns)
    row, way, place = np.nonzero(steps > SURE_STEPS)
    if not len(row):
        return rates
    unsure, doubts = (row, way, place), steps[row, way, place]
    followed = place > 0
    last = row[followed], way[followed], place[followed]
    both = last[0][:, None], last[1][:, None], last[2][:, None] + np.array([-1, 0])
    around = widths[last[0], last[1], last[2] - 1] + widths[last[0], last[1], last[2] + 1]
    pairs = Pairs(rates[both], elapsed[both], around)
    limited = limit_by_sample_before(doubts[followed], pairs, interval_ns)
    doubts[followed] = np.where(elapsed[last] < interval_ns, limited, doubts[followed])
    rates[unsure] = lower_bound(rates[unsure], doubts)
    return rates
