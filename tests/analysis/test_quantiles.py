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
from ibpulse.core.statistics.moments import lower_quantile, quantile, quantiles

PARTS = [0.0, 0.05, 0.1, 0.25, 1 / 3, 0.5, 0.6, 0.75, 0.9, 0.95, 0.99, 1.0]
INF = float("inf")
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


def of_numpy(values: Floats, part: float, method: str = "linear") -> float:
    with np.errstate(all="ignore"):
        return float(np.quantile(values, part, method=method))  # type: ignore[call-overload]


@given(st.one_of(some(numbers), some(ties), some(anything)), parts)
def test_a_quantile_is_that_of_numpy(values: Floats, part: float) -> None:
    assert bits(quantile(values, part)) == bits(of_numpy(values, part))


@given(st.one_of(some(numbers), some(ties), some(anything)), st.lists(parts, min_size=1, max_size=4))
def test_several_quantiles_are_those_of_numpy(values: Floats, chosen: list[float]) -> None:
    with np.errstate(all="ignore"):
        expected = np.quantile(values, chosen)
    assert bits(*quantiles(values, chosen)) == bits(*expected)


@given(st.one_of(some(numbers), some(ties), some(anything)), parts)
def test_a_lower_quantile_is_that_of_numpy(values: Floats, part: float) -> None:
    assert bits(lower_quantile(values, part)) == bits(of_numpy(values, part, "lower"))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 16, 17, 999, 1000, 16385])
def test_quantiles_of_many_values_are_those_of_numpy(size: int) -> None:
    rng = np.random.default_rng(size)
    chosen = [*PARTS, *rng.random(200).tolist()]
    for values in (rng.random(size), rng.exponential(1e9, size), rng.integers(0, 4, size).astype(np.float64)):
        kept = values.copy()
        assert bits(*quantiles(values, chosen)) == bits(*np.quantile(values, chosen))
        assert bits(*(quantile(values, part) for part in PARTS)) == bits(*(of_numpy(values, part) for part in PARTS))
        lower = [lower_quantile(values, part) for part in chosen]
        assert bits(*lower) == bits(*np.quantile(values, chosen, method="lower"))
        assert np.array_equal(values, kept)


def test_a_percentile_of_numpy_is_a_quantile() -> None:
    power = np.random.default_rng(1).exponential(1.0, 8193)
    assert quantile(power, 90.0 / 100) == np.percentile(power, 90.0)


@pytest.mark.parametrize("values", [[NAN], [1.0, NAN], [NAN, -INF, 2.0]])
def test_a_quantile_of_nan_is_nan(values: list[float]) -> None:
    found = (quantile(np.array(values), 0.0), lower_quantile(np.array(values), 0.0))
    assert np.isnan(found).all()


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
