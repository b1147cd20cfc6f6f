"""Paces a simulated tree: writes it before each multiple of the interval, and slips its schedule when it is late.

A tree of plain files changes in steps, and a reader divides the step by the time between its two reads. Therefore:

- The next step is shown between two multiples, when no sampler reads, and only if there is time before the multiple.
  A step that is late is not shown, and never made up for: the schedule slips, as if the job had paused.
- A step is at most as large as the line rate allows between the last read and the next multiple. The rest slips too.
- A port that was read after most of the last steps, but not yet after the newest one, may be read at any moment, late.
  Then a step is at most as large as the line rate allows until now.
- Trees that share a job slip together: the job pauses on all of them.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence, Set

from ibpulse.base.text import count_text
from ibpulse.base.units import SECOND_NS

log = logging.getLogger(__name__)

# a sampler reads up to half an interval after a multiple; a fifth of that is left for its reads to end
LEAD = 0.4
# time before a multiple that a write needs
SPARE = 0.05
# an even number, so that a port that is sampled at every second tick is not read after most of them
RECENT_STEPS = 16
# smaller slips are the resolution of the clocks
MIN_SLIP = 0.01
WARN_EVERY_NS = 10 * SECOND_NS


class Slips:
    """The number and the total time (ns) of the slips, with a warning in the log every 10 s at most.

    Shared by the trees of one job: `behind_ns` is how far the job is behind the clock, which includes slips that are
    too small to count.
    """

    def __init__(self) -> None:
        self.count = 0
        self.total_ns = 0
        self.behind_ns = 0
        self._logged = (0, 0)
        self._due_ns = 0

    def add(self, slip_ns: int, clock_ns: int) -> None:
        """Note a slip at a monotonic time."""
        self.count += 1
        self.total_ns += slip_ns
        if clock_ns >= self._due_ns:
            self._due_ns = clock_ns + WARN_EVERY_NS
            self.log_new()

    def follow(self, behind_ns: int, clock_ns: int, least_ns: float) -> None:
        """Note that a tree is this far behind the clock at a monotonic time."""
        slip_ns = behind_ns - self.behind_ns
        self.behind_ns = max(self.behind_ns, behind_ns)
        if slip_ns > least_ns:
            self.add(slip_ns, clock_ns)

    def log_new(self) -> None:
        """Log the slips since the last message, if there are any."""
        count, slipped = self.count - self._logged[0], self.total_ns - self._logged[1]
        self._logged = (self.count, self.total_ns)
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
    that were read since its last call. `ports` are those of the tree, by default all; `slips` is shared by the trees of
    one job. Clocks are in ns.
    """

    def __init__(
        self,
        show: Callable[[int, int], int],
        interval_ns: int,
        pause: Callable[[float], Set[int] | None] = time.sleep,
        wall: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], int] = time.monotonic_ns,
        slips: Slips | None = None,
        ports: Set[int] | None = None,
    ) -> None:
        self.slips = slips or Slips()
        self._ports = ports
        self.turn_ns = 0
        """The monotonic time at which `turn` is due."""
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
        self._behind_ns = 0

    def run(self, stop: Callable[[], bool]) -> None:
        """Show one instant after the other until `stop` is true.

        When the wall clock is set, the instants still follow each other without a jump.
        """
        run_together([self], self._pause, stop, self._monotonic)

    def turn(self) -> None:
        """Show the next instant if there is time for it before its multiple."""
        interval_ns = self._interval_ns
        now, clock = self._wall(), self._monotonic()
        multiple = (now + self._lead_ns) // interval_ns * interval_ns
        due = multiple - now + clock
        if self._shown_ns is None:
            self._shown_ns, self._due_ns = self._show(multiple - self.slips.behind_ns, interval_ns), due
            # a tree that takes long to build is not late yet
            self._behind_ns = multiple - self._shown_ns
            self.slips.behind_ns = max(self.slips.behind_ns, self._behind_ns)
        elif due - self._due_ns >= interval_ns // 2 and multiple - now >= self._spare_ns:
            self._step(due)
        now, clock = self._wall(), self._monotonic()
        self.turn_ns = max(0, multiple + interval_ns - self._lead_ns - now) + clock

    def _step(self, due: int) -> None:
        """Show the next instant, at most one interval after the last; `due` is its multiple as monotonic time."""
        assert self._shown_ns is not None
        interval_ns = self._interval_ns
        passed = due - self._due_ns
        # the part of it in which the job pauses because another tree was late
        paused = self.slips.behind_ns - self._behind_ns
        shown = self._show(self._shown_ns + max(0, min(passed - paused, interval_ns)), self._line_time(due))
        self._behind_ns += passed - (shown - self._shown_ns)
        self._shown_ns, self._due_ns = shown, due
        self._read_before.append(self._read)
        self._read = frozenset()
        clock = self._monotonic()
        if clock > due:
            # the reads until now may have missed the step, so that of the next multiple shows it
            missed = -((due - clock) // interval_ns) * interval_ns
            self._behind_ns += missed
            self._due_ns += missed
        self.slips.follow(self._behind_ns, clock, interval_ns * MIN_SLIP)

    def _line_time(self, due: int) -> int:
        """The time (ns) for which the next step may move a port at the line rate."""
        most = min(self._interval_ns, due - max(self._read_ns, self._due_ns))
        missing = frozenset().union(*self._read_before) - self._read
        if any(sum(port in read for read in self._read_before) > len(self._read_before) / 2 for port in missing):
            return min(most, self._monotonic() - self._due_ns)
        return most

    def note_reads(self, ports: Set[int]) -> None:
        """Note that those of these ports that belong to the tree were read just now."""
        if self._ports is not None and not (ports := ports & self._ports):
            return
        self._read |= ports
        now, clock = self._wall(), self._monotonic()
        # a sampler reads at most half an interval after a multiple
        self._read_ns = clock - max(0, now % self._interval_ns - self._interval_ns // 2)


def run_together(
    paces: Sequence[Pace],
    pause: Callable[[float], Set[int] | None],
    stop: Callable[[], bool],
    monotonic: Callable[[], int] = time.monotonic_ns,
) -> None:
    """Show the instants of trees that share their slips, each before its own multiples, until `stop` is true."""
    while not stop():
        first = min(paces, key=lambda pace: pace.turn_ns)
        if monotonic() >= first.turn_ns:
            first.turn()
        next_ns = min(pace.turn_ns for pace in paces)
        if ports := pause(max(0, next_ns - monotonic()) / SECOND_NS):
            for pace in paces:
                pace.note_reads(ports)
    paces[0].slips.log_new()
