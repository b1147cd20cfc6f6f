"""The tick clock: absolute deadlines on wall-clock multiples, kept on the monotonic clock. Standard library only.

Ticks are ordinals that only grow; `tick - shift` is wall time in intervals. A slewed wall clock is followed. A step
changes `shift` alone: the ticks go on counting the time that passed, while wall time has a hole or a repetition.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ibpulse.units import SECOND_NS

# Two clock reads this far apart were torn by a preemption, and are tried again.
_TORN_NS = 20_000
_TRIES = 5


class TickClock:
    """Sleeps from tick to tick; late and missed ticks are counted, never replayed."""

    def __init__(
        self,
        interval_ns: int,
        *,
        shift: int = 0,
        last_tick: int = 0,
        last_ns: int = 0,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Go on after `last_tick` of an earlier clock, which had `shift` and began that tick at `last_ns`.

        `last_ns` is monotonic, 0 when nobody knows it: the ticks since then are a hole, but nobody's missed ticks. A
        wall clock that was stepped since then counts as one step.
        """
        self.interval_ns = interval_ns
        self.tick = last_tick
        self.shift = shift
        self.missed = 0
        self.stride = 1
        self.steps = 0
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._sleep = sleep
        # how far in the past a deadline may lie: a new clock begins with one to come
        self._grace_ns = 0
        self._usual_ns = 0
        self._last_ns = last_ns
        self._offset_ns, _ = self._measure_offset()
        if last_tick:
            self._resume(monotonic_ns())

    def wait(self, read_ns: int = 0) -> int:
        """Sleep until the next tick, and return how late it begins in ns; `tick` then names it.

        Call it when all reads of the tick before are done. A tick that would begin more than half an interval late,
        or too soon after reads that were held up, is skipped: the time between two samples of a port stays above
        half an interval, however late the first of them was. `read_ns` is when the ports that may be due at the next
        tick had been read, now by default. A skipped tick is missed if it is a multiple of `stride`.
        """
        earliest = self._earliest_begin(read_ns)
        while True:
            now = self._monotonic_ns()
            self._follow_wall(now)
            tick = max(self.tick + 1, self._next_wall_tick(now) + self.shift)
            deadline = (tick - self.shift) * self.interval_ns - self._offset_ns
            if max(deadline, now) < earliest:
                tick, deadline = tick + 1, deadline + self.interval_ns
            # read again: a preemption since `now` must not be slept on top
            ahead = deadline - self._monotonic_ns()
            if ahead > 0:
                self._sleep(ahead / SECOND_NS)
            begun = self._monotonic_ns()
            if begun - deadline <= self.interval_ns // 2:
                break
        if self._last_ns:
            self.missed += (tick - 1) // self.stride - self.tick // self.stride
        self.tick, self._last_ns, self._grace_ns = tick, begun, self.interval_ns // 2
        return max(begun - deadline, 0)

    def _earliest_begin(self, read_ns: int) -> int:
        """The first instant at which each port may be read again.

        What the reads took beyond the usual is how late the last port of the tick was read, at most.
        """
        if not self._grace_ns:
            return 0
        ended = read_ns or self._monotonic_ns()
        self._usual_ns = min(ended - self._last_ns, self._usual_ns + self.interval_ns // 64)
        return ended - self._usual_ns + self.interval_ns // 2

    def _next_wall_tick(self, now: int) -> int:
        """The first wall-clock multiple that can still be met."""
        return -(-(now + self._offset_ns + 1 - self._grace_ns) // self.interval_ns)

    def _resume(self, now: int) -> None:
        """Find out whether the wall clock was stepped since the earlier clock's last tick."""
        wall_tick = self._next_wall_tick(now)
        if not self._last_ns:
            if wall_tick + self.shift <= self.tick:
                # nobody knows how long ago the last tick was: a hole keeps the two apart
                self.steps += 1
                self.shift = self.tick + 2 - wall_tick
            return
        # the heartbeat of a sampler that hung or was killed is not exact
        doubt = 2 + SECOND_NS // self.interval_ns
        if abs(wall_tick + self.shift - self._count_on(wall_tick)) > doubt:
            self._step(wall_tick)

    def _follow_wall(self, now: int) -> None:
        """Follow a slewed wall clock, and notice when it was stepped by more than half an interval."""
        offset = self._wall_ns() - now
        if abs(offset - self._offset_ns) < _TORN_NS:
            self._offset_ns = offset
            return
        offset, doubt = self._measure_offset()
        proven = abs(offset - self._offset_ns) - doubt
        if proven <= 0:
            return
        self._offset_ns = offset
        if self._last_ns and proven > self.interval_ns // 2:
            self._step(self._next_wall_tick(now))

    def _step(self, wall_tick: int) -> None:
        """Let the ticks count on at the wall clock's new time."""
        self.steps += 1
        self.shift = self._count_on(wall_tick) - wall_tick

    def _count_on(self, wall_tick: int) -> int:
        """The tick at this wall-clock multiple by the time that passed since the last one, to the nearest."""
        passed = wall_tick * self.interval_ns - self._offset_ns - self._last_ns
        return self.tick + (passed + self.interval_ns // 2) // self.interval_ns

    def _measure_offset(self) -> tuple[int, int]:
        """Wall clock minus monotonic clock and its doubt in ns, from the tightest of some tries."""
        tries: list[tuple[int, int]] = []
        for _ in range(_TRIES):
            before = self._monotonic_ns()
            wall = self._wall_ns()
            width = self._monotonic_ns() - before
            tries.append((width // 2, wall - before - width // 2))
            if width < _TORN_NS:
                break
        doubt, offset = min(tries)
        return offset, doubt
