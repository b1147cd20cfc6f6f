from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.analysis.bursts import BURST, HOLE, Runs, RunState, Thresholds, describe_runs, split_runs, start_runs
from ibpulse.simulate.timeline import Schedule
from ibpulse.simulate.workloads import Square

TICK = 0.01
PLAIN = Thresholds(1.0, 1.0)
HYSTERESIS = Thresholds(2.0, 1.0)
NAN = float("nan")

levels = st.sampled_from([0.0, 1.0, 1.5, 2.0, 3.0, NAN])
series = st.lists(levels, min_size=1, max_size=60)


def split(values: list[float], thresholds: Thresholds = PLAIN) -> Runs:
    rates = np.array([values])
    return split_runs(start_runs(1), rates, np.full(rates.shape, TICK), thresholds)[1]


def in_turn(values: list[float], thresholds: Thresholds) -> list[tuple[bool, bool, int, float]]:
    """Burst or gap, whole or not, ticks and bytes of the runs that ended, one tick after the other."""
    on = False
    labels: list[str] = []
    for value in values:
        on = value > thresholds.high or (on and value > thresholds.low)
        labels.append("hole" if np.isnan(value) else "burst" if on else "gap")
    runs = [(label, list(group)) for label, group in itertools.groupby(range(len(labels)), key=lambda at: labels[at])]
    found = []
    for place, (label, ticks) in enumerate(runs[:-1]):
        if label != "hole":
            whole = place > 0 and runs[place - 1][0] != "hole" and runs[place + 1][0] != "hole"
            found.append((label == "burst", whole, len(ticks), sum(values[at] for at in ticks) * TICK))
    return found


@pytest.mark.parametrize("thresholds", [PLAIN, HYSTERESIS])
@given(values=series)
def test_runs_are_those_that_a_walk_tick_by_tick_finds(thresholds: Thresholds, values: list[float]) -> None:
    runs = split(values, thresholds)
    expected = in_turn(values, thresholds)
    assert [(bool(b), bool(w)) for b, w in zip(runs.burst, runs.whole, strict=True)] == [one[:2] for one in expected]
    np.testing.assert_allclose(runs.seconds, [one[2] * TICK for one in expected], rtol=1e-9)
    np.testing.assert_allclose(runs.moved_bytes, [one[3] for one in expected], rtol=1e-9)


@given(
    rows=st.lists(st.lists(levels, min_size=40, max_size=40), min_size=1, max_size=3), cuts=st.sets(st.integers(0, 40))
)
def test_how_the_ticks_are_cut_into_calls_changes_nothing(rows: list[list[float]], cuts: set[int]) -> None:
    rates = np.array(rows)
    seconds = np.full(rates.shape, TICK)
    end, whole = split_runs(start_runs(len(rows)), rates, seconds, HYSTERESIS)
    state = start_runs(len(rows))
    parts = []
    for first, last in itertools.pairwise([0, *sorted(cuts), 40]):
        state, runs = split_runs(state, rates[:, first:last], seconds[:, first:last], HYSTERESIS)
        parts.append(runs)
    for row in range(len(rows)):
        for name in ("burst", "whole", "seconds", "moved_bytes"):
            joined = np.concatenate([getattr(part, name)[part.row == row] for part in parts])
            np.testing.assert_allclose(joined, getattr(whole, name)[whole.row == row], rtol=1e-9)
    for name in ("busy_seconds", "idle_seconds", "began"):
        np.testing.assert_allclose(sum(getattr(part, name) for part in parts), getattr(whole, name), rtol=1e-9)
    assert_same_state(state, end)


def assert_same_state(one: RunState, other: RunState) -> None:
    np.testing.assert_array_equal(one.label, other.label)
    np.testing.assert_array_equal(one.begun, other.begun)
    np.testing.assert_allclose(one.seconds, other.seconds, rtol=1e-9)
    np.testing.assert_allclose(one.moved_bytes, other.moved_bytes, rtol=1e-9)


@given(values=series)
def test_busy_and_idle_time_is_the_observed_time(values: list[float]) -> None:
    runs = split(values, HYSTERESIS)
    observed = TICK * np.count_nonzero(~np.isnan(values))
    assert runs.busy_seconds[0] + runs.idle_seconds[0] == pytest.approx(observed)


@given(values=series)
def test_runs_that_ended_and_the_one_that_goes_on_are_the_observed_time(values: list[float]) -> None:
    rates = np.array([values])
    state, runs = split_runs(start_runs(1), rates, np.full(rates.shape, TICK), PLAIN)
    observed = TICK * np.count_nonzero(~np.isnan(values))
    assert runs.seconds.sum() + state.seconds[0] == pytest.approx(observed)


@given(values=series, factor=st.floats(0.1, 1e9))
def test_scaling_rates_and_thresholds_scales_only_the_bytes(values: list[float], factor: float) -> None:
    one, many = split(values), split([value * factor for value in values], Thresholds(factor, factor))
    np.testing.assert_array_equal(one.seconds, many.seconds)
    np.testing.assert_allclose(one.moved_bytes * factor, many.moved_bytes, rtol=1e-9)


def test_missing_data_censors_a_burst() -> None:
    runs = split([0, 5, 5, NAN, 5, 0, 5, 0])
    assert runs.seconds[runs.bursts()].tolist() == [TICK]
    assert runs.censored_seconds() == pytest.approx(TICK * (1 + 2 + 1))


def test_the_first_run_ever_seen_is_censored() -> None:
    runs = split([5, 5, 0, 0, 0, 5])
    assert not runs.bursts().any()
    assert runs.seconds[runs.gaps()].tolist() == pytest.approx([3 * TICK])


def test_hysteresis_joins_bursts_over_a_dip_that_stays_above_the_low_threshold() -> None:
    values = [0, 3, 1.5, 3, 0]
    joined = split(values, HYSTERESIS)
    assert joined.seconds[joined.bursts()].tolist() == pytest.approx([3 * TICK])
    parted = split(values, Thresholds(2.0, 2.0))
    assert parted.seconds[parted.bursts()].tolist() == pytest.approx([TICK, TICK])


def test_after_missing_data_a_tick_between_the_thresholds_is_in_a_gap() -> None:
    state, runs = split_runs(start_runs(1), np.array([[3.0, NAN, 1.5]]), np.full((1, 3), TICK), HYSTERESIS)
    assert state.label.tolist() != [BURST]
    assert runs.idle_seconds.tolist() == [TICK]


def test_bursts_after_a_gap_are_counted_immediately_and_per_row() -> None:
    rates = np.array([[0, 5, 0, 5], [5, 5, NAN, 5], [NAN, 0, 0, 5]])
    _, runs = split_runs(start_runs(3), rates, np.full(rates.shape, TICK), PLAIN)
    assert runs.began.tolist() == [2, 0, 1]


def test_rows_do_not_touch_each_other() -> None:
    rates = np.array([[0.0, 5, 5, 0], [5.0, 0, 5, 5]])
    _, runs = split_runs(start_runs(2), rates, np.full(rates.shape, TICK), PLAIN)
    assert runs.seconds[runs.bursts(0)].tolist() == pytest.approx([2 * TICK])
    assert not runs.bursts(1).any()
    assert runs.seconds[runs.gaps(1)].tolist() == pytest.approx([TICK])


def test_a_tick_at_the_threshold_is_not_in_a_burst() -> None:
    assert split([0, 1.0, 0]).busy_seconds.tolist() == [0.0]


@pytest.mark.parametrize("shape", [(0, 10), (2, 0), (0, 0)])
def test_no_rows_and_no_ticks_end_nothing(shape: tuple[int, int]) -> None:
    state, runs = split_runs(start_runs(shape[0]), np.zeros(shape), np.zeros(shape), PLAIN)
    assert len(runs.row) == 0
    assert state.label.tolist() == [HOLE] * shape[0]


def test_a_square_wave_has_its_bursts_gaps_and_bytes() -> None:
    schedule = Schedule(Square(period_ns=100_000_000, duty=0.3, rate_bytes_per_second=10e9), rails=1)
    rates = schedule.truth(0, 2_000_000_000).bytes_per_second[None]
    _, runs = split_runs(start_runs(1), rates, np.full(rates.shape, TICK), Thresholds(0.1e9, 0.1e9))
    np.testing.assert_allclose(runs.seconds[runs.bursts()], 0.03)
    np.testing.assert_allclose(runs.seconds[runs.gaps()], 0.07)
    np.testing.assert_allclose(runs.moved_bytes[runs.bursts()], 0.03 * 20e9)
    assert int(runs.began[0]) == 19


@pytest.mark.parametrize(("low", "high"), [(2.0, 1.0), (-1.0, 1.0)])
def test_thresholds_the_wrong_way_round_are_refused(low: float, high: float) -> None:
    with pytest.raises(
        ValueError, match=f"burst thresholds low {low} and high {high}: low must lie between 0 and high"
    ):
        Thresholds(high, low)


def test_runs_are_described_by_the_quantiles_of_their_lengths_and_their_mean_bytes() -> None:
    lengths = np.random.default_rng(2).permutation(np.arange(1.0, 101.0))
    found = describe_runs(lengths, 2 * lengths)
    assert (found.count, found.longest_seconds, found.mean_bytes) == (100, 100.0, pytest.approx(101.0))
    # between the 50th and the 51st, and at 0.95 x 99 places above the first
    assert (found.p50_seconds, found.p95_seconds) == (pytest.approx(50.5), pytest.approx(95.05))


def test_without_runs_only_the_count_is_known() -> None:
    found = describe_runs(np.zeros(0), np.zeros(0))
    assert found.count == 0
    assert np.isnan([found.p50_seconds, found.p95_seconds, found.longest_seconds, found.mean_bytes]).all()
