"""The fast peaks of short spans are those of the rates, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibpulse.core.arrays import Counts, Floats
from ibpulse.core.statistics.plausible import UNLIMITED, LineRate
from ibpulse.core.statistics.rates import Timing, rates
from ibpulse.core.statistics.series import plain_peaks

PORTS, INTERVAL, LINE = 2, 10_000_000, 50e9
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


def arrays(found: list[tuple[int, int, int]]) -> tuple[Counts, Counts]:
    """Stamps (ports, 3, ticks) and counters (ports, 2, ticks); the second port moves a quarter."""
    late, reads, moved = (np.array(part) for part in zip(*found, strict=True))
    stamps = 10**15 + np.arange(len(found)) * INTERVAL + late + np.arange(3)[:, None] * reads
    counters = np.cumsum(moved) + np.array([[0], [10**6]])
    return np.stack([stamps, stamps + 500]), np.stack([counters, counters // 4])


def slow(stamps: Counts, counters: Counts) -> Floats:
    middles = (stamps[:, :-1] + stamps[:, 1:]) >> 1
    valid = np.ones(counters.shape, dtype=np.bool_)
    timing = Timing(stamps.transpose(0, 2, 1), LINES, interval_ns=INTERVAL)
    return rates(middles, counters.view(np.uint64), valid, SCALE, np.ones(PORTS, dtype=np.int64), timing).peaks


@settings(deadline=None, max_examples=100)
@given(found=samples)
def test_they_agree(found: list[tuple[int, int, int]]) -> None:
    stamps, counters = arrays(found)
    peaks, expected = plain_peaks(stamps, counters, SCALE, LINES, INTERVAL), slow(stamps, counters)
    # without bytes in a short sample, nothing is above the line rate
    if peaks is not None or max(moved for _, _, moved in found) < 10**6:
        assert peaks is not None
        np.testing.assert_array_equal(peaks, expected[..., 1:])


@pytest.mark.parametrize("value", [-1, 5])
def test_lost_and_reset_counters_are_left_to_the_rates(value: int) -> None:
    stamps, counters = arrays([(0, 300, 1000)] * 6)
    counters[1, 0, 3] = value
    assert plain_peaks(stamps, counters, SCALE, LINES, INTERVAL) is None


def test_an_unread_first_counter_is_left_to_the_rates() -> None:
    stamps, counters = arrays([(0, 300, 1000)] * 6)
    counters[0, 1, 0] = -1
    assert plain_peaks(stamps, counters, SCALE, LINES, INTERVAL) is None


def test_samples_above_the_line_rate_are_left_to_the_rates() -> None:
    stamps, counters = arrays([(0, 300, 400_000_000)] * 3 + [(0, 300, 600_000_000)])
    assert plain_peaks(stamps[..., :3], counters[..., :3], SCALE, LINES, INTERVAL) is not None
    assert plain_peaks(stamps, counters, SCALE, LINES, INTERVAL) is None
