"""The short tick of the sampler, on real files with the real clock: what it stores, and what ends it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest

from ibpulse.ring import layout as at
from ibpulse.ring.file import RingFile
from ibpulse.ring.reader import RingReader
from ibpulse.sampler.clock import TickClock
from ibpulse.sampler.loop import Loop
from ibpulse.sampler.plan import Plan, PlannedPort
from ibpulse.sampler.steady import sample_steadily
from tests.sampler.tree import Tree

pytestmark = pytest.mark.real("sleep", "clock")

INTERVAL_NS = 5_000_000
PER_SECOND = 200
LANE = at.lane_at(0)


class Steady:
    """A loop whose files are open, with its clock, one full tick after the beginning of a second."""

    def __init__(self, path: Path, tree: Tree, strides: tuple[int, ...]) -> None:
        self.ring = RingFile.create(path / "steady", INTERVAL_NS, 10 * PER_SECOND)
        self.ports: list[PlannedPort] = []
        for number, stride in enumerate(strides):
            tree.write(f"mlx5_{number}", 1000 + number, 2000 + number)
            self.ports.append(tree.planned(self.ring, f"mlx5_{number}", stride))
        self.loop = Loop(self.ring, 0)
        self.loop.apply(Plan(1, os.getpid(), ports=tuple(self.ports)))
        for which in (at.L_PLAN_WANTED, at.L_PLAN_APPLIED):
            self.ring.words[LANE + which] = 1
        self.clock = TickClock(INTERVAL_NS)
        self.ring.begin_segment(1, 0)
        self.read_ns = self.full_tick()
        while self.clock.tick % PER_SECOND != 1:
            self.read_ns = self.full_tick()
        self.first = self.clock.tick + 1
        self._missed_before = self.clock.missed

    def close(self) -> None:
        self.loop.apply(Plan(2, os.getpid()))
        self.ring.close()

    @property
    def missed(self) -> int:
        """The ticks missed after the first full one."""
        return self.clock.missed - self._missed_before

    def full_tick(self) -> int:
        late_ns = self.clock.wait(self.read_ns if hasattr(self, "read_ns") else 0)
        return self.loop.sample(self.clock.tick, late_ns)

    def run(self, meanwhile: Callable[[], None] | None = None) -> int:
        """Run up to where it ends by itself, while something happens after a tenth of a second; returns the ticks."""
        timer = threading.Timer(0.1, meanwhile or (lambda: None))
        timer.start()
        before = self.clock.tick
        self.read_ns = sample_steadily(self.ring, 0, self.loop, self.clock, self.read_ns)
        timer.join()
        return self.clock.tick - before

    def run_until_it_happened(self, happened: Callable[[], bool], meanwhile: Callable[[], None]) -> None:
        """As the sampler's process does: after each end, one full tick; for a second at most."""
        timer = threading.Timer(0.1, meanwhile)
        timer.start()
        end = time.monotonic() + 1.0
        while not happened() and time.monotonic() < end:
            self.read_ns = sample_steadily(self.ring, 0, self.loop, self.clock, self.read_ns)
            if not happened():
                self.read_ns = self.full_tick()
        timer.join()

    def records(self, slot: int = 0) -> np.ndarray:
        """Those of all ticks after the first full one, without the missing ones."""
        block = RingReader(self.ring).read([self.ports[slot].slot], self.first, self.clock.tick)
        return block.records[0, block.present[0]].astype(np.int64)


@pytest.fixture
def make(tmp_path: Path, tree: Tree) -> Iterator[Callable[..., Steady]]:
    with ExitStack() as made:
        yield lambda *strides: made.enter_context(closing(Steady(tmp_path, tree, strides)))


@pytest.fixture
def steady(make: Callable[..., Steady]) -> Steady:
    return make(1, 1)


def test_a_tick_stores_what_a_full_one_stores(steady: Steady) -> None:
    steady.run_until_it_happened(lambda: False, lambda: None)
    for slot in range(2):
        records = steady.records(slot)
        assert len(records) > 50
        assert (records[:, [at.R_TRANSMIT, at.R_RECEIVE]] == [1000 + slot, 2000 + slot]).all()
        assert (np.diff(records[:, at.R_BEFORE : at.R_AFTER + 1], axis=1) > 0).all()
        # each begins within half an interval of its own multiple of the wall clock
        late = records[:, at.R_BEFORE] + steady.clock.offset_ns - (records[:, at.R_TICK] & at.TICK_MASK) * INTERVAL_NS
        assert late.min() > -50_000
        assert late.max() < INTERVAL_NS
    words = steady.ring.words
    assert words[LANE + at.L_TICK] == words[LANE + at.L_BEGUN] == steady.clock.tick
    ticks = words[LANE + at.L_TICKS]
    for first in (at.L_LATENESS, at.L_DURATION):
        assert sum(words[LANE + first : LANE + first + at.BUCKET_COUNT]) == ticks
    assert len(records) + steady.missed == steady.clock.tick - steady.first + 1


def test_it_ends_with_the_second(steady: Steady) -> None:
    steady.run_until_it_happened(lambda: steady.clock.tick % PER_SECOND == 0, lambda: None)
    assert steady.clock.tick % PER_SECOND == 0
    assert steady.run() == 0


def test_a_new_plan_ends_it(steady: Steady) -> None:
    def ask() -> None:
        steady.ring.words[LANE + at.L_PLAN_WANTED] = 2

    steady.run_until_it_happened(lambda: steady.ring.words[LANE + at.L_PLAN_WANTED] == 2, ask)
    assert steady.run() == 0


def test_a_clock_that_was_set_ends_it_before_the_tick(steady: Steady) -> None:
    steady.clock.offset_ns += 30_000_000
    assert steady.run() == 0
    assert steady.clock.steps == 0


def test_reads_that_took_unusually_long_end_it(steady: Steady) -> None:
    steady.clock.usual_ns = -INTERVAL_NS
    assert steady.run() == 0


def test_a_port_whose_file_is_bad_is_left_to_the_full_tick(steady: Steady, tree: Tree) -> None:
    steady.run_until_it_happened(lambda: bool(steady.loop.slow), lambda: tree.write("mlx5_1", "N/A", 7))
    assert [port.planned.device for port in steady.loop.slow] == ["mlx5_1"]
    assert steady.ring.slot_word(steady.ports[1].slot, at.S_ERRORS) > 0
    # the other one lost nothing but ticks that were late
    assert len(steady.records(0)) == steady.clock.tick - steady.first + 1 - steady.missed
    assert steady.records(1)[-1, at.R_RECEIVE] in (7, 2001)


def test_ports_that_are_not_due_at_every_tick_are_read_at_theirs(make: Callable[..., Steady]) -> None:
    mixed = make(1, 4)
    mixed.run_until_it_happened(lambda: False, lambda: None)
    often, seldom = mixed.records(0)[:, at.R_TICK] & at.TICK_MASK, mixed.records(1)[:, at.R_TICK] & at.TICK_MASK
    assert set(seldom.tolist()) <= {tick for tick in often.tolist() if tick % 4 == 0}
    assert len(seldom) >= len(often) // 5
