from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ibpulse.core.statistics import balance
from ibpulse.core.statistics.moments import weighted_sums
from tests.tables import for_each

amounts = hnp.arrays(np.float64, st.integers(1, 16), elements=st.floats(1.0, 1e11))
NAN = float("nan")


def rails(*gigabytes: float) -> np.ndarray:
    return np.array(gigabytes) * 1e9


@given(values=amounts)
def test_fairness_follows_from_the_variation_of_the_rails(values: np.ndarray) -> None:
    assert balance.jain_index(values) == pytest.approx(1 / (1 + (values.std() / values.mean()) ** 2))


@given(values=hnp.arrays(np.float64, st.integers(2, 9), elements=st.floats(1.0, 1e11) | st.just(NAN)))
def test_the_ratio_is_against_the_median_of_the_others(values: np.ndarray) -> None:
    ratio = balance.balance_rails(values).ratio
    for rail, value in enumerate(values):
        others = np.delete(values, rail)
        others = others[~np.isnan(others)]
        expected = value / np.median(others) if len(others) else NAN
        np.testing.assert_allclose(ratio[rail], expected)


# GB/s of the rails, and while they are active; places of idle and of slow ones; fairness
@for_each(
    {
        "an idle rail among busy ones": ([10, 10, 10, 0.2, 10], None, [3], [], 40.2**2 / (5 * 400.04)),
        "half speed": ([10, 10, 5, 10], None, [], [2], 35**2 / (4 * 325)),
        "as healthy ones differ": ([10, 9.9, 10.13, 9.95], None, [], [], 1.0),
        "twice as long for the same bytes": ([10] * 4, [40, 40, 20, 40], [], [2], 1.0),
        "one busy rail": ([10, 0, 0, 0], None, [], [], 0.25),
        "one rail": ([10], None, [], [], 1.0),
        "none": ([], None, [], [], NAN),
        "none that was observed": ([NAN], None, [], [], NAN),
        "silence": ([0, 0, 0.05, 0], None, [], [], 0.25),
        "no bytes": ([0, 0, 0, 0], None, [], [], NAN),
        "nearly silence": ([0.001, 0.05, 0.05, 0.05], None, [], [], 0.151**2 / (4 * 0.007501)),
    }
)
def test_idle_and_slow_rails_are_named(
    values: list[float], active: list[float] | None, idle: list[int], slow: list[int], fairness: float
) -> None:
    found = balance.balance_rails(rails(*values), active_rates=None if active is None else rails(*active))
    assert (np.flatnonzero(found.idle).tolist(), np.flatnonzero(found.slow).tolist()) == (idle, slow)
    assert found.fairness == pytest.approx(fairness, abs=1e-3, nan_ok=True)
    assert found.active == sum(value > 0.1 for value in values)


def test_an_unobserved_rail_is_ignored() -> None:
    found = balance.balance_rails(rails(10, NAN, 10, 0))
    assert found.fairness == pytest.approx(2 / 3)
    assert found.idle.tolist() == [False, False, False, True]
    assert np.isnan(found.share[1])


# rails whose traffic runs on


def sums_of_ticks(rates: np.ndarray, up: np.ndarray | None = None) -> balance.RailSums:
    """Sums of rates (rails, 2, ticks) of 10 ms each."""
    seconds = np.full(rates.shape, 0.01)
    return balance.RailSums(
        weighted_sums(rates, seconds, rates > 0.1e9),
        (rates * seconds).sum(axis=-1),
        seconds[:, 0].sum(axis=-1),
        np.ones(len(rates), dtype=np.bool_) if up is None else up,
    )


def test_the_rates_of_rails_are_those_of_both_directions() -> None:
    rates = np.zeros((3, 2, 100))
    rates[0, 0, :25], rates[0, 1] = 8e9, 1e9
    rates[2] = 5e9
    found = sums_of_ticks(rates, np.array([True, True, False]))
    assert found.mean_rates() == pytest.approx([3e9, 0.0, 0.0])
    np.testing.assert_allclose(found.active_rates(), [9e9, NAN, 10e9])
    some = found.rates().chosen(np.array([2, 0]))
    assert some.mean == pytest.approx([0.0, 3e9])
    assert some.active == pytest.approx([10e9, 9e9])


def test_a_rail_without_observed_time_has_no_rate() -> None:
    nothing = balance.RailSums(np.zeros((2, 2, 4)), np.zeros((2, 2)), np.zeros(2), np.array([True, False]))
    np.testing.assert_array_equal(nothing.mean_rates(), [NAN, 0.0])


def weigh(rates: np.ndarray, spans: tuple[int, ...] = (3, 10, 60)) -> tuple[list[int], list[int], float]:
    """Idle rails, slow rails and fairness from rates (rails, 2, ticks), whose last tick is now."""

    def rates_of(seconds: int) -> balance.RailRates:
        return sums_of_ticks(rates[:, :, -100 * seconds :]).rates()

    found = balance.weigh_rails(rates_of, spans, 60)
    return np.flatnonzero(found.idle).tolist(), np.flatnonzero(found.slow).tolist(), found.fairness


def test_a_rail_that_died_three_seconds_ago_is_idle_and_not_slow() -> None:
    rates = np.full((8, 2, 6000), 10e9)
    rates[3, :, -300:] = 0.0
    assert weigh(rates) == ([3], [], pytest.approx(7 / 8))


def test_silence_of_seconds_is_judged_by_a_longer_span() -> None:
    rates = np.zeros((8, 2, 6000))
    rates[:5, :, -700:-500] = rates[6:, :, -700:-500] = 10e9
    assert weigh(rates) == ([5], [], pytest.approx(7 / 8))


def test_a_rail_is_called_slow_over_ten_seconds_at_least() -> None:
    rates = np.full((4, 2, 6000), 10e9)
    # for four seconds of the last ten it moves half: 80 % of its siblings over ten
    rates[1, :, -400:] = 5e9
    assert weigh(rates)[1] == []
    rates[1, :, -600:] = 5e9
    assert weigh(rates)[1] == [1]


def test_no_span_is_longer_than_what_is_kept() -> None:
    asked: list[int] = []

    def rates_of(seconds: int) -> balance.RailRates:
        asked.append(seconds)
        return sums_of_ticks(np.zeros((2, 2, 100))).rates()

    balance.weigh_rails(rates_of, (3, 10, 60), 5)
    assert asked == [3, 5, 5, 5]


@pytest.mark.parametrize(
    ("amounts", "carrying"),
    [
        ([10.0, 0.49, 0.5, 10.0], [True, False, True, True]),
        ([0.0, 0.0, 7.0, 0.0], [False, False, True, False]),
        ([0.0, 0.0], [True, True]),
        ([NAN, 1.0, 0.0], [False, True, False]),
        ([NAN, NAN], [False, False]),
        ([], []),
    ],
)
def test_a_rail_carries_traffic_from_a_twentieth_of_the_busiest_on(amounts: list[float], carrying: list[bool]) -> None:
    np.testing.assert_array_equal(balance.find_carriers(np.array(amounts)), carrying)


# groups of rails


def in_groups(values: np.ndarray, groups: list[list[int]]) -> balance.Balance:
    places = [np.array(group, dtype=np.intp) for group in groups]
    return balance.join_groups(places, [balance.balance_rails(values[group]) for group in places])


def test_rails_are_only_compared_within_their_group() -> None:
    found = in_groups(rails(10, 0, 10, 0, 10, 0.1, 10, 0), [[0, 2, 4, 6], [1, 3, 5, 7]])
    assert not (found.idle | found.slow).any()
    assert (found.fairness, found.active) == (pytest.approx(8 / (4 / 1 + 4 / 0.25)), 4)
    assert balance.balance_rails(rails(10, 0, 10, 0, 10, 0, 10, 0)).idle.tolist() == [False, True] * 4


def test_the_values_of_a_rail_stay_in_its_place() -> None:
    values = rails(1, 20, 4, 10, 1, 20)
    found = in_groups(values, [[4, 0, 2], [1, 3, 5]])
    np.testing.assert_allclose(found.share, [1 / 6, 0.4, 4 / 6, 0.2, 1 / 6, 0.4])
    np.testing.assert_allclose(found.ratio, [1 / 2.5, 20 / 15, 4, 0.5, 1 / 2.5, 20 / 15])
    assert np.flatnonzero(found.slow).tolist() == [0, 3, 4]


@given(values=hnp.arrays(np.float64, 9, elements=st.floats(1e6, 1e11)), cut=st.integers(1, 8))
def test_fairness_of_groups_is_that_of_bytes_by_the_mean_of_the_group(values: np.ndarray, cut: int) -> None:
    found = in_groups(values, [list(range(cut)), list(range(cut, 9))])
    relative = np.concatenate([values[:cut] / values[:cut].mean(), values[cut:] / values[cut:].mean()])
    assert found.fairness == pytest.approx(balance.jain_index(relative))


def test_what_is_not_judged_keeps_its_active_rails_only() -> None:
    found = balance.balance_rails(rails(10, 0, 10)).unjudged()
    assert (found.active, np.isnan(found.fairness), found.idle.any(), found.slow.any()) == (2, True, False, False)
    assert np.isnan(found.share).all()
    assert np.isnan(found.ratio).all()


def test_a_rail_that_was_not_observed_has_no_weight_in_the_fairness_of_all_groups() -> None:
    found = in_groups(rails(10, 5, NAN, NAN, 8, 8, 8), [[0, 1, 2, 3], [4, 5, 6]])
    # Jain's index of 10 and 5 is 15^2 / (2 x 125)
    assert found.fairness == pytest.approx(5 / (2 / 0.9 + 3 / 1))
