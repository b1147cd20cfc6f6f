"""Lateness of synthetic fleets, whose truth is known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.synthetic_fleet import FleetPlan, SyntheticFleet
from ibpulse.base.units import MILLISECOND_NS
from ibpulse.core.statistics.lateness import ClockOffset, Lateness, compare_nodes, match_steps, medians_of_others
from ibpulse.core.statistics.steps.edges import EdgeTimes, StepTimes

LATE = 2


def found_in(plan: FleetPlan, clocks: Mapping[str, ClockOffset] | None = None) -> dict[str, Lateness]:
    fleet = SyntheticFleet(plan)
    return compare_nodes(fleet.step_times(), fleet.clocks() if clocks is None else clocks)


def late_nodes(found: Mapping[str, Lateness]) -> list[str]:
    return [name for name, each in found.items() if each.late]


@pytest.mark.parametrize("clock_ms", [0.1, 2.0, 30.0])
@pytest.mark.parametrize(("late_ms", "named"), [(0.0, False), (1.0, False), (5.0, True), (20.0, True)])
def test_lateness_beyond_the_threshold_is_named_with_any_clocks(late_ms: float, named: bool, clock_ms: float) -> None:
    found = found_in(FleetPlan(late_ms={LATE: late_ms}, clock_ms=clock_ms, seed=3))
    assert late_nodes(found) == (["node3"] if named else [])
    late = found["node3"]
    assert abs(late.lateness_ms - late_ms) <= late.uncertainty_ms


def test_estimate_at_the_threshold_is_right() -> None:
    runs = [found_in(FleetPlan(steps=20, late_ms={LATE: 2.0}, seed=seed)) for seed in range(12)]
    assert median(each["node3"].lateness_ms for each in runs) == pytest.approx(2.0, abs=0.3)
    assert {name for each in runs for name in late_nodes(each)} <= {"node3"}


@pytest.mark.parametrize("seed", range(8))
def test_nobody_is_named_without_lateness(seed: int) -> None:
    plan = FleetPlan(nodes=4 + 2 * seed, steps=20, jitter_ms=1.0 + seed / 4, missing=0.01 * (seed % 3), seed=seed)
    assert late_nodes(found_in(plan)) == []


def test_ring_shows_only_lateness_beyond_a_sample() -> None:
    late = {late_ms: found_in(FleetPlan(late_ms={LATE: late_ms}, ring=True, seed=1)) for late_ms in (2.0, 20.0)}
    assert late_nodes(late[2.0]) == []
    assert late_nodes(late[20.0]) == ["node3"]
    # it receives on time and transmits late; the next one transmits before it receives
    own = {name: each.own.ms for name, each in late[20.0].items() if each.own}
    assert own["node3"] == pytest.approx(20.0, abs=6.0)
    assert own["node4"] == pytest.approx(-20.0, abs=6.0)
    assert [name for name, each in late[20.0].items() if each.own and each.own.stands_out] == ["node3"]


def test_fewer_than_three_peers_name_nobody() -> None:
    for nodes, named in ((2, []), (3, []), (4, ["node2"])):
        found = found_in(FleetPlan(nodes=nodes, late_ms={1: 20.0}))
        assert late_nodes(found) == named
        assert [each.peers for each in found.values()] == [nodes - 1] * nodes
        assert found["node2"].lateness_ms == pytest.approx(20.0, abs=2.0)


@pytest.mark.parametrize(("nodes", "named"), [(4, False), (6, False), (8, True)])
def test_few_peers_need_the_own_edges(nodes: int, named: bool) -> None:
    """A node begins 5 ms late in every step; when it receives is not known, or it receives as late as it transmits."""
    starts = [300.0 * step for step in range(20)]
    ends, unknown = edges([start - 100.0 for start in starts]), edges([math.nan] * len(starts))
    begins = {f"node{number}": edges([start + 5.0 * (number == 1) for start in starts]) for number in range(nodes)}
    for receive, late in ((unknown, named), (None, False)):
        found = compare_nodes(
            {node: StepTimes(ends, own, receive or own, 10 * MILLISECOND_NS) for node, own in begins.items()}
        )
        assert late_nodes(found) == (["node1"] if late else [])


def test_neither_wrong_clocks_nor_stages_make_a_node_late() -> None:
    fleet = SyntheticFleet(FleetPlan(clocks_ms={5: 8.0}))
    found = compare_nodes(fleet.step_times(), fleet.clocks(0.1, claimed_ms={5: 0.0}))
    assert late_nodes(found) == []
    assert [name for name, each in found.items() if each.ends_apart] == ["node6"]
    apart = found["node6"].ends
    assert apart.ms == pytest.approx(8.0, abs=0.7)
    found = found_in(FleetPlan(stage_ms={6: 30.0, 7: 30.0}, late_ms={6: 12.0, 7: 12.0}))
    assert late_nodes(found) == []
    assert [name for name, each in found.items() if each.ends_apart] == ["node7", "node8"]
    found = found_in(FleetPlan(late_ms={LATE: 5.0}, clock_ms=2.0), clocks={})
    assert late_nodes(found) == ["node3"]
    assert all(each.ends is None for each in found.values())


@pytest.mark.parametrize("missing", [0.01, 0.05])
def test_missing_data_makes_and_hides_nobody_late(missing: float) -> None:
    assert late_nodes(found_in(FleetPlan(late_ms={LATE: 20.0}, missing=missing))) == ["node3"]
    assert late_nodes(found_in(FleetPlan(missing=missing))) == []


def test_steps_in_phase_with_samples_have_wide_bounds() -> None:
    plan = FleetPlan(ring=True, late_ms={LATE: 20.0}, period_ms=320.0, jitter_ms=0.0, ends_ms=0.0, clock_ms=0.0)
    assert found_in(plan)["node1"].uncertainty_ms > 4.0
    spread = found_in(FleetPlan(ring=True, late_ms={LATE: 20.0}, period_ms=313.7, jitter_ms=0.0, clock_ms=0.0))
    assert spread["node1"].uncertainty_ms < 4.0


def test_steps_match_the_nearest_and_are_shifted_together() -> None:
    whole = 100.0 * np.arange(6)
    places = match_steps([whole, whole[2:] + 5.0, np.delete(whole, 3) - 5.0, whole[:0]])
    assert places.tolist() == [
        [0, 1, 2, 3, 4, 5],
        [-1, -1, 0, 1, 2, 3],
        [0, 1, 2, -1, 3, 4],
        [-1, -1, -1, -1, -1, -1],
    ]
    times = SyntheticFleet(FleetPlan(nodes=1)).step_times()["node1"]
    later = times.shifted(5.0 * MILLISECOND_NS)
    assert later.transmit.at - times.transmit.at == pytest.approx(5e6)
    assert later.end_before.high - times.end_before.high == pytest.approx(5e6)
    fleet = SyntheticFleet(FleetPlan(nodes=2, steps=3))
    assert compare_nodes(fleet.step_times()) == {}
    one = SyntheticFleet(FleetPlan(nodes=1))
    assert compare_nodes(one.step_times()) == {}


@given(
    st.lists(st.lists(st.one_of(st.none(), st.integers(-5, 5)), min_size=3, max_size=3), min_size=1, max_size=9),
)
def test_median_of_others_excludes_the_own_value(rows: list[list[float | None]]) -> None:
    values = np.array([[np.nan if each is None else each for each in row] for row in rows], dtype=np.float64)
    found = medians_of_others(values)
    for (row, column), value in np.ndenumerate(values):
        others = [each for each in np.delete(values[:, column], row).tolist() if each == each]
        expected = median(others) if others and value == value else np.nan
        assert found[row, column] == pytest.approx(expected, nan_ok=True)


def edges(at_ms: list[float], wide_ms: float = 0.0) -> EdgeTimes:
    """Edges that are known exactly, or only as the middles of ranges."""
    times, half = np.array(at_ms) * MILLISECOND_NS, wide_ms * MILLISECOND_NS / 2
    return EdgeTimes(times - half, times, times + half, np.full(len(times), not wide_ms))


def test_bounds_cover_ends_unresolved_edges_and_clocks() -> None:
    """Four nodes begin every step together, but on one the end before is always 0.4 ms earlier."""
    starts = [300.0 * step for step in range(20)]
    ends = {f"node{number}": [start - 100.0 - (0.4 if number == 1 else 0.0) for start in starts] for number in range(4)}
    found = compare_nodes(
        {node: StepTimes(edges(own), edges(starts), edges(starts), 10 * MILLISECOND_NS) for node, own in ends.items()}
    )
    assert found["node1"].lateness_ms == pytest.approx(0.4)
    assert [each.uncertainty_ms for each in found.values()] == pytest.approx([0.5] * 4)
    # steps of 300 ms end at the same part of every sample of 10 ms, so the middles err alike in each step
    exact = edges([start - 100.0 for start in starts])
    wide = {"a": 2.0, "b": 4.0, "c": 4.0, "d": 4.0}
    found = compare_nodes(
        {node: StepTimes(exact, edges(starts, each), edges(starts), 10 * MILLISECOND_NS) for node, each in wide.items()}
    )
    # half of the own range, half of the median range of the others, and what the ends differ by
    assert [each.uncertainty_ms for each in found.values()] == pytest.approx([3.5, 4.5, 4.5, 4.5])
    ends = edges([start - 100.0 for start in starts])
    nodes = {name: StepTimes(ends, edges(starts), edges(starts), 10 * MILLISECOND_NS) for name in "abcd"}
    clocks = {name: ClockOffset(0, 200_000 if name == "a" else 300_000) for name in nodes}
    own, *others = [each.ends for each in compare_nodes(nodes, clocks).values()]
    assert own.uncertainty_ms == pytest.approx(0.2 + 0.3 + 0.5)
    assert [each.uncertainty_ms for each in others if each] == pytest.approx([0.3 + 0.3 + 0.5] * 3)
