"""The values of a planned window out of the ring. It must not know requests, nor how the answer is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ibpulse.analysis.bins import BinGrid
from ibpulse.analysis.rates import rate_series
from ibpulse.model import DIRECTIONS
from ibpulse.ring import layout as at
from ibpulse.ring.reader import GUARD_TICKS, RingReader
from ibpulse.units import MILLISECOND_NS
from ibpulse.web.window.query import WindowPlan

# 48 bytes each: what is read should still be in the second-level cache when it is computed with
CACHED_RECORDS = 16_384


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of `count` ticks from `tick` on, the first at `wall_tick` (wall time in intervals)."""

    tick: int
    wall_tick: int
    count: int


@dataclass(frozen=True, slots=True)
class WindowValues:
    """A plan and its values: float32 (series, points), each port's directions together, NaN in holes.

    `oldest_ms` and `newest_ms` bound what the ring holds at all.
    """

    plan: WindowPlan
    values: npt.NDArray[np.float32]
    oldest_ms: int
    newest_ms: int

    def names(self) -> list[tuple[str, str]]:
        """Port and direction of each series."""
        return [(port, DIRECTIONS[direction]) for port in self.plan.ports for direction in self.plan.directions]

    def times_ms(self) -> npt.NDArray[np.int64]:
        """Wall time at which each bin begins, in ms since the epoch."""
        step = self.plan.width * self.plan.interval_ns // MILLISECOND_NS
        return self.start_ms + step * np.arange(self.plan.points, dtype=np.int64)

    @property
    def start_ms(self) -> int:
        """Wall time at which the first bin begins."""
        return self.plan.first * self.plan.interval_ns // MILLISECOND_NS

    def holes(self) -> int:
        """Number of values that are holes."""
        return int(np.count_nonzero(np.isnan(self.values)))


def read_window(plan: WindowPlan, reader: RingReader, now_ns: int) -> WindowValues:
    """The window of a plan at a wall time. Where the clock was set back, the newest sample of an instant counts."""
    segments = reader.ring.segments()
    newest = reader.newest_tick(now_ns)
    oldest = max(1, newest - reader.capacity + 2 * GUARD_TICKS + 1)
    grid = BinGrid(len(plan.ports), plan.first, plan.points, plan.width, plan.statistic)
    for piece in pieces(segments, oldest, newest, plan.first, plan.end):
        _fill(grid, plan, reader, piece, newest)
    values = grid.values()
    if plan.unit == "ratio":
        values = _divide(values, plan.rates)
    chosen = values[:, list(plan.directions)] if len(plan.directions) == 1 else values
    held = max(oldest, segments[0][0]) if segments else newest
    oldest_ms, newest_ms = (int(ns) // MILLISECOND_NS for ns in reader.wall_ns(np.array([held, newest])))
    return WindowValues(
        plan,
        chosen.reshape(plan.series, plan.points),
        oldest_ms=oldest_ms,
        newest_ms=newest_ms,
    )


def pieces(segments: Sequence[tuple[int, int]], oldest: int, newest: int, begin: int, end: int) -> list[Piece]:
    """Runs of ticks that fill the wall ticks from `begin` to before `end`; no two share a wall tick.

    `segments` are (first tick, shift), oldest first. The newest run has its wall time to itself: what an older one
    measured at the same wall time, before the clock was set back, is left out.
    """
    free, found, following = [(begin, end)], [], newest + 1
    for first, shift in reversed(segments):
        low, high = max(first, oldest) - shift, following - shift
        following = min(first, following)
        if low >= high:
            continue
        for left, right in free:
            start, stop = max(left, low), min(right, high)
            if start < stop:
                found.append(Piece(start + shift, start, stop - start))
        rest = [part for left, right in free for part in ((left, min(right, low)), (max(left, high), right))]
        free = [(left, right) for left, right in rest if left < right]
    return found


def _fill(grid: BinGrid, plan: WindowPlan, reader: RingReader, piece: Piece, newest: int) -> None:
    """Put the rates of all ports over a piece into the grid, as many ports at a time as stay in the cache."""
    strides = [max(1, reader.ring.slot_word(slot, at.S_STRIDE)) for slot in plan.slots]
    longest = max(strides, default=1)
    before = min(longest, piece.tick - 1)
    # the samples of a cached source stand for the ticks before them
    last = max(piece.tick + piece.count - 1, min(piece.tick + piece.count + longest - 2, newest))
    together = max(1, CACHED_RECORDS // (last - piece.tick + before + 1))
    for row in range(0, len(plan.slots), together):
        block = reader.read(plan.slots[row : row + together], piece.tick - before, last)
        for offset, records in enumerate(block.records):
            series = rate_series(
                records[:, at.R_BEFORE : at.R_AFTER + 1],
                records[:, at.R_TRANSMIT : at.R_RECEIVE + 1],
                block.present[offset],
                int(block.scale[offset]),
                int(block.stride[offset]) if block.strides is None else block.strides[offset],
            )
            grid.add(row + offset, piece.wall_tick, series[:, before : before + piece.count])


def _divide(values: npt.NDArray[np.float32], rates: Sequence[float | None]) -> npt.NDArray[np.float32]:
    """Utilisation, NaN where the port's data rate is not known."""
    divisors = np.array([rate or np.nan for rate in rates], dtype=np.float64)
    return np.divide(values, divisors[:, None, None], dtype=np.float64).astype(np.float32)
