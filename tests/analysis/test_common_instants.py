"""Counters of ports that are read one after the other, taken to one instant, against the counters at that instant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from ibpulse.analysis import moments
from ibpulse.analysis.common_instants import common_rates
from ibpulse.arrays import Bools, Floats
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
        return np.append(np.nan, 2 * PORTS * np.diff(flow(common)) / np.diff(common) * 1e9)


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


def square(period_ms: float, duty: float) -> Callable[[Floats], Floats]:
    """Bytes up to a time (ns) of a wave that is busy first."""
    period = period_ms * 1e6

    def flow(time_ns: Floats) -> Floats:
        count = np.floor(time_ns / period)
        return RATE * (count * duty * period + np.minimum(time_ns - count * period, duty * period)) / 1e9

    return flow


def describe(rates: Floats) -> Floats:
    """Duty cycle, and CV at 10, 50 and 100 ms."""
    rates = rates[200:-200]
    found, seconds = [float((rates > ACTIVE).mean())], np.full(rates.shape, 0.01)
    for ticks in (1, 5, 10):
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
