"""The hot loop on a clock that only the test moves: sleeps end as late, and reads take as long, as it says."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ibpulse.agent.sampler.deadlines import TickClock
from ibpulse.agent.sampler.loop import Loop
from ibpulse.agent.sampler.plan import Plan
from ibpulse.agent.sampler.steady import sample_steadily
from ibpulse.base.units import SECOND_NS
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.reader import RingReader
from tests.sampler.tree import Tree

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
    """Ports of plain files, sampled in full at the first tick of a second."""

    def __init__(self, path: Path, tree: Tree, strides: tuple[int, ...] = (1,)) -> None:
        self.clock = MovedClock()
        self.ring = RingFile.create(path / "moved", INTERVAL_NS, 10 * PER_SECOND)
        self.ports = []
        for number, stride in enumerate(strides):
            tree.write(f"mlx5_{number}", 1000 + number, 2000 + number)
            self.ports.append(tree.planned(self.ring, f"mlx5_{number}", stride))
        self.reads_ns: list[int] = []
        self.loop = Loop(self.ring, 0, self.clock, self._read)
        self.loop.apply(Plan(1, os.getpid(), ports=tuple(self.ports)))
        self.lane = at.lane_at(0)
        for which in (at.L_PLAN_WANTED, at.L_PLAN_APPLIED):
            self.ring.words[self.lane + which] = 1
        self.ticks = TickClock(INTERVAL_NS, clock=self.clock)
        self.read_ns = self.loop.sample(self.ticks.tick, self.ticks.wait())

    def _read(self, descriptor: int, length: int, offset: int) -> bytes:
        """A read takes the next of `reads_ns`, or no time."""
        self.clock.now_ns += self.reads_ns.pop(0) if self.reads_ns else 0
        return os.pread(descriptor, length, offset)

    def run(self) -> int:
        """Run the hot loop until it ends by itself; returns how many ticks it sampled."""
        before = self.ticks.tick
        self.read_ns = sample_steadily(self.ring, 0, self.loop, self.ticks, self.read_ns)
        return self.ticks.tick - before

    def word(self, which: int) -> int:
        """One word of the lane."""
        return self.ring.words[self.lane + which]

    def record(self, tick: int, port: int = 0) -> list[int]:
        """The words of a record without its tick; the instants count from the deadline."""
        block = RingReader(self.ring).read([self.ports[port].slot], tick, tick)
        assert block.present.all()
        words = block.records[0, 0].tolist()
        deadline = tick * INTERVAL_NS - self.clock.ahead_ns
        return [*(word - deadline for word in words[: at.R_AFTER + 1]), *words[at.R_TRANSMIT : at.R_TICK]]

    def close(self) -> None:
        self.loop.apply(Plan(2, os.getpid()))
        self.ring.close()
