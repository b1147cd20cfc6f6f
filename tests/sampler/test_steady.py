"""The short tick of the sampler in virtual time: what it stores, and what ends it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from ibpulse.agent.sampler.deadlines import TickClock
from ibpulse.agent.sampler.loop import Loop
from ibpulse.agent.sampler.plan import Plan, PlannedPort
from ibpulse.agent.sampler.steady import sample_steadily
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.reader import RingReader
from tests.sampler.tree import Tree
from tests.virtual.clock import WAKE_NS, NodeClock
from tests.virtual.world import Gate, World

INTERVAL_NS = 5_000_000
PER_SECOND = 200
LANE = at.lane_at(0)


class Steady:
    """A loop whose files are open, with its clock, one full tick after the beginning of a second."""

    def __init__(self, path: Path, tree: Tree, world: World, strides: tuple[int, ...] = (1, 1)) -> None:
        self.world, self.time = world, NodeClock(world)
        self.ring = RingFile.create(path / "steady", INTERVAL_NS, 10 * PER_SECOND)
        self.ports: list[PlannedPort] = []
        for number, stride in enumerate(strides):
            tree.write(f"mlx5_{number}", 1000 + number, 2000 + number)
            self.ports.append(tree.planned(self.ring, f"mlx5_{number}", stride))
        self.loop = Loop(self.ring, 0, self.time, world.pread)
        self.loop.apply(Plan(1, os.getpid(), ports=tuple(self.ports)))
        for which in (at.L_PLAN_WANTED, at.L_PLAN_APPLIED):
            self.ring.words[LANE + which] = 1
        self.clock = TickClock(INTERVAL_NS, clock=self.time)
        self.ring.begin_segment(1, 0)
        self.read_ns = 0
        self.full_tick()
        self.first = self.clock.tick
        assert self.first % PER_SECOND == 1

    def close(self) -> None:
        """Close the files."""
        self.loop.apply(Plan(2, os.getpid()))

    def full_tick(self) -> None:
        late_ns = self.clock.wait(self.read_ns)
        self.read_ns = self.loop.sample(self.clock.tick, late_ns)

    def run(self) -> int:
        """Run up to where it ends by itself; returns the ticks."""
        before = self.clock.tick
        self.read_ns = sample_steadily(self.ring, 0, self.loop, self.clock, self.read_ns)
        return self.clock.tick - before

    def at_tick(self, number: int, happens: Callable[[], None]) -> None:
        """Let something happen while the loop sleeps before a tick of this second."""
        wall_tick = self.first - 1 + number

        def late() -> int:
            if -(-self.time.time_ns() // INTERVAL_NS) == wall_tick:
                happens()
            return 0

        self.time.late = late

    def records(self, slot: int = 0) -> np.ndarray:
        """Those of all ticks from the first on, without the missing ones."""
        block = RingReader(self.ring).read([self.ports[slot].slot], self.first, self.clock.tick)
        return block.records[0, block.present[0]].astype(np.int64)


@pytest.fixture
def world() -> Iterator[World]:
    with closing(World()) as world:
        yield world


@pytest.fixture
def steady(tmp_path: Path, tree: Tree, world: World) -> Iterator[Steady]:
    with closing(Steady(tmp_path, tree, world)) as steady:
        yield steady


def test_a_tick_stores_what_a_full_one_stores(steady: Steady) -> None:
    assert steady.run() == PER_SECOND - 1
    ticks = np.arange(steady.first, steady.first + PER_SECOND)
    instants = ticks * INTERVAL_NS - steady.clock.offset_ns + WAKE_NS
    for slot in range(2):
        records = steady.records(slot)
        assert (records[:, at.R_TICK] & at.TICK_MASK).tolist() == ticks.tolist()
        assert (records[:, [at.R_TRANSMIT, at.R_RECEIVE]] == [1000 + slot, 2000 + slot]).all()
        assert (records[:, at.R_BEFORE : at.R_AFTER + 1] == instants[:, None]).all()
    words = steady.ring.words
    assert words[LANE + at.L_TICK] == words[LANE + at.L_BEGUN] == steady.clock.tick
    assert words[LANE + at.L_TICKS] == PER_SECOND
    # the first bucket has all of them: wake-ups after 50 µs, and reads that take no time
    assert words[LANE + at.L_LATENESS] == words[LANE + at.L_DURATION] == PER_SECOND
    assert words[LANE + at.L_LATENESS_SUM_NS] == PER_SECOND * WAKE_NS


def test_it_ends_with_the_second(steady: Steady) -> None:
    steady.run()
    assert steady.clock.tick % PER_SECOND == 0
    assert steady.run() == 0


def test_a_new_plan_ends_it_after_the_tick(steady: Steady) -> None:
    def ask() -> None:
        steady.ring.words[LANE + at.L_PLAN_WANTED] = 2

    steady.at_tick(20, ask)
    assert steady.run() == 19
    assert steady.run() == 0


def test_a_clock_that_was_set_ends_it_before_the_next_tick(steady: Steady) -> None:
    steady.at_tick(20, lambda: steady.time.step(0.03))
    assert steady.run() == 19
    assert steady.clock.steps == 0
    steady.full_tick()
    assert steady.clock.steps == 1


def test_a_late_wake_up_ends_it_without_a_sample(steady: Steady) -> None:
    steady.at_tick(20, lambda: steady.world.pause(INTERVAL_NS // 2))
    assert steady.run() == 18
    assert len(steady.records()) == 19


def test_reads_that_take_longer_than_usual_end_it_after_the_tick(steady: Steady) -> None:
    """A read of 0.1 ms is no reason to doubt its value, but the next one may not follow too soon."""
    gate = Gate(str(steady.loop.fast[0][-1].files[0].paths[0]).partition("/class")[0], ("port_xmit_data",))
    gate.delay_ns = 100_000
    steady.at_tick(20, lambda: steady.world.gates.update(mlx5_0=[gate]))
    assert steady.run() == 19
    assert len(steady.records()) == 20


def test_a_port_whose_file_is_bad_is_left_to_the_full_tick(steady: Steady, tree: Tree) -> None:
    steady.at_tick(20, lambda: tree.write("mlx5_1", "N/A", 7))
    # in the middle of the second the lists of ports change, and it begins anew
    assert steady.run() == 19
    assert [port.planned.device for port in steady.loop.slow] == ["mlx5_1"]
    assert steady.ring.slot_word(steady.ports[1].slot, at.S_ERRORS) == 1
    assert steady.ring.slot_word(steady.ports[1].slot, at.S_LAST_ERRNO) == errno.EBADMSG
    assert steady.run() == PER_SECOND - 20
    assert len(steady.records(0)) == PER_SECOND
    assert steady.records(1)[-1, at.R_RECEIVE] == 7


def test_ports_that_are_not_due_at_every_tick_are_read_at_theirs(tmp_path: Path, tree: Tree, world: World) -> None:
    with closing(Steady(tmp_path, tree, world, (1, 4))) as mixed:
        # it ends once when the other port opens its files
        assert [mixed.run(), mixed.run()] == [3, PER_SECOND - 4]
        often, seldom = (mixed.records(slot)[:, at.R_TICK] & at.TICK_MASK for slot in (0, 1))
    assert often.tolist() == list(range(mixed.first, mixed.first + PER_SECOND))
    assert seldom.tolist() == [tick for tick in often.tolist() if tick % 4 == 0]
