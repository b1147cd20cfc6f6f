"""Samples just at the bounds of what a line rate explains, in whole counts."""

from __future__ import annotations

import numpy as np
import pytest

from ibpulse.core.statistics.plausible import LineRate
from ibpulse.core.statistics.rates import Rates, Timing, rates

INTERVAL_NS = 10_000_000
LINE = 1e9
SCALE = 1000
# counts that the line rate moves between two reads
FULL = 10_000


def sampled(counts: list[int]) -> Rates:
    """A port that moves so many counts from read to read in both directions; reads take no time."""
    ticks = len(counts) + 1
    instants = 10**12 + INTERVAL_NS * np.arange(ticks)
    counters = np.broadcast_to(np.concatenate(([0], np.cumsum(counts))).astype(np.uint64), (1, 2, ticks))
    timing = Timing(np.stack([instants] * 3, axis=1)[None], [LineRate.of(LINE)], interval_ns=INTERVAL_NS)
    times = np.broadcast_to(instants, (1, 2, ticks))
    valid = np.ones((1, 2, ticks), dtype=np.bool_)
    return rates(times, counters, valid, np.array([SCALE]), np.array([1]), timing)


@pytest.mark.parametrize(("more", "merged"), [(0, False), (1, False), (2, True)])
def test_a_counter_may_have_been_about_to_show_one_more_count(more: int, merged: bool) -> None:
    found = sampled([FULL - 5, FULL + more, FULL - 5])
    assert bool(found.merges) == merged
    own = [FULL - 5, FULL + more, FULL - 5]
    mean = (2 * FULL - 5 + more) / 2
    expected = [mean, mean, FULL - 5] if merged else own
    np.testing.assert_allclose(found.bytes_per_second[0, 0, 1:], [count * LINE / FULL for count in expected])
