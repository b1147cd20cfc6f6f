"""Until when each direction of a job's rails moved bytes, and the step that a silent job had."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from ibpulse.agent.aggregator import Aggregator, AggregatorOptions
from ibpulse.agent.aggregator.snapshot import JobSnapshot, LastTraffic
from ibpulse.core.jobs import Claim, PlacedJob
from ibpulse.core.model import PortId
from tests.aggregator.rings import MS, Ring, Traffic, constant, port, square

NAME = "mlx5_0:1"
JOB = PlacedJob(Claim("a", "slurm", "file"), (PortId("mlx5_0", 1),), "gpus")
QUIET, BUSY = constant(0.0), constant(10e9)


def until(tick: int, traffic: Traffic = BUSY) -> Traffic:
    """Traffic that ends with a tick."""
    return lambda now: traffic(now) if now <= tick else 0.0


def play(
    path: Path, seconds: int, transmit: Traffic, receive: Traffic = QUIET, holes: Collection[int] = ()
) -> list[JobSnapshot]:
    """The statistics of the job after each second, which all are before it is over."""
    ring = Ring.create(path, port(NAME), seconds=60)
    aggregator = Aggregator(ring.reader, AggregatorOptions())
    counters, written, found = (1000, 2000), 0, []
    for second in range(1, seconds + 1):
        last = ring.now_after(second)
        counters = ring.write(NAME, (transmit, receive), written + 1, last, start=counters, holes=holes)
        written = last
        snapshot = aggregator.update(ring.fabric, last, jobs=[JOB])
        found.append(snapshot.statistics_of(JOB.claim.key))
    assert found[-1] is not None
    return [each for each in found if each]


def between(low_tick: int, high_tick: int) -> LastTraffic:
    return LastTraffic(low_tick * 10 * MS, high_tick * 10 * MS)


def test_each_direction_ended_within_its_last_sample(tmp_path: Path) -> None:
    found = play(tmp_path, 12, until(705), until(731))[-1]
    assert found.silences == (between(730, 731), between(704, 705), between(730, 731))
    assert found.known_until_ns == 12_000 * MS


def test_traffic_that_goes_on_ends_at_the_newest_sample(tmp_path: Path) -> None:
    found = play(tmp_path, 5, constant(10e9))[-1]
    assert found.silences == (between(499, 500), between(499, 500), None)


def test_missing_samples_after_the_last_traffic_widen_its_bounds(tmp_path: Path) -> None:
    # the rate of 720 is missing, too
    found = play(tmp_path, 12, until(705), holes=range(706, 720))[-1]
    assert found.silences[0] == between(704, 720)


@pytest.mark.parametrize("seconds", [2, 70], ids=["within the history", "beyond the history"])
@pytest.mark.parametrize("moved", [False, True])
def test_seconds_without_samples_end_a_silence_only_if_bytes_moved(tmp_path: Path, seconds: int, moved: bool) -> None:
    hidden = range(900, 905) if moved else ()
    end = 800 + 100 * seconds
    holes = range(800, end)
    found = play(tmp_path, 12 + seconds, lambda tick: 10e9 if tick <= 705 or tick in hidden else 0.0, holes=holes)[-1]
    assert found.silences[1] == (between(704, end) if moved else between(704, 705))
    assert found.silences[2] is None


def test_the_step_of_a_silent_job_stays_that_of_its_last_steps(tmp_path: Path) -> None:
    found = play(tmp_path, 110, until(2010, square(10e9, 20, 30)))
    steps = [each.step_seconds for each in found[19:]]
    assert steps[0] == pytest.approx(0.5, rel=0.02)
    assert set(steps) == {steps[0]}
