"""Counters of ports that are read one after the other, taken to one instant, against the counters at that instant."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibpulse.core.arrays import Bools, Counts, Floats
from ibpulse.core.ring.layout import ABSENT
from ibpulse.core.statistics import moments
from ibpulse.core.statistics.plausible import UNLIMITED, LineRate
from ibpulse.core.statistics.rates import Timing, rates
from ibpulse.core.statistics.series import Detail, RateSeries, common_rates, draft_series, finish_series, plain_peaks
from tests.tables import for_each

TICK_NS, TICKS, PORTS, RATE, ACTIVE = 10_000_000, 12_000, 4, 40.0, 0.1
SKEW_NS = 3_600_000 // (2 * PORTS)


@dataclass(frozen=True)
class Reads:
    """Reads of all counters at every tick: when each counter had its value, and the clock around it."""

    moment_ns: Floats
    stamps: np.ndarray

    @property
    def time_ns(self) -> np.ndarray:
        return np.moveaxis((self.stamps[..., :-1] + self.stamps[..., 1:]) // 2, 2, 1)

    def rates(self, flow: Callable[[Floats], Floats], valid: Bools | None = None) -> tuple[Floats, Floats]:
        """Rates as read (bytes per ns), and between common instants, summed over all counters."""
        counters, seconds = flow(self.moment_ns), np.zeros(self.moment_ns.shape)
        seconds[..., 1:] = np.diff(self.time_ns) / 1e9
        rates = np.full(counters.shape, np.nan)
        rates[..., 1:] = np.diff(counters) / np.diff(self.time_ns) * 1e9
        valid = np.ones(counters.shape, np.bool_) if valid is None else valid
        rates[~valid] = rates[..., 1:][~valid[..., :-1]] = np.nan
        return rates, common_rates(self.time_ns, self.stamps, valid, rates, seconds)

    def truth(self, flow: Callable[[Floats], Floats]) -> Floats:
        common = self.time_ns.mean(axis=(0, 1))
        return np.append(np.nan, len(self.stamps) * 2 * np.diff(flow(common)) / np.diff(common) * 1e9)


def read(longest_ns: int, random: bool = False) -> Reads:
    """One counter after the other, each for that long; at random, for up to that long, with the value at any moment."""
    rng = np.random.default_rng(3)
    halves = np.full((PORTS * 2, 2, TICKS), longest_ns // 2)
    if random:
        halves = rng.integers(0, longest_ns // 2, halves.shape)
    ends = np.cumsum(halves.reshape(-1, TICKS), axis=0) + np.arange(TICKS) * TICK_NS + rng.integers(0, 200_000, TICKS)
    ends = ends.reshape(PORTS, 2, 2, TICKS)
    begin = ends[:, 0, 0] - halves.reshape(ends.shape)[:, 0, 0]
    return Reads(ends[:, :, 0].astype(float), np.stack([begin, ends[:, 0, 1], ends[:, 1, 1]], axis=2))


def read_slowly(spread_ms: float, tick_ms: int, ports: int = 8) -> Reads:
    """Reads of 20 us to 0.9 ms, evenly by their logarithm, and as much more as lets all of a tick take so long."""
    rng = np.random.default_rng(3)
    reads_ns = 20_000 * 45 ** rng.random((ports * 2, TICKS * 10 // tick_ms))
    reads_ns += spread_ms * 1e6 / len(reads_ns) - reads_ns.mean()
    ticks_ns = np.arange(reads_ns.shape[1]) * tick_ms * 1e6
    ends = np.cumsum(reads_ns, axis=0) + ticks_ns + rng.integers(0, 200_000, ticks_ns.shape)
    ends, reads_ns = (each.reshape(ports, 2, -1) for each in (ends, reads_ns))
    stamps = np.stack([ends[:, 0] - reads_ns[:, 0], ends[:, 0], ends[:, 1]], axis=2)
    return Reads(ends - reads_ns * rng.random(ends.shape), stamps.astype(np.int64))


def square(period_ms: float, duty: float) -> Callable[[Floats], Floats]:
    """Bytes up to a time (ns) of a wave that is busy first."""
    period = period_ms * 1e6

    def flow(time_ns: Floats) -> Floats:
        count = np.floor(time_ns / period)
        return RATE * (count * duty * period + np.minimum(time_ns - count * period, duty * period)) / 1e9

    return flow


def describe(rates: Floats, scales: Sequence[int] = (1, 5, 10)) -> Floats:
    """Duty cycle, and CV over so many samples."""
    rates = rates[200:-200]
    found, seconds = [float((rates > ACTIVE).mean())], np.full(rates.shape, 0.01)
    for ticks in scales:
        values, weights = moments.rebin(rates, seconds, ticks)
        found.append(float(moments.variation(moments.weighted_sums(values, weights, values > ACTIVE))))
    return np.array(found)


WAVES = [(187.3, 0.37), (187.3, 0.6), (93.1, 0.37), (51.7, 0.4), (1444.1, 0.75)]


@for_each([(*wave, *how) for wave in WAVES for how in ((SKEW_NS, False), (900_000, True))])
def test_a_square_wave_has_the_values_of_one_instant(
    period_ms: float, duty: float, longest_ns: int, random: bool
) -> None:
    reads, flow = read(longest_ns, random), square(period_ms, duty)
    plain, common = (describe(each.sum(axis=(0, 1))) for each in reads.rates(flow))
    truth = describe(reads.truth(flow))
    assert plain[1] > 1.1 * truth[1]
    assert common == pytest.approx(truth, rel=0.025 if random else 0.01)


@for_each(
    [(*wave, *how) for wave in ((187.3, 0.37), (187.3, 0.6), (251.7, 0.4)) for how in ((7, 10), (9, 10), (14, 20))]
)
def test_reads_may_take_most_of_a_sample(period_ms: float, duty: float, spread_ms: float, tick_ms: int) -> None:
    reads, flow = read_slowly(spread_ms, tick_ms), square(period_ms, duty)
    plain, common = (describe(each.sum(axis=(0, 1)), [1]) for each in reads.rates(flow))
    # a sample is active if a busy time overlaps it, at any phase, and has a part of it at both ends
    busy_ms = duty * period_ms
    closed = [
        (busy_ms + tick_ms) / period_ms,
        math.sqrt((busy_ms - tick_ms / 3) * (busy_ms + tick_ms) / busy_ms**2 - 1),
    ]
    assert describe(reads.truth(flow), [1]) == pytest.approx(closed, rel=0.02)
    assert (plain > [1.03 * closed[0], 1.2 * closed[1]]).all()
    assert common == pytest.approx(describe(reads.truth(flow), [1]), rel=0.02)
    assert common[0] == pytest.approx(closed[0], rel=0.005)


@for_each([(spread_ms, tick_ms) for spread_ms, tick_ms in ((1.6, 10), (3.2, 10), (7, 20))])
def test_edges_at_the_common_instants_leave_silent_samples_silent(spread_ms: float, tick_ms: int) -> None:
    # the reads of each counter take equally long, and their mean time is a multiple of the tick
    rng, ticks_ns = np.random.default_rng(3), np.arange(1, 5001) * tick_ms * 1e6
    each_ns = spread_ms * 1e6 / 16
    begin = ticks_ns + each_ns * (np.arange(16).reshape(8, 2, 1) - 8)
    stamps = np.stack([begin[:, 0], begin[:, 1], begin[:, 1] + each_ns], axis=2).astype(np.int64)
    reads = Reads(begin + each_ns * rng.random(begin.shape), stamps)
    plain, common = (describe(each.sum(axis=(0, 1)), [1]) for each in reads.rates(square(10 * tick_ms, 0.4)))
    assert plain[0] == pytest.approx(0.6)
    assert common[0] == pytest.approx(0.4, rel=0.04)


@for_each([(spread_ms, tick_ms, late_ms) for spread_ms, tick_ms in ((7, 10), (14, 20)) for late_ms in (0.2, 1, 3)])
def test_ports_need_not_begin_at_once(spread_ms: float, tick_ms: int, late_ms: float) -> None:
    reads, flow = read_slowly(spread_ms, tick_ms), square(251.7, 0.4)
    late_ns = np.linspace(0, late_ms * 1e6, len(reads.stamps))[:, None]
    moved = replace(reads, moment_ns=reads.moment_ns - late_ns[..., None])
    common = moved.rates(flow)[1].sum(axis=(0, 1))
    instants = reads.time_ns.mean(axis=(0, 1))
    truth = 2 * np.diff(flow(instants - late_ns)).sum(axis=0) / np.diff(instants) * 1e9
    assert describe(common, [1]) == pytest.approx(describe(np.append(np.nan, truth), [1]), rel=0.03)


def test_steady_traffic_stays_as_it_is() -> None:
    rates, common = read(SKEW_NS).rates(lambda time_ns: time_ns * RATE / 1e9)
    np.testing.assert_allclose(common[..., 1:], rates[..., 1:])


def test_bytes_only_change_samples() -> None:
    reads = read(SKEW_NS)
    rates, common = reads.rates(square(187.3, 0.37))
    seconds = np.diff(reads.time_ns)
    shared = np.diff(reads.time_ns.mean(axis=(0, 1)))
    moved, found = (rates[..., 1:] * seconds).sum(), (common[..., 1:] * shared).sum()
    assert found == pytest.approx(moved, rel=1e-3)
    assert (common[..., 1:] >= -1e-9).all()


def test_bursts_within_a_sample_are_not_spread() -> None:
    flow = square(263.0, 0.01)
    rates, common = read(SKEW_NS).rates(flow)
    assert np.count_nonzero(common[..., 8:-8] > ACTIVE) <= np.count_nonzero(rates[..., 8:-8] > ACTIVE)


def test_missing_samples_stay_missing_and_change_no_neighbour() -> None:
    valid = np.ones((PORTS, 2, TICKS), np.bool_)
    valid[1, :, 1000:1003] = valid[:, :, 2000] = False
    rates, common = read(SKEW_NS).rates(square(187.3, 0.37), valid)
    np.testing.assert_array_equal(np.isnan(common), np.isnan(rates))
    assert np.isfinite(common[..., 2:][valid[..., 2:] & valid[..., 1:-1]]).all()


tick = st.tuples(
    st.booleans(),  # present
    st.integers(1, 50_000_000),  # ns since the tick before
    st.sampled_from([0, 1, 12_345, 10**9]),  # counts since the tick before
    st.sampled_from(["read", "read", "read", "absent", "reset"]),
    st.sampled_from(["read", "read", "read", "absent", "reset"]),
)


def rate_series(
    stamps: np.ndarray,
    counters: np.ndarray,
    present: Bools,
    scale: int,
    stride: int | np.ndarray,
    line: LineRate = UNLIMITED,
    detail: Detail = "peaks",
    interval_ns: int = 0,
) -> RateSeries:
    """The series of one port, whose first tick is 0."""
    draft = draft_series(stamps, counters, present, scale, stride, line, 0, detail, interval_ns)
    return finish_series([draft], interval_ns)[0]


def check_series(
    stamps: np.ndarray, counters: np.ndarray, present: Bools, scale: int, strides: np.ndarray
) -> np.ndarray:
    """The series of one port, which has to agree with its rates."""
    stride = strides[0] if strides.ndim > 1 else int(strides[0])
    found = rate_series(stamps.view(np.int64), counters.view(np.int64), present, scale, stride).bytes_per_second
    times = stamps.astype(np.int64)
    middles = (times[:, :-1] + times[:, 1:]) // 2
    valid = (counters != ABSENT) & present[:, None]
    expected = rates(middles.T[None], counters.T[None], valid.T[None], np.array([scale]), strides)
    np.testing.assert_allclose(found, expected.bytes_per_second[0].astype(np.float32), rtol=3e-6)
    return found


@settings(deadline=None)
@given(ticks=st.lists(tick, max_size=30), scale=st.sampled_from([1, 4]), stride=st.sampled_from([1, 1, 2, 5]))
def test_a_series_agrees_with_the_rates(ticks: list[tuple[bool, int, int, str, str]], scale: int, stride: int) -> None:
    count = len(ticks)
    stamps, counters = np.zeros((count, 3), dtype=np.uint64), np.zeros((count, 2), dtype=np.uint64)
    present = np.array([one[0] for one in ticks], dtype=np.bool_)
    now, counts = 10**15, [10**12, 2**62]
    for row, (_, elapsed, moved, *fates) in enumerate(ticks):
        now += elapsed + 1000
        stamps[row] = now, now + 300, now + 900
        for direction, fate in enumerate(fates):
            counts[direction] = moved if fate == "reset" else counts[direction] + moved
            counters[row, direction] = ABSENT if fate == "absent" else counts[direction]
    # what was not written is whatever an older tick left there
    stamps[~present], counters[~present] = 7, 2**63 - 1

    check_series(stamps, counters, present, scale, np.array([stride]))


def test_a_series_agrees_where_the_stride_changes() -> None:
    ticks = np.arange(40, dtype=np.uint64)
    strides = np.where((ticks >= 13) & (ticks < 31), 4, 1)
    stamps = (10**15 + ticks * 10**7)[:, None] + np.array([0, 300, 900], dtype=np.uint64)
    found = check_series(
        stamps, np.stack([ticks * 1000, ticks * ticks], axis=1), ticks % strides == 0, 4, strides[None]
    )
    # up to 12 every tick, from 16 to 28 every fourth, from 31 on every tick
    assert np.flatnonzero(np.isnan(found[0])).tolist() == [0, 13, 14, 15, 16, 29, 30, 31]


def test_samples_without_elapsed_time_have_no_rate() -> None:
    stamps, counters = np.full((3, 3), 10**15, dtype=np.uint64), np.array([[1, 1], [2, 2], [3, 3]], dtype=np.uint64)
    assert np.isnan(check_series(stamps, counters, np.ones(3, dtype=np.bool_), 4, np.array([1]))).all()


COUNT, INTERVAL, LINE = 2, 10_000_000, 50e9
SCALE = np.array([1, 4])
LINES = [LineRate((LINE,)), UNLIMITED]

samples = st.lists(
    st.tuples(
        st.integers(-4_000_000, 4_000_000),  # late by, ns
        st.sampled_from([300, 2_000, 60_000, 400_000]),  # duration of each read, ns
        st.sampled_from([0, 1, 123_456, 90_000_000]),  # counts
    ),
    min_size=2,
    max_size=20,
)


def plain_arrays(found: list[tuple[int, int, int]]) -> tuple[Counts, Counts]:
    """Stamps (ports, 3, ticks) and counters (ports, 2, ticks); the second port moves a quarter."""
    late, reads, moved = (np.array(part) for part in zip(*found, strict=True))
    stamps = 10**15 + np.arange(len(found)) * INTERVAL + late + np.arange(3)[:, None] * reads
    counters = np.cumsum(moved) + np.array([[0], [10**6]])
    return np.stack([stamps, stamps + 500]), np.stack([counters, counters // 4])


def slow(stamps: Counts, counters: Counts) -> Floats:
    middles = (stamps[:, :-1] + stamps[:, 1:]) >> 1
    valid = np.ones(counters.shape, dtype=np.bool_)
    timing = Timing(stamps.transpose(0, 2, 1), LINES, interval_ns=INTERVAL)
    return rates(middles, counters.view(np.uint64), valid, SCALE, np.ones(COUNT, dtype=np.int64), timing).peaks


@settings(deadline=None, max_examples=100)
@given(found=samples)
def test_plain_peaks_are_those_of_the_rates(found: list[tuple[int, int, int]]) -> None:
    stamps, counters = plain_arrays(found)
    peaks, expected = plain_peaks(stamps, counters, SCALE, LINES, INTERVAL), slow(stamps, counters)
    # without bytes in a short sample, nothing is above the line rate
    if peaks is not None or max(moved for _, _, moved in found) < 10**6:
        assert peaks is not None
        np.testing.assert_array_equal(peaks, expected[..., 1:])


@for_each([(1, 0, 3, -1), (1, 0, 3, 5), (0, 1, 0, -1)])
def test_lost_and_reset_counters_are_left_to_the_rates(port: int, way: int, tick: int, value: int) -> None:
    stamps, counters = plain_arrays([(0, 300, 1000)] * 6)
    counters[port, way, tick] = value
    assert plain_peaks(stamps, counters, SCALE, LINES, INTERVAL) is None


def test_samples_above_the_line_rate_are_left_to_the_rates() -> None:
    stamps, counters = plain_arrays([(0, 300, 400_000_000)] * 3 + [(0, 300, 600_000_000)])
    assert plain_peaks(stamps[..., :3], counters[..., :3], SCALE, LINES, INTERVAL) is not None
    assert plain_peaks(stamps, counters, SCALE, LINES, INTERVAL) is None
