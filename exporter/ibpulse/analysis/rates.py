"""Counters at instants to rates between them. Pure numpy; it must not know where counters come from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

NS_PER_SECOND = 1e9


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
    np.divide(moved * NS_PER_SECOND, elapsed, out=rate, where=good)
    share = np.where(good, elapsed / (NS_PER_SECOND * step), 0.0)
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
