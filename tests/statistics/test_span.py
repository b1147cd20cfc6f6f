"""All statistics of a span, against closed forms and against plain numpy on the rates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibpulse.base.units import MILLISECOND_NS, SECOND_NS
from ibpulse.core.statistics.recorded import RailGroup, RailSeries, RailTraits, add_up
from ibpulse.core.statistics.span import SpanOptions, SpanStatistics, describe_span, exposed_bounds

GB = 1e9
LINE = 50 * GB
TICK_NS = 10 * MILLISECOND_NS
OPTIONS = SpanOptions(0.1 * GB, (TICK_NS, 5 * TICK_NS))


def whole_group(count: int, ticks: int) -> RailGroup:
    """All rails, compared at all samples."""
    return RailGroup(np.arange(count), np.ones(ticks, dtype=np.bool_))


def series_of(rates: np.ndarray, first_tick: int = 1, finest: int = 1, down: tuple[int, ...] = ()) -> RailSeries:
    """Rates (rails, 2, ticks), NaN for missing data, with the first tick at this offset from a whole second."""
    count = len(rates)
    rails = RailTraits(
        names=tuple(f"mlx5_{rail}:1" for rail in range(count)),
        up=np.array([[rail not in down] * rates.shape[2] for rail in range(count)]),
        line_rates=np.full((count, rates.shape[2]), LINE),
        strides=np.ones(count, dtype=np.int64),
        finest_ticks=np.full(count, finest, dtype=np.int64),
        groups=(whole_group(*rates.shape[::2]),),
    )
    return add_up(rates, np.where(np.isnan(rates), 0.0, 0.01), rails, first_tick * TICK_NS, TICK_NS)


def describe(rates: np.ndarray, **known: int) -> SpanStatistics:
    return describe_span(series_of(rates, **known), OPTIONS)


def wave(high: float, busy: int, silent: int, times: int, rails: int = 1) -> np.ndarray:
    one = np.tile(np.repeat([high, 0.0], [busy, silent]), times)
    return np.broadcast_to(one, (rails, 2, len(one))).copy()


@settings(max_examples=25)
@given(seed=st.integers(0, 1000), first_tick=st.integers(1, 250), lost=st.sampled_from([0.0, 0.01]))
def test_it_agrees_with_plain_numpy_wherever_in_a_second_the_span_begins(
    seed: int, first_tick: int, lost: float
) -> None:
    rng = np.random.default_rng(seed)
    rates = rng.gamma(0.3, GB, (3, 2, 730))
    rates[:, 0, rng.random(730) < lost] = np.nan
    found = describe(rates, first_tick=first_tick)
    bandwidth = rates.sum(axis=(0, 1))
    seen = bandwidth[~np.isnan(bandwidth)]
    active = seen[seen > 0.1 * GB]
    assert found.node.mean == pytest.approx(seen.mean())
    assert found.node.peak == pytest.approx(seen.max())
    assert found.node.peak_to_mean == pytest.approx(seen.max() / seen.mean())
    assert found.node.duty_cycle == pytest.approx(len(active) / len(seen))
    assert found.node.active_mean == pytest.approx(active.mean())
    assert found.whole.variation(TICK_NS) == pytest.approx(active.std() / active.mean())
    assert found.node.transmit + found.node.receive == pytest.approx(found.node.mean)
    assert found.coverage.observed_ratio == pytest.approx(len(seen) / 730)
    assert found.coverage.seconds == pytest.approx(7.3)
    moved = np.nansum(np.where(np.isnan(rates).any(axis=1)[:, None], 0.0, rates), axis=(1, 2))
    assert found.whole.fairness == pytest.approx(moved.sum() ** 2 / (3 * np.square(moved).sum()))
    assert found.balance.share == pytest.approx(moved / moved.sum())


def test_the_steps_of_a_wave_have_its_length_its_silence_and_its_bytes() -> None:
    found = describe(wave(10 * GB, 20, 30, 40, rails=2))
    assert found.period.seconds == pytest.approx(0.5, rel=1e-3)
    assert found.steps.seconds == pytest.approx(0.5)
    assert found.steps.gap_seconds == pytest.approx(0.3)
    assert found.steps.moved_bytes == pytest.approx(2 * 2 * 10 * GB * 0.2)
    assert found.units.steps
    again = found.of_units(found.units.sums.sum(axis=0))
    assert again.node.duty_cycle == pytest.approx(0.4)
    assert np.isnan(again.node.peak)


def test_bursts_gaps_and_runs_cut_by_the_ends_of_the_span() -> None:
    found = describe(wave(10 * GB, 20, 30, 40))
    assert (found.bursts.count, found.gaps.count) == (39, 39)
    assert (found.bursts.p50_seconds, found.gaps.p50_seconds) == (pytest.approx(0.2), pytest.approx(0.3))
    assert found.bursts.mean_bytes == pytest.approx(20 * GB * 0.2)
    assert found.censored_seconds == pytest.approx(0.5)


def test_the_line_is_that_of_all_rails_in_the_recorded_directions() -> None:
    rates = wave(10 * GB, 20, 30, 40, rails=3)
    rates[1] *= 0.01
    assert describe(rates).line == 3 * 2 * LINE
    rates[:, 1] = np.nan
    found = describe(rates)
    assert found.line == 3 * LINE
    assert np.isnan(found.node.receive)
    assert found.node.mean == found.node.transmit


def test_a_rail_whose_link_is_down_carries_nothing_and_hides_no_other() -> None:
    rates = wave(10 * GB, 20, 30, 40, rails=4)
    rates[2] = np.nan
    found = describe(rates, down=(2,))
    assert found.rail_means == pytest.approx([8 * GB, 8 * GB, 0.0, 8 * GB])
    assert (found.balance.fairness, found.balance.idle.tolist()) == (pytest.approx(3 / 4), [False, False, True, False])
    assert found.coverage.observed_ratio == 1.0


def with_states(rates: np.ndarray, up: np.ndarray, line_rates: np.ndarray) -> SpanStatistics:
    """The statistics of rails whose links and line rates change: (rails, samples)."""
    whole = series_of(rates).rails
    traits = replace(whole, up=up, line_rates=line_rates)
    seconds = np.where(np.isnan(rates), 0.0, 0.01)
    return describe_span(add_up(rates, seconds, traits, TICK_NS, TICK_NS), OPTIONS)


@pytest.mark.parametrize("while_down", [0.0, np.nan])
def test_a_rail_that_is_down_part_of_the_time_keeps_its_past_and_is_judged_by_it(while_down: float) -> None:
    rates = wave(10 * GB, 20, 30, 40, rails=4)
    rates[2, :, 1000:1500] = while_down
    up = np.ones((4, 2000), dtype=np.bool_)
    up[2, 1000:1500] = False
    found = with_states(rates, up, np.full((4, 2000), LINE))
    assert found.rail_means == pytest.approx([8 * GB, 8 * GB, 6 * GB, 8 * GB])
    assert found.node.mean == pytest.approx(30 * GB)
    assert found.balance.ratio == pytest.approx([1, 1, 1, 1])
    assert found.balance.share == pytest.approx([8 / 30, 8 / 30, 6 / 30, 8 / 30])
    assert not found.balance.idle.any()
    assert not found.balance.slow.any()
    assert (found.coverage.observed_ratio, found.line) == (1.0, 4 * 2 * LINE)


@pytest.mark.parametrize("first_tick", [1, 31])
def test_rails_are_compared_within_their_group_while_it_is_compared(first_tick: int) -> None:
    rates = np.full((4, 2, 2000), GB)
    rates[[0, 2], :, 500:] = [[[20 * GB]], [[5 * GB]]]
    series = series_of(rates, first_tick)
    late, all_the_time = np.arange(2000) >= 500, np.ones(2000, dtype=np.bool_)
    groups = (RailGroup(np.array([0, 2]), late), RailGroup(np.array([3, 1]), all_the_time))
    found = describe_span(replace(series, rails=replace(series.rails, groups=groups)), OPTIONS)
    # two of 40 and 10 GB/s, two of the same
    expected = 4 / (2 * (2 * 17) / 25 + 2)
    assert found.balance.fairness == pytest.approx(expected)
    assert found.whole.fairness == pytest.approx(expected)
    assert found.of_units(found.units.sums).fairness[-1] == pytest.approx(expected)
    assert found.balance.share == pytest.approx([0.8, 0.5, 0.2, 0.5])
    assert found.balance.ratio == pytest.approx([4, 1, 0.25, 1])
    assert (found.balance.slow.tolist(), found.balance.active) == ([False, False, True, False], 4)
    assert found.rail_means == pytest.approx([30.5 * GB, 2 * GB, 8 * GB, 2 * GB])


def test_a_rail_is_compared_with_its_siblings_in_the_time_in_which_it_was_up() -> None:
    rates = np.full((4, 2, 2000), GB)
    rates[:, :, 1000:] = 20 * GB
    # up only while its siblings carry little, and then at half their rate
    rates[1, :, :1000], rates[1, :, 1000:] = GB / 2, 0.0
    up = np.ones((4, 2000), dtype=np.bool_)
    up[1, 1000:] = False
    found = with_states(rates, up, np.full((4, 2000), LINE))
    assert found.balance.ratio[1] == pytest.approx(0.5)
    assert (found.balance.slow.tolist(), found.balance.idle.any()) == ([False, True, False, False], False)


def test_a_rail_that_is_never_up_is_as_before_and_a_second_in_which_it_is_up_counts_as_a_whole() -> None:
    rates = wave(10 * GB, 20, 30, 40, rails=2)
    up = np.ones((2, 2000), dtype=np.bool_)
    up[1] = False
    assert with_states(rates, up, np.full((2, 2000), LINE)).node.mean == pytest.approx(8 * GB)
    up[1, 99] = True
    assert with_states(rates, up, np.full((2, 2000), LINE)).node.mean == pytest.approx(8 * GB + 8 * GB / 20)


def test_utilisation_is_of_the_line_rate_at_each_sample() -> None:
    rates = np.full((2, 2, 2000), 10 * GB)
    rates[:, :, 100] = 30 * GB
    rates[:, :, 1900] = 20 * GB
    line_rates = np.full((2, 2000), LINE)
    line_rates[:, 1000:] = LINE / 2
    found = with_states(rates, np.ones((2, 2000), np.bool_), line_rates)
    assert found.line == pytest.approx(2 * 2 * LINE * 0.75)
    assert found.node.peak == pytest.approx(2 * 2 * 30 * GB)
    assert found.peak_utilization == pytest.approx(20 / 25)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("idle", range(4))
def test_idle_rails_change_no_signature(idle: int) -> None:
    levels = np.tile(np.repeat([48 * GB, 15 * GB], 2), 300)
    rates = np.broadcast_to(levels, (4, 2, len(levels))).copy()
    rates[:idle] = 0.0
    found, carriers = (describe_span(series_of(each), OPTIONS) for each in (rates, rates[idle:]))
    # not 0, so it depends on the features
    assert carriers.signature.confidence > 0.001
    assert found.signature.confidence == pytest.approx(carriers.signature.confidence)
    assert found.peak_utilization == pytest.approx(0.96 * (4 - idle) / 4)


def test_a_rate_is_assumed_until_it_is_known() -> None:
    rates = np.full((2, 2, 2000), 10 * GB)
    line_rates = np.full((2, 2000), LINE)
    line_rates[0, :1000] = LINE / 2
    line_rates[1, :1000] = np.nan
    found = with_states(rates, np.ones((2, 2000), np.bool_), line_rates)
    assert (found.line, found.peak_utilization) == (pytest.approx(3 * LINE), pytest.approx(40 * GB / (2 * LINE)))


def test_missing_data_is_counted_in_runs() -> None:
    rates = wave(10 * GB, 20, 30, 40)
    rates[0, 0, 100:105] = rates[0, 1, 1000:1050] = np.nan
    found = describe(rates).coverage
    assert (found.holes, found.longest_hole_seconds) == (2, pytest.approx(0.5))
    assert found.observed_ratio == pytest.approx(1 - 55 / 2000)
    assert np.isnan(describe(wave(GB, 1, 1, 50)).coverage.longest_hole_seconds)


def test_a_span_without_data_has_no_statistics() -> None:
    found = describe(np.full((2, 2, 300), np.nan))
    for value in (found.node.mean, found.node.peak, found.node.duty_cycle, found.period.seconds, found.steps.seconds):
        assert np.isnan(value)
    assert (found.bursts.count, len(found.step_sums), found.coverage.holes) == (0, 0, 1)


def test_ticks_that_do_not_divide_a_second_are_taken_as_they_are() -> None:
    ones = np.ones(1, np.int64)
    rails = RailTraits(("a:1",), np.ones((1, 7), np.bool_), np.full((1, 7), LINE), ones, ones, (whole_group(1, 7),))
    series = add_up(np.ones((1, 2, 7)), np.ones((1, 2, 7)), rails, 17 * SECOND_NS, 300 * MILLISECOND_NS)
    assert (series.ticks_per_second, series.lead) == (3, 0)


def test_the_bounds_of_one_interval_are_frechets() -> None:
    low, high = exposed_bounds(np.array([0.6, 0.9, 0.2]), np.array([0.7, 0.3, 1.0]))
    assert low == pytest.approx([0.0, 0.6, 0.0])
    assert high == pytest.approx([0.3, 0.7, 0.0])


def test_without_the_gpu_anything_up_to_the_active_time_is_possible() -> None:
    low, high = exposed_bounds(np.array([0.6]), np.array([np.nan]))
    assert (low.tolist(), high.tolist()) == ([0.0], [0.6])


@pytest.mark.parametrize("seed", range(5))
def test_the_truth_is_between_the_bounds_and_shorter_intervals_bring_them_together(seed: int) -> None:
    """Phases of the wire and of the GPU of some 30 ms, known to the millisecond."""
    rng = np.random.default_rng(seed)
    wire, gpu = (np.repeat(rng.random(40) < 0.6, rng.integers(10, 50, 40))[:800].astype(float) for _ in range(2))
    truth, widths = float((wire * (1 - gpu)).mean()), []
    for interval in (800, 100, 10, 1):
        low, high = exposed_bounds(wire.reshape(-1, interval).mean(axis=1), gpu.reshape(-1, interval).mean(axis=1))
        assert low.mean() - 1e-9 <= truth <= high.mean() + 1e-9
        widths.append(high.mean() - low.mean())
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] == pytest.approx(0.0, abs=1e-9)
