"""Counters of ports that are read one after the other, taken to one instant, against the counters at that instant."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from ibpulse.core.arrays import Bools, Floats
from ibpulse.core.statistics import moments
from ibpulse.core.statistics.series import common_rates
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
