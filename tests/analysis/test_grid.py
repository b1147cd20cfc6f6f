from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.core.statistics.steps.period import bandwidth_bins, cumulate, rate_bins

WIDTH = 0.05
EDGES = np.arange(0, 41) * WIDTH
EDGES_NS = np.arange(0, 41) * 50_000_000


@given(rate=st.floats(0, 1e11), seed=st.integers(0, 99))
def test_a_steady_rate_is_steady_at_any_instants(rate: float, seed: int) -> None:
    seconds = np.sort(np.random.default_rng(seed).uniform(-0.1, 2.1, 300))
    seconds[0], seconds[-1] = -0.1, 2.1
    np.testing.assert_allclose(rate_bins(seconds, rate * seconds, EDGES, 1.0), rate, rtol=1e-9, atol=1e-6)


@given(seed=st.integers(0, 99))
def test_inside_the_series_every_byte_counts_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    seconds = np.arange(-20, 221) * 0.01 + rng.uniform(-0.004, 0.004, 241)
    moved = np.where((seconds > 0.2) & (seconds < 1.7), rng.uniform(0, 1e9, 241), 0.0)
    cumulative = np.cumsum(moved)
    found = rate_bins(seconds, cumulative, EDGES)
    assert found.sum() * WIDTH == pytest.approx(cumulative[-1])


def test_a_wave_as_long_as_a_bin_is_removed_and_a_slow_one_stays() -> None:
    seconds = np.arange(-100, 2200) * 0.001

    def height(period: float) -> float:
        cumulative = seconds - np.cos(2 * np.pi * seconds / period) * period / (2 * np.pi)
        return float(np.ptp(rate_bins(seconds, cumulative, EDGES)))

    assert height(WIDTH) < 0.01
    assert height(1.0) > 1.9


def test_short_gaps_are_bridged_and_long_ones_are_unknown() -> None:
    seconds = np.arange(-10, 211) * 0.01
    kept = ~((seconds > 0.5) & (seconds < 0.58)) & ~((seconds > 1.0) & (seconds < 1.3))
    found = rate_bins(seconds[kept], 7e9 * seconds[kept], EDGES)
    centres = EDGES[:-1] + WIDTH / 4
    np.testing.assert_array_equal(np.isnan(found), (centres > 1.0) & (centres < 1.3))
    np.testing.assert_allclose(found[~np.isnan(found)], 7e9)


def test_before_and_after_the_series_nothing_is_known() -> None:
    seconds = np.arange(0, 101) * 0.01 + 0.5
    found = rate_bins(seconds, seconds, EDGES)
    assert np.isnan(found[:9]).all()
    assert np.isnan(found[31:]).all()
    assert not np.isnan(found[10:29]).any()


def test_a_reset_moves_nothing() -> None:
    assert cumulate(np.array([5, 7, 2, 6], dtype=np.uint64)).tolist() == [0, 2, 2, 6]
    assert cumulate(np.array([2**63 + 1, 2**63 + 4], dtype=np.uint64)).tolist() == [0, 3]


def counters(rails: int, rate: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    time_ns = np.broadcast_to(np.arange(-10, 211) * 10_000_000, (rails, 2, 221)).copy()
    words = ((time_ns + 100_000_000) / 1e9 * rate / 4).astype(np.uint64)
    return time_ns, words, np.ones(time_ns.shape, dtype=bool)


def test_the_bandwidth_is_the_sum_of_all_rails_and_directions() -> None:
    time_ns, words, valid = counters(3, 5e9)
    found = bandwidth_bins(time_ns, words, valid, np.full(3, 4), EDGES_NS)
    np.testing.assert_allclose(found, 3 * 2 * 5e9, rtol=1e-6)


def test_a_rail_with_missing_data_takes_the_mean_of_the_others() -> None:
    time_ns, words, valid = counters(3, 5e9)
    valid[1, :, 60:120] = False
    valid[2] = False
    found = bandwidth_bins(time_ns, words, valid, np.full(3, 4), EDGES_NS)
    np.testing.assert_allclose(found, 2 * 2 * 5e9, rtol=1e-6)


def test_without_counters_nothing_is_known() -> None:
    time_ns, words, valid = counters(2, 5e9)
    assert np.isnan(bandwidth_bins(time_ns, words, ~valid, np.full(2, 4), EDGES_NS)).all()
