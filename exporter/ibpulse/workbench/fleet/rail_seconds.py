"""Mean and highest rate of each port in each second, added up piece by piece."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Bools, Counts, Floats, Singles
from ibpulse.core.statistics.steps.runs import find_equal_runs


@dataclass(frozen=True, slots=True)
class SecondRates:
    """The rates of some ports in seconds of wall time that begin at `time_ns`, int64 (seconds,).

    `mean` and `peak` are float32 (ports, 2, seconds), transmit and receive, NaN without any sample. `observed` is the
    part of the samples of a second that were taken in both directions, (ports, seconds).
    """

    time_ns: Counts
    mean: Singles
    peak: Singles
    observed: Singles


class RailSeconds:
    """Adds up the samples of some ports, whose first one is at wall time `start_ns` and last one before `end_ns`.

    A sample belongs to the second in which its time ends, the end included.
    """

    def __init__(self, ports: int, start_ns: int, end_ns: int, interval_ns: int) -> None:
        self._first = (start_ns - 1) // SECOND_NS
        self._interval_ns = interval_ns
        seconds = (end_ns - interval_ns - 1) // SECOND_NS - self._first + 1
        self._sum = np.zeros((ports, 2, seconds))
        self._count = np.zeros((ports, 2, seconds), dtype=np.int64)
        self._both = np.zeros((ports, seconds), dtype=np.int64)
        self._peak = np.full((ports, 2, seconds), np.nan)

    def add(self, start_ns: int, rates: Floats, peaks: Floats) -> None:
        """Add rates and the certain part of them, (ports, 2, samples); the first sample is at `start_ns`."""
        times_ns = start_ns + self._interval_ns * np.arange(rates.shape[2], dtype=np.int64)
        seconds = (times_ns - 1) // SECOND_NS - self._first
        firsts, _ = find_equal_runs(seconds)
        into = seconds[firsts]
        known = ~np.isnan(rates)
        self._sum[..., into] += np.add.reduceat(np.where(known, rates, 0.0), firsts, axis=2)
        self._count[..., into] += _count(known, firsts)
        self._both[:, into] += _count(np.asarray(known.all(axis=1)), firsts)
        self._peak[..., into] = np.fmax(self._peak[..., into], np.fmax.reduceat(peaks, firsts, axis=2))

    def rates(self) -> SecondRates:
        """The rates of all seconds."""
        mean = np.divide(self._sum, self._count, out=np.full(self._sum.shape, np.nan), where=self._count > 0)
        whole = max(1.0, SECOND_NS / self._interval_ns)
        return SecondRates(
            (self._first + np.arange(self._sum.shape[2], dtype=np.int64)) * SECOND_NS,
            mean.astype(np.float32),
            self._peak.astype(np.float32),
            np.minimum(1.0, self._both / whole).astype(np.float32),
        )


def _count(flags: Bools, firsts: npt.NDArray[np.intp]) -> Counts:
    return np.add.reduceat(flags.astype(np.int64), firsts, axis=-1)
