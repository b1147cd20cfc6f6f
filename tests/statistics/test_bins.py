from __future__ import annotations

import itertools
import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.core.statistics.steps.period import choose_edges
from ibpulse.core.window_values import BinGrid

FOLDS = {"max": max, "min": min, "mean": statistics.fmean}

rate = st.one_of(st.just(math.nan), st.floats(0, 2.0**40, width=32))


def by_hand(samples: list[float], lead: int, points: int, width: int, statistic: str) -> list[float]:
    grid = [math.nan] * lead + samples
    bins = [[value for value in grid[k * width : (k + 1) * width] if not math.isnan(value)] for k in range(points)]
    return [FOLDS[statistic](good) if good else math.nan for good in bins]


@given(
    samples=st.lists(rate, min_size=1, max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=3),
    lead=st.integers(0, 12),
    width=st.integers(1, 9),
    statistic=st.sampled_from(["max", "mean", "min"]),
)
def test_a_bin_depends_on_its_good_samples_alone(
    samples: list[float], cuts: list[int], lead: int, width: int, statistic: str
) -> None:
    points = -(-(lead + len(samples)) // width)
    grid = BinGrid(1, 1000, points, width, statistic)
    edges = sorted({0, len(samples), *(cut for cut in cuts if cut < len(samples))})
    for begin, end in itertools.pairwise(edges):
        run = np.array([samples[begin:end]] * 2, dtype=np.float32)
        grid.add(0, 1000 + lead + begin, run)
    found = grid.values()
    expected = by_hand(samples, lead, points, width, statistic)
    np.testing.assert_allclose(found[0, 0], np.array(expected, dtype=np.float32), rtol=1e-6)
    np.testing.assert_array_equal(found[0, 0], found[0, 1])


def test_directions_and_rows_are_kept_apart() -> None:
    grid = BinGrid(2, 0, 2, 2, "max")
    grid.add(0, 0, np.array([[1, 2, 3, 4], [8, 7, 6, 5]], dtype=np.float32))
    grid.add(1, 2, np.array([[9, 1], [1, 1]], dtype=np.float32))
    np.testing.assert_array_equal(grid.values(), [[[2, 4], [8, 6]], [[np.nan, 9], [np.nan, 1]]])


def test_an_empty_run_changes_nothing() -> None:
    grid = BinGrid(1, 0, 2, 1, "max")
    grid.add(0, 5, np.zeros((2, 0), dtype=np.float32))
    assert np.isnan(grid.values()).all()


@pytest.mark.parametrize("tick", [-1, 3])
def test_a_run_outside_the_grid_is_an_error(tick: int) -> None:
    grid = BinGrid(1, 0, 2, 2, "mean")
    with pytest.raises(ValueError, match=r"lie outside the grid of 4"):
        grid.add(0, tick, np.zeros((2, 2), dtype=np.float32))


def test_whole_bins_end_with_the_newest_sample() -> None:
    times = np.arange(1_003, 11_004, 10) * 1_000_000
    edges = choose_edges(times, 60_000_000_000, 0.05)
    assert (edges[-1], edges[0]) == (times[-1], times[-1] - 200 * 50_000_000)
    assert np.diff(edges).tolist() == [50_000_000] * 200
    # a window may be shorter than the samples, and the samples shorter than a bin
    assert len(choose_edges(times, 1_020_000_000, 0.05)) == 20 + 1
    assert choose_edges(times[:2], 60_000_000_000, 0.05).tolist() == [times[1] - 50_000_000, times[1]]
