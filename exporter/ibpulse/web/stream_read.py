"""The newest ticks of the ring as rates, for the stream. It must not know viewers, nor how rates are written."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ibpulse.analysis.rates import rates
from ibpulse.ring import layout as at
from ibpulse.ring.reader import RingReader


def widest_stride(reader: RingReader, slots: Sequence[int]) -> int:
    """Ticks between two samples of the port that is sampled most rarely; 1 without ports."""
    return max((reader.ring.slot_word(slot, at.S_STRIDE) for slot in slots), default=1) or 1


def read_rates(reader: RingReader, slots: Sequence[int], first_tick: int, count: int) -> npt.NDArray[np.float64]:
    """Bytes per second at `count` ticks: (2 * slots, count), each port's transmit before its receive, NaN in holes.

    A port that is sampled every few ticks has its value only once the ring holds the sample at the end of its stride.
    """
    widest = widest_stride(reader, slots)
    block = reader.read(slots, first_tick - widest, first_tick + count + widest - 2)
    found = rates(block.time_ns(), block.counters(), block.valid(), block.scale, block.taken_every()).bytes_per_second
    return found[:, :, widest : widest + count].reshape(2 * len(slots), count)


def wall_runs(reader: RingReader, first_tick: int, end_tick: int) -> list[tuple[int, int, int]]:
    """Runs of ticks without a step of the wall clock inside: (first tick, number, wall time of the first in ns)."""
    ticks = np.arange(first_tick, end_tick, dtype=np.int64)
    wall_ns = reader.wall_ns(ticks)
    begins = [0, *(np.flatnonzero(np.diff(wall_ns) != reader.interval_ns) + 1).tolist()] if len(ticks) else []
    ends = [*begins[1:], len(ticks)]
    return [(int(ticks[a]), b - a, int(wall_ns[a])) for a, b in zip(begins, ends, strict=False)]
