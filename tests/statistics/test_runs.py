"""Runs of samples, against a walk from sample to sample."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.core.statistics.steps.runs import (
    HOLE,
    RunLengths,
    Runs,
    RunState,
    describe_runs,
    find_bursts,
    find_equal_runs,
    find_pauses,
    find_row_runs,
    find_runs,
    find_survival,
    join_runs,
    mark_long_runs,
    silence_level,
    split_runs,
    start_runs,
    survival_quantile,
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
    assert silence_level(np.array([0.0, 5e9, 1e8]), 1e7).tolist() == pytest.approx([1e7, 5e7, 1e7])


TICK = 0.01
ACTIVE = 1.0
NAN = float("nan")

levels = st.sampled_from([0.0, 1.0, 1.5, 2.0, 3.0, NAN])
series = st.lists(levels, min_size=1, max_size=60)


def split(values: list[float], active: float = ACTIVE) -> Runs:
    rates = np.array([values])
    return split_runs(start_runs(1), rates, np.full(rates.shape, TICK), active)[1]


def bridge(values: list[float]) -> list[float]:
    """The values with each hole of one or two samples filled from its ends inwards, the first one first."""
    found, at = list(values), 0
    for lost, group in itertools.groupby(values, key=lambda value: bool(np.isnan(value))):
        end = at + len(list(group))
        if lost and at > 0 and end < len(values) and end - at <= 2:
            found[at] = values[at - 1]
            if end - at == 2:
                found[end - 1] = values[end]
        at = end
    return found


def in_turn(values: list[float]) -> list[tuple[bool, bool, int, float]]:
    """Burst or gap, whole or not, ticks and bytes of the runs that ended, one tick after the other."""
    filled = bridge(values)
    # short holes at the end may still be filled
    if not np.isnan(filled[-3:]).all():
        while np.isnan(filled[-1]):
            filled.pop()
    labels = ["hole" if np.isnan(value) else "burst" if value > ACTIVE else "gap" for value in filled]
    runs = [(label, list(group)) for label, group in itertools.groupby(range(len(labels)), key=lambda at: labels[at])]
    found = []
    for place, (label, ticks) in enumerate(runs[:-1]):
        if label != "hole":
            whole = place > 0 and runs[place - 1][0] != "hole" and runs[place + 1][0] != "hole"
            found.append((label == "burst", whole, len(ticks), sum(filled[at] for at in ticks) * TICK))
    return found


@given(values=series)
def test_runs_are_those_that_a_walk_tick_by_tick_finds(values: list[float]) -> None:
    runs, expected = split(values), in_turn(values)
    assert [(bool(b), bool(w)) for b, w in zip(runs.burst, runs.whole, strict=True)] == [one[:2] for one in expected]
    np.testing.assert_allclose(runs.seconds, [one[2] * TICK for one in expected], rtol=1e-9)
    np.testing.assert_allclose(runs.moved_bytes, [one[3] for one in expected], rtol=1e-9)
    observed = TICK * np.count_nonzero(~np.isnan(values))
    assert runs.busy_seconds[0] + runs.idle_seconds[0] == pytest.approx(observed)


@given(
    rows=st.lists(st.lists(levels, min_size=40, max_size=40), min_size=1, max_size=3), cuts=st.sets(st.integers(0, 40))
)
def test_how_the_ticks_are_cut_into_calls_changes_nothing(rows: list[list[float]], cuts: set[int]) -> None:
    rates = np.array(rows)
    seconds = np.full(rates.shape, TICK)
    end, whole = split_runs(start_runs(len(rows)), rates, seconds, ACTIVE)
    state = start_runs(len(rows))
    parts = []
    for first, last in itertools.pairwise([0, *sorted(cuts), 40]):
        state, runs = split_runs(state, rates[:, first:last], seconds[:, first:last], ACTIVE)
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
    known = one.label != HOLE
    np.testing.assert_array_equal(one.rate[known], other.rate[known])
    np.testing.assert_array_equal(one.missing[known], other.missing[known])


def test_three_missing_samples_cut_off_a_run() -> None:
    runs = split([0, 5, 5, NAN, NAN, NAN, 5, 0, 5, 0])
    assert runs.seconds[runs.complete(burst=True)].tolist() == [TICK]
    assert runs.censored_seconds() == pytest.approx(TICK * (1 + 2 + 1))
    assert runs.begun.tolist() == [False, True, False, True, True]
    assert runs.ended.tolist() == [True, False, True, True, True]


def test_the_last_run_of_a_series_is_cut_off_by_its_end() -> None:
    runs = find_bursts(np.array([0.0, 5, 0, 5, 5]), np.full(5, TICK), ACTIVE)
    lengths = runs.lengths(burst=True)
    assert (lengths.seconds.tolist(), lengths.ended.tolist()) == (pytest.approx([TICK, 2 * TICK]), [True, False])


def test_bursts_after_a_gap_are_counted_immediately_and_per_row() -> None:
    rates = np.array([[0, 5, 0, 5], [5, 5, NAN, 5], [NAN, 0, NAN, 5]])
    _, runs = split_runs(start_runs(3), rates, np.full(rates.shape, TICK), ACTIVE)
    assert runs.began.tolist() == [2, 0, 1]


@pytest.mark.parametrize("shape", [(0, 10), (2, 0), (0, 0)])
def test_no_rows_and_no_ticks_end_nothing(shape: tuple[int, int]) -> None:
    state, runs = split_runs(start_runs(shape[0]), np.zeros(shape), np.zeros(shape), ACTIVE)
    assert len(runs.row) == 0
    assert state.label.tolist() == [HOLE] * shape[0]


def test_runs_are_described_by_the_quantiles_of_their_lengths_and_their_mean_bytes() -> None:
    lengths = np.random.default_rng(2).permutation(np.arange(1, 101))
    found = describe_runs(
        split([0.0, *np.concatenate([np.repeat([5.0, 0.0], [length, 1]) for length in lengths])]), True
    )
    assert (found.count, found.longest_seconds) == (100, pytest.approx(1.0))
    assert found.mean_bytes == pytest.approx(5 * TICK * 50.5)
    # half are as long as 50 ticks or shorter, and half longer: the middle between 50 and 51
    assert (found.p50_seconds, found.p95_seconds) == (pytest.approx(0.505), pytest.approx(0.955))


def test_survival_is_that_of_a_published_example() -> None:
    # weeks of remission under 6-mercaptopurine, 12 of 21 censored: Freireich et al., 1963; Cox and Oakes, 1984, p. 49
    ended, censored = [6, 6, 6, 7, 10, 13, 16, 22, 23], [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
    lengths = RunLengths(np.array(ended + censored, float), np.repeat([True, False], [len(ended), len(censored)]))
    times, longer = find_survival(lengths)
    assert times.tolist() == [6, 7, 10, 13, 16, 22, 23]
    assert longer == pytest.approx([0.857, 0.807, 0.753, 0.690, 0.627, 0.538, 0.448], abs=5e-4)
    assert survival_quantile(lengths, 0.5) == 23
    assert np.isnan(survival_quantile(lengths, 0.95))


@given(
    runs=st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=40),
    part=st.sampled_from([0.5, 0.95]),
)
def test_survival_is_what_moving_the_mass_of_censored_runs_gives(runs: list[tuple[int, bool]], part: float) -> None:
    # Efron, 1967: from left to right, each censored run hands its mass to all longer ones in equal parts
    order = sorted(runs, key=lambda run: (run[0], not run[1]))
    mass = [1 / len(runs)] * len(runs)
    for place, (_, ended) in enumerate(order[:-1]):
        if not ended:
            for later in range(place + 1, len(order)):
                mass[later] += mass[place] / (len(order) - place - 1)
            mass[place] = 0.0
    lengths = RunLengths(np.array([length for length, _ in runs], float), np.array([ended for _, ended in runs]))
    times, longer = find_survival(lengths)
    for time, share in zip(times, longer, strict=True):
        gone = sum(m for m, (length, ended) in zip(mass, order, strict=True) if ended and length <= time)
        assert share == pytest.approx(1 - gone)
    found = survival_quantile(lengths, part)
    if all(ended for _, ended in runs):
        values = sorted(length for length, _ in runs)
        assert sum(value <= found for value in values) >= part * len(values) - 1e-9
        assert sum(value >= found for value in values) >= (1 - part) * len(values) - 1e-9
