"""The tick clock: deadlines at multiples of the interval in wall time, timed by the monotonic clock.

Ticks are ordinals that only increase; `tick - shift` is wall time in intervals. The clock follows a slewed wall clock.
A step of the wall clock only changes `shift`: ticks keep counting elapsed time, while wall time skips or repeats.
Standard library only.
"""

from __future__ import annotations

import time

from ibpulse.base.clocks import Clock
from ibpulse.base.units import SECOND_NS

# Two clock reads this far apart were interrupted by a preemption, and are repeated.
TORN_NS = 20_000
_TRIES = 5
# In each tick, the usual time of the reads grows by this part of the interval at most.
USUAL_GROWTH = 64


class TickClock:
    """Sleeps from tick to tick; late and missed ticks are counted, never made up for."""

    def __init__(
        self,
        interval_ns: int,
        *,
        shift: int = 0,
        last_tick: int = 0,
        last_ns: int = 0,
        clock: Clock = time,
    ) -> None:
        """Continue after `last_tick` of an earlier clock with `shift`, which began that tick at `last_ns`.

        `last_ns` is monotonic, 0 if unknown: the ticks since then are missing data but do not count as missed. Any
        steps of the wall clock since then count as one.
        """
        self.interval_ns = interval_ns
        self.tick = last_tick
        self.shift = shift
        self.missed = 0
        self.overslept_ns = 0
        """The lateness of all wake-ups that were too late for their tick."""
        self.stride = 1
        self.steps = 0
        self._wall_ns, self._monotonic_ns, self._sleep = clock.time_ns, clock.monotonic_ns, clock.sleep
        # maximum lateness of a deadline; a new clock starts with a future one
        self._grace_ns = 0
        self.usual_ns = 0
        self.began_ns = last_ns
        self.offset_ns, _ = self._measure_offset()
        if last_tick:
            self._resume(self._monotonic_ns())

    def wait(self, read_ns: int = 0) -> int:
        """Sleep until the next tick, set `tick`, and return the wake-up delay in ns.

        Call it when all reads of the previous tick are done. A tick that would begin more than half an interval late,
        or too soon after delayed reads, is skipped, so that the time between two samples of a port is always more than
        half an interval. `read_ns` is the time at which the ports that may be due at the next tick had been read
        (default: now). A skipped tick counts as missed if it is a multiple of `stride`.
        """
        earliest = self._earliest_begin(read_ns)
        now = self._monotonic_ns()
        if read_ns:
            # `steady` slept for the next tick and woke too late
            due = (self.tick + 1 - self.shift) * self.interval_ns - self.offset_ns
            self.overslept_ns += max(0, now - max(due, read_ns))
        while True:
            self._follow_wall(now)
            tick = max(self.tick + 1, self._next_wall_tick(now) + self.shift)
            deadline = (tick - self.shift) * self.interval_ns - self.offset_ns
            if max(deadline, now) < earliest:
                tick, deadline = tick + 1, deadline + self.interval_ns
            # read the clock again, because a preemption since `now` must not extend the sleep
            ahead = deadline - self._monotonic_ns()
            if ahead > 0:
                self._sleep(ahead / SECOND_NS)
            begun = self._monotonic_ns()
            if begun - deadline <= self.interval_ns // 2:
                break
            self.overslept_ns += begun - deadline
            now = self._monotonic_ns()
        if self.began_ns:
            self.missed += (tick - 1) // self.stride - self.tick // self.stride
        self.tick, self.began_ns, self._grace_ns = tick, begun, self.interval_ns // 2
        return max(begun - deadline, 0)

    def follow(self, tick: int, began_ns: int, offset_ns: int, usual_ns: int) -> None:
        """Continue after a tick that was waited for elsewhere, without a missed one before it."""
        self.tick, self.began_ns, self.offset_ns, self.usual_ns = tick, began_ns, offset_ns, usual_ns

    def _earliest_begin(self, read_ns: int) -> int:
        """The earliest time at which each port may be read again.

        The time the reads took beyond the usual is an upper bound of the delay of the last port read.
        """
        if not self._grace_ns:
            return 0
        ended = read_ns or self._monotonic_ns()
        self.usual_ns = min(ended - self.began_ns, self.usual_ns + self.interval_ns // USUAL_GROWTH)
        return ended - self.usual_ns + self.interval_ns // 2

    def _next_wall_tick(self, now: int) -> int:
        """The first wall-clock multiple that can still be met."""
        return -(-(now + self.offset_ns + 1 - self._grace_ns) // self.interval_ns)

    def _resume(self, now: int) -> None:
        """Detect whether the wall clock was stepped since the earlier clock's last tick."""
        wall_tick = self._next_wall_tick(now)
        if not self.began_ns:
            if wall_tick + self.shift <= self.tick:
                # the time since the last tick is unknown, so leave a missing tick in between
                self.steps += 1
                self.shift = self.tick + 2 - wall_tick
            return
        # the last heartbeat of a sampler that hung or was killed is imprecise
        doubt = 2 + SECOND_NS // self.interval_ns
        if abs(wall_tick + self.shift - self._count_on(wall_tick)) > doubt:
            self._step(wall_tick)

    def _follow_wall(self, now: int) -> None:
        """Follow a slewed wall clock, and detect steps of more than half an interval."""
        offset = self._wall_ns() - now
        if abs(offset - self.offset_ns) < TORN_NS:
            self.offset_ns = offset
            return
        offset, doubt = self._measure_offset()
        proven = abs(offset - self.offset_ns) - doubt
        if proven <= 0:
            return
        self.offset_ns = offset
        if self.began_ns and proven > self.interval_ns // 2:
            self._step(self._next_wall_tick(now))

    def _step(self, wall_tick: int) -> None:
        """Continue counting ticks at the wall clock's new time."""
        self.steps += 1
        self.shift = self._count_on(wall_tick) - wall_tick

    def _count_on(self, wall_tick: int) -> int:
        """The tick at this wall-clock multiple, from the time elapsed since the last tick, rounded to the nearest."""
        passed = wall_tick * self.interval_ns - self.offset_ns - self.began_ns
        return self.tick + (passed + self.interval_ns // 2) // self.interval_ns

    def _measure_offset(self) -> tuple[int, int]:
        """Wall clock minus monotonic clock, and its uncertainty, in ns, from the best of several tries."""
        tries: list[tuple[int, int]] = []
        for _ in range(_TRIES):
            before = self._monotonic_ns()
            wall = self._wall_ns()
            width = self._monotonic_ns() - before
            tries.append((width // 2, wall - before - width // 2))
            if width < TORN_NS:
                break
        doubt, offset = min(tries)
        return offset, doubt
