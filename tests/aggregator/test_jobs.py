"""Two jobs on one node: each has its own statistics in closed form, whatever the other one does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ibpulse.agent.aggregator import AggregatorOptions
from ibpulse.agent.aggregator.jobs import JobTotals
from ibpulse.agent.aggregator.ports import PortTable
from ibpulse.agent.aggregator.snapshot import JobSnapshot
from ibpulse.agent.aggregator.traffic import RecentRates
from ibpulse.base.units import SECOND_NS
from ibpulse.core.jobs import Claim, PlacedJob
from ibpulse.core.model import PortId
from ibpulse.core.ring.spans import RingPort
from tests.aggregator.rings import MS, Player, Ring, Traffic, constant, port, square

QUIET = constant(0.0)
NAMES = tuple(f"mlx5_{number}:1" for number in range(4))
# period and duty cycle: 0.5 s and 0.4, 0.4 s and 0.5
FIRST, SECOND = square(5e9, 20, 30), square(8e9, 20, 20)


def job(name: str, *numbers: int, scheduler: str = "slurm") -> PlacedJob:
    return PlacedJob(Claim(name, scheduler, "file"), tuple(PortId(f"mlx5_{number}", 1) for number in numbers), "gpus")


A, B = job("a", 0, 1), job("b", 2, 3)
BOTH: dict[str, Traffic] = dict(zip(NAMES, (FIRST, FIRST, SECOND, square(4e9, 20, 20)), strict=True))


def statistics(player: Player, second: int, jobs: Sequence[PlacedJob]) -> dict[str, JobSnapshot]:
    """The statistics of the jobs after a second."""
    return {each.job_id: each for each in player.play(second, jobs).job_statistics}


def play(player: Player, seconds: int, jobs: Callable[[int], Sequence[PlacedJob]]) -> dict[str, JobSnapshot]:
    """The statistics after this many seconds, the first of which is without any job."""
    player.play(1, [])
    for second in range(2, seconds + 1):
        found = statistics(player, second, jobs(second))
    return found


def test_each_job_has_the_statistics_of_its_own_rails(tmp_path: Path) -> None:
    found = play(Player(tmp_path, BOTH), 18, lambda _: [A, B])
    assert set(found) == {"a", "b"}
    assert found["a"].duty_cycle_ratio == pytest.approx(0.4)
    assert found["b"].duty_cycle_ratio == pytest.approx(0.5, abs=0.01)
    assert found["a"].active_bytes_per_second == pytest.approx(10e9, rel=1e-6)
    assert found["b"].active_bytes_per_second == pytest.approx(12e9, rel=1e-6)
    assert found["a"].fairness == pytest.approx(1.0, rel=1e-6)
    assert found["b"].fairness == pytest.approx(0.9, rel=1e-6)
    assert found["a"].step_seconds == pytest.approx(0.5, rel=0.02)
    assert found["b"].step_seconds == pytest.approx(0.4, rel=0.02)
    assert found["a"].last_traffic_ns == 1770 * 10 * MS
    assert found["b"].last_traffic_ns == 1780 * 10 * MS


def test_the_end_of_one_job_moves_no_number_of_the_other(tmp_path: Path) -> None:
    one = play(Player(tmp_path / "one", BOTH), 14, lambda _: [A, B])
    ended = play(Player(tmp_path / "two", BOTH), 14, lambda second: [A, B] if second < 9 else [A])
    assert set(ended) == {"a"}
    assert ended["a"] == one["a"]


def test_traffic_from_before_a_job_is_not_its_own(tmp_path: Path) -> None:
    player = Player(tmp_path, BOTH)
    for second in range(1, 9):
        player.play(second, [B])
    player.flows |= dict.fromkeys(NAMES[:2], QUIET)
    for second in range(9, 13):
        # what the sampler has read already belongs to the second before
        found = statistics(player, second, [A, B] if second > 9 else [B])
    assert found["a"].duty_cycle_ratio == 0.0
    assert (found["a"].active_bytes_per_second, found["a"].last_traffic_ns) == (None, None)
    assert found["a"].fairness is None


def test_seconds_of_before_a_job_was_seen_are_not_its_own_even_if_they_are_counted_late(tmp_path: Path) -> None:
    """An aggregation that was held up counts several seconds at once."""
    player = Player(tmp_path, BOTH)
    player.play(1, [])
    player.flows |= dict.fromkeys(NAMES[:2], lambda tick: 5e9 if tick <= 400 else 0.0)
    found = statistics(player, 6, [A, B])
    assert (found["a"].duty_cycle_ratio, found["a"].active_bytes_per_second) == (0.0, None)
    assert (found["a"].last_traffic_ns, found["a"].fairness) == (None, None)
    # of its last second alone
    assert found["b"].last_traffic_ns == 580 * 10 * MS
    assert found["b"].duty_cycle_ratio == pytest.approx(0.4)


def test_a_job_that_ends_while_no_second_is_due_loses_its_statistics(tmp_path: Path) -> None:
    player = Player(tmp_path, BOTH)
    assert set(play(player, 3, lambda _: [A, B])) == {"a", "b"}
    assert set(statistics(player, 3, [B])) == {"b"}


def test_jobs_that_share_a_port_have_no_statistics(tmp_path: Path) -> None:
    assert set(play(Player(tmp_path, BOTH), 4, lambda _: [A, job("c", 1), B])) == {"b"}


def test_other_ports_begin_new_statistics(tmp_path: Path) -> None:
    found = play(Player(tmp_path, BOTH), 8, lambda second: [job("a", 0, 1) if second < 7 else job("a", 2)])
    assert found["a"].active_bytes_per_second == pytest.approx(8e9, rel=1e-6)
    assert found["a"].duty_cycle_ratio == pytest.approx(0.5)


def test_single_samples_are_unknown_for_a_job_whose_counters_are_slow(tmp_path: Path) -> None:
    """Every port is measured in turn, one per second."""
    found = play(
        Player(tmp_path, BOTH | dict.fromkeys(NAMES[:2], lambda tick: 5e9 if tick % 2 else 0.0)), 8, lambda _: [A, B]
    )
    assert (found["a"].duty_cycle_ratio, found["a"].active_bytes_per_second) == (None, None)
    # seven seconds, of 17.5 periods, begin with a gap
    assert found["b"].duty_cycle_ratio == pytest.approx(17 / 35)


def test_a_job_has_nothing_of_the_one_that_ended_before(tmp_path: Path) -> None:
    found = play(Player(tmp_path, BOTH), 8, lambda second: [A, B] if second < 6 else [B, job("c", 0)])
    assert found["c"].active_bytes_per_second == pytest.approx(5e9, rel=1e-6)
    assert found["c"].duty_cycle_ratio == pytest.approx(0.4)
    assert found["b"].active_bytes_per_second == pytest.approx(12e9, rel=1e-6)


def test_the_first_eight_jobs_keep_their_statistics(tmp_path: Path) -> None:
    """A node of 4 ports has at most 4 jobs with ports of their own; others have ports that the node does not know."""
    many = [job(f"{number:02}", number) for number in range(3, 12)]
    player = Player(tmp_path, BOTH)
    play(player, 3, lambda _: many)
    found = statistics(player, 4, [job("00", 0), *many])
    assert sorted(found) == [f"{number:02}" for number in range(3, 11)]


def test_one_id_of_two_schedulers_is_one_series(tmp_path: Path) -> None:
    found = Player(tmp_path, BOTH).play(1, [job("a", 0), job("a", 1, scheduler="flux")]).job_statistics
    assert [each.job_id for each in found] == ["a"]


def test_the_step_of_a_job_is_searched_where_the_job_ran(tmp_path: Path) -> None:
    """Not in the traffic of the job that had the ports before."""
    ring = Ring.create(tmp_path, port(NAMES[0]))
    totals = JobTotals(ring.reader, AggregatorOptions())
    rail = RingPort(ring.fabric.ports[0], 0, 1)
    table = PortTable(1e6, 60)
    rates = RecentRates([rail], table.rows_of([rail], NAMES)[0], table)
    totals.follow([job("a", 0)], 100)
    windows = [totals.conclude([rail], rates, [1], second, 0)[0][1].window_ns for second in (105, 10_000)]
    assert windows == [5 * SECOND_NS, AggregatorOptions().traffic_window_ns]


def play_alone(path: Path, seconds: int, transmit: Traffic, receive: Traffic) -> list[JobSnapshot]:
    """The statistics of a job after each second, which all are before it is over."""
    player, alone = Player(path, {NAMES[0]: (transmit, receive)}), job("a", 0)
    return [statistics(player, second, [alone])["a"] for second in range(1, seconds + 1)]


def until(tick: int, traffic: Traffic) -> Traffic:
    """Traffic that ends with a tick."""
    return lambda now: traffic(now) if now <= tick else 0.0


def test_the_last_traffic_is_that_of_either_direction(tmp_path: Path) -> None:
    found = play_alone(tmp_path, 12, until(705, constant(10e9)), until(731, constant(10e9)))
    expected = [*(1000 * second * MS for second in (5, 6, 7)), *[7310 * MS] * 5]
    assert [each.last_traffic_ns for each in found[4:]] == expected


def test_the_step_of_a_silent_job_stays_that_of_its_last_steps(tmp_path: Path) -> None:
    found = play_alone(tmp_path, 110, until(2010, square(10e9, 20, 30)), QUIET)
    steps = [each.step_seconds for each in found[19:]]
    assert steps[0] == pytest.approx(0.5, rel=0.02)
    assert set(steps) == {steps[0]}
