"""Lanes, the quarantine and processes that were let go of."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ibpulse.agent.sampler.lane import EndingProcesses, Lane, Stall, explain_errno
from ibpulse.agent.sampler.plan import Plan, PlannedPort
from ibpulse.agent.sampler.process import NOT_ASKED
from ibpulse.agent.sampler.quarantine import STEADY_SECONDS_MAX, Quarantine
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from tests.sampler.tree import Tree
from tests.virtual.clock import NodeClock
from tests.virtual.samplers import Samplers
from tests.virtual.world import SECOND, World

pytestmark = pytest.mark.real("process", "sleep", "clock")

LANE = at.lane_at(2)


def planned(*devices: str) -> tuple[PlannedPort, ...]:
    return tuple(PlannedPort(slot, device, ("/x",), ("/y",)) for slot, device in enumerate(devices))


@pytest.fixture
def world() -> Iterator[World]:
    with closing(World()) as world:
        yield world


class Trials:
    """A quarantine whose processes are threads, on a ring in virtual time."""

    def __init__(self, world: World, ring: RingFile, steady_seconds: float) -> None:
        self.world, self.ring = world, ring
        self.clock = NodeClock(world)
        self.samplers = Samplers(world, self.clock)
        self.ending = EndingProcesses(self.clock)
        self.quarantine = Quarantine(ring, steady_seconds, self.ending, None, self.clock, self.samplers.start)

    def poll(self, seconds: float) -> list[str]:
        """Poll twenty times a second; the devices that recovered, and then no more polls."""
        for _ in range(round(20 * seconds)):
            self.world.pause(SECOND // 20)
            if recovered := self.quarantine.poll():
                return recovered
        return []

    def word(self, which: int, lane: int = 1) -> int:
        return self.ring.words[at.lane_at(lane) + which]


def test_a_stall_is_named_by_the_plan_that_the_process_follows(ring: RingFile) -> None:
    """Not by a newer one, in which the numbers mean other devices."""
    lane = Lane(ring, 2)
    lane.write_plan(Plan(1, 1, ports=planned("mlx5_0", "mlx5_1")))
    ring.words[LANE + at.L_PLAN_APPLIED] = 1
    ring.words[LANE + at.L_DEVICE] = 1
    lane.write_plan(Plan(2, 1, ports=planned("mlx5_1")))
    assert lane.poll().device == "mlx5_0"
    ring.words[LANE + at.L_PLAN_APPLIED] = 2
    assert lane.poll().device == "mlx5_1"
    ring.words[LANE + at.L_DEVICE] = 2
    assert lane.poll().device == ""


def test_polls_without_a_sign_of_life_are_a_stall_from_the_third_on(ring: RingFile, world: World) -> None:
    lane = Lane(ring, 2, NodeClock(world))
    begun_ns = ring.words[LANE + at.L_HEARTBEAT_NS] = world.monotonic_ns
    seconds = []
    for _ in range(5):
        world.pause(SECOND // 10)
        seconds.append(lane.poll().seconds)
    assert seconds == [0.0, 0.0, 0.0, pytest.approx(0.3), pytest.approx(0.4)]
    ring.words[LANE + at.L_HEARTBEAT_NS] = begun_ns + 1
    assert lane.poll().seconds == 0.0


@pytest.mark.parametrize(
    ("stall", "hung"), [(Stall(0.3, "mlx5_0"), True), (Stall(0.2, "mlx5_0"), False), (Stall(9.0, ""), False)]
)
def test_only_a_stall_in_a_device_is_a_hung_read(stall: Stall, hung: bool) -> None:
    assert stall.is_hung_read() == hung


@pytest.mark.parametrize(
    ("applied", "stall", "silent"),
    [
        (1, Stall(1.1, ""), True),
        (1, Stall(0.9, ""), False),
        (1, Stall(9.0, "mlx5_0"), False),
        (0, Stall(9.0, ""), False),  # it is still starting
        (0, Stall(15.1, ""), True),
    ],
)
def test_a_sampler_is_silent_after_a_second_and_while_it_starts_after_longer(
    ring: RingFile, applied: int, stall: Stall, silent: bool
) -> None:
    ring.words[LANE + at.L_PLAN_APPLIED] = applied
    assert Lane(ring, 2).is_silent(stall) == silent


def test_a_slow_interval_is_not_silence(tmp_path: Path) -> None:
    ring = RingFile.create(tmp_path / "ring", 1_000_000_000, 10)
    ring.words[LANE + at.L_PLAN_APPLIED] = 1
    assert [Lane(ring, 2).is_silent(Stall(seconds, "")) for seconds in (2.9, 3.1)] == [False, True]


def test_a_process_that_does_not_end_when_asked_is_killed(world: World) -> None:
    process = world.start(lambda: world.pause(60 * SECOND), "process")
    ending = EndingProcesses(NodeClock(world))
    ending.add(process)  # type: ignore[arg-type]
    ending.add(None)
    begun_ns = world.monotonic_ns
    ending.wait(0.2)
    assert process.poll() == -signal.SIGKILL
    assert world.monotonic_ns - begun_ns == pytest.approx(0.2 * SECOND, abs=2e6)


def test_each_hang_doubles_the_time_of_good_answers_that_is_asked_for(ring: RingFile, world: World) -> None:
    quarantine = Trials(world, ring, 10.0).quarantine
    needed = []
    for _ in range(2000):
        quarantine.add("mlx5_0")
        needed.append(quarantine._held["mlx5_0"].steady_needed)
        quarantine.release("mlx5_0")
    assert needed[:8] == [10, 20, 40, 80, 160, 320, 600, 600]
    assert needed[-1] == STEADY_SECONDS_MAX


def quarantined(trials: Trials, tree: Tree) -> Quarantine:
    """The quarantine with one device, whose files can be read."""
    tree.write("mlx5_0", 1, 2)
    trials.quarantine.add("mlx5_0")
    trials.quarantine.write_plans(Plan(1, 0, ports=(tree.planned(trials.ring, "mlx5_0"), *planned("other"))))
    return trials.quarantine


def test_a_device_sampled_once_a_second_recovers_too(tmp_path: Path, tree: Tree, world: World) -> None:
    """Between two of its ticks there is no sign of life for far longer than a hung read."""
    trials = Trials(world, RingFile.create(tmp_path / "slow", SECOND, 10), 5.0)
    quarantined(trials, tree)
    assert trials.poll(4.9) == []
    assert trials.poll(3.0) == ["mlx5_0"]


@pytest.mark.parametrize("stops", [False, True])
def test_an_isolated_process_that_stops_or_ends_is_restarted(
    ring: RingFile, tree: Tree, world: World, stops: bool
) -> None:
    trials = Trials(world, ring, 1000.0)
    quarantine = quarantined(trials, tree)
    assert trials.poll(1) == []
    process, ticks = trials.samplers.by_lane[1], trials.word(at.L_TICKS)
    assert ticks > 80
    if stops:
        process.wakes_ns = None
    else:
        process.kill()
    assert trials.poll(4) == []
    assert trials.samplers.by_lane[1] is not process
    assert trials.word(at.L_TICKS) > ticks + 150
    assert quarantine.devices == ("mlx5_0",)


def test_a_hung_device_waits_while_all_lanes_are_taken(ring: RingFile, world: World) -> None:
    trials = Trials(world, ring, 10.0)
    quarantine = trials.quarantine
    names = [f"mlx5_{number}" for number in range(at.LANE_COUNT)]
    for name in names:
        quarantine.add(name)
    quarantine.write_plans(Plan(1, 0, ports=planned(*names)))
    quarantine.poll()
    lanes = [held.lane.number if held.lane else None for held in quarantine._held.values()]
    assert lanes == [*range(1, at.LANE_COUNT), None]
    quarantine.release(names[3])
    quarantine.poll()
    last = quarantine._held[names[-1]].lane
    assert last.number == 4


def test_a_trial_begins_with_nothing_asked_and_no_plan_applied(ring: RingFile, world: World) -> None:
    for which in (at.L_DEVICE, at.L_PLAN_APPLIED, at.L_FIFO, at.L_PINNED):
        ring.words[LANE + which] = 7
    lane = Lane(ring, 2, NodeClock(world), Samplers(world, NodeClock(world)).start)
    lane.start()
    assert [lane.word(which) for which in (at.L_DEVICE, at.L_PLAN_APPLIED, at.L_FIFO, at.L_PINNED)] == [
        *(0, 0, NOT_ASKED, NOT_ASKED)
    ]


@pytest.mark.parametrize(
    ("number", "words"),
    [(22, "EINVAL: Invalid argument"), (74, "its content is not a number"), (9999, "9999: Unknown error 9999")],
)
def test_an_errno_is_explained_in_words(number: int, words: str) -> None:
    assert explain_errno(number) == words
