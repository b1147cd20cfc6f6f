"""Lanes, the ward and processes that were let go of."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ibpulse.ring import layout as at
from ibpulse.ring.file import RingFile
from ibpulse.sampler.header_log import explain_errno
from ibpulse.sampler.lane import Dying, Lane, Stall
from ibpulse.sampler.plan import Plan, PlannedPort
from ibpulse.sampler.process import NOT_ASKED
from ibpulse.sampler.quarantine import STEADY_SECONDS_MAX, Quarantine
from tests.sampler.tree import Tree, eventually

LANE = at.lane_at(2)


def planned(*devices: str) -> tuple[PlannedPort, ...]:
    return tuple(PlannedPort(slot, device, ("/x",), ("/y",)) for slot, device in enumerate(devices))


@pytest.fixture
def dying() -> Iterator[Dying]:
    made = Dying()
    yield made
    made.wait(10)


def test_a_stall_is_named_by_the_plan_that_the_process_follows(ring: RingFile) -> None:
    """Not by a newer one, in which the numbers mean other devices."""
    lane = Lane(ring, 2)
    lane.tell(Plan(1, 1, ports=planned("mlx5_0", "mlx5_1")))
    ring.words[LANE + at.L_PLAN_APPLIED] = 1
    ring.words[LANE + at.L_DEVICE] = 1
    lane.tell(Plan(2, 1, ports=planned("mlx5_1")))
    assert lane.look().device == "mlx5_0"
    ring.words[LANE + at.L_PLAN_APPLIED] = 2
    assert lane.look().device == "mlx5_1"
    ring.words[LANE + at.L_DEVICE] = 2
    assert lane.look().device == ""


def test_looks_without_a_sign_of_life_are_a_stall_from_the_third_on(ring: RingFile) -> None:
    lane = Lane(ring, 2)
    ring.words[LANE + at.L_HEARTBEAT_NS] = 5
    assert [lane.look().seconds for _ in range(3)] == [0.0, 0.0, 0.0]
    assert lane.look().seconds > 0
    ring.words[LANE + at.L_HEARTBEAT_NS] = 6
    assert lane.look().seconds == 0.0


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


def test_a_lane_without_a_process_has_no_exit_status(ring: RingFile) -> None:
    lane = Lane(ring, 2)
    assert (lane.is_started(), lane.exit_status(), lane.kill(), lane.terminate()) == (False, None, None, None)


def test_a_process_that_does_not_end_when_asked_is_killed(dying: Dying) -> None:
    program = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as ready:
        ready.readline()
    process.terminate()
    dying.add(process)
    dying.add(None)
    dying.wait(0.2)
    assert process.returncode == -signal.SIGKILL


def test_each_relapse_doubles_the_time_of_good_answers_that_is_asked_for(ring: RingFile, dying: Dying) -> None:
    ward = Quarantine(ring, 10.0, dying)
    needed = []
    for _ in range(2000):
        ward.admit("mlx5_0")
        needed.append(ward._sick["mlx5_0"].steady_needed)
        ward.release("mlx5_0")
    assert needed[:8] == [10, 20, 40, 80, 160, 320, 600, 600]
    assert needed[-1] == STEADY_SECONDS_MAX


def watch(ward: Quarantine, device: str, lane: int = 1) -> None:
    """Watch until the device is tried on its lane."""
    eventually(lambda: ward.watch() or ward._sick[device].lane)
    found = ward._sick[device].lane
    assert found is not None
    assert found.number == lane


def test_a_sick_device_recovers_when_it_has_answered_for_long_enough(ring: RingFile, tree: Tree, dying: Dying) -> None:
    tree.write("mlx5_0", 1, 2)
    ward = Quarantine(ring, 0.3, dying)
    ward.admit("mlx5_0")
    ward.tell(Plan(1, os.getpid(), ports=(tree.planned(ring, "mlx5_0"), *planned("other"))))
    assert eventually(ward.watch) == ["mlx5_0"]
    assert ward.devices == ("mlx5_0",)
    ward.release("mlx5_0")
    assert ward.devices == ()


def test_a_device_sampled_once_a_second_recovers_too(tmp_path: Path, tree: Tree, dying: Dying) -> None:
    """Between two of its ticks there is no sign of life for far longer than a hung read."""
    ring = RingFile.create(tmp_path / "slow", 1_000_000_000, 10)
    tree.write("mlx5_0", 1, 2)
    ward = Quarantine(ring, 1.5, dying)
    ward.admit("mlx5_0")
    ward.tell(Plan(1, os.getpid(), ports=(tree.planned(ring, "mlx5_0"),)))
    assert eventually(ward.watch) == ["mlx5_0"]
    ward.stop()


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_trial_that_stops_or_ends_is_started_anew(
    ring: RingFile, tree: Tree, dying: Dying, number: signal.Signals
) -> None:
    tree.write("mlx5_0", 1, 2)
    ward = Quarantine(ring, 1000.0, dying)
    ward.admit("mlx5_0")
    ward.tell(Plan(1, os.getpid(), ports=(tree.planned(ring, "mlx5_0"),)))
    watch(ward, "mlx5_0")
    words = at.lane_at(1)
    eventually(lambda: ward.watch() or ring.words[words + at.L_TICKS] > 3)
    pid = ring.words[words + at.L_PID]
    os.kill(pid, number)
    eventually(lambda: ward.watch() or ring.words[words + at.L_PID] != pid)
    ticks = ring.words[words + at.L_TICKS]
    eventually(lambda: ward.watch() or ring.words[words + at.L_TICKS] > ticks)
    assert ward.devices == ("mlx5_0",)
    ward.stop()


def test_a_sick_device_waits_while_all_lanes_are_taken(
    ring: RingFile, dying: Dying, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    ward = Quarantine(ring, 10.0, dying)
    names = [f"mlx5_{number}" for number in range(at.LANE_COUNT)]
    for name in names:
        ward.admit(name)
    ward.tell(Plan(1, os.getpid(), ports=planned(*names)))
    ward.watch()
    numbers = [sick.lane.number if sick.lane else None for sick in ward._sick.values()]
    assert numbers == [*range(1, at.LANE_COUNT), None]
    ward.stop()
    ward.release(names[3])
    ward.watch()
    watch(ward, names[-1], lane=4)
    ward.release(names[-1])


def test_a_trial_begins_with_nothing_asked_and_no_plan_applied(ring: RingFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    for which in (at.L_DEVICE, at.L_PLAN_APPLIED, at.L_FIFO, at.L_PINNED):
        ring.words[LANE + which] = 7
    lane = Lane(ring, 2)
    lane.start()
    eventually(lambda: lane.exit_status() == 1)
    assert [lane.word(which) for which in (at.L_DEVICE, at.L_PLAN_APPLIED, at.L_FIFO, at.L_PINNED)] == [
        *(0, 0, NOT_ASKED, NOT_ASKED)
    ]


@pytest.mark.parametrize(
    ("number", "words"),
    [(22, "EINVAL: Invalid argument"), (74, "what it holds is not a number"), (9999, "9999: Unknown error 9999")],
)
def test_an_errno_is_told_in_words(number: int, words: str) -> None:
    assert explain_errno(number) == words
