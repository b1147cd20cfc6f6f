"""The statistics of single ports, against closed forms and against plain numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.core.statistics.sums import (
    MOVED,
    OBSERVED,
    PORT_FIELDS,
    DirectionStatistics,
    describe_directions,
    sum_directions,
)

GB = 1e9
THRESHOLD = 0.1 * GB
TICK = 0.01


def sums_of(rates: np.ndarray, good: np.ndarray | None = None) -> np.ndarray:
    """Sums of rates (ports, 2, spans, ticks) of 10 ms each."""
    chosen = np.ones((rates.shape[0], *rates.shape[2:]), dtype=np.bool_) if good is None else good
    return sum_directions(rates, np.full(rates.shape, TICK), chosen, THRESHOLD)


def describe(rates: np.ndarray, stride: int = 1, finest_known: bool = True) -> DirectionStatistics:
    """The statistics of one port whose rates (2, ticks) make one span."""
    sums = sums_of(rates[None, :, None]).sum(axis=2)
    return describe_directions(sums, rates.max(axis=-1)[None], np.array([stride]), np.array([finest_known]))


@given(seed=st.integers(0, 1000))
def test_they_agree_with_plain_numpy(seed: int) -> None:
    rates = np.random.default_rng(seed).gamma(0.3, GB, (2, 200))
    found = describe(rates)
    for way in range(2):
        active = rates[way][rates[way] > THRESHOLD]
        assert found.mean[0, way] == pytest.approx(rates[way].mean())
        assert found.peak[0, way] == rates[way].max()
        assert found.duty_cycle[0, way] == pytest.approx(len(active) / 200)
        assert found.burstiness_cv[0, way] == pytest.approx(active.std() / active.mean())


@given(seed=st.integers(0, 1000))
def test_the_sums_of_a_span_are_those_of_its_parts_without_missing_data(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rates, good = rng.gamma(0.3, GB, (2, 2, 4, 50)), rng.random((2, 4, 50)) < 0.9
    whole = sums_of(rates.reshape(2, 2, 1, 200), good.reshape(2, 1, 200))[:, :, 0]
    parts = sums_of(rates, good)
    np.testing.assert_allclose(parts.sum(axis=2), whole)
    assert whole[:, 0, OBSERVED] == pytest.approx(good.sum(axis=(1, 2)) * TICK)
    assert whole[..., MOVED] == pytest.approx(np.where(good[:, None], rates, 0.0).sum(axis=(2, 3)) * TICK)


def test_two_samples_of_a_stride_are_needed_for_a_variation() -> None:
    rates = np.zeros((2, 100))
    rates[0, :5] = rates[1, :6] = GB
    found = describe(rates, stride=3)
    assert np.isnan(found.burstiness_cv[0, 0])
    assert found.burstiness_cv[0, 1] == pytest.approx(0.0, abs=1e-6)


def test_for_slow_counters_only_the_mean_is_known() -> None:
    found = describe(np.tile([2 * GB, 0.0], (2, 50)), finest_known=False)
    assert found.mean[0].tolist() == pytest.approx([GB, GB])
    assert np.isnan([found.peak, found.duty_cycle, found.burstiness_cv]).all()


def test_of_a_port_that_was_not_observed_nothing_is_known() -> None:
    found = describe_directions(np.zeros((1, 2, PORT_FIELDS)), np.zeros((1, 2)), np.ones(1, np.int64), np.array([True]))
    assert np.isnan([found.mean, found.peak, found.duty_cycle, found.burstiness_cv]).all()
