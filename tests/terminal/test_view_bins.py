"""Computed bins are reused, and only those that may have changed are requested."""

from __future__ import annotations

import numpy as np
import pytest

from ibpulse.core.arrays import Singles
from ibpulse.workbench.top.view import BinCache


def numbered(begin: int, end: int, age: int) -> Singles:
    """Bins that hold their own number in one direction, and the time of their computation in the other."""
    return np.array([np.arange(begin, end), np.full(end - begin, age)], dtype=np.float32)


def test_the_newest_bins_are_put_behind_the_known_ones() -> None:
    bins = BinCache()
    assert bins.missing(10, ["a"], 100, 20, 3) == 20
    bins.add({"a": numbered(80, 100, 1)}, 100, 20)
    assert bins.missing(10, ["a"], 105, 20, 3) == 8
    found = bins.add({"a": numbered(97, 105, 2)}, 105, 20)["a"]
    assert found[0].tolist() == list(range(85, 105))
    assert found[1].tolist() == [1] * 12 + [2] * 8
    # fewer, as in a terminal that became narrower
    assert bins.missing(10, ["a"], 105, 10, 3) == 3
    found = bins.add({"a": numbered(102, 105, 3)}, 105, 10)["a"]
    assert found[0].tolist() == list(range(95, 105))
    assert found[1].tolist() == [1] * 2 + [2] * 5 + [3] * 3


@pytest.mark.parametrize(
    ("width", "names", "end", "count"),
    [
        (10, ("a",), 105, 30),  # wider
        (10, ("a", "b"), 105, 20),  # another rail
        (10, (), 105, 20),
        (10, ("a",), 99, 20),  # the clock was set back
        (10, ("a",), 500, 20),  # not fetched for long
        (20, ("a",), 105, 20),  # another time scale
    ],
)
def test_all_are_computed_when_what_is_known_is_of_no_use(
    width: int, names: tuple[str, ...], end: int, count: int
) -> None:
    bins = BinCache()
    assert bins.missing(10, ["a"], 100, 20, 3) == 20
    bins.add({"a": numbered(80, 100, 1)}, 100, 20)
    assert bins.missing(width, names, end, count, 3) == count
    found = bins.add({name: numbered(end - count, end, 2) for name in names}, end, count)
    assert [values.shape for values in found.values()] == [(2, count)] * len(names)
