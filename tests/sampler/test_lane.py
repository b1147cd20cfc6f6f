"""Lanes, and processes that were let go of."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ibpulse.agent.sampler.lane import EndingProcesses, Lane, Stall, explain_errno
from ibpulse.agent.sampler.plan import Plan, PlannedPort
from ibpulse.agent.sampler.process import NOT_ASKED
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
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
