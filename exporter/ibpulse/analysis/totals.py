"""Raw counters to bytes moved, across holes and resets. Pure numpy; it must not know where counters come from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


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
