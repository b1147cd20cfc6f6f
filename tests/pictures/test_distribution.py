from pathlib import Path

import numpy as np

from ibpulse.analysis.bursts import Thresholds
from ibpulse.pictures import render
from ibpulse.pictures.distribution import draw_distribution, find_lengths, survival
from tests.pictures.runs import STILL, take

THRESHOLDS = Thresholds(0.1e9, 0.1e9)


def wave(high: float, busy: int, silent: int, times: int) -> np.ndarray:
    return np.tile(np.repeat([high, 0.0], [busy, silent]), times)[None]


def test_the_bursts_and_gaps_of_a_wave_have_their_lengths() -> None:
    bursts, gaps = find_lengths(take(wave(10e9, 3, 2, 5)), THRESHOLDS)
    np.testing.assert_allclose(bursts, [0.03] * 4)
    np.testing.assert_allclose(gaps, [0.02] * 4)


def test_a_run_that_touches_a_hole_is_left_out() -> None:
    rates = wave(10e9, 3, 2, 5)
    rates[0, 11] = np.nan
    bursts, gaps = find_lengths(take(rates), THRESHOLDS)
    assert (len(bursts), len(gaps)) == (3, 4)


def test_the_histogram_is_the_share_of_time_and_the_curve_reaches_all_of_it() -> None:
    figure = draw_distribution([take(wave(10e9, 3, 1, 50))], STILL)
    histogram, cumulative = figure.axes[0], figure.axes[1]
    shares = histogram.patches[0].get_data().values
    np.testing.assert_allclose([shares[0], shares[-1], shares.sum()], [25.0, 75.0, 100.0])
    np.testing.assert_allclose(cumulative.lines[0].get_ydata()[-1], 100.0)


def test_the_share_of_lengths_falls_from_all_to_the_last() -> None:
    times, share = survival(np.array([3.0, 1.0, 2.0, 2.0]))
    assert times.tolist() == [1.0, 2.0, 2.0, 3.0]
    assert share.tolist() == [1.0, 0.75, 0.5, 0.25]


def test_runs_without_bursts_are_drawn_too(tmp_path: Path) -> None:
    render("distribution", [take(np.zeros((2, 9))), take(np.full((2, 9), np.nan), "b")], tmp_path / "a.svg", STILL)
    said = (tmp_path / "a.svg").read_text()
    for label in ("length of bursts (ms)", "length of gaps (ms)", "node bandwidth (GB/s)", "0 whole bursts"):
        assert label in said
