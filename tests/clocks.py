"""A clock whose times a test gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class GivenClock:
    """The times that these functions return: monotonic seconds, and wall time in ns."""

    monotonic: Callable[[], float]
    time_ns: Callable[[], int]

    def monotonic_ns(self) -> int:
        return round(self.monotonic() * 1e9)

    def time(self) -> float:
        return self.time_ns() / 1e9
