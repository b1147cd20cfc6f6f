"""The hot loop on a clock that only the test moves: sleeps end as late, and reads take as long, as it says."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ibpulse.agent.sampler.deadlines import TickClock
from ibpulse.agent.sampler.loop import Loop
from ibpulse.agent.sampler.plan import Plan, PlannedPort
from ibpulse.agent.sampler.steady import sample_steadily
from ibpulse.agent.sysfs import netlink
from ibpulse.base.units import SECOND_NS
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.reader import RingReader

INTERVAL_NS = 10_000_000
PER_SECOND = SECOND_NS // INTERVAL_NS
# a whole second
START_NS = 1_763_683_200 * SECOND_NS
BOOTED_NS = 10**15


class MovedClock:
    """Both clocks; time passes in `sleep` and in reads alone."""

    def __init__(self) -> None:
        self.now_ns = BOOTED_NS
        self.ahead_ns = START_NS - BOOTED_NS
        self.late_ns: Callable[[], int] = lambda: 0

    def monotonic_ns(self) -> int:
        return self.now_ns

    def time_ns(self) -> int:
        return self.now_ns + self.ahead_ns

    def sleep(self, seconds: float) -> None:
        self.now_ns += round(seconds * SECOND_NS) + self.late_ns()


class MovedLoop:
    """A loop on a ring of its own: from the first tick of a second on, ticks in full or by the hot loop."""

    def __init__(self, path: Path, connect: Callable[[], netlink.Socket] = netlink.connect, **ring: int) -> None:
        self.clock = MovedClock()
        self.ring = RingFile.create(path / "moved", INTERVAL_NS, 10 * PER_SECOND, **ring)
        self.ring.begin_segment(1, 0)
        self.lane, self.generation, self.signal_ticks = at.lane_at(0), 0, 0
        self.reads_ns: list[int] = []
        self._connect = connect

    def start(self, *ports: PlannedPort) -> None:
        """Begin as a new process does, and sample a tick."""
        self.loop = Loop(self.ring, 0, self.clock, self.read, self._connect)
        self.apply(*ports)
        self.ticks, self.read_ns = TickClock(INTERVAL_NS, clock=self.clock), 0
        self.full()

    def apply(self, *ports: PlannedPort) -> None:
        """Follow a plan of these ports."""
        self.generation += 1
        self.ports = list(ports)
        self.loop.apply(Plan(self.generation, os.getpid(), ports=ports, signal_ticks=self.signal_ticks))
        for which in (at.L_PLAN_WANTED, at.L_PLAN_APPLIED):
            self.ring.words[self.lane + which] = self.generation

    def read(self, descriptor: int, length: int, offset: int) -> bytes:
        """A read takes the next of `reads_ns`, or no time."""
        self.clock.now_ns += self.reads_ns.pop(0) if self.reads_ns else 0
        return os.pread(descriptor, length, offset)

    def full(self) -> None:
        """Sample a tick in full."""
        late_ns = self.ticks.wait(self.read_ns)
        self.read_ns = self.loop.sample(self.ticks.tick, late_ns)

    def steadily(self) -> int:
        """Run the hot loop until it ends by itself; returns how many ticks it sampled."""
        before = self.ticks.tick
        self.read_ns = sample_steadily(self.ring, 0, self.loop, self.ticks, self.read_ns)
        return self.ticks.tick - before

    def word(self, which: int) -> int:
        """One word of the lane."""
        return self.ring.words[self.lane + which]

    def slot_word(self, which: int, port: int = 0) -> int:
        """One word of the slot of a port."""
        return self.ring.slot_word(self.ports[port].slot, which)

    def records(self, port: int = 0, ticks: int = PER_SECOND) -> list[list[int]]:
        """The records of the last ticks without missing ones: tick, instants after its deadline, and counters."""
        newest = self.ticks.tick
        block = RingReader(self.ring).read([self.ports[port].slot], newest - ticks + 1, newest)
        found = []
        for words in block.records[0, block.present[0]].tolist():
            tick = words[at.R_TICK] & at.TICK_MASK
            deadline = tick * INTERVAL_NS - self.clock.ahead_ns
            instants = [word - deadline for word in words[: at.R_AFTER + 1]]
            found.append([tick, *instants, *words[at.R_TRANSMIT : at.R_TICK]])
        return found

    def last(self, port: int = 0) -> list[int] | None:
        """The counters of the last tick, None if missing."""
        found = self.records(port, 1)
        return found[0][-2:] if found else None

    def close(self) -> None:
        """Close all files."""
        self.apply()
        self.ring.close()
