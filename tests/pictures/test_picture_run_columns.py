import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.workbench.pictures.picture_run import reduce


@given(st.integers(1, 60), st.integers(1, 70), st.integers(0, 2**32))
def test_the_highest_and_the_mean_of_the_columns_are_those_of_the_ticks(ticks: int, most: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values, seconds = rng.random((3, ticks)), rng.random((3, ticks)) + 0.5
    columns = reduce(values, seconds, most)
    assert columns.count <= most
    assert (columns.highest.max(axis=1) == values.max(axis=1)).all()
    weights = np.add.reduceat(seconds, np.arange(0, ticks, columns.ticks), axis=1)
    expected = (values * seconds).sum(axis=1) / seconds.sum(axis=1)
    np.testing.assert_allclose((columns.mean * weights).sum(axis=1) / weights.sum(axis=1), expected)


def test_a_single_peak_among_many_ticks_is_kept() -> None:
    values = np.ones((1, 100_000))
    values[0, 77_777] = 9.0
    columns = reduce(values, np.ones_like(values), 300)
    assert columns.highest.max() == 9.0
    assert columns.mean.max() == pytest.approx(1 + 8 / columns.ticks)


def test_a_column_without_any_value_is_a_hole_and_one_with_some_says_so() -> None:
    values = np.array([[1.0, 3.0, np.nan, 5.0, np.nan, np.nan]])
    columns = reduce(values, np.where(np.isnan(values), 0.0, 1.0), 3)
    np.testing.assert_array_equal(columns.highest, [[3.0, 5.0, np.nan]])
    np.testing.assert_array_equal(columns.mean, [[2.0, 5.0, np.nan]])
    assert columns.partly.tolist() == [[False, True, True]]


def test_few_ticks_stay_as_they_are() -> None:
    values = np.arange(6.0).reshape(2, 3)
    columns = reduce(values, np.ones_like(values), 3)
    assert columns.ticks == 1
    np.testing.assert_array_equal(columns.highest, values)
