from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibpulse.core.statistics.steps.period import (
    BIN_SECONDS,
    StepPeriod,
    bandwidth_bins,
    choose_bin_seconds,
    cumulate,
    find_period,
    find_rails_period,
    rate_bins,
)
from ibpulse.workbench.simulate.timeline import Schedule, Workload
from ibpulse.workbench.simulate.workloads import DENSE, MOE, ExpertParallel, Fsdp, Square
from tests.tables import for_each

BIN_NS = round(BIN_SECONDS * 1e9)
START_NS = 5_000_000_000


def bins_of(workload: Workload, seconds: float, seed: int = 0, start_ns: int = START_NS) -> np.ndarray:
    """Exact bytes of a workload as bins."""
    schedule = Schedule(workload, seed=seed, rails=1)
    time_ns = start_ns + np.arange(-10, round(seconds * 100) + 10) * 10_000_000
    moved = schedule.cumulative_bytes(time_ns).sum(axis=(1, 2))
    edges = np.arange(round(seconds / BIN_SECONDS) + 1) * BIN_SECONDS
    return rate_bins((time_ns - start_ns) / 1e9, moved.astype(float), edges)


def sampled_bins(workload: Workload, seconds: int, lost: float, seed: int) -> np.ndarray:
    """Bins from counters of 8 rails, 10 ms apart with 1 ms of jitter, a part of them lost."""
    rng = np.random.default_rng(seed)
    schedule = Schedule(workload, seed=seed)
    nominal = START_NS + np.arange(-10, seconds * 100 + 10) * 10_000_000
    time_ns = nominal + rng.integers(0, 1_000_000, nominal.shape)
    words = np.moveaxis(schedule.cumulative_bytes(time_ns) // 4, 0, -1).astype(np.uint64)
    times = np.broadcast_to(time_ns, words.shape)
    valid = rng.random(words.shape) >= lost
    edges = START_NS + np.arange(round(seconds / BIN_SECONDS) + 1) * BIN_NS
    return bandwidth_bins(times, words, valid, np.full(8, 4), edges)


def mean_step(workload: Workload, seconds: float, seed: int) -> float:
    schedule = Schedule(workload, seed=seed)
    return float(np.diff(schedule.step_starts_ns(START_NS, START_NS + round(seconds * 1e9))).mean()) / 1e9


@for_each(itertools.product([240, 315, 500, 1000, 1444, 2214, 3700, 7000], [0.1, 0.5, 0.9]))
def test_the_period_of_a_square_wave_is_found(period_ms: int, duty: float) -> None:
    found = find_period(bins_of(Square(period_ms * 1_000_000, duty), 30))
    assert found.seconds == pytest.approx(period_ms / 1000, rel=2e-3)
    assert found.score > 0.9


@pytest.mark.parametrize(("seconds", "lost"), [(10, 0.0), (30, 0.0), (60, 0.0), (30, 0.01), (30, 0.1), (30, 0.3)])
@pytest.mark.parametrize("workload", [DENSE, MOE], ids=lambda one: one.name)
def test_the_step_of_a_training_run_is_found_not_its_layers(workload: Workload, seconds: int, lost: float) -> None:
    for seed in range(3) if not lost else (7,):
        found = find_period(sampled_bins(workload, seconds, lost, seed))
        assert found.seconds == pytest.approx(mean_step(workload, seconds, seed), rel=5e-3)


@pytest.mark.parametrize("seed", range(5))
def test_a_wave_in_noise_is_not_taken_for_a_multiple_of_itself(seed: int) -> None:
    noise = np.random.default_rng(seed).standard_normal(1200)
    values = 5 + noise + np.sin(np.arange(1200) * 2 * np.pi / 29)
    values[400:700] = np.nan
    assert find_period(values).seconds == pytest.approx(29 * BIN_SECONDS, rel=0.01)


@pytest.mark.parametrize("height", [1.0, 1.4])
def test_the_score_of_a_wave_in_noise_is_twice_its_part_of_the_variance(height: float) -> None:
    part = (height**2 / 2) / (height**2 / 2 + 1)
    scores = []
    for seed in range(10):
        noise = np.random.default_rng(seed).standard_normal(1200)
        scores.append(find_period(5 + noise + height * np.sin(np.arange(1200) * 2 * np.pi / 29)).score)
    assert np.mean(scores) == pytest.approx(2 * part, abs=0.04)


def micro_batches(last: float, jitter: float, seconds: int) -> tuple[np.ndarray, float]:
    """Steps of 8 micro-batches of 0.2 s, two bursts each, and an exchange at `last` times their rate; mean step."""
    rng = np.random.default_rng(4)
    bursts: list[tuple[float, float, float]] = []
    steps, now = [], -2.0
    while now < seconds + 2:
        steps.append(now)
        for length in 0.2 * (1 + jitter * rng.standard_normal(8)):
            bursts += [(now + 0.1 * length, now + 0.4 * length, 1e9), (now + 0.6 * length, now + 0.8 * length, 1e9)]
            now += length
        bursts.append((now, now + 0.1, last * 1e9))
        now += 0.17
    edges = np.array([edge for begin, end, _ in bursts for edge in (begin, end)])
    moved = np.cumsum([(end - begin) * rate for begin, end, rate in bursts])
    cumulative = np.stack((np.concatenate(([0.0], moved[:-1])), moved), axis=1).ravel()
    grid = np.arange(round(seconds / BIN_SECONDS) + 1) * BIN_SECONDS
    fine = np.arange(-10, seconds * 100 + 10) * 0.01
    return rate_bins(fine, np.interp(fine, edges, cumulative), grid), float(np.diff(steps).mean())


@pytest.mark.parametrize("jitter", [0.0, 0.02])
@pytest.mark.parametrize("seconds", [30, 60])
def test_the_step_is_found_not_the_micro_batch(seconds: int, jitter: float) -> None:
    values, step = micro_batches(2.0, jitter, seconds)
    assert find_period(values).seconds == pytest.approx(step, rel=5e-3)


def windows(workloads: Sequence[Workload], each: int, window: int, every: int) -> list[StepPeriod]:
    series = np.concatenate([bins_of(workload, each) for workload in workloads])
    size, stride = round(window / BIN_SECONDS), round(every / BIN_SECONDS)
    return [find_period(series[end - size : end]) for end in range(size, len(series) + 1, stride)]


@pytest.mark.parametrize("workload", [DENSE, MOE], ids=lambda one: one.name)
def test_a_step_that_takes_a_tenth_longer_is_seen_within_three_windows(workload: Fsdp) -> None:
    before = mean_step(workload, 60, 0)
    slower = replace(workload, tail_seconds=workload.tail_seconds + before / 10)
    found = windows([workload, slower], each=60, window=30, every=30)
    assert found[1].seconds == pytest.approx(before, rel=0.01)
    assert found[3].seconds == pytest.approx(1.1 * before, rel=0.01)


@pytest.mark.parametrize("period_ms", [16, 18, 22, 30, 48, 60, 80, 100, 150])
def test_periods_shorter_than_four_bins_are_rejected(period_ms: int) -> None:
    for duty in (0.3, 0.5):
        assert np.isnan(find_period(bins_of(Square(period_ms * 1_000_000, duty), 30)).seconds)


def test_the_layers_of_an_expert_parallel_run_are_no_step() -> None:
    assert np.isnan(find_period(bins_of(ExpertParallel(), 30)).seconds)


def test_a_period_that_fits_less_than_four_times_is_not_reported_as_such() -> None:
    found = find_period(bins_of(Square(9_000_000_000, 0.3), 30))
    assert not found.seconds > 7.5


def random_series(kind: str, rng: np.random.Generator) -> np.ndarray:
    if kind == "white":
        return rng.random(600)
    if kind == "lognormal":
        return rng.lognormal(0, 1, 600)
    lengths = np.maximum(1, rng.exponential(4, 600)).astype(int)
    return np.repeat(np.arange(600) % 2, lengths)[:600].astype(float)


@pytest.mark.parametrize("kind", ["white", "lognormal", "on and off"])
def test_noise_has_no_period(kind: str) -> None:
    found = [find_period(random_series(kind, np.random.default_rng(seed))) for seed in range(50)]
    assert sum(not np.isnan(one.seconds) for one in found) <= 2
    assert np.median([one.score for one in found]) < 0.3


@pytest.mark.parametrize(
    "values",
    [np.full(600, 5e9), np.zeros(600), np.arange(600.0), np.array([]), np.full(600, np.nan), np.ones(15)],
    ids=["constant", "silence", "ramp", "nothing", "holes", "too short"],
)
def test_a_signal_that_does_not_repeat_has_neither_period_nor_score(values: np.ndarray) -> None:
    found = find_period(values)
    assert np.isnan(found.seconds)
    assert found.score == 0.0


def test_a_series_of_which_less_than_half_is_known_has_no_period() -> None:
    values = bins_of(Square(10**9, 0.5), 30)
    values[:301] = np.nan
    assert np.isnan(find_period(values).seconds)
    values[:300] = 0.0
    assert find_period(values[300:]).seconds == pytest.approx(1.0, rel=2e-3)


def test_a_small_ripple_on_a_steady_rate_is_not_searched() -> None:
    ripple = np.sin(np.arange(600) * 2 * np.pi / 20)
    assert np.isnan(find_period(100 + ripple).seconds)
    assert find_period(100 + 20 * ripple).seconds == pytest.approx(1.0, rel=2e-3)


@settings(max_examples=20)
@given(factor=st.floats(1e-3, 1e12), width=st.floats(1e-3, 10))
def test_scaling_the_values_changes_nothing_and_the_period_scales_with_the_bin(factor: float, width: float) -> None:
    values = bins_of(Square(1_300_000_000, 0.3, jitter=0.03), 30)
    one, other = find_period(values), find_period(values * factor, width)
    assert other.seconds / width == pytest.approx(one.seconds / BIN_SECONDS, rel=1e-6)
    assert other.score == pytest.approx(one.score, rel=1e-6)


def test_the_period_of_rails_is_that_of_their_mean_over_what_is_known() -> None:
    wave = bins_of(Square(1_444_000_000, 0.4), 30)
    bins = [wave * part for part in (1.0, 0.5, 2.5)]
    assert find_rails_period(bins, BIN_SECONDS) == find_period(np.mean(bins, axis=0))
    one, other = wave.copy(), wave.copy()
    one[100:200], other[300:400] = np.nan, np.nan
    assert find_rails_period([one, other], BIN_SECONDS) == find_period(wave)


@pytest.mark.parametrize(("coarsest", "expected"), [(1, 0.05), (2, 0.05), (3, 0.06), (10, 0.2)])
def test_a_bin_holds_two_changes_of_the_slowest_counter(coarsest: int, expected: float) -> None:
    assert choose_bin_seconds(coarsest, 0.01) == pytest.approx(expected)


WIDTH = 0.05
EDGES = np.arange(0, 41) * WIDTH
EDGES_NS = np.arange(0, 41) * 50_000_000


@given(rate=st.floats(0, 1e11), seed=st.integers(0, 99))
def test_a_steady_rate_is_steady_at_any_instants(rate: float, seed: int) -> None:
    seconds = np.sort(np.random.default_rng(seed).uniform(-0.1, 2.1, 300))
    seconds[0], seconds[-1] = -0.1, 2.1
    np.testing.assert_allclose(rate_bins(seconds, rate * seconds, EDGES), rate, rtol=1e-9, atol=1e-6)


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


def test_a_reset_moves_nothing() -> None:
    assert cumulate(np.array([5, 7, 2, 6], dtype=np.uint64)).tolist() == [0, 2, 2, 6]
    assert cumulate(np.array([2**63 + 1, 2**63 + 4], dtype=np.uint64)).tolist() == [0, 3]


def test_the_bandwidth_is_the_sum_over_rails_where_missing_ones_take_the_mean_of_the_others() -> None:
    time_ns = np.broadcast_to(np.arange(-10, 211) * 10_000_000, (3, 2, 221)).copy()
    words, valid = ((time_ns + 100_000_000) / 1e9 * 5e9 / 4).astype(np.uint64), np.ones(time_ns.shape, dtype=bool)

    def bandwidth() -> np.ndarray:
        return bandwidth_bins(time_ns, words, valid, np.full(3, 4), EDGES_NS)

    np.testing.assert_allclose(bandwidth(), 3 * 2 * 5e9, rtol=1e-6)
    valid[1, :, 60:120] = valid[2] = False
    np.testing.assert_allclose(bandwidth(), 2 * 2 * 5e9, rtol=1e-6)
    valid[:] = False
    assert np.isnan(bandwidth()).all()
