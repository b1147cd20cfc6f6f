"""The step period of the last minute, looked for every few seconds. It must not look at single samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ibpulse.aggregator.samples import RingPort
from ibpulse.analysis.grid import bandwidth_bins
from ibpulse.analysis.period import BIN_SECONDS, StepPeriod, find_period
from ibpulse.ring.reader import RingReader
from ibpulse.units import SECOND_NS

Floats = npt.NDArray[np.float64]

EVERY_SECONDS = 5
# a bin holds at least two changes of the counters, else it beats with them
LEAST_CHANGES = 2


class StepWatch:
    """Looks for the period once in a while, because it costs more than a second's worth of anything else."""

    def __init__(self, reader: RingReader, window_ns: int) -> None:
        self._reader = reader
        self._window_ns = window_ns
        self._next_second: int | None = None
        self.found: StepPeriod | None = None

    def look(self, rails: Sequence[RingPort], resolutions: Sequence[int], end_second: int) -> None:
        """Look if it is time to; `resolutions` are the ticks between two changes of each rail's counters."""
        if self._next_second is None or end_second >= self._next_second:
            self._next_second = end_second + EVERY_SECONDS
            last_tick = end_second * (SECOND_NS // self._reader.interval_ns)
            self.found = measure_step(self._reader, rails, resolutions, last_tick, self._window_ns)


def measure_step(
    reader: RingReader, rails: Sequence[RingPort], resolutions: Sequence[int], last_tick: int, window_ns: int
) -> StepPeriod:
    """The period of the sum over the rails in the window that ends at a tick."""
    count = window_ns // reader.interval_ns
    coarsest = max((max(port.stride, ticks) for port, ticks in zip(rails, resolutions, strict=True)), default=1)
    bin_seconds = max(BIN_SECONDS, LEAST_CHANGES * coarsest * reader.interval_ns / SECOND_NS)
    first_tick = max(1, last_tick - count)
    found: list[Floats] = []
    edges = np.zeros(0, dtype=np.int64)
    for port in rails:
        block = reader.read([port.slot], first_tick, last_tick)
        valid = block.valid()
        if not valid.any():
            continue
        times = block.time_ns()
        if not found:
            edges = _edges(times[valid], window_ns, bin_seconds)
        found.append(bandwidth_bins(times, block.counters(), valid, block.scale, edges))
    if not found:
        return find_period(np.zeros(0))
    # where a rail is not known its siblings stand for it
    known = np.count_nonzero(~np.isnan(found), axis=0)
    mean = np.where(known > 0, np.nansum(found, axis=0) / np.maximum(known, 1), np.nan)
    return find_period(mean, bin_seconds)


def _edges(times_ns: npt.NDArray[np.int64], window_ns: int, bin_seconds: float) -> npt.NDArray[np.int64]:
    """Edges of whole bins from the oldest sample of the window to the newest, which is the last edge."""
    width_ns = round(bin_seconds * SECOND_NS)
    newest_ns = int(times_ns.max())
    bins = min(window_ns, newest_ns - int(times_ns.min())) // width_ns
    return newest_ns - width_ns * np.arange(max(1, bins), -1, -1, dtype=np.int64)
