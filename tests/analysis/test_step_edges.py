"""Edges of steps against closed forms: steps whose beginnings and ends are known exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.base.units import MILLISECOND_NS
from ibpulse.core.arrays import Floats
from ibpulse.core.statistics.steps.edges import EdgeTimes, StepEdges, find_step_edges
from ibpulse.core.statistics.steps.runs import SILENT_PART

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


def edges(rates: Floats) -> StepEdges:
    return find_step_edges(rates, round(INTERVAL * MILLISECOND_NS), LINE)


def in_ms(times: EdgeTimes) -> tuple[Floats, Floats, Floats]:
    return times.low / MILLISECOND_NS, times.at / MILLISECOND_NS, times.high / MILLISECOND_NS


@given(late_ms=st.floats(0, 90), level=st.floats(0.2, 1.0), period_ms=st.floats(280, 420))
def test_the_true_edges_lie_within_their_bounds_and_the_estimate_is_exact_at_a_plateau(
    late_ms: float, level: float, period_ms: float
) -> None:
    found = edges(traffic(late_ms, level=level, period_ms=period_ms))
    assert len(found) == STEPS - 1
    begin = period_ms * np.arange(1, STEPS) + 53.0
    # a sample that is active for less than the threshold counts as idle, so the edge moves by that part of it
    slack = SILENT_PART * INTERVAL + 1e-6
    for times, true in (
        (found.times.transmit, begin + late_ms),
        (found.times.receive, begin),
        (found.times.end_before, begin - 53.0 - period_ms + 240.0),
        (found.transmit_end, begin - 53.0 - period_ms + 240.0),
    ):
        low, at, high = in_ms(times)
        assert (low - slack <= true).all()
        assert (true <= high + slack).all()
        assert np.abs(at - true)[times.resolved].max(initial=0.0) <= slack
        assert times.resolved.all()


def test_a_burst_of_one_sample_has_no_plateau_so_its_edge_is_the_middle() -> None:
    rates = traffic(20.0)
    # 0.5 ms at the beginning of each step, as what a node sends ahead
    for step in range(STEPS):
        rates[0] += 0.8 * LINE * busy_between(step * 313.0 + 53.0, step * 313.0 + 53.5, rates.shape[1])
    found = edges(rates).times.transmit
    assert not found.resolved.any()
    assert found.at == pytest.approx((found.low + found.high) / 2)
    low, _, high = in_ms(found)
    true = 313.0 * np.arange(1, STEPS) + 53.0
    assert ((low <= true) & (true <= high)).all()


def test_only_silences_of_a_given_length_separate_steps() -> None:
    rates = traffic()
    # a pause of 50 ms within every step; the silences between steps have 126 ms
    for step in range(STEPS):
        rates[:, (np.arange(5) + (step * 313 + 110) // 10)] = 0.0
    assert len(edges(rates)) == STEPS - 1
    assert len(find_step_edges(rates, 10_000_000, LINE, least_idle=3)) == 2 * STEPS - 1


@pytest.mark.parametrize(("missing", "known"), [(5, STEPS - 1), (6, STEPS - 2)])
def test_a_silence_with_much_missing_data_in_a_row_says_nothing(missing: int, known: int) -> None:
    rates = traffic()
    rates[:, 27 : 27 + missing] = np.nan
    assert len(edges(rates)) == known


def test_missing_data_within_traffic_is_no_silence() -> None:
    rates = traffic(period_ms=260.0)
    usual = edges(rates).times.transmit.at
    assert len(usual) == STEPS - 1
    rates[:, 10:15] = np.nan
    assert edges(rates).times.transmit.at == pytest.approx(usual)


def test_missing_data_at_an_edge_widens_it() -> None:
    rates = traffic()
    whole = edges(rates).times.transmit
    # the second step begins at 366 ms
    rates[:, 36:38] = np.nan
    cut = edges(rates).times.transmit
    assert cut.low[0] <= 366e6 <= cut.high[0]
    assert not cut.resolved[0]
    assert cut.high[0] - cut.low[0] > whole.high[0] - whole.low[0]


def test_an_edge_after_much_missing_data_is_not_known() -> None:
    rates = traffic()
    rates[0, 30:37] = np.nan
    found = edges(rates).times
    assert np.isnan(found.transmit.at[0]) or found.transmit.high[0] >= 366e6


@pytest.mark.parametrize("rates", [np.zeros((2, 100)), np.full((2, 100), np.nan), np.zeros((2, 0))])
def test_silence_has_no_steps(rates: Floats) -> None:
    assert len(edges(rates)) == 0
