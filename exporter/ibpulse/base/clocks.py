"""The type of a clock. Standard library only, because the sampler imports it."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """What ibpulse uses of the module `time`, which is the default wherever a clock is an argument."""

    def time(self) -> float:
        """Wall time in seconds."""

    def time_ns(self) -> int:
        """Wall time in nanoseconds."""

    def monotonic(self) -> float:
        """Monotonic time in seconds."""

    def monotonic_ns(self) -> int:
        """Monotonic time in nanoseconds."""

    def process_time_ns(self) -> int:
        """CPU time of this process in nanoseconds."""

    def sleep(self, seconds: float, /) -> None:
        """Return after this many seconds."""
