"""Lanes, the quarantine and processes that were let go of."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ibpulse.ring import layout as at
from ibpulse.ring.file import RingFile
from ibpulse.sampler.lane import EndingProcesses, Lane, Stall, explain_errno
from ibpulse.sampler.piped_process import PipedProcess
from ibpulse.sampler.plan import Plan, PlannedPort
from ibpulse.sampler.process import NOT_ASKED
from ibpulse.sampler.quarantine import STEADY_SECONDS_MAX, Quarantine
from ibpulse.sampler.spare_descriptors import SpareDescriptors
from tests.sampler.tree import Tree, eventually

pytestmark = pytest.mark.real("process", "sleep", "clock")

LANE = at.lane_at(2)


def planned(*devices: str) -> tuple[PlannedPort, ...]:
    return tuple(PlannedPort(slot, device, ("/x",), ("/y",)) for slot, device in enumerate(devices))


@pytest.fixture
def ending() -> Iterator[EndingProcesses]:
    made = EndingProcesses()
    yield made
    made.wait(10)


def test_a_stall_is_named_by_the_plan_that_the_process_follows(ring: RingFile) -> None:
    """Not by a newer one, in which the numbers mean other devices."""
    lane = Lane(ring, 2, SpareDescriptors())
    lane.write_plan(Plan(1, 1, ports=planned("mlx5_0", "mlx5_1")))
    ring.words[LANE + at.L_PLAN_APPLIED] = 1
    ring.words[LANE + at.L_DEVICE] = 1
    lane.write_plan(Plan(2, 1, ports=planned("mlx5_1")))
    assert lane.poll().device == "mlx5_0"
    ring.words[LANE + at.L_PLAN_APPLIED] = 2
    assert lane.poll().device == "mlx5_1"
    ring.words[LANE + at.L_DEVICE] = 2
    assert lane.poll().device == ""


def test_polls_without_a_sign_of_life_are_a_stall_from_the_third_on(ring: RingFile) -> None:
    lane = Lane(ring, 2, SpareDescriptors())
    ring.words[LANE + at.L_HEARTBEAT_NS] = 5
    assert [lane.poll().seconds for _ in range(3)] == [0.0, 0.0, 0.0]
    assert lane.poll().seconds > 0
    ring.words[LANE + at.L_HEARTBEAT_NS] = 6
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
    assert Lane(ring, 2, SpareDescriptors()).is_silent(stall) == silent


def test_a_slow_interval_is_not_silence(tmp_path: Path) -> None:
    ring = RingFile.create(tmp_path / "ring", 1_000_000_000, 10)
    ring.words[LANE + at.L_PLAN_APPLIED] = 1
    assert [Lane(ring, 2, SpareDescriptors()).is_silent(Stall(seconds, "")) for seconds in (2.9, 3.1)] == [False, True]


def test_a_lane_without_a_process_has_no_exit_status(ring: RingFile) -> None:
    lane = Lane(ring, 2, SpareDescriptors())
    assert (lane.is_started(), lane.exit_status(), lane.kill(), lane.terminate()) == (False, None, None, None)


def test_a_process_that_does_not_end_when_asked_is_killed(ending: EndingProcesses) -> None:
    process = PipedProcess([sys.executable, "-c", "import time; time.sleep(60)"])
    ending.add(process)
    ending.add(None)
    ending.wait(0.2)
    assert process.poll() == -signal.SIGKILL


def test_each_hang_doubles_the_time_of_good_answers_that_is_asked_for(ring: RingFile, ending: EndingProcesses) -> None:
    quarantine = Quarantine(ring, 10.0, ending, SpareDescriptors())
    needed = []
    for _ in range(2000):
        quarantine.add("mlx5_0")
        needed.append(quarantine._held["mlx5_0"].steady_needed)
        quarantine.release("mlx5_0")
    assert needed[:8] == [10, 20, 40, 80, 160, 320, 600, 600]
    assert needed[-1] == STEADY_SECONDS_MAX


def watch(quarantine: Quarantine, device: str, lane: int = 1) -> None:
    """Watch until the device is tried on its lane."""
    eventually(lambda: quarantine.poll() or quarantine._held[device].lane)
    found = quarantine._held[device].lane
    assert found is not None
    assert found.number == lane


def test_a_hung_device_recovers_when_it_has_answered_for_long_enough(
    ring: RingFile, tree: Tree, ending: EndingProcesses
) -> None:
    tree.write("mlx5_0", 1, 2)
    quarantine = Quarantine(ring, 0.3, ending, SpareDescriptors())
    quarantine.add("mlx5_0")
    quarantine.write_plans(Plan(1, os.getpid(), ports=(tree.planned(ring, "mlx5_0"), *planned("other"))))
    assert eventually(quarantine.poll) == ["mlx5_0"]
    assert quarantine.devices == ("mlx5_0",)
    quarantine.release("mlx5_0")
    assert quarantine.devices == ()


def test_a_device_sampled_once_a_second_recovers_too(tmp_path: Path, tree: Tree, ending: EndingProcesses) -> None:
    """Between two of its ticks there is no sign of life for far longer than a hung read."""
    ring = RingFile.create(tmp_path / "slow", 1_000_000_000, 10)
    tree.write("mlx5_0", 1, 2)
    quarantine = Quarantine(ring, 1.5, ending, SpareDescriptors())
    quarantine.add("mlx5_0")
    quarantine.write_plans(Plan(1, os.getpid(), ports=(tree.planned(ring, "mlx5_0"),)))
    assert eventually(quarantine.poll) == ["mlx5_0"]
    quarantine.stop()


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_an_isolated_process_that_stops_or_ends_is_restarted(
    ring: RingFile, tree: Tree, ending: EndingProcesses, number: signal.Signals
) -> None:
    tree.write("mlx5_0", 1, 2)
    quarantine = Quarantine(ring, 1000.0, ending, SpareDescriptors())
    quarantine.add("mlx5_0")
    quarantine.write_plans(Plan(1, os.getpid(), ports=(tree.planned(ring, "mlx5_0"),)))
    watch(quarantine, "mlx5_0")
    words = at.lane_at(1)
    eventually(lambda: quarantine.poll() or ring.words[words + at.L_TICKS] > 3)
    pid = ring.words[words + at.L_PID]
    os.kill(pid, number)
    eventually(lambda: quarantine.poll() or ring.words[words + at.L_PID] != pid)
    ticks = ring.words[words + at.L_TICKS]
    eventually(lambda: quarantine.poll() or ring.words[words + at.L_TICKS] > ticks)
    assert quarantine.devices == ("mlx5_0",)
    quarantine.stop()


def test_a_hung_device_waits_while_all_lanes_are_taken(
    ring: RingFile, ending: EndingProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    quarantine = Quarantine(ring, 10.0, ending, SpareDescriptors())
    names = [f"mlx5_{number}" for number in range(at.LANE_COUNT)]
    for name in names:
        quarantine.add(name)
    quarantine.write_plans(Plan(1, os.getpid(), ports=planned(*names)))
    quarantine.poll()
    numbers = [held.lane.number if held.lane else None for held in quarantine._held.values()]
    assert numbers == [*range(1, at.LANE_COUNT), None]
    quarantine.stop()
    quarantine.release(names[3])
    quarantine.poll()
    watch(quarantine, names[-1], lane=4)
    quarantine.release(names[-1])


def test_a_trial_begins_with_nothing_asked_and_no_plan_applied(ring: RingFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    for which in (at.L_DEVICE, at.L_PLAN_APPLIED, at.L_FIFO, at.L_PINNED):
        ring.words[LANE + which] = 7
    lane = Lane(ring, 2, SpareDescriptors())
    lane.start()
    eventually(lambda: lane.exit_status() == 1)
    assert [lane.word(which) for which in (at.L_DEVICE, at.L_PLAN_APPLIED, at.L_FIFO, at.L_PINNED)] == [
        *(0, 0, NOT_ASKED, NOT_ASKED)
    ]


@pytest.mark.parametrize(
    ("number", "words"),
    [(22, "EINVAL: Invalid argument"), (74, "its content is not a number"), (9999, "9999: Unknown error 9999")],
)
def test_an_errno_is_explained_in_words(number: int, words: str) -> None:
    assert explain_errno(number) == words
