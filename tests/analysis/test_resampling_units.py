"""Sums of steps and of blocks of time: they add up, and their quotients are the statistics."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.core.statistics.recorded import DURATION, Sums, describe_steps, describe_units, split
from ibpulse.core.statistics.span import find_rhythm
from tests.analysis.test_span_statistics import TICK_NS, series_of, wave

GB = 1e9
THRESHOLD = 0.1 * GB
SCALES = (TICK_NS, 5 * TICK_NS)


@given(seed=st.integers(0, 1000), cuts=st.lists(st.floats(0, 700), max_size=8))
def test_the_sums_of_a_span_are_those_of_its_parts_wherever_it_is_cut(seed: int, cuts: list[float]) -> None:
    rates = np.random.default_rng(seed).gamma(0.3, GB, (2, 2, 700))
    sums = Sums(series_of(rates), THRESHOLD, SCALES)
    parts = sums.between(np.array([0.0, *sorted(cuts), 700.0]))
    # each part counts itself as one unit
    whole, added = sums.whole(), parts.sum(axis=0)
    added[DURATION + 1] = 1.0
    np.testing.assert_allclose(added, whole, rtol=1e-9, atol=1e-3)


def test_a_time_scale_that_is_no_whole_number_of_ticks_has_no_variation() -> None:
    sums = Sums(series_of(wave(GB, 20, 30, 10)), THRESHOLD, (TICK_NS, 15_000_000))
    found = describe_units(sums.whole(), series_of(wave(GB, 20, 30, 10)), sums.timescales_ns)
    assert np.isnan(found.variation(15_000_000))
    assert found.variation(TICK_NS) == pytest.approx(0.0, abs=1e-6)


def test_the_ticks_themselves_are_a_time_scale_at_any_stride_and_bins_that_divide_samples_are_not() -> None:
    # a daemon leaves out every time scale that divides samples of a rail; a report keeps that of its own ticks
    series = series_of(wave(GB, 20, 30, 10, rails=2))
    slow = replace(series, rails=replace(series.rails, strides=np.array([2, 5])))
    sums = Sums(slow, THRESHOLD, (TICK_NS, 5 * TICK_NS, 10 * TICK_NS))
    found = describe_units(sums.whole(), slow, sums.timescales_ns)
    known = [bool(np.isfinite(found.variation(ticks * TICK_NS))) for ticks in (1, 5, 10)]
    assert known == [True, False, True]


def test_a_span_of_steps_is_resampled_in_steps() -> None:
    series = series_of(wave(10 * GB, 20, 30, 40))
    sums = Sums(series, THRESHOLD, SCALES)
    period, steps = find_rhythm(series, THRESHOLD)
    units, whole_steps = split(sums, series, steps, period.seconds)
    assert units.steps
    assert units.begun is not None
    assert units.begun.shape == units.sums.shape
    found = describe_steps(whole_steps)
    assert found.seconds == pytest.approx(np.full(len(whole_steps), 0.5), abs=1e-6)
    assert found.gap_seconds == pytest.approx(np.full(len(whole_steps), 0.3), abs=1e-6)


@pytest.mark.parametrize(("period_seconds", "block"), [(np.nan, 1.0), (0.2, 1.0), (0.5, 1.5), (2.0, 6.0)])
def test_without_steps_it_is_resampled_in_seconds_or_three_periods(period_seconds: float, block: float) -> None:
    series = series_of(np.full((1, 2, 3000), GB))
    sums = Sums(series, THRESHOLD, SCALES)
    _, none = find_rhythm(series, THRESHOLD)
    units, whole_steps = split(sums, series, none, period_seconds)
    assert not units.steps
    assert len(whole_steps) == 0
    assert units.sums[:, DURATION] == pytest.approx(np.full(int(30 / block), block))


def test_blocks_without_data_are_excluded() -> None:
    rates = np.full((1, 2, 1000), GB)
    rates[:, :, 300:500] = np.nan
    series = series_of(rates)
    units, _ = split(Sums(series, THRESHOLD, SCALES), series, find_rhythm(series, THRESHOLD)[1], np.nan)
    assert len(units.sums) == 8
