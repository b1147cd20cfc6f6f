"""Bytes and rates from raw counters, across missing data and counter resets.

`rates` defines a rate. `rate_series` is a fast version for long spans of one port: it takes records in their memory
layout, computes in float32 and builds masks only where data is missing. The two differ by less than 3e-6 of the rate,
because of float32 rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ibpulse.units import SECOND_NS

NOT_READ = -1


@dataclass(frozen=True, slots=True)
class Increase:
    """The increase of counters over a span.

    `moved_bytes` is int64 (ports, 2). `resets` is int64 (ports,), the number of samples at which a counter decreased.
    `last` is uint64 (ports, 2), the last value read; `known`, bool (ports, 2), is false if there was none.
    """

    moved_bytes: npt.NDArray[np.int64]
    resets: npt.NDArray[np.int64]
    last: npt.NDArray[np.uint64]
    known: npt.NDArray[np.bool_]


def increase(counters: npt.NDArray[np.uint64], valid: npt.NDArray[np.bool_], scale: npt.NDArray[np.int64]) -> Increase:
    """Bytes between consecutive valid values of counters (ports, 2, instants), across missing data.

    A counter that decreased was reset: the reset is counted, and because the bytes since the previous value are
    unknown, it adds nothing. `scale` (ports,) is bytes per count.

    Law: without a reset, the sum is `scale * (last valid - first valid)`. Splitting a span at a valid instant that is
    part of both halves does not change the sums.
    """
    instants = np.arange(counters.shape[2])
    newest = np.maximum.accumulate(np.where(valid, instants, -1), axis=2)
    before = newest[:, :, :-1]
    pair = valid[:, :, 1:] & (before >= 0)
    previous = np.take_along_axis(counters, np.maximum(before, 0), axis=2)
    current = counters[:, :, 1:]
    fell = pair & (current < previous)
    with np.errstate(over="ignore"):
        difference = np.where(pair & ~fell, current - previous, np.uint64(0))
    end = newest[:, :, -1]
    return Increase(
        moved_bytes=difference.sum(axis=2).astype(np.int64) * scale[:, None],
        resets=np.count_nonzero(fell.any(axis=1), axis=1),
        last=np.take_along_axis(counters, np.maximum(end, 0)[:, :, None], axis=2)[:, :, 0],
        known=end >= 0,
    )


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates between consecutive samples, per port and direction, at every tick.

    All arrays are (ports, 2, ticks). `bytes_per_second` is float64, NaN if the sample or the one before it is missing
    or the counter was reset. `seconds` is the measured time that the tick covers, 0 where data is missing. `reset` is
    true if the counter decreased since the previous sample.
    """

    bytes_per_second: npt.NDArray[np.float64]
    seconds: npt.NDArray[np.float64]
    reset: npt.NDArray[np.bool_]


def rates(
    time_ns: npt.NDArray[np.int64],
    counters: npt.NDArray[np.uint64],
    valid: npt.NDArray[np.bool_],
    scale: npt.NDArray[np.int64],
    stride: npt.NDArray[np.int64],
) -> Rates:
    """Rates at each tick from counters (ports, 2, ticks); the first `stride` ticks of a port have no rate.

    A port sampled every `stride` ticks has one difference per stride; its mean rate is used for each tick it covers, so
    that sums over time do not depend on the stride. `stride` is (ports,), or (ports, ticks) if it changed: no rate is
    computed between two samples with different strides, so a change loses at most one stride of data.

    Law: without missing data, the sum of `bytes_per_second * seconds` is `scale * (last - first)`.
    """
    shape = counters.shape
    out = Rates(np.full(shape, np.nan), np.zeros(shape), np.zeros(shape, dtype=np.bool_))
    for step in np.unique(stride[stride < shape[2]]):
        taken = stride == step
        rows = np.flatnonzero(taken if stride.ndim == 1 else taken.any(axis=1))
        mine = valid[rows] if stride.ndim == 1 else valid[rows] & taken[rows, None]
        _fill(out, rows, int(step), time_ns[rows], counters[rows], mine, scale[rows])
    return out


def _fill(
    out: Rates,
    rows: npt.NDArray[np.intp],
    step: int,
    time_ns: npt.NDArray[np.int64],
    counters: npt.NDArray[np.uint64],
    valid: npt.NDArray[np.bool_],
    scale: npt.NDArray[np.int64],
) -> None:
    later, earlier = slice(step, None), slice(None, -step)
    both = valid[..., later] & valid[..., earlier]
    fell = both & (counters[..., later] < counters[..., earlier])
    elapsed = time_ns[..., later] - time_ns[..., earlier]
    good = both & ~fell & (elapsed > 0)
    with np.errstate(over="ignore"):
        moved = (counters[..., later] - counters[..., earlier]).astype(np.float64) * scale[:, None, None]
    rate = np.full(moved.shape, np.nan)
    np.divide(moved * float(SECOND_NS), elapsed, out=rate, where=good)
    share = np.where(good, elapsed / (SECOND_NS * step), 0.0)
    out.reset[rows, :, step:] |= fell
    for back in range(step):
        # the difference at tick k covers the ticks k-step+1 .. k
        target = slice(step - back, counters.shape[2] - back)
        hit = good if back == 0 else good & np.isnan(out.bytes_per_second[rows, :, target])
        _put(out.bytes_per_second, rows, target, rate, hit)
        _put(out.seconds, rows, target, share, hit)


def _put(
    array: npt.NDArray[np.float64],
    rows: npt.NDArray[np.intp],
    target: slice,
    values: npt.NDArray[np.float64],
    hit: npt.NDArray[np.bool_],
) -> None:
    part = array[rows, :, target]
    part[hit] = values[hit]
    array[rows, :, target] = part


def rate_series(
    stamps: npt.NDArray[np.int64],
    counters: npt.NDArray[np.int64],
    present: npt.NDArray[np.bool_],
    scale: int,
    stride: int | npt.NDArray[np.int64],
) -> npt.NDArray[np.float32]:
    """Bytes per second at each tick: float32 (2, ticks), NaN where data is missing and in the first `stride` ticks.

    `stamps` is (ticks, 3), the monotonic ns before, between and after the two reads; `counters` is (ticks, 2), -1 if a
    counter was not read; `present` is (ticks,), as is `stride` if it changed.
    """
    if not isinstance(stride, int) or stride > 1:
        return _strided(stamps, counters, present, scale, np.array([stride]))
    out = np.empty((2, len(present)), dtype=np.float32)
    out[:, :1] = np.nan
    if len(present) < 2:
        return out
    lost = np.flatnonzero(~present)
    gaps = np.concatenate((lost[lost > 0] - 1, lost[lost < len(present) - 1]))
    for direction in (0, 1):
        # twice the midpoint of the read, to avoid rounding when halving
        instants = stamps[:, direction] + stamps[:, direction + 1]
        elapsed = instants[1:] - instants[:-1]
        moved = counters[1:, direction] - counters[:-1, direction]
        bad = _find_holes(moved, elapsed, counters[:, direction], gaps)
        rate = np.divide(moved, elapsed, out=out[direction, 1:], dtype=np.float32, casting="unsafe")
        rate *= np.float32(2 * SECOND_NS * scale)
        rate[bad] = np.nan
    return out


def _find_holes(
    moved: npt.NDArray[np.int64],
    elapsed: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
    gaps: npt.NDArray[np.intp],
) -> npt.NDArray[np.intp]:
    """Indices of differences that are missing; those of `gaps` are neutralised in place."""
    moved[gaps], elapsed[gaps] = 0, 1
    # an unread counter is -1 and thus appears as a decrease, unless it comes first or follows a gap
    unseen = counts[0] == NOT_READ or (counts[gaps + 1] == NOT_READ).any()
    if not unseen and moved.min() >= 0 and elapsed.min() > 0:
        return gaps
    lost = counts == NOT_READ
    bad = np.flatnonzero(lost[1:] | lost[:-1] | (moved < 0) | (elapsed <= 0))
    elapsed[bad] = 1
    return np.concatenate((gaps, bad))


def _strided(
    stamps: npt.NDArray[np.int64],
    counters: npt.NDArray[np.int64],
    present: npt.NDArray[np.bool_],
    scale: int,
    stride: npt.NDArray[np.int64],
) -> npt.NDArray[np.float32]:
    middles = (stamps[:, :-1] + stamps[:, 1:]) >> 1
    found = rates(
        middles.T[None],
        counters.view(np.uint64).T[None],
        ((counters != NOT_READ) & present[:, None]).T[None],
        np.array([scale]),
        stride,
    )
    return np.asarray(found.bytes_per_second[0], dtype=np.float32)
