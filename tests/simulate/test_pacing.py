"""A simulator and a sampler that are late in every way: no two reads show more than the line rate between them.

Both run on one simulated clock; the tree and its counters are real files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from ibpulse.workbench.simulate.fabric import START_WORDS, SimulatedFabric
from ibpulse.workbench.simulate.pacing import Pace, Slips
from ibpulse.workbench.simulate.timeline import LINE_BYTES_PER_SECOND, Schedule, Workload
from ibpulse.workbench.simulate.workloads import DENSE, MOE, Constant, ExpertParallel, Square

SECOND = 1_000_000_000
MS = 1_000_000
TICK = 10 * MS
START = 1_700_000_000 * SECOND
LINE = Constant(LINE_BYTES_PER_SECOND)
SQUARE = Square(70 * MS, 0.5, LINE_BYTES_PER_SECOND)

Late = Callable[[], int]


def never() -> int:
    return 0


class Machine:
    """One clock (ns), a simulator, and a sampler that reads `rails` counters: `reads` of each are (instant, bytes).

    The sampler begins each tick `sampler()` after the multiple and skips it if that is more than half an interval, or
    less than that after its last read. `between()` passes between its reads of two ports. The simulator wakes
    `simulator()` late, from a timer or because of a read. `writing()` passes in the middle of a write, before the
    counters change.
    """

    def __init__(
        self,
        directory: Path,
        workload: Workload,
        sampler: Late = never,
        simulator: Late = never,
        writing: Late = never,
        between: Late = never,
        rails: int = 1,
    ) -> None:
        self.fabric = SimulatedFabric(directory, Schedule(workload, rails=rails, start_ns=START), TICK)
        self.fabric.build(START)
        classes = directory / "class/infiniband"
        self.files = [classes / f"mlx5_{rail}/ports/1/counters/port_rcv_data" for rail in range(rails)]
        self.sampler, self.simulator, self.writing, self.between = sampler, simulator, writing, between
        self.now, self.left = START + 3 * MS, 0
        self.reads_of: list[list[tuple[int, int]]] = [[] for _ in range(rails)]
        self.shown: list[tuple[int, int]] = []
        self.rail, self.due = 0, self._due_after(self.now)
        self.unnoticed: set[int] = set()
        self.slips = Slips()

    def is_over(self) -> bool:
        self.left -= 1
        return self.left < 0

    def monotonic(self) -> int:
        return self.now - START

    @property
    def reads(self) -> list[tuple[int, int]]:
        return self.reads_of[0]

    def pause(self, seconds: float) -> set[int]:
        until = self.now + round(seconds * SECOND)
        woken = min(until, max(self.now, self.due)) if not self.unnoticed else self.now
        self.pass_until(woken + self.simulator())
        noticed, self.unnoticed = self.unnoticed, set()
        return noticed

    def pass_until(self, instant: int) -> None:
        while self.due <= instant:
            moved = 4 * (int(self.files[self.rail].read_text()) - START_WORDS[1])
            self.reads_of[self.rail].append((self.due, moved))
            self.unnoticed.add(self.rail)
            self.rail = (self.rail + 1) % len(self.files)
            self.due = self.due + self.between() if self.rail else self._due_after(self.due)
        self.now = instant

    def show(self, at_ns: int, line_ns: int) -> int:
        self.pass_until(self.now + self.writing())
        shown = self.fabric.advance(at_ns, line_ns)
        self.shown.append((self.now, shown))
        return shown

    def run(self, turns: int) -> Machine:
        self.left = turns
        pace = Pace(self.show, TICK, self.pause, lambda: self.now, self.monotonic)
        pace.run(self.is_over)
        self.fabric.close()
        self.slips = pace.slips
        return self

    def _due_after(self, instant: int) -> int:
        multiple = instant // TICK * TICK
        while True:
            multiple += TICK
            late = self.sampler()
            if late <= TICK // 2 and multiple + late - instant >= TICK // 2:
                return multiple + late

    def most_above_the_line(self) -> float:
        """The most bytes by which any two reads of a port exceed the line rate x the time between them."""
        most = 0.0
        for reads in self.reads_of:
            instants, moved = np.array(reads, dtype=np.int64).T
            above = moved - (instants - START) * (LINE_BYTES_PER_SECOND / SECOND)
            most = max(most, float((above - np.minimum.accumulate(above)).max()))
        return most

    def highest_rate(self) -> float:
        """The highest rate between two reads in a row."""
        instants, moved = np.array(self.reads, dtype=np.int64).T
        return float((np.diff(moved) / np.diff(instants)).max() * SECOND)


def chance(seed: int, share: float, most_ns: int) -> Late:
    """Late by up to `most_ns` in a share of the cases."""
    rng = np.random.default_rng(seed)
    return lambda: int(rng.integers(most_ns + 1)) if rng.random() < share else 0


def scripted(*lates: int) -> Late:
    """Late by these times, then on time."""
    left: Iterator[int] = iter(lates)
    return lambda: next(left, 0)


@pytest.mark.parametrize("workload", [LINE, SQUARE, DENSE, MOE, ExpertParallel()], ids=lambda each: each.name)
@pytest.mark.parametrize(
    ("sampler", "simulator"),
    [
        (chance(1, 1.0, TICK // 2), never),
        (chance(2, 0.2, TICK), never),
        (never, chance(3, 1.0, 3 * MS)),
        (never, chance(4, 0.2, 3 * TICK)),
        (chance(5, 0.5, TICK // 2), chance(6, 0.5, TICK)),
        (chance(7, 0.1, TICK // 2), chance(8, 0.02, SECOND // 2)),
        (chance(9, 0.9, 7 * MS), chance(10, 0.9, 12 * MS)),
    ],
    ids=["late reads", "missed reads", "late writes", "missed writes", "both", "stalls", "always"],
)
def test_reads_never_exceed_the_line_rate(tmp_path: Path, workload: Workload, sampler: Late, simulator: Late) -> None:
    machine = Machine(tmp_path, workload, sampler, simulator).run(1200)
    assert len(machine.reads) > 300
    assert machine.reads[-1][1] > 0
    assert machine.most_above_the_line() <= 4


def test_interrupted_write_delays_the_next(tmp_path: Path) -> None:
    writing = chance(11, 0.1, 2 * TICK)
    machine = Machine(tmp_path, Constant(LINE_BYTES_PER_SECOND * 2 / 3), chance(12, 0.5, 3 * MS), never, writing)
    machine.run(2000)
    assert machine.slips.count > 10
    assert machine.most_above_the_line() <= 4


@pytest.mark.parametrize("workload", [LINE, SQUARE, DENSE, MOE], ids=lambda each: each.name)
@pytest.mark.parametrize("seed", range(4))
def test_stalled_sampler_sees_at_most_line_rate(tmp_path: Path, workload: Workload, seed: int) -> None:
    sampler, simulator, between = chance(seed, 0.1, TICK // 2), chance(seed, 0.5, MS), chance(seed, 0.02, 2 * TICK)
    machine = Machine(tmp_path, workload, sampler, simulator, between=between, rails=3).run(3000)
    assert min(map(len, machine.reads_of)) > 700
    assert machine.most_above_the_line() <= 4


def test_rarely_read_port_causes_no_slip(tmp_path: Path) -> None:
    class Seldom(Machine):
        def pause(self, seconds: float) -> set[int]:
            ports = super().pause(seconds)
            # as with a second port that is only sampled at every second tick
            return ports | {1} if ports and self.due // TICK % 2 else ports

    machine = Seldom(tmp_path, Constant(LINE_BYTES_PER_SECOND * 0.9)).run(1000)
    assert machine.slips.count == 0


@pytest.mark.parametrize("workload", [DENSE, MOE], ids=lambda each: each.name)
def test_on_time_every_read_shows_the_schedule(tmp_path: Path, workload: Workload) -> None:
    machine = Machine(tmp_path, workload).run(1000)
    schedule = Schedule(workload, rails=1, start_ns=START)
    for instant, moved in machine.reads[1:]:
        assert moved == schedule.port_bytes(instant, 0, 1)
    assert (machine.slips.count, machine.slips.total_ns) == (0, 0)


@pytest.mark.parametrize(("late_ns", "slipped"), [(5 * MS, 1), (3 * TICK + MS, 3), (3 * TICK + 5 * MS, 4)])
def test_late_writes_raise_no_peak(tmp_path: Path, late_ns: int, slipped: int) -> None:
    rate = LINE_BYTES_PER_SECOND / 4
    # two wake-ups for each sample, one of them because of the read
    machine = Machine(tmp_path, Constant(rate), simulator=scripted(*[0] * 40, late_ns)).run(200)
    assert (machine.slips.count, machine.slips.total_ns) == (1, slipped * TICK)
    assert machine.highest_rate() == pytest.approx(rate)
    instants, schedule = np.array(machine.shown).T
    assert np.unique(np.diff(schedule)).tolist() == [TICK]
    # 4 ms before a multiple
    assert np.unique(np.diff((instants + 4 * MS) // TICK)).tolist() == [1, 1 + slipped]


@pytest.mark.parametrize("leap_ns", [-3600 * SECOND, 3600 * SECOND, -4 * TICK])
def test_a_wall_clock_that_is_set_moves_no_counter(tmp_path: Path, leap_ns: int) -> None:
    machine = Machine(tmp_path, Constant(LINE_BYTES_PER_SECOND / 4))
    machine.left = 200
    slips = machine.fabric.run(
        machine.is_over,
        lambda: machine.now + (leap_ns if machine.now > START + SECOND // 2 else 0),
        machine.monotonic,
        machine.pause,
    )
    machine.fabric.close()
    assert slips.count == 0
    assert set(np.diff([moved for _, moved in machine.reads[1:]])) == {TICK * LINE_BYTES_PER_SECOND // 4 // SECOND}


def test_too_large_steps_and_late_notices_are_cut(tmp_path: Path) -> None:
    # the second read is 4 ms late, the third on time
    machine = Machine(tmp_path, LINE, sampler=scripted(0, 4 * MS)).run(8)
    moved = [moved for _, moved in machine.reads]
    line = LINE_BYTES_PER_SECOND // SECOND
    assert np.diff(moved)[:3] == pytest.approx([10 * MS * line, 6 * MS * line, 10 * MS * line], abs=4)
    assert (machine.slips.count, machine.slips.total_ns) == (1, 4 * MS)
    machine = Machine(tmp_path, LINE, simulator=scripted(0, 0, 0, 5_900_000)).run(9)
    assert (machine.slips.count, machine.slips.total_ns) == (1, 5 * MS)


def test_slips_are_logged_every_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    slips = Slips()
    with caplog.at_level(logging.WARNING):
        for second in range(25):
            slips.add(10 * MS, second * SECOND)
        slips.log_new()
        slips.log_new()
    assert (slips.count, slips.total_ns) == (25, 250 * MS)
    assert [record.getMessage() for record in caplog.records] == [
        "the machine is too busy: the simulation slipped by 10.0 ms in 1 slip, 10.0 ms in 1 since it began",
        "the machine is too busy: the simulation slipped by 100.0 ms in 10 slips, 110.0 ms in 11 since it began",
        "the machine is too busy: the simulation slipped by 100.0 ms in 10 slips, 210.0 ms in 21 since it began",
        "the machine is too busy: the simulation slipped by 40.0 ms in 4 slips, 250.0 ms in 25 since it began",
    ]
