from __future__ import annotations

import struct
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ibpulse.core.arrays import Floats
from ibpulse.core.statistics import moments
from ibpulse.core.statistics.moments import lower_quantile, quantile, quantiles

rates = hnp.arrays(np.float64, st.integers(2, 60), elements=st.floats(0, 1e11))
weights = st.floats(0.005, 0.015)


def everything(values: np.ndarray) -> np.ndarray:
    return np.ones(values.shape, dtype=bool)


def sums_of(values: np.ndarray, seconds: np.ndarray | float = 0.01) -> np.ndarray:
    return moments.weighted_sums(values, np.broadcast_to(seconds, values.shape), everything(values))


@given(values=rates, seconds=weights, cut=st.integers(0, 60))
def test_sums_of_a_span_are_the_sums_of_its_parts(values: np.ndarray, seconds: float, cut: int) -> None:
    whole = sums_of(values, seconds)
    np.testing.assert_allclose(sums_of(values[:cut], seconds) + sums_of(values[cut:], seconds), whole, rtol=1e-12)


@given(values=rates, seconds=weights)
def test_variation_is_that_of_numpy_when_all_samples_weigh_the_same(values: np.ndarray, seconds: float) -> None:
    if values.mean() < 1:
        return
    variation = float(moments.variation(sums_of(values, seconds)))
    assert variation == pytest.approx(values.std() / values.mean(), rel=1e-6, abs=2e-7)


def test_a_sample_is_weighted_by_the_time_it_covers() -> None:
    values, seconds = np.array([1.0, 4.0]), np.array([0.3, 0.1])
    assert float(moments.mean(sums_of(values, seconds))) == pytest.approx((0.3 * 1 + 0.1 * 4) / 0.4)


def test_samples_that_were_not_chosen_do_not_count_even_if_nan() -> None:
    values = np.array([2.0, np.nan, 4.0, 100.0])
    sums = moments.weighted_sums(values, np.full(4, 0.5), np.array([True, False, True, False]))
    np.testing.assert_allclose(sums, [2, 1.0, 3.0, 0.5 * (4 + 16)])


def test_no_samples_have_no_mean_no_variation_and_no_duty() -> None:
    nothing = np.zeros(moments.FIELDS)
    found = [moments.mean(nothing), moments.variation(nothing), moments.duty_cycle(np.array(0.0), np.array(0.0))]
    assert all(np.isnan(value) for value in found)


def test_duty_never_passes_one_by_jitter_between_the_reads() -> None:
    assert float(moments.duty_cycle(np.array(1.0000001), np.array(1.0))) == 1.0


@given(values=hnp.arrays(np.float64, 40, elements=st.floats(0, 1e11)), bins=st.sampled_from([1, 2, 5, 8, 20, 40]))
def test_rebinning_keeps_the_bytes(values: np.ndarray, bins: int) -> None:
    seconds = np.linspace(0.009, 0.011, 40)
    merged, weight = moments.rebin(values, seconds, bins)
    assert merged.shape == (40 // bins,)
    assert (merged * weight).sum() == pytest.approx((values * seconds).sum(), rel=1e-12)
    assert weight.sum() == pytest.approx(seconds.sum())


def test_a_bin_with_missing_data_is_missing() -> None:
    values = np.array([1.0, 1.0, np.nan, 5.0, 3.0, 5.0])
    seconds = np.array([1.0, 1.0, 0.0, 1.0, 1.0, 1.0])
    merged, weight = moments.rebin(values, seconds, 2)
    np.testing.assert_array_equal(merged, [1.0, np.nan, 4.0])
    np.testing.assert_array_equal(weight, [2.0, 0.0, 2.0])


def test_a_bucket_holds_its_upper_bound_and_the_last_takes_the_rest() -> None:
    values = np.array([[0.0, 0.1, 0.1000001, 0.5], [1.0, 7.0, 0.2, np.nan]])
    chosen = np.array([[True] * 4, [True, True, False, False]])
    counts = moments.count_into_buckets(values, chosen, np.array([0.1, 0.5, 1.0]))
    np.testing.assert_array_equal(counts, [[2, 2, 0, 0], [0, 0, 1, 1]])


PARTS = [0.0, 0.05, 0.1, 0.25, 1 / 3, 0.5, 0.6, 0.75, 0.9, 0.95, 0.99, 1.0]
NAN = float("nan")

numbers = st.floats(allow_nan=False, allow_infinity=False, width=64)
ties = st.sampled_from([-1.0, -0.0, 0.0, 1.0, 1.1, 3.0])
anything = st.one_of(ties, st.floats())
parts = st.one_of(st.sampled_from(PARTS), st.floats(0, 1))


def some(elements: st.SearchStrategy[float]) -> st.SearchStrategy[Floats]:
    return hnp.arrays(np.float64, st.integers(1, 60), elements=elements)


def bits(*values: float) -> list[bytes | None]:
    """The bytes of each number, None for NaN, of which there are many."""
    return [None if np.isnan(value) else struct.pack("d", value) for value in values]


@given(st.one_of(some(numbers), some(ties), some(anything)), st.lists(parts, min_size=1, max_size=4))
def test_quantiles_are_those_of_numpy(values: Floats, chosen: list[float]) -> None:
    with np.errstate(all="ignore"):
        expected = np.quantile(values, chosen)
        lower = [np.quantile(values, part, method="lower") for part in chosen]
    assert bits(*quantiles(values, chosen)) == bits(*(quantile(values, part) for part in chosen)) == bits(*expected)
    assert bits(*(lower_quantile(values, part) for part in chosen)) == bits(*lower)


def test_there_is_no_quantile_of_nothing() -> None:
    for find in (quantile, lower_quantile):
        with pytest.raises(IndexError):
            find(np.zeros(0), 0.5)


@pytest.mark.real("process")
def test_quantiles_leave_numpy_ma_out() -> None:
    program = (
        "import sys, numpy as np; from ibpulse.core.statistics.moments import lower_quantile, quantiles; "
        "quantiles(np.ones(9), [0.5, 0.9]); lower_quantile(np.ones(9), 0.25); print('numpy.ma' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
