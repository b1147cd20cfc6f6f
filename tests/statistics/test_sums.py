"""The sum over the rails and its statistics, against closed forms and against plain numpy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.core.statistics import moments
from ibpulse.core.statistics.sums import (
    MOVED,
    OBSERVED,
    DirectionStatistics,
    NodeStatistics,
    NodeTicks,
    Seconds,
    are_assumed,
    bin_ticks,
    describe_directions,
    describe_node,
    line_rate,
    sum_directions,
    sum_groups,
    sum_rails,
    sum_seconds,
    sum_timescales,
    usual_peak,
)
from tests.tables import for_each

GB = 1e9
THRESHOLD = 0.1 * GB
TICKS = 100
TICK = 0.01


def seconds_of(rates: np.ndarray) -> Seconds:
    """Rates (rails, 2, seconds, ticks), NaN for missing data, each of 10 ms."""
    good = ~np.isnan(rates).any(axis=1)
    both = good[:, None]
    return Seconds(np.where(both, rates, 0.0), np.where(both, np.full(rates.shape, TICK), 0.0), good)


def node_of(bandwidth: np.ndarray) -> NodeTicks:
    """One rail that sends what it receives: bandwidth (seconds, ticks), NaN for missing data."""
    return sum_rails(seconds_of(np.stack([bandwidth / 2, bandwidth / 2])[None]))


def describe(node: NodeTicks, ticks_per_bin: tuple[int, ...] = (1, 5), **known: object) -> NodeStatistics:
    sums = sum_seconds(node, THRESHOLD).sum(axis=0)
    scales = sum_timescales(node, ticks_per_bin, 1, THRESHOLD).sum(axis=0)
    return describe_node(sums, node.bandwidth.max(), scales, **known)  # type: ignore[arg-type]


def test_a_rail_without_any_sample_in_a_second_does_not_hide_the_others() -> None:
    rates = np.full((2, 2, 2, TICKS), GB)
    rates[1, :, 1] = np.nan
    node = sum_rails(seconds_of(rates))
    assert node.good.all()
    assert node.bandwidth[:, 0].tolist() == [4 * GB, 2 * GB]
    np.testing.assert_allclose(node.measured, TICK)


@given(seed=st.integers(0, 1000), sizes=st.lists(st.integers(0, 4), min_size=1, max_size=5), certain=st.booleans())
def test_the_sums_of_groups_are_those_of_each_group_alone(seed: int, sizes: list[int], certain: bool) -> None:
    rng = np.random.default_rng(seed)
    rates = rng.gamma(0.3, GB, (sum(sizes), 2, 3, 20))
    rates[rng.random(rates.shape) < 0.05] = np.nan
    rates.swapaxes(1, 2)[rng.random((sum(sizes), 3)) < 0.2] = np.nan
    rails = seconds_of(rates)
    rails = replace(rails, peaks=rails.bytes_per_second / 2 if certain else None)
    found = sum_groups(rails, sizes)
    sums, begin = sum_seconds(found, THRESHOLD), 0
    for index, size in enumerate(sizes):
        alone = sum_rails(rails.chosen(np.arange(begin, begin + size)))
        np.testing.assert_array_equal(found.directions[:, index], alone.directions)
        for several, one in ((found.measured, alone.measured), (found.good, alone.good), (found.peaks, alone.peaks)):
            assert (several is None) == (one is None)
            if several is not None:
                np.testing.assert_array_equal(several[index], one)
        np.testing.assert_allclose(sums[index], sum_seconds(alone, THRESHOLD), rtol=1e-12)
        begin += size


def test_without_rails_nothing_is_known() -> None:
    node = sum_rails(seconds_of(np.zeros((0, 2, 2, TICKS))))
    assert not node.good.any()
    found = describe(node)
    for value in (found.transmit, found.mean, found.peak, found.active_mean, found.peak_to_mean, found.duty_cycle):
        assert np.isnan(value)


def test_a_wave_has_its_statistics_in_closed_form_and_its_variation_vanishes_in_bins_of_a_period() -> None:
    found = describe(node_of(np.tile(np.array([30.0, 10.0, 0.0, 0.0, 0.0]) * GB, (3, 20))))
    assert (found.mean, found.peak, found.peak_to_mean) == pytest.approx((8 * GB, 30 * GB, 30 / 8))
    assert (found.duty_cycle, found.active_mean) == pytest.approx((0.4, 20 * GB))
    assert (found.transmit, found.receive) == pytest.approx((4 * GB, 4 * GB))
    assert found.burstiness_cv == pytest.approx([0.5, 0.0], abs=1e-6)


@given(seed=st.integers(0, 1000), lost=st.floats(0, 0.3))
def test_all_of_them_agree_with_plain_numpy(seed: int, lost: float) -> None:
    rng = np.random.default_rng(seed)
    bandwidth = rng.gamma(0.3, GB, (3, TICKS))
    bandwidth[rng.random(bandwidth.shape) < lost] = np.nan
    found = describe(node_of(bandwidth))
    seen = bandwidth[~np.isnan(bandwidth)]
    active = seen[seen > THRESHOLD]
    bins = bandwidth.reshape(-1, 5).mean(axis=1)
    bins = bins[bins > THRESHOLD]
    assert found.mean == pytest.approx(seen.mean())
    assert found.peak == pytest.approx(seen.max())
    assert found.peak_to_mean == pytest.approx(seen.max() / seen.mean())
    assert found.duty_cycle == pytest.approx(len(active) / len(seen))
    assert found.active_mean == pytest.approx(active.mean())
    assert found.burstiness_cv[0] == pytest.approx(active.std() / active.mean())
    if len(bins) >= 2:
        assert found.burstiness_cv[1] == pytest.approx(bins.std() / bins.mean(), abs=1e-6)


def test_bins_that_divide_samples_have_no_sums() -> None:
    node = node_of(np.full((2, TICKS), GB))
    counts = sum_timescales(node, (1, 2, 5, 10, 0), 2, THRESHOLD)[:, :, moments.COUNT]
    assert counts.tolist() == [[0, 50, 0, 10, 0]] * 2


def test_single_tick_statistics_are_unknown_of_a_span_with_slow_counters() -> None:
    node = node_of(np.tile([2 * GB, 0.0], (2, TICKS // 2)))
    scales = sum_timescales(node, (1, 5), 1, THRESHOLD)
    known = np.array([[False, True], [True, True]])
    found = describe_node(
        sum_seconds(node, THRESHOLD), node.bandwidth.max(axis=-1), scales, finest_known=known[:, 0], scales_known=known
    )
    for value in (found.peak, found.active_mean, found.peak_to_mean, found.duty_cycle, found.burstiness_cv[:, 0]):
        assert np.isnan(value).tolist() == [True, False]
    assert found.mean == pytest.approx([GB, GB])
    assert not np.isnan(found.burstiness_cv[:, 1]).any()


# the line rates of rails in GB/s, that of the node in one direction, and which are assumed
@for_each(
    {
        "the sum": ([50, 50, 25], 125, [False] * 3),
        "a port that is no rail": ([50, 50, 0], 100, [False] * 3),
        "as fast as the fastest other rail": ([25, 50, np.nan, 0], 125, [False, False, True, False]),
        **{f"unknown: {rates}": (rates, np.nan, [False] * len(rates)) for rates in ([], [0], [np.nan], [0, np.nan])},
    }
)
def test_the_line_rate_of_a_node(rates: list[float], expected: float, assumed: list[bool]) -> None:
    given = np.array(rates, dtype=float) * GB
    np.testing.assert_array_equal(line_rate(given, 1), expected * GB)
    np.testing.assert_array_equal(line_rate(given), 2 * expected * GB)
    assert are_assumed(given).tolist() == assumed


def test_one_late_sample_makes_the_peak_and_not_the_usual_peak() -> None:
    peaks, observed = np.full(60, 10 * GB), np.ones(60)
    peaks[7] = 35 * GB
    assert usual_peak(peaks, observed) == 10 * GB
    # a second without data has no peak
    observed[10:] = 0.0
    peaks[10:] = 0.0
    assert usual_peak(peaks, observed) == 10 * GB
    assert usual_peak(np.arange(5.0), np.ones(5)) == 3.0
    assert np.isnan(usual_peak(peaks, np.zeros(60)))


@pytest.mark.parametrize(
    ("timescale_ms", "interval_ms", "ticks"), [(10, 10, 1), (50, 10, 5), (1000, 10, 100), (15, 10, 0), (30, 10, 0)]
)
def test_a_time_scale_is_whole_ticks_and_divides_a_second(timescale_ms: int, interval_ms: int, ticks: int) -> None:
    assert bin_ticks(timescale_ms * 1_000_000, interval_ms * 1_000_000) == ticks


def sums_of(rates: np.ndarray, good: np.ndarray | None = None) -> np.ndarray:
    """Sums of rates (ports, 2, spans, ticks) of 10 ms each."""
    chosen = np.ones((rates.shape[0], *rates.shape[2:]), dtype=np.bool_) if good is None else good
    return sum_directions(rates, np.full(rates.shape, TICK), chosen, THRESHOLD)


def describe_port(rates: np.ndarray, stride: int = 1, finest_known: bool = True) -> DirectionStatistics:
    """The statistics of one port whose rates (2, ticks) make one span."""
    sums = sums_of(rates[None, :, None]).sum(axis=2)
    return describe_directions(sums, rates.max(axis=-1)[None], np.array([stride]), np.array([finest_known]))


@given(seed=st.integers(0, 1000))
def test_they_agree_with_plain_numpy(seed: int) -> None:
    rates = np.random.default_rng(seed).gamma(0.3, GB, (2, 200))
    found = describe_port(rates)
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
    found = describe_port(rates, stride=3)
    assert np.isnan(found.burstiness_cv[0, 0])
    assert found.burstiness_cv[0, 1] == pytest.approx(0.0, abs=1e-6)


def test_for_slow_counters_only_the_mean_is_known() -> None:
    found = describe_port(np.tile([2 * GB, 0.0], (2, 50)), finest_known=False)
    assert found.mean[0].tolist() == pytest.approx([GB, GB])
    assert np.isnan([found.peak, found.duty_cycle, found.burstiness_cv]).all()
