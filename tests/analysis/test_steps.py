"""The steps of series whose steps are known."""

from __future__ import annotations

import numpy as np
import pytest

from ibpulse.core.statistics.steps.edges import find_steps
from ibpulse.workbench.simulate.timeline import Schedule, Workload
from ibpulse.workbench.simulate.workloads import DENSE, MOE, Square

TICK_NS = 10_000_000


def rates_of(workload: Workload, seconds: int, tick_ns: int = TICK_NS) -> np.ndarray:
    """Exact rates in ticks of a workload that begins at 0."""
    edges = np.arange(seconds * 10**9 // tick_ns + 1) * tick_ns
    return np.diff(Schedule(workload, rails=1).cumulative_bytes(edges).sum(axis=(1, 2))) * (1e9 / tick_ns)


def square(period: int, busy: int, steps: int) -> np.ndarray:
    return np.tile(np.repeat([5.0, 0.0], [busy, period - busy]), steps)


@pytest.mark.parametrize("period", [8, 31, 144])
def test_the_steps_of_a_wave_are_all_as_long_as_its_period(period: int) -> None:
    found = find_steps(square(period, period // 3, 40), float(period))
    assert found.whole.all()
    assert len(found.bounds) >= 36
    np.testing.assert_allclose(np.diff(found.bounds), period, atol=1e-9)


def test_a_bound_lies_at_the_edge() -> None:
    found = find_steps(square(100, 30, 40), 100.0)
    # the wave rises at multiples of 100 and falls 30 ticks later
    np.testing.assert_allclose(np.minimum(found.bounds % 100, 100 - found.bounds % 100) % 30, 0, atol=2)


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


def test_multiplying_the_series_changes_nothing() -> None:
    values = rates_of(DENSE, 30)
    one, other = find_steps(values, 31.48), find_steps(values * 1e-6, 31.48)
    np.testing.assert_allclose(one.bounds, other.bounds, rtol=1e-9)


def test_a_period_that_is_a_little_wrong_finds_the_same_steps() -> None:
    values = rates_of(DENSE, 60)
    lengths = [np.diff(find_steps(values, period).bounds).mean() for period in (30.5, 31.48, 32.5)]
    np.testing.assert_allclose(lengths, lengths[1], rtol=2e-3)


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
