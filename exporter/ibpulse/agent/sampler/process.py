"""The sampler process: `python -m ibpulse.agent.sampler.process RING LANE FILE`. Standard library only; it never logs.

FILE is the descriptor of the ring, which is inherited: the file at the path RING may have been deleted. The plan is
next to RING.
Lane 0 is the main sampler, the only one that writes clock segments; each other lane reads one hung or slow device.
"""

from __future__ import annotations

import errno
import gc
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from ibpulse.agent.sampler import kernel
from ibpulse.agent.sampler.deadlines import TickClock
from ibpulse.agent.sampler.loop import Loop
from ibpulse.agent.sampler.plan import STOP, Plan, plan_path, read_plan
from ibpulse.agent.sampler.source import Pread
from ibpulse.agent.sampler.steady import sample_steadily
from ibpulse.agent.sysfs.netlink import Socket, connect
from ibpulse.base.clocks import Clock
from ibpulse.base.errors import IbpulseError, SamplerError
from ibpulse.base.units import SECOND_NS
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile

MAIN_LANE = 0
# Written instead of an errno if nothing was requested.
NOT_ASKED = at.ABSENT
# A plan that cannot be read is tried again after this time.
PLAN_RETRY_NS = SECOND_NS // 10
EXIT_ORPHAN, EXIT_CLOCK_STEP, EXIT_NO_RING = 3, 4, 5


class SamplerProcess:
    """One run of the sampler on a lane of a ring."""

    def __init__(
        self,
        ring: RingFile,
        lane: int,
        clock: Clock = time,
        pread: Pread = os.pread,
        connect: Callable[[], Socket] = connect,
    ) -> None:
        self._ring = ring
        self._time = clock
        self._lane = lane
        self._words = at.lane_at(lane)
        self._plan_path = plan_path(ring.path, lane)
        plan = read_plan(self._plan_path)
        self._parent = plan.parent
        self._plan_fault = ""
        self._plan_retry_tick = 0
        self._cpu_ns = 0
        self._ask_kernel(plan)
        self._clock = TickClock(
            ring.interval_ns,
            shift=ring.last_shift() or 0,
            # the heartbeat is that of the tick that was begun, which may never have ended
            last_tick=max(ring.words[self._words + which] for which in (at.L_TICK, at.L_BEGUN)),
            last_ns=ring.words[self._words + at.L_HEARTBEAT_NS],
            clock=clock,
        )
        self._steps = 0
        self._missed_before = ring.words[self._words + at.L_MISSED]
        self._overslept_before_ns = ring.words[self._words + at.L_OVERSLEPT_NS]
        if lane == MAIN_LANE and ring.last_shift() is None:
            ring.begin_segment(self._clock.tick + 1, self._clock.shift)
        self._loop = Loop(ring, lane, clock, pread, connect)
        self._apply(plan)

    def _ask_kernel(self, plan: Plan) -> None:
        words = self._ring.words
        words[self._words + at.L_PID] = os.getpid()
        if kernel.die_with_parent(plan.parent) == errno.ESRCH:
            sys.exit(EXIT_ORPHAN)
        kernel.sharpen_timers()
        words[self._words + at.L_FIFO] = kernel.schedule_fifo() if plan.scheduler == "fifo" else NOT_ASKED
        words[self._words + at.L_PINNED] = NOT_ASKED if plan.cpu is None else kernel.pin_to_cpu(plan.cpu)

    def _apply(self, plan: Plan) -> None:
        self._loop.apply(plan)
        self._clock.stride = self._loop.stride
        self._ring.words[self._words + at.L_PLAN_APPLIED] = plan.generation
        self._settle_memory()

    def _settle_memory(self) -> None:
        """Keep the collector from walking what stays."""
        gc.collect()
        gc.freeze()

    def _follow_plan(self) -> None:
        """Apply the new plan. While it cannot be read, the last one stays in force; the reason is reported once."""
        if self._clock.tick < self._plan_retry_tick:
            return
        try:
            self._apply(read_plan(self._plan_path))
        except (IbpulseError, OSError, ValueError) as error:
            self._plan_retry_tick = self._clock.tick + max(1, PLAN_RETRY_NS // self._ring.interval_ns)
            if str(error) != self._plan_fault:
                self._plan_fault = str(error)
                sys.stderr.write(f"sampler: {error}; the last plan stays in force\n")
        else:
            self._plan_fault = ""

    def run(self) -> int:
        """Sample until asked to stop, until the parent is gone or, except on the main lane, until a clock step."""
        words, lane, clock = self._ring.words, self._words, self._clock
        ticks_per_second = SECOND_NS // self._ring.interval_ns
        read_ns = 0
        while True:
            wanted = words[lane + at.L_PLAN_WANTED]
            if wanted == STOP:
                return 0
            if wanted != words[lane + at.L_PLAN_APPLIED]:
                self._follow_plan()
            late_ns = clock.wait(read_ns)
            if clock.steps != self._steps:
                if self._lane != MAIN_LANE:
                    return EXIT_CLOCK_STEP
                self._record_segment()
            read_ns = self._loop.sample(clock.tick, late_ns)
            words[lane + at.L_MISSED] = self._missed_before + clock.missed
            words[lane + at.L_OVERSLEPT_NS] = self._overslept_before_ns + clock.overslept_ns
            read_ns = sample_steadily(self._ring, self._lane, self._loop, clock, read_ns)
            if clock.tick % ticks_per_second == 0:
                words[lane + at.L_CPU_NS] += self._cpu_since_last_ns()
                if self._is_orphan():
                    return EXIT_ORPHAN

    def _is_orphan(self) -> bool:
        return os.getppid() != self._parent

    def _record_segment(self) -> None:
        """Publish the new wall time before readers can see the first record that uses it."""
        newly, self._steps = self._clock.steps - self._steps, self._clock.steps
        self._ring.words[self._words + at.L_CLOCK_STEPS] += newly
        self._ring.begin_segment(self._clock.tick, self._clock.shift)

    def _cpu_since_last_ns(self) -> int:
        before, self._cpu_ns = self._cpu_ns, self._time.process_time_ns()
        return self._cpu_ns - before


def main(arguments: list[str]) -> int:
    """Run the sampler on `RING LANE FILE`; the exit status gives the reason for ending."""
    # these signals reach the whole process group or service, but the parent decides when the sampler ends
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    gc.disable()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        path, lane, descriptor = parse_arguments(arguments)
        return SamplerProcess(RingFile(path, descriptor=descriptor), lane).run()
    except (IbpulseError, OSError, ValueError) as error:
        sys.stderr.write(f"sampler: {error}\n")
        return EXIT_NO_RING


def parse_arguments(arguments: list[str]) -> tuple[Path, int, int]:
    """The ring's path, the lane and the descriptor of the ring, from the command line."""
    lanes = [str(lane) for lane in range(at.LANE_COUNT)]
    if len(arguments) != 3 or arguments[1] not in lanes or not arguments[2].isdecimal():
        raise SamplerError(
            f"arguments {' '.join(arguments)!r}: expected RING LANE FILE, with a lane from 0 to {lanes[-1]}"
        )
    return Path(arguments[0]), int(arguments[1]), int(arguments[2])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
