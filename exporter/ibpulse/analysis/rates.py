"""Raw counters to bytes moved and to rates, across missing data and counter resets.

`rates` is the definition of a rate. `rate_series` is its fast form for long spans of one port: it takes records as they
lie in memory, computes in float32 and builds masks only where something is missing. The two differ by less than 3e-6 of
the rate, the rounding of float32.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ibpulse.units import SECOND_NS


@dataclass(frozen=True, slots=True)
class Increase:
    """What counters did over a span.

    `moved_bytes` is int64 (ports, 2). `resets` is int64 (ports,): instants at which a counter fell. `last` is uint64
    (ports, 2), the last counter read, where `known`, bool (ports, 2), says that there is one.
    """

    moved_bytes: npt.NDArray[np.int64]
    resets: npt.NDArray[np.int64]
    last: npt.NDArray[np.uint64]
    known: npt.NDArray[np.bool_]


def increase(counters: npt.NDArray[np.uint64], valid: npt.NDArray[np.bool_], scale: npt.NDArray[np.int64]) -> Increase:
    """Bytes that counters (ports, 2, instants) moved from each valid value to the next, also over holes.

    A counter that fell was reset: the fall is counted and what it moved since the value before is not known, so it
    adds nothing. `scale` (ports,) is bytes per count.

    Law: without a fall the sum is `scale * (last valid - first valid)`; a span cut at a valid instant that both parts
    hold gives the same sums as the whole.
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
    """What happened between consecutive samples, per port and direction, at every tick.

    All arrays are (ports, 2, ticks). `bytes_per_second` is float64, NaN where the tick or the sample before it was
    not read or the counter fell. `seconds` is the measured time that the tick stands for, 0 in a hole. `reset` is
    true where the counter fell since the sample before.
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
    """Rates at each tick from counters (ports, 2, ticks); the first `stride` ticks of a port are history only.

    A port sampled every `stride` ticks has one difference per stride; its mean rate stands at each tick it covers,
    so that sums over time are the same at any stride. `stride` is (ports,), or (ports, ticks) where it changed: two
    samples taken at different strides have no rate between them, so a change is a hole of a stride at most.

    Law: over ticks without a hole, the sum of `bytes_per_second * seconds` is `scale * (last - first)`.
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


NOT_READ = -1


def rate_series(
    stamps: npt.NDArray[np.int64],
    counters: npt.NDArray[np.int64],
    present: npt.NDArray[np.bool_],
    scale: int,
    stride: int | npt.NDArray[np.int64],
) -> npt.NDArray[np.float32]:
    """Bytes per second at each tick: float32 (2, ticks), NaN in holes; the first `stride` ticks are history only.

    `stamps` is (ticks, 3), the monotonic ns before, between and after the two reads; `counters` is (ticks, 2), -1 where
    a counter was not read; `present` is (ticks,), as is `stride` where it changed.
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
        # twice the instant of the read: the middle of its bracket, without the rounding of a halving
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
    """Differences that are holes; those of `gaps` are made harmless in place. Masks are built only where needed."""
    moved[gaps], elapsed[gaps] = 0, 1
    # -1 is below every counter, so a counter that was not read falls, unless nothing or a gap lies before it
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
