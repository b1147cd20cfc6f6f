"""Sets of intervals, against sets of single nanoseconds."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ibpulse.workbench.overlap.intervals import EMPTY, IntervalSet, union

spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 15)), max_size=12)
Spans = list[tuple[int, int]]


def as_set(given_spans: Spans) -> IntervalSet:
    starts = np.array([start for start, _ in given_spans], dtype=np.int64)
    return union(starts, starts + np.array([length for _, length in given_spans], dtype=np.int64))


def instants(given_spans: Spans) -> set[int]:
    return {instant for start, length in given_spans for instant in range(start, start + length)}


def members(found: IntervalSet) -> set[int]:
    assert (found.ends > found.starts).all()
    assert (found.starts[1:] > found.ends[:-1]).all()
    return {instant for start, end in zip(found.starts, found.ends, strict=True) for instant in range(start, end)}


@settings(max_examples=50)
@given(spans, spans)
def test_sets_of_intervals_are_sets_of_instants(one: Spans, other: Spans) -> None:
    a, b, first, second = as_set(one), as_set(other), instants(one), instants(other)
    assert members(a) == first
    assert a.total_ns == len(first)
    assert members(a & b) == first & second
    assert members(a - b) == first - second
    assert members(a | b) == first | second
    assert members(a.shift(7)) == {instant + 7 for instant in first}


@settings(max_examples=50)
@given(spans, st.integers(-5, 80), st.integers(0, 40))
def test_length_within_a_window_counts_its_instants(one: Spans, begin: int, lasts: int) -> None:
    window = range(begin, begin + lasts)
    assert as_set(one).lengths_ns(np.array([begin]), np.array([begin + lasts]))[0] == len(instants(one) & set(window))


def test_empty_sets_and_large_times_are_exact() -> None:
    assert (
        (EMPTY & EMPTY).total_ns == (EMPTY - EMPTY).total_ns == EMPTY.lengths_ns(np.array([0]), np.array([10]))[0] == 0
    )
    now = 1_763_683_200 * 10**9 + 1
    late = union(np.array([now, now + 10]), np.array([now + 3, now + 11]))
    assert late.lengths_ns(np.array([now + 2]), np.array([now + 11]))[0] == 2
    assert (late - EMPTY).total_ns == (late | EMPTY).total_ns == 4
