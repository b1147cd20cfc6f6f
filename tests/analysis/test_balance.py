from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ibpulse.analysis.balance import BalanceOptions, balance_rails, jain_index

amounts = hnp.arrays(np.float64, st.integers(1, 16), elements=st.floats(1.0, 1e11))
NAN = float("nan")


def rails(*gigabytes: float) -> np.ndarray:
    return np.array(gigabytes) * 1e9


@pytest.mark.parametrize("count", [1, 2, 8])
def test_equal_rails_are_fair(count: int) -> None:
    assert jain_index(np.full(count, 3.7e9)) == pytest.approx(1.0)


@pytest.mark.parametrize(("busy", "count"), [(7, 8), (1, 8), (3, 4)])
def test_some_equal_rails_and_the_rest_idle_have_the_fairness_of_their_number(busy: int, count: int) -> None:
    assert jain_index(np.array([5e9] * busy + [0.0] * (count - busy))) == pytest.approx(busy / count)


@given(values=amounts, factor=st.floats(1e-3, 1e3), seed=st.integers(0, 9))
def test_neither_scaling_nor_order_changes_fairness(values: np.ndarray, factor: float, seed: int) -> None:
    mixed = np.random.default_rng(seed).permutation(values) * factor
    assert jain_index(mixed) == pytest.approx(jain_index(values))


@given(values=amounts)
def test_fairness_lies_between_one_rails_and_all_rails(values: np.ndarray) -> None:
    assert 1 / len(values) - 1e-9 <= jain_index(values) <= 1 + 1e-9


@given(values=amounts)
def test_fairness_follows_from_the_variation_of_the_rails(values: np.ndarray) -> None:
    assert jain_index(values) == pytest.approx(1 / (1 + (values.std() / values.mean()) ** 2))


@given(values=amounts)
def test_shares_add_up_to_one(values: np.ndarray) -> None:
    assert balance_rails(values).share.sum() == pytest.approx(1.0)


@given(values=hnp.arrays(np.float64, st.integers(2, 9), elements=st.floats(1.0, 1e11) | st.just(NAN)))
def test_the_ratio_is_against_the_median_of_the_others(values: np.ndarray) -> None:
    ratio = balance_rails(values).ratio
    for rail, value in enumerate(values):
        others = np.delete(values, rail)
        others = others[~np.isnan(others)]
        expected = value / np.median(others) if len(others) else NAN
        np.testing.assert_allclose(ratio[rail], expected)


def test_an_idle_rail_among_busy_siblings_is_named_and_not_slow() -> None:
    found = balance_rails(rails(10, 10, 10, 0.2, 10, 10, 10, 10))
    assert np.flatnonzero(found.idle).tolist() == [3]
    assert not found.slow.any()
    assert found.active == 8


def test_a_rail_at_half_speed_is_slow() -> None:
    found = balance_rails(rails(10, 10, 5, 10))
    assert np.flatnonzero(found.slow).tolist() == [2]
    assert not found.idle.any()


def test_rails_that_differ_as_healthy_ones_do_are_not_named() -> None:
    found = balance_rails(rails(10, 9.9, 10.13, 9.95))
    assert not (found.idle | found.slow).any()
    assert found.fairness > 0.99


def test_a_rail_that_takes_twice_as_long_for_the_same_bytes_is_slow() -> None:
    found = balance_rails(rails(10, 10, 10, 10), active_rates=rails(40, 40, 20, 40))
    assert np.flatnonzero(found.slow).tolist() == [2]
    assert found.fairness == pytest.approx(1.0)


def test_silence_is_not_judged() -> None:
    found = balance_rails(rails(0, 0, 0.05, 0))
    assert not (found.idle | found.slow).any()
    nearly = balance_rails(rails(0.001, 0.05, 0.05, 0.05))
    assert not (nearly.idle | nearly.slow).any()
    silent = balance_rails(np.zeros(4))
    assert np.isnan(silent.fairness)
    assert np.isnan(silent.share).all()
    assert silent.active == 0


def test_one_busy_rail_among_silent_ones_is_not_named() -> None:
    assert not (found := balance_rails(rails(10, 0, 0, 0))).idle.any()
    assert found.fairness == pytest.approx(0.25)


def test_a_rail_that_was_not_observed_is_left_out() -> None:
    found = balance_rails(rails(10, NAN, 10, 0))
    assert found.fairness == pytest.approx(2 / 3)
    assert found.idle.tolist() == [False, False, False, True]
    assert np.isnan(found.share[1])


def test_of_two_rails_the_idle_one_is_named() -> None:
    assert balance_rails(rails(10, 0)).idle.tolist() == [False, True]


@pytest.mark.parametrize("values", [[], [NAN]])
def test_no_rails_have_no_balance(values: list[float]) -> None:
    found = balance_rails(np.array(values))
    assert np.isnan(found.fairness)
    assert found.active == 0
    assert not found.idle.any()


def test_a_single_rail_is_fair_and_has_no_sibling_to_be_judged_by() -> None:
    found = balance_rails(rails(10))
    assert found.fairness == pytest.approx(1.0)
    assert np.isnan(found.ratio[0])
    assert not (found.idle | found.slow).any()


def test_the_limits_can_be_set() -> None:
    options = BalanceOptions(idle_below=0.3, slow_below=0.95)
    found = balance_rails(rails(10, 10, 10, 2, 9), options=options)
    assert found.idle.tolist() == [False, False, False, True, False]
    assert found.slow.tolist() == [False, False, False, False, True]
