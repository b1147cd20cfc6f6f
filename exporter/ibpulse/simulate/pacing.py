"""Paces a simulated tree: writes it before each multiple of the interval, and slips its schedule when it is late.

A tree of plain files changes in steps, and a reader divides the step by the time between its two reads. Therefore:

- The next step is shown between two multiples, when no sampler reads, and only if there is time before the multiple.
  A step that is late is not shown, and never made up for: the schedule slips, as if the job had paused.
- A step is at most as large as the line rate allows between the last read and the next multiple. The rest slips too.
- A port that was read after most of the last steps, but not yet after the newest one, may be read at any moment, late.
  Then a step is at most as large as the line rate allows until now.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Set
from typing import Protocol

from ibpulse.text import count_text
from ibpulse.units import SECOND_NS

log = logging.getLogger(__name__)

# a sampler reads up to half an interval after a multiple; a fifth of that is left for its reads to end
LEAD = 0.4
# time before a multiple that a write needs
SPARE = 0.05
# an even number, so that a port that is sampled at every second tick is not read after most of them
RECENT_STEPS = 16
# smaller slips are the resolution of the clocks
LEAST_SLIP = 0.01
WARN_EVERY_NS = 10 * SECOND_NS


class Stop(Protocol):
    """Stops the writer: a `threading.Event`, or anything with its `is_set`."""

    def is_set(self) -> bool:
        """Whether the writer should stop."""
        ...


class Slips:
    """The number and the total time (ns) of the slips, with a warning in the log every 10 s at most."""

    def __init__(self) -> None:
        self.count = 0
        self.total_ns = 0
        self._told = (0, 0)
        self._due_ns = 0

    def add(self, slip_ns: int, clock_ns: int) -> None:
        """Note a slip at a monotonic time."""
        self.count += 1
        self.total_ns += slip_ns
        if clock_ns >= self._due_ns:
            self._due_ns = clock_ns + WARN_EVERY_NS
            self.tell()

    def tell(self) -> None:
        """Log the slips that were not logged yet, if there are any."""
        count, slipped = self.count - self._told[0], self.total_ns - self._told[1]
        self._told = (self.count, self.total_ns)
        if count:
            log.warning(
                "the machine is too busy: the simulation slipped by %.1f ms in %s, %.1f ms in %d since it began",
                slipped / 1e6,
                count_text(count, "slip"),
                self.total_ns / 1e6,
                self.count,
            )


class Pace:
    """Calls `show` once per interval, before each multiple of the interval in wall time, with two arguments.

    These are the instant to show, in ns of the schedule, and the time (ns) since the counters were last read, in which
    no counter may grow by more than its line rate. It returns the instant that it has shown, the given one or an
    earlier one. `pause` sleeps for a number of seconds, or until a counter is read; it returns the numbers of the ports
    that were read since its last call. Clocks are in ns.
    """

    def __init__(
        self,
        show: Callable[[int, int], int],
        interval_ns: int,
        pause: Callable[[float], Set[int] | None] = time.sleep,
        wall: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.slips = Slips()
        self._show = show
        self._interval_ns = interval_ns
        self._lead_ns = round(interval_ns * LEAD)
        self._spare_ns = round(interval_ns * SPARE)
        self._pause, self._wall, self._monotonic = pause, wall, monotonic
        # monotonic times: the multiple of the last step, and the last read
        self._due_ns = self._read_ns = 0
        # ports read since the last step, and after each step before it
        self._read: Set[int] = frozenset()
        self._read_before: deque[Set[int]] = deque(maxlen=RECENT_STEPS)
        self._shown_ns: int | None = None

    def run(self, stop: Stop) -> None:
        """Show one instant after the other until `stop` is set.

        When the wall clock is set, the instants still follow each other without a jump.
        """
        interval_ns = self._interval_ns
        while not stop.is_set():
            now, clock = self._wall(), self._monotonic()
            multiple = (now + self._lead_ns) // interval_ns * interval_ns
            due = multiple - now + clock
            if self._shown_ns is None:
                self._shown_ns, self._due_ns = self._show(multiple, interval_ns), due
            elif due - self._due_ns >= interval_ns // 2 and multiple - now >= self._spare_ns:
                self._step(due)
            self._wait(multiple + interval_ns - self._lead_ns)
        self.slips.tell()

    def _step(self, due: int) -> None:
        """Show the next instant, at most one interval after the last; `due` is its multiple as monotonic time."""
        assert self._shown_ns is not None
        interval_ns = self._interval_ns
        passed = due - self._due_ns
        shown = self._show(self._shown_ns + min(passed, interval_ns), self._line_time(due))
        slipped = passed - (shown - self._shown_ns)
        self._shown_ns, self._due_ns = shown, due
        self._read_before.append(self._read)
        self._read = frozenset()
        clock = self._monotonic()
        if clock > due:
            # the reads until now may have missed the step, so that of the next multiple shows it
            missed = -((due - clock) // interval_ns) * interval_ns
            slipped += missed
            self._due_ns += missed
        if slipped > interval_ns * LEAST_SLIP:
            self.slips.add(slipped, clock)

    def _line_time(self, due: int) -> int:
        """The time (ns) for which the next step may move a port at the line rate."""
        most = min(self._interval_ns, due - max(self._read_ns, self._due_ns))
        missing = frozenset().union(*self._read_before) - self._read
        if any(sum(port in read for read in self._read_before) > len(self._read_before) / 2 for port in missing):
            return min(most, self._monotonic() - self._due_ns)
        return most

    def _wait(self, until_ns: int) -> None:
        """Wait until a wall time, and note which ports are read, and when."""
        now = self._wall()
        if ports := self._pause(max(0, until_ns - now) / SECOND_NS):
            self._read |= ports
            now, clock = self._wall(), self._monotonic()
            # a sampler reads at most half an interval after a multiple
            self._read_ns = clock - max(0, now % self._interval_ns - self._interval_ns // 2)
