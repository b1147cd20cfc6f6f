"""Which whole seconds of ticks are due. It must not read samples, nor any clock.

Second `s` is the ticks `s * T + 1` to `(s + 1) * T` for T ticks a second, so its rates cover a whole second of time.
"""

from __future__ import annotations

from dataclasses import dataclass

from ibpulse.ring.reader import GUARD_TICKS
from ibpulse.ring.window import AHEAD_SECONDS, ticks_to_settle
from ibpulse.units import SECOND_NS

# How far apart the clock and the ring may be at the start. More is a wall clock that was stepped and that the sampler
# has not seen yet.
AGREE_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Due:
    """Seconds to aggregate, from `first` up to `end`; the `skipped` seconds before them are lost from the ring."""

    first: int
    end: int
    skipped: int = 0


class AggregationSchedule:
    """Goes through the seconds of a ring, each once and in order."""

    def __init__(self, interval_ns: int, capacity: int, longest_window_seconds: int) -> None:
        self.ticks_per_second = SECOND_NS // interval_ns
        self._interval_ns = interval_ns
        self._capacity = capacity
        self._longest = longest_window_seconds
        self.next_second: int | None = None

    def due(self, now_tick: int, latest_tick: int, stride: int) -> Due | None:
        """The seconds that became due, or None; `stride` is the widest of all ports.

        `latest_tick` is the newest tick that was sampled. Where nobody samples, the seconds go on a little past it, so
        that windows empty.
        """
        end = (now_tick - ticks_to_settle(self._interval_ns, stride)) // self.ticks_per_second
        oldest = self._oldest_second(latest_tick, stride)
        if self.next_second is None:
            if not self._agree(now_tick, latest_tick):
                return None
            self.next_second = max(end - self._longest, oldest)
        first = max(self.next_second, oldest)
        end = min(
            end, max(latest_tick, self.next_second * self.ticks_per_second) // self.ticks_per_second + AHEAD_SECONDS
        )
        if end <= first:
            return None
        skipped = first - self.next_second
        self.next_second = end
        return Due(first, end, skipped)

    def _agree(self, now_tick: int, latest_tick: int) -> bool:
        return latest_tick > 0 and abs(now_tick - latest_tick) <= AGREE_SECONDS * self.ticks_per_second

    def _oldest_second(self, latest_tick: int, stride: int) -> int:
        """The first second of which the ring still holds all, with the stride before it."""
        oldest_tick = latest_tick - self._capacity + GUARD_TICKS + 1 + stride
        return max(0, -(-(oldest_tick - 1) // self.ticks_per_second))
