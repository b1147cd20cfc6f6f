"""Lateness and hot rails against closed forms: steps whose edges are known exactly."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.fleet.hot_rail import find_hot_rail
from ibpulse.fleet.lateness import (
    IDLE_PART,
    Floats,
    Lateness,
    StepEdges,
    compare_nodes,
    find_edges,
    medians_of_others,
)

INTERVAL, LINE, STEPS = 10.0, 50e9, 12


def busy_between(begin_ms: float, end_ms: float, samples: int) -> Floats:
    """The busy part of every sample of an interval in closed form."""
    starts = INTERVAL * np.arange(samples)
    return np.clip(np.minimum(starts + INTERVAL, end_ms) - np.maximum(starts, begin_ms), 0, INTERVAL) / INTERVAL


def traffic(late_ms: float = 0.0, shift_ms: float = 0.0, level: float = 0.8, period_ms: float = 313.0) -> Floats:
    """Steps that end together: this node transmits later by `late_ms`, and has a clock that is ahead by `shift_ms`."""
    samples = int(STEPS * period_ms / INTERVAL) + 20
    found = np.zeros((2, samples))
    for step in range(STEPS):
        begin, end = step * period_ms + 53.0 + shift_ms, step * period_ms + 240.0 + shift_ms
        found[0] += busy_between(begin + late_ms, end, samples)
        found[1] += busy_between(begin, end, samples)
    return found * level * LINE


def edges(rates: Floats) -> list[StepEdges]:
    return find_edges(rates, 0.0, INTERVAL, LINE)


def lateness_of(late_ms: float, shift_ms: float = 0.0, change: Callable[[Floats], None] | None = None) -> Lateness:
    rates = traffic(late_ms, shift_ms)
    if change:
        change(rates)
    steps = {f"node{number}": edges(traffic(shift_ms=3.1 * number)) for number in range(4)}
    return compare_nodes({**steps, "late": edges(rates)})["late"]


@given(late_ms=st.floats(0, 90), level=st.floats(0.2, 1.0), period_ms=st.floats(280, 420))
def test_the_true_edges_lie_within_their_bounds(late_ms: float, level: float, period_ms: float) -> None:
    rates = traffic(late_ms, level=level, period_ms=period_ms)
    # a sample that is active for less than the threshold counts as idle, so the edge moves by that part of it
    slack = IDLE_PART * INTERVAL
    found = edges(rates)
    assert len(found) == STEPS - 1
    for step, edge in enumerate(found, 1):
        begin = step * period_ms + 53.0
        assert edge.transmit.low - slack - 1e-6 <= begin + late_ms <= edge.transmit.high + 1e-6
        assert edge.end_before.low - 1e-6 <= begin - 53.0 - period_ms + 240.0 <= edge.end_before.high + slack + 1e-6


@pytest.mark.parametrize("late_ms", [40.0, 62.5])
@pytest.mark.parametrize("shift_ms", [0.0, -37.0, 50.0])
def test_a_late_node_is_late_by_as_much_whatever_its_clock_says(late_ms: float, shift_ms: float) -> None:
    found = lateness_of(late_ms, shift_ms)
    assert abs(found.lateness_ms - late_ms) <= found.uncertainty_ms + 1
    assert found.late


@pytest.mark.parametrize("late_ms", [0.0, 0.5, 3.0])
def test_a_lateness_below_its_uncertainty_is_not_claimed(late_ms: float) -> None:
    assert not lateness_of(late_ms, 17.0).late


def test_what_peers_send_ahead_into_buffers_is_their_first_transmission() -> None:
    def node(late_ms: float, shift_ms: float) -> list[StepEdges]:
        rates = traffic(20.0, shift_ms)
        # 0.5 ms at the beginning of each step, which then waits for the late node for 20 ms
        for step in range(STEPS) if not late_ms else ():
            begin = step * 313.0 + 53.0 + shift_ms
            rates[0] += 0.8 * LINE * busy_between(begin, begin + 0.5, rates.shape[1])
        return edges(rates)

    found = compare_nodes({"late": node(20.0, 1.7), **{f"node{shift}": node(0.0, shift) for shift in (0.0, 3.3, 7.9)}})
    assert [name for name, each in found.items() if each.late] == ["late"]
    assert abs(found["late"].lateness_ms - 20) <= found["late"].uncertainty_ms + 1


def test_short_missing_data_in_a_silence_makes_nobody_late() -> None:
    def lose(rates: Floats) -> None:
        rates[:, 33:36] = np.nan
        rates[:, 60:63] = np.nan

    assert not lateness_of(0.0, change=lose).late


@pytest.mark.parametrize(("missing", "known"), [(5, STEPS - 1), (6, STEPS - 2)])
def test_a_silence_with_much_missing_data_in_a_row_says_nothing(missing: int, known: int) -> None:
    rates = traffic()
    rates[:, 27 : 27 + missing] = np.nan
    assert len(edges(rates)) == known


def test_missing_data_within_traffic_is_no_silence() -> None:
    rates = traffic(period_ms=260.0)
    usual = edges(rates)
    assert len(usual) == STEPS - 1
    rates[:, 10:15] = np.nan
    assert edges(rates) == usual


def test_missing_data_at_an_edge_widens_it() -> None:
    rates = traffic()
    whole = edges(rates)
    # the second step begins at 366 ms
    rates[:, 36:38] = np.nan
    cut = edges(rates)
    assert cut[0].transmit.low <= 366 <= cut[0].transmit.high
    assert cut[0].transmit.uncertainty > whole[0].transmit.uncertainty


@given(st.lists(st.integers(-5, 5).map(float), min_size=2, max_size=12))
def test_the_median_of_the_others_is_that_without_the_own_value(values: list[float]) -> None:
    assert medians_of_others(values) == [median(values[:at] + values[at + 1 :]) for at in range(len(values))]


def test_nothing_is_said_of_one_node_or_of_silence() -> None:
    assert compare_nodes({"one": edges(traffic())}) == {}
    assert edges(np.zeros((2, 100))) == []
    assert edges(np.full((2, 100), np.nan)) == []
    assert edges(np.zeros((2, 0))) == []


def test_a_rail_is_hot_if_it_carries_most_on_most_nodes() -> None:
    usual = dict.fromkeys((f"mlx5_{number}:1" for number in range(8)), 10.0)
    hot = usual | {"mlx5_3:1": 20.0}
    found = find_hot_rail({"a": hot, "b": hot, "c": usual})
    assert found is not None
    assert (found.port, found.nodes) == ("mlx5_3:1", 2)
    assert found.share_ratio == pytest.approx(20 / 90)
    assert found.usual_ratio == pytest.approx(1 / 8)
    assert find_hot_rail({"a": hot, "b": usual}) is None
    assert find_hot_rail({"a": dict.fromkeys(usual, 0.0)}) is None
