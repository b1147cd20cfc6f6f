"""A sampler process in virtual time: its plan, its ticks, and a wall clock that was set between two runs."""

from __future__ import annotations

import gc
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ibpulse.agent.sampler import process
from ibpulse.agent.sampler.plan import STOP, Plan, PlannedPort, plan_path, write_plan
from ibpulse.agent.sampler.process import EXIT_CLOCK_STEP, EXIT_NO_RING, NOT_ASKED
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.reader import RingReader
from tests.sampler.tree import Tree
from tests.tables import for_each
from tests.virtual.clock import CPU_NS, WAKE_NS, NodeClock
from tests.virtual.samplers import INTERVAL_NS, Samplers
from tests.virtual.world import SECOND, World

HOUR_TICKS = 3600 * SECOND // INTERVAL_NS


class Lane:
    """A lane whose sampler the test starts, as a supervisor would."""

    def __init__(self, folder: Path) -> None:
        self.world = World()
        self.clock = NodeClock(self.world)
        self.ring = RingFile.create(folder / "ring" / "ring", INTERVAL_NS, 6000, self.clock)
        self.samplers = Samplers(self.world, self.clock)
        tree = Tree(folder / "sys")
        tree.write("mlx5_0", 11, 22)
        self.port = tree.planned(self.ring, "mlx5_0")
        self.generation = 0

    def word(self, which: int, lane: int = 0) -> int:
        return self.ring.words[at.lane_at(lane) + which]

    def tell(self, *ports: PlannedPort, lane: int = 0) -> None:
        self.generation += 1
        write_plan(plan_path(self.ring.path, lane), Plan(self.generation, 1, ports=ports))
        self.ring.words[at.lane_at(lane) + at.L_PLAN_WANTED] = self.generation

    def start(self, lane: int = 0) -> None:
        self.samplers.start(self.ring, lane)

    def run(self, seconds: float) -> None:
        self.world.pause(round(seconds * SECOND))

    def close(self) -> None:
        self.world.close()
        self.ring.close()


@pytest.fixture
def lane(folder: Path) -> Iterator[Lane]:
    made = Lane(folder)
    yield made
    made.close()


def test_the_ring_is_filled_at_wall_clock_multiples(lane: Lane) -> None:
    lane.tell(lane.port)
    lane.start()
    lane.run(2.003)
    reader, latest = RingReader(lane.ring), lane.ring.latest_tick()
    assert latest == lane.clock.time_ns() // INTERVAL_NS
    block = reader.read([lane.port.slot], latest - 99, latest)
    assert block.present.all()
    assert (block.counters()[0] == [[11], [22]]).all()
    ahead_ns = lane.clock.time_ns() - lane.clock.monotonic_ns()
    read_ns = block.time_ns()[0, 0] + ahead_ns - reader.wall_ns(np.arange(latest - 99, latest + 1))
    assert (read_ns == WAKE_NS).all()
    assert lane.ring.segments() == [(1, 0)]
    assert (lane.word(at.L_FIFO), lane.word(at.L_PINNED)) == (NOT_ASKED, NOT_ASKED)


def test_cpu_time_is_accounted_every_second(lane: Lane) -> None:
    lane.tell(lane.port)
    lane.start()
    lane.run(3.003)
    # the samples since the last whole second come with the next one
    assert lane.word(at.L_CPU_NS) == lane.word(at.L_TICKS) * CPU_NS


def test_a_new_plan_is_applied_at_the_next_tick(lane: Lane) -> None:
    lane.tell()
    lane.start()
    lane.run(1.503)
    lane.tell(lane.port)
    before = lane.ring.latest_tick()
    lane.run(0.05)
    assert lane.word(at.L_PLAN_APPLIED) == lane.generation
    present = RingReader(lane.ring).read([lane.port.slot], before - 5, before + 5).present[0]
    assert present.tolist() == [False] * 7 + [True] * 4


def test_a_plan_that_cannot_be_read_leaves_the_last_one_in_force(
    lane: Lane, capsys: pytest.CaptureFixture[str]
) -> None:
    lane.tell(lane.port)
    lane.start()
    lane.run(1)
    plan_path(lane.ring.path, 0).write_text('{"generation"')
    lane.ring.words[at.lane_at(0) + at.L_PLAN_WANTED] = 77
    lane.run(2)
    assert lane.word(at.L_PLAN_APPLIED) == 1
    assert lane.word(at.L_MISSED) == 0
    lane.tell(lane.port)
    lane.run(0.2)
    assert lane.word(at.L_PLAN_APPLIED) == 2
    said = capsys.readouterr().err
    assert said.count("; the last plan stays in force\n") == said.count("\n") == 1


def test_a_sampler_ends_when_its_plan_asks_for_it(lane: Lane) -> None:
    lane.tell(lane.port)
    lane.start()
    lane.run(1)
    lane.ring.words[at.lane_at(0) + at.L_PLAN_WANTED] = STOP
    lane.run(0.02)
    assert lane.samplers.by_lane[0].poll() == 0


def test_a_wall_clock_set_back_between_two_runs_begins_a_segment(lane: Lane) -> None:
    lane.tell(lane.port)
    lane.start()
    lane.run(1.003)
    lane.samplers.kill()
    lane.run(0.5)
    before = lane.ring.latest_tick()
    lane.clock.step(-3600)
    lane.start()
    lane.run(1)
    assert lane.word(at.L_CLOCK_STEPS) == 1
    # ticks never go back; half a second and the start of a process are missing
    tick, shift = lane.ring.segments()[-1]
    assert (tick - before, shift) == (55, HOUR_TICKS)
    latest = lane.ring.latest_tick()
    wall_ns = int(RingReader(lane.ring).wall_ns(np.array([latest]))[0])
    assert 0 <= lane.clock.time_ns() - wall_ns < INTERVAL_NS


def test_a_lane_of_its_own_ends_when_the_wall_clock_was_set(lane: Lane) -> None:
    lane.ring.begin_segment(1, 0)
    lane.ring.words[at.lane_at(2) + at.L_TICK] = lane.clock.time_ns() // INTERVAL_NS + HOUR_TICKS
    lane.tell(lane.port, lane=2)
    lane.start(2)
    lane.run(1)
    # the main sampler writes the segments
    assert lane.samplers.by_lane[2].poll() == EXIT_CLOCK_STEP
    assert lane.word(at.L_TICKS, 2) == 0
    assert lane.ring.segments() == [(1, 0)]


REFUSED = "sampler: arguments {!r}: expected RING LANE FILE, with a lane from 0 to 15\n"


@for_each(
    {
        "no arguments": ("", REFUSED),
        "no file": ("/x 0", REFUSED),
        "a name": ("/x main {file}", REFUSED),
        "too many lanes": (f"/x {at.LANE_COUNT} {{file}}", REFUSED),
        "a negative lane": ("/x -1 {file}", REFUSED),
        "a negative file": ("/x 0 -1", REFUSED),
        "no open file": (f"{{ring}} 0 {2**30}", "sampler: [Errno 9] Bad file descriptor\n"),
        "no plan": ("{ring} 1 {file}", "sampler: [Errno 2] No such file or directory: '{folder}/plan-1.json'\n"),
        "a broken plan": ("{ring} 0 {file}", "sampler: Expecting ':' delimiter"),
    }
)
def test_a_sampler_that_cannot_begin_says_why(
    words: str, said: str, lane: Lane, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module, name in ((signal, "signal"), (gc, "disable"), (resource, "setrlimit")):
        monkeypatch.setattr(module, name, lambda *_: None)
    ring, folder = lane.ring.path, lane.ring.path.parent
    plan_path(ring, 0).write_text('{"generation"')
    given = words.format(ring=ring, file=lane.ring.descriptor).split()
    assert process.main(given) == EXIT_NO_RING
    expected = said.format(" ".join(given), folder=folder)
    message = capsys.readouterr().err
    assert message.startswith(expected)
    assert message.count("\n") == 1
