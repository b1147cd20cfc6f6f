"""What is asked of a report. It must not read any setting itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from ibpulse.analysis.bursts import Thresholds
from ibpulse.analysis.signature import SignatureOptions

MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Moment:
    """An instant in nanoseconds: of the clock, since 1970, or after the beginning of each recording."""

    ns: int
    after_begin: bool = False

    def in_recording(self, start_ns: int) -> int:
        """The instant as wall time in a recording that begins at `start_ns`."""
        return self.ns + start_ns if self.after_begin else self.ns


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """Which part of each recording is described, and how.

    `ports` are names such as `mlx5_0:1` or `mlx5_0`; the rails where it is empty. `begin` and `end` cut the recording;
    `trim` cuts the silence before the first active tick and after the last. A time scale that is not a whole number
    of ticks gives no value. A change is one that matters when it is at least `least_change` and, for all rows
    together, beyond what noise does at `level`. The same `seed` gives the same intervals.
    """

    ports: tuple[str, ...] = ()
    begin: Moment | None = None
    end: Moment | None = None
    trim: bool = False
    active_bytes_per_second: float = 0.1e9
    burst_low_bytes_per_second: float | None = None
    timescales_ns: tuple[int, ...] = (10 * MS, 50 * MS, 100 * MS, 1000 * MS)
    signature: SignatureOptions = field(default_factory=SignatureOptions)
    least_change: float = 0.01
    level: float = 0.95
    resamples: int = 4000
    seed: int = 0

    def thresholds(self) -> Thresholds:
        """Where bursts begin and end."""
        low, high = self.burst_low_bytes_per_second, self.active_bytes_per_second
        return Thresholds(high, high if low is None else min(low, high))
