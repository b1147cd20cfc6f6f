"""Readings of the signals of a port, and what they gained between two of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ibpulse.core.arrays import Bools, Counts, Floats
from ibpulse.core.signals import Signal

MISSING = np.uint64(2**64 - 1)
"""A counter that was not read."""


@dataclass(frozen=True, slots=True)
class SignalReadings:
    """Readings of the signals of one port, oldest first.

    `wall_ns` is int64 (readings,), the wall time of the sample after which they were read. `time_ns` is int64
    (readings, signals), the monotonic time of each read. `counters` is uint64 (readings, signals), the raw counters,
    `MISSING` where one was not read.
    """

    signals: tuple[Signal, ...]
    wall_ns: Counts
    time_ns: Counts
    counters: npt.NDArray[np.uint64]

    def gains(self) -> Gains:
        """What each counter gained since the reading before."""
        return find_gains(self.signals, self.time_ns, self.counters)


@dataclass(frozen=True, slots=True)
class Gains:
    """What counters gained since the reading before: arrays (readings, signals).

    `gained` is float64, NaN where that is unknown: at the first reading, if either reading is missing, after a reset,
    and where the counter is `full`. `seconds` is the measured time between the two reads, NaN likewise. `full` is true
    where the counter has stopped at its largest number, so that it says nothing.
    """

    gained: Floats
    seconds: Floats
    full: Bools

    def only(self, rows: Bools) -> Gains:
        """Those of some of the readings."""
        return Gains(self.gained[rows], self.seconds[rows], self.full[rows])


def find_gains(signals: Sequence[Signal], time_ns: Counts, counters: npt.NDArray[np.uint64]) -> Gains:
    """What counters gained between consecutive readings; `time_ns` and `counters` are arrays (readings, signals).

    A counter that is lower than before was reset, except for one that goes on with 0 and gained less than half of its
    range.
    """
    gained, seconds = np.full(counters.shape, np.nan), np.full(counters.shape, np.nan)
    full = np.zeros(counters.shape, dtype=np.bool_)
    for column, signal in enumerate(signals):
        if signal.full is not None:
            full[:, column] = counters[:, column] == signal.full
    if len(counters) < 2:
        return Gains(gained, seconds, full)
    before, after = counters[:-1], counters[1:]
    known = (before != MISSING) & (after != MISSING) & ~full[1:]
    difference = after - before
    for column, signal in enumerate(signals):
        if signal.bits < 64 and not signal.stops:
            difference[:, column] &= np.uint64((1 << signal.bits) - 1)
            known[:, column] &= difference[:, column] < 1 << (signal.bits - 1)
        else:
            known[:, column] &= after[:, column] >= before[:, column]
    gained[1:][known] = difference[known]
    seconds[1:][known] = np.diff(time_ns, axis=0)[known] / 1e9
    return Gains(gained, seconds, full)


@dataclass(frozen=True, slots=True, eq=False)
class PortSignals:
    """Readings of the signals of one port, oldest first.

    `samples` is int64 (readings,), the sample of the recording, or of a piece of it, after which each was taken, each
    above the one before. `seconds` is float64 (readings,), the measured time since the reading before, NaN if it is not
    known. `counters` is uint64 (readings, signals), the raw counters, `MISSING` where one was not read.
    """

    samples: Counts
    seconds: Floats
    counters: npt.NDArray[np.uint64]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PortSignals):
            return NotImplemented
        same = np.array_equal(self.samples, other.samples) and np.array_equal(self.counters, other.counters)
        return same and np.array_equal(self.seconds, other.seconds, equal_nan=True)

    def __hash__(self) -> int:
        return hash(len(self.samples))

    def cut(self, first: int, end: int) -> PortSignals:
        """Those at the samples from `first` to before `end`, which are counted from `first`."""
        kept = slice(*np.searchsorted(self.samples, (first, end)))
        return PortSignals(self.samples[kept] - first, self.seconds[kept], self.counters[kept])

    def readings(self, signals: tuple[Signal, ...], start_ns: int, interval_ns: int) -> SignalReadings:
        """As readings of a recording whose first sample is at wall time `start_ns`; times count from the first one."""
        nominal = np.diff(self.samples, prepend=self.samples[:1]) * interval_ns
        steps = np.where(np.isnan(self.seconds), nominal, np.nan_to_num(self.seconds) * 1e9)
        time_ns = np.repeat(np.cumsum(steps).astype(np.int64)[:, None], len(signals), axis=1)
        return SignalReadings(signals, start_ns + self.samples * interval_ns, time_ns, self.counters)


def no_readings(signals: int) -> PortSignals:
    """None of so many signals."""
    counters = np.zeros((0, signals), dtype=np.uint64)
    return PortSignals(np.zeros(0, dtype=np.int64), np.zeros(0), counters)


def join_signals(parts: Sequence[PortSignals], ticks: Sequence[int]) -> PortSignals:
    """Those of contiguous pieces of so many samples each."""
    begins = np.cumsum([0, *ticks[:-1]])
    return PortSignals(
        np.concatenate([part.samples + begin for part, begin in zip(parts, begins, strict=True)]),
        np.concatenate([part.seconds for part in parts]),
        np.concatenate([part.counters for part in parts]),
    )
