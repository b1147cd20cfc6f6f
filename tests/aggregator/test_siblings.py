"""Rails are compared with those of the same jobs, in closed form: two jobs on four rails each, one of them silent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from ibpulse.agent.aggregator import Aggregator, AggregatorOptions, Snapshot, summarize
from ibpulse.base.units import SECOND_NS
from ibpulse.core.answers.summary import RailStatistics, Summary
from ibpulse.core.events import Event, PortHistory
from ibpulse.core.jobs import Claim, Holding, JobRecord, PlacedJob
from ibpulse.core.model import PortId
from tests.aggregator.rings import Ring, Traffic, constant, port

EIGHT = tuple(f"mlx5_{number}:1" for number in range(8))
QUIET, BUSY = constant(0.0), constant(20e9)
Jobs = Sequence[PlacedJob]


def job(name: str, *numbers: int) -> PlacedJob:
    return PlacedJob(Claim(name, "slurm", "file"), tuple(PortId(f"mlx5_{number}", 1) for number in numbers), "gpus")


A, B, ALL = job("a", 0, 1, 2, 3), job("b", 4, 5, 6, 7), job("c", *range(8))


def until(second: int, before: Traffic, after: Traffic) -> Traffic:
    return lambda tick: before(tick) if tick <= 100 * second else after(tick)


def traffic(first: Traffic, second: Traffic, **odd: Traffic) -> Mapping[str, Traffic]:
    """What the rails of the first and of the second job send, but for the odd ones."""
    usual = {name: first if number < 4 else second for number, name in enumerate(EIGHT)}
    return usual | {f"{name}:1": each for name, each in odd.items()}


class Writer:
    """A ring to which eight rails write up to a second, as the sampler does."""

    def __init__(self, path: Path, flows: Mapping[str, Traffic]) -> None:
        path.mkdir(exist_ok=True)
        self.ring = Ring.create(path, *map(port, EIGHT))
        self._flows, self._counters = flows, dict.fromkeys(EIGHT, (1000, 2000))
        self._written = 0

    def write(self, second: int) -> int:
        """The tick at which the seconds before this one are complete."""
        newest = self.ring.now_after(second)
        for name, flow in self._flows.items():
            start = self._counters[name]
            self._counters[name] = self.ring.write(name, (flow, QUIET), self._written + 1, newest, start=start)
        self._written = newest
        return newest


def play(path: Path, flows: Mapping[str, Traffic], seconds: int, jobs: Callable[[int], Jobs | None]) -> list[Snapshot]:
    """The snapshots after the first second, the second one and so on."""
    writer = Writer(path, flows)
    aggregator = Aggregator(writer.ring.reader, AggregatorOptions())
    return [
        aggregator.update(writer.ring.fabric, writer.write(second), jobs=jobs(second))
        for second in range(1, seconds + 1)
    ]


def last(path: Path, flows: Mapping[str, Traffic], seconds: int, jobs: Callable[[int], Jobs | None]) -> Snapshot:
    return play(path, flows, seconds, jobs)[-1]


def rails(snapshot: Snapshot) -> dict[str, RailStatistics]:
    return {str(one.port.id): one.traffic.rail for one in snapshot.ports if one.traffic and one.traffic.rail}


def idle(snapshot: Snapshot) -> list[str]:
    return [name for name, rail in rails(snapshot).items() if rail.rail_idle]


def slow(snapshot: Snapshot) -> list[str]:
    return [name for name, rail in rails(snapshot).items() if rail.rail_slow]


def test_a_rail_of_a_busy_job_is_not_compared_with_rails_of_a_job_in_a_checkpoint(tmp_path: Path) -> None:
    checkpoint = traffic(BUSY, until(5, BUSY, QUIET))
    found = last(tmp_path / "jobs", checkpoint, 20, lambda _: [A, B])
    assert (idle(found), slow(found)) == ([], [])
    # the rails of the second job were active within the last minute
    assert (found.traffic.concluded.rail_fairness_ratio, found.rails.active_rails) == (pytest.approx(1.0), 8)
    # all rails together say something else
    alone = last(tmp_path / "none", checkpoint, 20, lambda _: None)
    assert idle(alone) == list(EIGHT[4:])
    assert alone.traffic.concluded.rail_fairness_ratio == pytest.approx(0.5)


def test_a_dead_rail_is_named_among_the_rails_of_its_job(tmp_path: Path) -> None:
    flows = traffic(BUSY, constant(2e9), mlx5_2=until(8, BUSY, QUIET), mlx5_6=constant(1e9))
    found = last(tmp_path, flows, 20, lambda _: [A, B])
    assert (idle(found), slow(found)) == (["mlx5_2:1"], ["mlx5_6:1"])
    # Jain's index of three equal rails of four, and of 2, 2, 2 and 1
    first, second = 3 / 4, 7**2 / (4 * 13)
    assert found.traffic.concluded.rail_fairness_ratio == pytest.approx(8 / (4 / first + 4 / second))
    assert rails(found)["mlx5_0:1"].rail_share_ratio == pytest.approx(1 / 3)
    assert rails(found)["mlx5_6:1"].rail_share_ratio == pytest.approx(1 / 7)
    assert found.rails.active_rails == 7


def test_rails_without_a_job_are_compared_with_each_other(tmp_path: Path) -> None:
    found = last(tmp_path, traffic(QUIET, BUSY, mlx5_7=QUIET), 12, lambda _: [A])
    assert idle(found) == ["mlx5_7:1"]
    assert found.traffic.concluded.rail_fairness_ratio == pytest.approx(3 / 4)


def test_a_rail_that_two_jobs_share_is_compared_with_none_of_their_own(tmp_path: Path) -> None:
    found = last(tmp_path, traffic(BUSY, BUSY, mlx5_3=QUIET), 12, lambda _: [A, job("b", *range(3, 8))])
    assert idle(found) == []
    assert found.traffic.concluded.rail_fairness_ratio == pytest.approx(1.0)


def test_one_job_on_all_rails_has_the_numbers_of_none(tmp_path: Path) -> None:
    flows = traffic(BUSY, constant(19e9), mlx5_2=QUIET, mlx5_6=constant(5e9))
    alone = last(tmp_path / "none", flows, 12, lambda _: None)
    cases: Mapping[str, Callable[[int], Jobs]] = {
        "one": lambda _: [ALL],
        "began": lambda second: [ALL] if second > 6 else [],
        "shared": lambda _: [ALL, job("d", *range(8))],
    }
    for name, jobs in cases.items():
        found = last(tmp_path / name, flows, 12, jobs)
        assert (rails(found), found.rails, found.traffic) == (rails(alone), alone.rails, alone.traffic)


def test_the_end_of_one_job_moves_no_number_of_the_rails_of_the_other(tmp_path: Path) -> None:
    flows = traffic(until(8, BUSY, QUIET), constant(8e9), mlx5_6=constant(5e9))
    for found in play(tmp_path, flows, 18, lambda second: [A, B] if second < 10 else [B])[3:]:
        standings = rails(found)
        assert [standings[name].rail_share_ratio for name in EIGHT[4:]] == pytest.approx(
            [8 / 29, 8 / 29, 5 / 29, 8 / 29]
        )
        assert (idle(found), slow(found)) == ([], ["mlx5_6:1"])


def test_what_rails_carried_for_other_jobs_is_no_reason_to_judge_them(tmp_path: Path) -> None:
    """The first job was busy and the second silent until a job on all rails began, whose rail 5 never sends."""
    flows = traffic(BUSY, until(10, QUIET, BUSY), mlx5_5=QUIET)
    for second, found in enumerate(play(tmp_path, flows, 17, lambda now: [A, B] if now < 11 else [ALL]), 1):
        # the change is noticed at 11 s
        assert idle(found) == (["mlx5_5:1"] if second >= 14 else [])
        assert slow(found) == []
        if second >= 14:
            assert found.traffic.concluded.rail_fairness_ratio == pytest.approx(7 / 8)
        assert found.rails.active_rails >= 4


def ask(ring: Ring, seconds: int, end: int, *records: JobRecord) -> Summary:
    known, end_ns, now_ns = ring.fabric.ports, end * SECOND_NS, 60 * SECOND_NS
    return summarize(ring.reader, known, PortHistory(), AggregatorOptions(), seconds, end_ns, now_ns, jobs=records)


def test_a_summary_compares_the_rails_of_the_jobs_of_its_time(tmp_path: Path) -> None:
    writer = Writer(tmp_path, traffic(BUSY, QUIET))
    writer.write(40)
    ring = writer.ring
    records = JobRecord(A, None), JobRecord(B, 22 * SECOND_NS, SECOND_NS, 35 * SECOND_NS)

    def silent(seconds: int, end: int, *records: JobRecord) -> list[str]:
        return [one.port for one in ask(ring, seconds, end, *records).ports if one.rail_idle]

    assert silent(5, 30) == list(EIGHT[4:])
    for end in (10, 30, 39):
        assert silent(5, end, *records) == []
    assert ask(ring, 5, 30, *records).node.rail_fairness_ratio == pytest.approx(1.0)
    # before the first, between both and after the second, they have different jobs
    apart = JobRecord(A, 5 * SECOND_NS, 0, 20 * SECOND_NS), JobRecord(B, 22 * SECOND_NS, 0, 35 * SECOND_NS)
    assert silent(3, 5, *apart) == silent(1, 22, *apart) == silent(3, 39, *apart) == list(EIGHT[4:])
    assert silent(3, 6, *apart) == silent(3, 23, *apart) == silent(3, 37, *apart) == []


def test_a_summary_compares_the_rails_that_a_job_had_in_its_time(tmp_path: Path) -> None:
    writer = Writer(tmp_path, traffic(BUSY, QUIET))
    writer.write(40)
    moved = JobRecord(A, 5 * SECOND_NS, 0, holdings=(Holding(A.ports),))
    moved = moved.changed(ALL, Event(20 * SECOND_NS, "job-change", "", "job a is on all rails"))
    assert [one.port for one in ask(writer.ring, 5, 15, moved).ports if one.rail_idle] == []
    assert [one.port for one in ask(writer.ring, 5, 30, moved).ports if one.rail_idle] == list(EIGHT[4:])


def test_a_port_that_is_not_a_rail_shifts_no_rail_into_another_group(tmp_path: Path) -> None:
    """The storage port comes first, and each job has rails that are not next to each other."""
    sent = {"mlx5_0:1": 40e9, "mlx5_1:1": 9e9, "mlx5_2:1": 20e9, "mlx5_3:1": 3e9, "mlx5_4:1": 20e9}
    ring = Ring.create(tmp_path, *(port(name, rail=name != "mlx5_0:1") for name in sent))
    for name, rate in sent.items():
        ring.write(name, (constant(rate), QUIET), 1, ring.now_after(5))
    jobs = [job("a", 3, 1), job("b", 2, 4)]
    found = Aggregator(ring.reader, AggregatorOptions()).update(ring.fabric, ring.now_after(5), jobs=jobs)
    shares = {
        one.port.id.device: one.traffic.rail.rail_share_ratio for one in found.ports if one.traffic and one.traffic.rail
    }
    assert shares == pytest.approx({"mlx5_1": 0.75, "mlx5_2": 0.5, "mlx5_3": 0.25, "mlx5_4": 0.5})
    assert found.traffic.concluded.rail_fairness_ratio == pytest.approx(4 / (2 / (12**2 / (2 * 90)) + 2 / 1))
