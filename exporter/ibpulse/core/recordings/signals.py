"""The signals of the ports of a recording: readings at some of its samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ibpulse.core.arrays import Counts, Floats
from ibpulse.core.ring.reader import RingReader
from ibpulse.core.ring.signals import read_signals
from ibpulse.core.signals import Signal
from ibpulse.core.statistics.gains import SignalReadings


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


def read_port_signals(
    reader: RingReader, slot: int, signals: tuple[Signal, ...], first_tick: int, last_tick: int
) -> PortSignals:
    """The readings of a slot at these ticks, counted from the first; none if it has other signals by now."""
    ticks, readings = read_signals(reader, slot, first_tick, last_tick)
    if readings.signals != signals or not len(ticks):
        return no_readings(len(signals))
    # the middle of the whole reading
    time_ns = (readings.time_ns.min(axis=1) + readings.time_ns.max(axis=1)) / 2
    seconds = np.diff(time_ns, prepend=np.nan) / 1e9
    kept = ticks >= first_tick
    return PortSignals(ticks[kept] - first_tick, seconds[kept], readings.counters[kept])
