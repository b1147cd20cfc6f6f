"""The steps of series whose steps are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.base.units import MILLISECOND_NS
from ibpulse.core.arrays import Floats
from ibpulse.core.statistics.steps.edges import EdgeTimes, StepEdges, find_step_edges, find_steps
from ibpulse.core.statistics.steps.runs import SILENT_PART
from ibpulse.workbench.simulate.timeline import Schedule, Workload
from ibpulse.workbench.simulate.workloads import DENSE, MOE, Square

TICK_NS = 10_000_000


def rates_of(workload: Workload, seconds: int, tick_ns: int = TICK_NS) -> np.ndarray:
    """Exact rates in ticks of a workload that begins at 0."""
    edges = np.arange(seconds * 10**9 // tick_ns + 1) * tick_ns
    return np.diff(Schedule(workload, rails=1).cumulative_bytes(edges).sum(axis=(1, 2))) * (1e9 / tick_ns)


def square(period: int, busy: int, steps: int) -> np.ndarray:
    return np.tile(np.repeat([5.0, 0.0], [busy, period - busy]), steps)


@pytest.mark.parametrize("period", [8, 31, 100, 144])
def test_the_steps_of_a_wave_are_all_as_long_as_its_period_and_begin_at_an_edge(period: int) -> None:
    busy = period // 3
    found = find_steps(square(period, busy, 40), float(period))
    assert found.whole.all()
    assert len(found.bounds) >= 36
    np.testing.assert_allclose(np.diff(found.bounds), period, atol=1e-9)
    # the wave rises at multiples of its period
    away = np.minimum(found.bounds % period, period - found.bounds % period)
    np.testing.assert_allclose(np.minimum(away, np.abs(found.bounds % period - busy)), 0, atol=2)


@pytest.mark.parametrize(
    ("workload", "seconds", "tick_ns"),
    [
        (DENSE, 60, TICK_NS),
        (DENSE, 30, 1_000_000),
        (MOE, 120, TICK_NS),
        (Square(500_000_000, 0.4, jitter=0.05), 60, TICK_NS),
    ],
    ids=["dense", "dense at 1 ms", "moe", "square"],
)
def test_mean_and_spread_of_the_steps_are_those_of_the_schedule(workload: Workload, seconds: int, tick_ns: int) -> None:
    truth = np.diff(Schedule(workload, rails=1).step_starts_ns(0, seconds * 10**9)) / tick_ns
    found = find_steps(rates_of(workload, seconds, tick_ns), float(truth.mean()))
    assert found.whole.all()
    assert len(found.whole) >= len(truth) - 4
    lengths = np.diff(found.bounds)
    # as far as four steps at the ends, which are not found, differ from the others
    assert lengths.mean() == pytest.approx(truth.mean(), rel=2e-3)
    assert lengths.std() == pytest.approx(truth.std(), rel=0.2)


def test_a_pause_is_no_step_and_the_steps_after_it_are_found() -> None:
    values = np.insert(square(50, 20, 40), 1000, np.zeros(130))
    found = find_steps(values, 50.0)
    lengths = np.diff(found.bounds)
    assert len(found.bounds) >= 36
    assert np.count_nonzero(~found.whole) == 1
    np.testing.assert_allclose(lengths[found.whole], 50, atol=1e-9)


def test_a_bound_in_missing_data_makes_no_step() -> None:
    # it falls in two stairs, so its rise is the sharpest edge
    values = square(50, 20, 40) + square(50, 10, 40)
    bounds = find_steps(values, 50.0).bounds
    values[int(bounds[10])] = np.nan
    found = find_steps(values, 50.0)
    np.testing.assert_allclose(found.bounds, bounds, atol=2.0)
    assert np.flatnonzero(~found.whole).tolist() == [9, 10]


@pytest.mark.parametrize(
    ("values", "period"),
    [
        (np.zeros(0), 10.0),
        (np.full(400, np.nan), 10.0),
        (square(50, 20, 3), 50.0),
        (square(2, 1, 40), 1.2),
        (np.ones(400), 50.0),
    ],
    ids=["nothing", "only holes", "three steps", "a step of one tick", "constant"],
)
def test_there_are_no_steps_in(values: np.ndarray, period: float) -> None:
    assert not find_steps(values, period).whole.any()


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


@pytest.mark.parametrize("rates", [np.zeros((2, 100)), np.full((2, 100), np.nan), np.zeros((2, 0))])
def test_silence_has_no_steps(rates: Floats) -> None:
    assert len(edges(rates)) == 0
