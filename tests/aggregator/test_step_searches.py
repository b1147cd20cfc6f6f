"""The searches for step periods of a node and its jobs take turns, and equal ones are made once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from ibpulse.agent.aggregator import Aggregator, AggregatorOptions
from ibpulse.agent.aggregator.last_minute import (
    EVERY_SECONDS,
    StepSearch,
    StepWatch,
    measure_step,
    plan_search,
    search_next,
)
from ibpulse.base.units import SECOND_NS
from ibpulse.core.jobs import Claim, PlacedJob
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.spans import place_ports
from tests.aggregator.rings import Ring, constant, port, square

RAILS, QUIET = 8, constant(0.0)
WINDOW_NS = 12 * SECOND_NS
PERIODS = {"mlx5_0:1": 50, "mlx5_1:1": 40}


def ring_of(path: Path, seconds: int) -> Ring:
    """A ring with eight rails, each of which is busy for a half of its period."""
    ring = Ring.create(path, *(port(f"mlx5_{number}:1") for number in range(RAILS)), seconds=seconds + 5)
    for number in range(RAILS):
        half = PERIODS.get(f"mlx5_{number}:1", 30) // 2
        ring.write(f"mlx5_{number}:1", (square(8e9, half, half), QUIET), 1, (seconds + 1) * ring.ticks_per_second)
    return ring


def searches_in(ring: Ring, groups: Sequence[Sequence[int]], window_ns: int = WINDOW_NS) -> list[StepSearch]:
    placed = place_ports(ring.reader, ring.fabric.ports, ring.file.slots())
    return [plan_search([placed[index] for index in group], [1] * len(group), window_ns) for group in groups]


@pytest.mark.parametrize(("jobs", "interval"), [(0, 10), (1, 10), (4, 10), (8, 10)])
def test_each_search_has_its_turn_and_no_second_has_two(tmp_path: Path, jobs: int, interval: int) -> None:
    ring = ring_of(tmp_path, 14)
    searches = searches_in(ring, [range(RAILS), *([number] for number in range(jobs))], 2 * SECOND_NS)
    wanted = [(StepWatch(), search) for search in searches]
    done: list[list[int]] = [[] for _ in wanted]
    for second in range(3, 48):
        search_next(ring.reader, wanted, second)
        now = [index for index, (watch, _) in enumerate(wanted) if watch.second == second]
        assert len(now) <= 1
        for index in now:
            done[index].append(second)
    assert [seconds[0] for seconds in done] == [3 + index for index in range(jobs + 1)]
    assert {after - before for seconds in done for before, after in pairwise(seconds)} == {interval}


def test_a_search_finds_what_measuring_the_same_rails_finds(tmp_path: Path) -> None:
    ring = ring_of(tmp_path, 14)
    wanted = [(StepWatch(), search) for search in searches_in(ring, [[0], [1]])]
    for second in (13, 14):
        search_next(ring.reader, wanted, second)
    for (watch, search), second in zip(wanted, (13, 14), strict=True):
        assert watch.found == measure_step(ring.reader, search.rails, search.resolutions, second * 100, WINDOW_NS)
        assert watch.found is not None
        assert watch.found.seconds == pytest.approx(PERIODS[str(search.rails[0].port.id)] / 100, rel=0.02)


def test_equal_searches_are_one_and_others_are_not(tmp_path: Path) -> None:
    ring = ring_of(tmp_path, 14)
    (node, part), (shorter,) = searches_in(ring, [range(RAILS), [0]]), searches_in(ring, [range(RAILS)], SECOND_NS)
    watches = [StepWatch() for _ in range(4)]
    search_next(ring.reader, list(zip(watches, (node, node, part, shorter), strict=True)), 14)
    assert [watch.second == 14 for watch in watches] == [True, True, False, False]
    assert watches[0].found == watches[1].found


def test_the_only_job_of_a_node_has_the_step_of_the_node_after_one_window(tmp_path: Path) -> None:
    """Until then its search covers only the seconds of the job."""
    ring = ring_of(tmp_path, 50)
    aggregator = Aggregator(ring.reader, AggregatorOptions(traffic_window_ns=WINDOW_NS))
    job = PlacedJob(Claim("a", "slurm", "file"), tuple(each.id for each in ring.fabric.ports), "alone")
    shared, searched = set(), set()
    for second in range(1, 49):
        tick = ring.now_after(second)
        ring.file.words[at.lane_at(0) + at.L_TICK] = tick
        found = aggregator.update(ring.fabric, tick, jobs=[job] if second > 3 else [])
        if second > 3 + WINDOW_NS // SECOND_NS + EVERY_SECONDS:
            (statistics,) = found.job_statistics
            shared.add(statistics.step_seconds == found.traffic.concluded.step_period_seconds)
            searched.add(found.traffic.concluded.step_period_seconds)
    assert shared == {True}
    assert len(searched) > 1
