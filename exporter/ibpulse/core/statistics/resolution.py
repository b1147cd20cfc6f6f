"""Measures the effective resolution of a counter: the time between its changes under traffic."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from ibpulse.base.units import SECOND_NS
from ibpulse.core.statistics.quantiles import lower_quantile

MIN_CHANGES = 20
QUARTER = 0.25
SAME = 1.5
"""A counter whose changes are at most this many samples apart is considered to change at every sample."""


def effective_resolution(
    time_ns: npt.NDArray[np.int64],
    counters: npt.NDArray[np.uint64],
    sampled: npt.NDArray[np.bool_],
    scale: int,
    threshold_bytes_per_second: float,
) -> float:
    """Lower quartile of the seconds between changes of a busy counter; NaN with fewer than 20 such gaps.

    `time_ns` and `counters` are (2, samples) for transmit and receive at consecutive planned samples; `sampled` (2,
    samples) is false where the read failed or was missed. A gap counts if it has no missing sample, the counter did not
    decrease, and its mean rate is above the threshold, because an idle counter does not change. The quartile is used
    instead of the median because pauses between bursts make gaps longer, while nothing makes them shorter.

    Law: for a counter that changes at every sample, the result is the sampling interval; for a counter that the device
    refreshes every R seconds, R a multiple of the interval, it is R. A port that is active only in regular single
    samples cannot be distinguished from a slow counter.
    """
    gaps = np.concatenate(
        [
            _busy_gaps(time_ns[direction], counters[direction], sampled[direction], scale, threshold_bytes_per_second)
            for direction in range(len(counters))
        ]
    )
    return lower_quantile(gaps, QUARTER) if len(gaps) >= MIN_CHANGES else float("nan")


def stands_still(resolution_seconds: float, sampled_every_seconds: float) -> bool:
    """Whether a counter with this effective resolution stays constant over several samples; false for NaN."""
    return resolution_seconds > SAME * sampled_every_seconds


def finest_ticks(resolution_seconds: float | None, interval_ns: int, stride: int) -> int:
    """Ticks of the finest statistic that a counter sampled every `stride` ticks resolves.

    The result is 1 unless the counter stays constant over several samples; None is an unknown resolution.
    """
    ticks = (resolution_seconds or 0.0) * SECOND_NS / interval_ns
    return math.ceil(ticks) if stands_still(ticks, stride) else 1


def coarsest_ticks(ticks: Iterable[int]) -> int:
    """Ticks of the finest statistic of a sum: those of the coarsest counter, 1 without any counter."""
    return max(ticks, default=1)


def _busy_gaps(
    time_ns: npt.NDArray[np.int64],
    counter: npt.NDArray[np.uint64],
    sampled: npt.NDArray[np.bool_],
    scale: int,
    threshold_bytes_per_second: float,
) -> npt.NDArray[np.float64]:
    """Seconds between consecutive changes of one counter, if the traffic between them was active."""
    both = sampled[1:] & sampled[:-1]
    breaks = np.cumsum(~both | (counter[1:] < counter[:-1]))
    changes = np.flatnonzero(both & (counter[1:] > counter[:-1]))
    begin, end = changes[:-1] + 1, changes[1:] + 1
    unbroken = breaks[begin - 1] == breaks[end - 1]
    begin, end = begin[unbroken], end[unbroken]
    seconds = (time_ns[end] - time_ns[begin]) / 1e9
    moved_bytes = (counter[end] - counter[begin]).astype(np.float64) * scale
    return np.asarray(seconds[moved_bytes > threshold_bytes_per_second * seconds])
