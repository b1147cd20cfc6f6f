"""The ratio of programs that take turns, its interval, and when the rounds end."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import inf
from statistics import median

import pytest

from bench.ratios import Measured, Watched, ratio_of, take_turns
from bench.served import quantile_of_buckets

# Sorted values, counted from 1, that enclose the median with at least 95 %: the usual table of the sign test.
ENCLOSING = {6: (1, 6), 8: (1, 8), 9: (2, 8), 10: (2, 9), 12: (3, 10), 15: (4, 12), 20: (6, 15), 25: (8, 18)}


@pytest.mark.parametrize("count", ENCLOSING)
def test_the_interval_lies_between_the_ranks_of_the_sign_test(count: int) -> None:
    values = [float(value) for value in range(1, count + 1)]
    random.Random(count).shuffle(values)
    found = ratio_of(values, [1.0] * count)
    assert (found.low, found.high) == ENCLOSING[count]
    assert found.value == (count + 1) / 2


def test_the_interval_encloses_the_true_ratio_in_95_percent_of_all_runs() -> None:
    draw = random.Random(1)
    held = 0
    for _ in range(2_000):
        # skewed by a machine that is sometimes busy
        numerators = [2.0 * draw.lognormvariate(0, 0.2) for _ in range(15)]
        denominators = [draw.lognormvariate(0, 0.2) for _ in range(15)]
        found = ratio_of(numerators, denominators)
        held += found.low <= 2.0 <= found.high
    # the exact probability for 15 values is 96.5 %
    assert 0.955 < held / 2_000 < 0.975


@pytest.mark.parametrize("count", [1, 3, 5])
def test_few_rounds_have_no_interval(count: int) -> None:
    found = ratio_of([3.0] * count, [2.0] * count)
    assert (found.value, found.low, found.high) == (1.5, 0.0, inf)
    assert "too few rounds" in str(found)


def test_the_text_says_whether_the_interval_is_narrow() -> None:
    assert str(ratio_of([1.0, 1.01, 1.02, 1.03, 1.04, 1.05], [1.0] * 6)) == "1.02 × (1.00 to 1.05)"
    assert str(ratio_of([1.0, 1.01, 1.02, 1.03, 1.04, 1.25], [1.0] * 6)) == "1.02 × (1.00 to 1.25, too noisy)"


def test_rounds_that_do_not_match_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        ratio_of([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="at least one round"):
        ratio_of([], [])


def _turns(values: dict[str, Callable[[], float]]) -> tuple[dict[str, Callable[[], Measured]], list[str]]:
    called: list[str] = []

    def turn(name: str) -> Callable[[], Measured]:
        def measure() -> Measured:
            called.append(name)
            return {"cost": values[name]()}

        return measure

    return {name: turn(name) for name in values}, called


def test_rounds_end_when_the_watched_ratio_is_precise() -> None:
    turns, called = _turns({"a": lambda: 3.0, "b": lambda: 2.0})
    rounds = take_turns(turns, [Watched("a", "cost", "b")], seconds=60)
    assert len(rounds) == 6
    assert rounds.ratio("a", "b", "cost").value == 1.5
    assert sorted(called) == ["a"] * 6 + ["b"] * 6


def test_rounds_end_when_time_is_up_however_noisy() -> None:
    draw = random.Random(2)
    turns, _ = _turns({"a": lambda: draw.uniform(1, 100), "b": lambda: 1.0})
    rounds = take_turns(turns, [Watched("a", "cost", "b")], seconds=0.0)
    assert len(rounds) == 6
    assert "too noisy" in str(rounds.ratio("a", "b", "cost"))
    assert rounds.middle("a", "cost") == median(rounds.values("a", "cost"))


def test_each_round_has_its_own_order() -> None:
    turns, called = _turns({name: lambda: 1.0 for name in "abcde"})
    take_turns(turns, (), seconds=0.0, least=20)
    orders = {tuple(called[begin : begin + 5]) for begin in range(0, len(called), 5)}
    assert len(orders) > 5
    assert all(sorted(order) == list("abcde") for order in orders)


def test_a_quantile_of_a_histogram_is_interpolated_within_its_bucket() -> None:
    buckets = [(1.0, 50.0), (2.0, 90.0), (4.0, 100.0), (inf, 100.0)]
    assert quantile_of_buckets(buckets, 0.25) == pytest.approx(0.5)
    assert quantile_of_buckets(buckets, 0.5) == pytest.approx(1.0)
    assert quantile_of_buckets(buckets, 0.95) == pytest.approx(3.0)
    assert quantile_of_buckets([(1.0, 0.0), (inf, 10.0)], 0.5) == 1.0
