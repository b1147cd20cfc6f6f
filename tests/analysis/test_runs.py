"""Runs of samples, against a walk from sample to sample."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.core.statistics.steps.runs import (
    find_equal_runs,
    find_pauses,
    find_row_runs,
    find_runs,
    join_runs,
    mark_long_runs,
    silence_level,
)

flags = st.lists(st.booleans(), max_size=40)


def walk(labels: list[int]) -> list[tuple[int, int, int]]:
    """Label, first place and end of each run of equal labels."""
    found: list[tuple[int, int, int]] = []
    for place, label in enumerate(labels):
        if found and found[-1][0] == label:
            found[-1] = (label, found[-1][1], place + 1)
        else:
            found.append((label, place, place + 1))
    return found


def walk_true(mask: list[bool]) -> list[tuple[int, int]]:
    return [(first, end) for label, first, end in walk([int(flag) for flag in mask]) if label]


def pairs(found: tuple[np.ndarray, np.ndarray]) -> list[tuple[int, int]]:
    return list(zip(found[0].tolist(), found[1].tolist(), strict=True))


@given(mask=flags)
def test_runs_are_those_of_a_walk(mask: list[bool]) -> None:
    assert pairs(find_runs(np.array(mask, dtype=np.bool_))) == walk_true(mask)


@given(labels=st.lists(st.integers(-1, 2), max_size=40))
def test_runs_of_equal_labels_are_those_of_a_walk(labels: list[int]) -> None:
    expected = [(first, end) for _, first, end in walk(labels)]
    assert pairs(find_equal_runs(np.array(labels, dtype=np.int64))) == expected


@given(rows=st.integers(0, 4), samples=st.integers(0, 12), seed=st.integers(0, 1000))
def test_no_run_crosses_two_rows(rows: int, samples: int, seed: int) -> None:
    mask = np.random.default_rng(seed).random((rows, samples)) < 0.6
    expected = [(row, *run) for row in range(rows) for run in walk_true(mask[row].tolist())]
    assert [tuple(run) for run in np.stack(find_row_runs(mask), axis=1).tolist()] == expected


@given(mask=flags, most=st.integers(0, 5))
def test_joined_runs_have_no_short_gap(mask: list[bool], most: int) -> None:
    filled, runs = list(mask), walk_true(mask)
    for (_, end), (first, _) in itertools.pairwise(runs):
        if first - end <= most:
            filled[end:first] = [True] * (first - end)
    assert pairs(join_runs(*find_runs(np.array(mask, dtype=np.bool_)), most)) == walk_true(filled)


@given(mask=flags, most=st.integers(0, 5))
def test_only_samples_of_long_runs_are_marked(mask: list[bool], most: int) -> None:
    expected = [
        any(first <= place < end for first, end in walk_true(mask) if end - first > most) for place in range(len(mask))
    ]
    assert mark_long_runs(np.array(mask, dtype=np.bool_), most).tolist() == expected


@given(rates=st.lists(st.sampled_from([0.0, 1.0, 2.0, float("nan")]), max_size=30))
def test_pauses_count_their_missing_samples(rates: list[float]) -> None:
    found = find_pauses(np.array(rates), 1.0)
    expected = walk_true([not rate > 1.0 for rate in rates])
    assert pairs((found.first, found.end)) == expected
    lost = [[rate != rate for rate in rates[first:end]] for first, end in expected]
    assert found.missing.tolist() == [sum(each) for each in lost]
    assert found.tail.tolist() == [[*each[::-1], True].index(True) for each in lost]


def test_silent_is_a_hundredth_of_the_highest_rate() -> None:
    assert float(silence_level(5e9)) == pytest.approx(5e7)
    assert silence_level(np.array([0.0, 5e9, 1e8]), 1e7).tolist() == pytest.approx([1e7, 5e7, 1e7])
