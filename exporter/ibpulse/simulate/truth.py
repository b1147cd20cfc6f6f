"""The statistics of a series of rates, by their definitions. It must not use the code of `analysis`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

ACTIVE_BYTES_PER_SECOND = 0.1e9


@dataclass(frozen=True, slots=True)
class Truth:
    """Rates in equal bins and what follows from them.

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
        """Bytes per second over the active bins; NaN when there is none."""
        return float(self.bytes_per_second[self.active].mean()) if self.active.any() else float("nan")

    @property
    def peak(self) -> float:
        """The highest bin, in bytes per second."""
        return float(self.bytes_per_second.max())

    @property
    def duty(self) -> float:
        """Active bins per bin."""
        return float(self.active.mean())

    @property
    def cv(self) -> float:
        """Sigma per mean of the active bins; NaN when there is none."""
        return float(self.bytes_per_second[self.active].std()) / self.active_mean if self.active.any() else float("nan")
