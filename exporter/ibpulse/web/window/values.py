"""The values of a planned window out of the ring. It must not know requests, nor how the answer is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ibpulse.analysis.bins import BinGrid
from ibpulse.model import DIRECTIONS
from ibpulse.ring.reader import RingReader
from ibpulse.ring.window import read_series, runs_of_wall_time
from ibpulse.units import MILLISECOND_NS
from ibpulse.web.window.query import WindowPlan


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
    oldest = reader.oldest_tick(now_ns)
    grid = BinGrid(len(plan.ports), plan.first, plan.points, plan.width, plan.statistic)
    for run in runs_of_wall_time(segments, oldest, newest, plan.first, plan.end):
        for row, values in read_series(reader, plan.slots, run, newest):
            grid.add(row, run.wall_tick, values)
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


def _divide(values: npt.NDArray[np.float32], rates: Sequence[float | None]) -> npt.NDArray[np.float32]:
    """Utilisation, NaN where the port's data rate is not known."""
    divisors = np.array([rate or np.nan for rate in rates], dtype=np.float64)
    return np.divide(values, divisors[:, None, None], dtype=np.float64).astype(np.float32)
