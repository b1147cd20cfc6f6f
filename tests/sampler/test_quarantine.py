"""When a hung device is released, on a clock that the test moves, with fake processes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from ibpulse.agent.sampler.lane import EndingProcesses, Lane
from ibpulse.agent.sampler.plan import Plan, PlannedPort
from ibpulse.agent.sampler.process import MAIN_LANE
from ibpulse.agent.sampler.quarantine import STEADY_SECONDS_MAX, Quarantine
from ibpulse.base.units import SECOND_NS
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile

LANE = at.lane_at(1)
LOOK_SECONDS = 0.125
STEADY_SECONDS = 2.0


class FakeProcess:
    """A process that runs until it is killed."""

    started = 0
    newest: ClassVar[FakeProcess]

    def __init__(self, ring: Path, lane: int) -> None:
        FakeProcess.started += 1
        FakeProcess.newest = self
        self.status: int | None = None

    def poll(self) -> int | None:
        return self.status

    def kill(self) -> None:
        self.status = -9


class Trial:
    """The device mlx5_0 in quarantine, looked at every eighth of a second."""

    def __init__(self, ring: RingFile) -> None:
        self.now = 1000.0
        FakeProcess.started = 0
        self.words = ring.words
        self.quarantine = Quarantine(ring, STEADY_SECONDS, EndingProcesses(), clock=self, start_process=FakeProcess)
        self.quarantine.add("mlx5_0")
        self.quarantine.write_plans(Plan(1, 1, ports=(PlannedPort(0, "mlx5_0", ("/x",), ("/y",)),)))
        assert self.quarantine.poll() == []
        self.words[LANE + at.L_PLAN_APPLIED] = 1

    def monotonic(self) -> float:
        return self.now

    def look(self, seconds: float, *, hung: bool = False, looks_per_tick: int = 1) -> float | None:
        """Look for so long; after how many seconds the device was released, None if it was not."""
        for look in range(1, round(seconds / LOOK_SECONDS) + 1):
            self.now += LOOK_SECONDS
            self.words[LANE + at.L_DEVICE] = int(hung)
            if not hung and looks_per_tick and look % looks_per_tick == 0:
                self.words[LANE + at.L_HEARTBEAT_NS] = int(self.now * 1e9)
                self.words[LANE + at.L_TICKS] += 1
            if self.quarantine.poll():
                return look * LOOK_SECONDS
        return None


@pytest.fixture
def trial(ring: RingFile) -> Trial:
    return Trial(ring)


def test_a_device_is_released_once_it_has_responded_for_longer_than_needed(trial: Trial) -> None:
    # the time begins with the first look that finds it steady, and has to be exceeded
    assert trial.look(10) == STEADY_SECONDS + 2 * LOOK_SECONDS
    assert FakeProcess.started == 1


def test_a_device_that_hangs_again_during_its_trial_starts_over(trial: Trial) -> None:
    assert trial.look(1.5) is None
    assert trial.look(2, hung=True) is None
    assert trial.quarantine.silent_devices == ("mlx5_0",)
    assert trial.look(10) == STEADY_SECONDS + 2 * LOOK_SECONDS


def test_a_slow_device_has_a_process_of_its_own_once_the_main_one_no_longer_reads_it(trial: Trial) -> None:
    trial.quarantine.release("mlx5_0")
    started, applied = FakeProcess.started, at.lane_at(MAIN_LANE) + at.L_PLAN_APPLIED
    trial.words[applied] = 6
    trial.quarantine.keep_slow({"mlx5_0"}, 7)
    assert (trial.look(1), FakeProcess.started) == (None, started)
    trial.words[applied] = 7
    # it is never released for answering
    assert (trial.look(700), FakeProcess.started) == (None, started + 1)


def test_a_device_stays_silent_until_it_has_responded_for_a_second(trial: Trial) -> None:
    assert trial.look(1) is None
    assert trial.quarantine.silent_devices == ("mlx5_0",)
    assert trial.look(0.5) is None
    assert trial.quarantine.silent_devices == ()


def test_time_in_which_the_supervisor_slept_is_no_stall(ring: RingFile) -> None:
    """As after a suspend: the sampler's last heartbeat is from before, and its next is not there yet."""
    now = 1000.0
    lane = Lane(ring, 1, clock=SimpleNamespace(monotonic=lambda: now))

    def look(seconds: float, heartbeat: float) -> float:
        nonlocal now
        now += seconds
        ring.words[LANE + at.L_HEARTBEAT_NS] = round(heartbeat * 1e9)
        return lane.poll().seconds

    assert [look(0.125, now), look(0.125, now + 0.125)] == [0.0, 0.0]
    heartbeat = now + 0.0625
    assert [look(seconds, heartbeat) for seconds in (10.0, 0.125, 0.125, 0.125)] == [0.0, 0.0, 0.0, 0.375]


def test_a_new_plan_releases_slow_devices_that_are_no_longer_slow_and_never_a_hung_one(trial: Trial) -> None:
    for slow, held in ((["mlx5_1", "mlx5_2"], ("mlx5_0", "mlx5_1", "mlx5_2")), ([], ("mlx5_0",))):
        trial.quarantine.keep_slow(slow, 1)
        assert trial.quarantine.devices == held
        assert trial.quarantine.hung_devices == ("mlx5_0",)


def test_a_slow_device_that_hangs_stays_in_its_process(trial: Trial) -> None:
    trial.quarantine.release("mlx5_0")
    trial.quarantine.keep_slow(["mlx5_0"], 0)
    assert trial.look(1) is None
    trial.words[LANE + at.L_PLAN_APPLIED] = 1
    started = FakeProcess.started
    assert (trial.look(1), trial.quarantine.hung_devices) == (None, ())
    assert (trial.look(2, hung=True), trial.quarantine.hung_devices) == (None, ("mlx5_0",))
    assert FakeProcess.started == started


def test_a_device_sampled_once_a_second_recovers_too(tmp_path: Path) -> None:
    """Between two of its ticks there is no sign of life for far longer than a hung read."""
    trial = Trial(RingFile.create(tmp_path / "slow", SECOND_NS, 10))
    released = trial.look(10, looks_per_tick=8)
    assert released is not None
    assert STEADY_SECONDS < released < STEADY_SECONDS + 2


@pytest.mark.parametrize("stops", [False, True])
def test_an_isolated_process_that_stops_or_ends_is_restarted(trial: Trial, stops: bool) -> None:
    assert trial.look(1) is None
    if not stops:
        FakeProcess.newest.kill()
    assert trial.look(3, looks_per_tick=0) is None
    assert (FakeProcess.started, trial.quarantine.devices) == (2, ("mlx5_0",))


def test_each_hang_doubles_the_time_of_good_answers_that_is_asked_for(ring: RingFile) -> None:
    quarantine = Quarantine(ring, 10.0, EndingProcesses(), start_process=FakeProcess)
    needed = []
    for _ in range(2000):
        quarantine.add("mlx5_0")
        needed.append(quarantine._held["mlx5_0"].steady_needed)
        quarantine.release("mlx5_0")
    assert needed[:8] == [10, 20, 40, 80, 160, 320, 600, 600]
    assert needed[-1] == STEADY_SECONDS_MAX


def test_a_hung_device_waits_while_all_lanes_are_taken(trial: Trial) -> None:
    quarantine, names = trial.quarantine, [f"mlx5_{number}" for number in range(at.LANE_COUNT)]
    for name in names[1:]:
        quarantine.add(name)
    ports = tuple(PlannedPort(slot, name, ("/x",), ("/y",)) for slot, name in enumerate(names))
    quarantine.write_plans(Plan(2, 1, ports=ports))
    quarantine.poll()
    lanes = [held.lane.number if held.lane else None for held in quarantine._held.values()]
    assert lanes == [*range(1, at.LANE_COUNT), None]
    quarantine.release(names[3])
    quarantine.poll()
    assert quarantine._held[names[-1]].lane.number == 4
