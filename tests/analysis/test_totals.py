from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.core.statistics.plausible import LineRate
from ibpulse.core.statistics.rates import Bound, Increase, increase

SCALE = np.array([4])


def of(*counters: int | None, receive: list[int | None] | None = None) -> Increase:
    """One port; None is an unread counter. Receive stays at 5 by default."""
    ways = [list(counters), receive or [5] * len(counters)]
    values = np.array([[[value or 0 for value in way] for way in ways]], dtype=np.uint64)
    valid = np.array([[[value is not None for value in way] for way in ways]])
    return increase(values, valid, SCALE)


def test_bytes_are_the_scaled_difference() -> None:
    assert of(10, 12, 17).moved_bytes.tolist() == [[28, 0]]


def test_bytes_are_counted_across_missing_data() -> None:
    assert of(None, 10, None, None, 17, None).moved_bytes.tolist() == [[28, 0]]


def test_a_fall_is_a_reset_and_its_interval_adds_nothing() -> None:
    found = of(100, 110, 3, 8)
    assert found.moved_bytes.tolist() == [[40 + 20, 0]]
    assert found.resets.tolist() == [1]


def test_a_decrease_across_missing_data_is_one_reset() -> None:
    assert of(100, None, 3).resets.tolist() == [1]


def test_both_directions_that_fall_together_are_one_reset() -> None:
    assert of(100, 3, receive=[50, 2]).resets.tolist() == [1]


def test_a_fall_of_one_direction_alone_is_a_reset() -> None:
    assert of(100, 110, receive=[50, 2]).resets.tolist() == [1]


def test_counters_near_two_to_the_64_do_not_overflow() -> None:
    assert of(2**64 - 20, 2**64 - 10).moved_bytes.tolist() == [[40, 0]]


@pytest.mark.parametrize(
    ("line", "missing", "most"),
    # 10 ms and a second more, then three times 10 ms, a line that was faster in between, and none that is known
    [
        (LineRate((1e9,)), 0, 1.01e9),
        (LineRate((1e9,)), 2, 1.03e9),
        (LineRate((1e9, 2e9, 1e9), (102, 103)), 2, 2.06e9),
        (LineRate(), 0, 1.01e12),
    ],
)
def test_more_than_the_line_carries_in_the_time_and_a_second_is_a_jump(
    line: LineRate, missing: int, most: float
) -> None:
    bound = Bound([line], np.array([[100, 100]]), 101, 10_000_000, 1)
    for words, jumps in ((round(most / 4), 0), (round(most / 4) + 1, 1)):
        values = [10, *[None] * missing, 10 + words, 12 + words]
        counters = np.array([[[value or 0 for value in values]] * 2], dtype=np.uint64)
        valid = np.array([[[value is not None for value in values]] * 2])
        found = increase(counters, valid, SCALE, bound)
        # the new value is the base of the next
        assert found.moved_bytes.tolist() == [[4 * (2 + words * (1 - jumps))] * 2]
        assert (found.jumps.tolist(), found.resets.tolist()) == ([jumps], [0])


def test_a_counter_that_is_sampled_rarely_may_be_four_samples_late() -> None:
    bound = Bound([LineRate((1e9,))], np.array([[100, 100]]), 101, 1_000_000_000, 1)
    counters = np.array([[[0, 5 * 10**9 // 4], [0, 5 * 10**9 // 4 + 1]]], dtype=np.uint64)
    found = increase(counters, np.ones((1, 2, 2), dtype=np.bool_), SCALE, bound)
    assert found.moved_bytes.tolist() == [[5 * 10**9, 0]]


def test_the_last_valid_counter_is_given_back_where_there_is_one() -> None:
    found = of(7, None, receive=[None, None])
    assert found.known.tolist() == [[True, False]]
    assert found.last[0, 0] == 7


@given(
    counters=st.lists(st.one_of(st.none(), st.integers(0, 1000)), min_size=2, max_size=30),
    cut=st.integers(1, 29),
)
def test_a_span_that_is_cut_moves_the_same_bytes(counters: list[int | None], cut: int) -> None:
    cut = min(cut, len(counters) - 1)
    whole, left = of(*counters), of(*counters[:cut])
    bridge = [int(left.last[0, 0]) if left.known[0, 0] else None]
    right = of(*bridge, *counters[cut:])
    np.testing.assert_array_equal(left.moved_bytes + right.moved_bytes, whole.moved_bytes)
    np.testing.assert_array_equal(left.resets + right.resets, whole.resets)


@given(steps=st.lists(st.integers(0, 10**9), min_size=1, max_size=30))
def test_without_a_fall_the_sum_is_last_minus_first(steps: list[int]) -> None:
    counters = np.cumsum([17, *steps]).tolist()
    assert of(*counters).moved_bytes[0, 0] == 4 * (counters[-1] - counters[0])
