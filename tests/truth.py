"""The exact rates of a simulated schedule in equal bins, and the statistics that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ibpulse.core.defaults import ACTIVE_BYTES_PER_SECOND
from ibpulse.workbench.simulate.timeline import Schedule


@dataclass(frozen=True, slots=True)
class Truth:
    """Rates in equal bins and the statistics that follow from them.

    A bin is active above the threshold; sigma is the population's.
    """

    bytes_per_second: npt.NDArray[np.float64]
    bin_seconds: float
    threshold_bytes_per_second: float = ACTIVE_BYTES_PER_SECOND

    @property
    def active(self) -> npt.NDArray[np.bool_]:
        """True in each bin above the threshold."""
        return self.bytes_per_second > self.threshold_bytes_per_second

    @property
    def total_bytes(self) -> float:
        """All bytes of the bins."""
        return float(self.bytes_per_second.sum()) * self.bin_seconds

    @property
    def mean(self) -> float:
        """Bytes per second over all bins."""
        return float(self.bytes_per_second.mean())

    @property
    def active_mean(self) -> float:
        """Bytes per second over the active bins; NaN without any."""
        return float(self.bytes_per_second[self.active].mean()) if self.active.any() else float("nan")

    @property
    def peak(self) -> float:
        """The highest bin, in bytes per second."""
        return float(self.bytes_per_second.max())

    @property
    def duty(self) -> float:
        """Active bins ÷ all bins."""
        return float(self.active.mean())

    @property
    def cv(self) -> float:
        """Sigma ÷ mean of the active bins; NaN without any."""
        return float(self.bytes_per_second[self.active].std()) / self.active_mean if self.active.any() else float("nan")


def truth_of(
    schedule: Schedule,
    begin_ns: int,
    end_ns: int,
    bin_ns: int = 10_000_000,
    rails: Sequence[int] | None = None,
    directions: Sequence[int] = (0, 1),
    threshold_bytes_per_second: float = ACTIVE_BYTES_PER_SECOND,
) -> Truth:
    """The statistics of the bytes in whole bins from `begin_ns` on, summed over rails (all) and directions (both)."""
    grid = np.arange(begin_ns, end_ns + 1, bin_ns)
    flowed = schedule.cumulative_bytes(grid)[:, list(range(schedule.rails) if rails is None else rails)]
    moved = np.diff(flowed[:, :, list(directions)].sum(axis=(1, 2)))
    return Truth(moved * (1e9 / bin_ns), bin_ns / 1e9, threshold_bytes_per_second)
