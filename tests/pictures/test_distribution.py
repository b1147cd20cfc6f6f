from pathlib import Path

import numpy as np

from ibpulse.workbench.pictures.distribution import draw_distribution, find_lengths
from ibpulse.workbench.pictures.still import render
from tests.pictures.runs import STILL, take

ACTIVE = 0.1e9


def wave(high: float, busy: int, silent: int, times: int) -> np.ndarray:
    return np.tile(np.repeat([high, 0.0], [busy, silent]), times)[None]


def test_bursts_and_gaps_of_a_wave() -> None:
    bursts, gaps = find_lengths(take(wave(10e9, 3, 2, 5)), ACTIVE)
    np.testing.assert_allclose(bursts.seconds, [0.03] * 4)
    np.testing.assert_allclose(gaps.seconds, [0.02] * 5)
    assert gaps.ended.tolist() == [True] * 4 + [False]


def test_histogram_and_cumulative_share_sum_to_all_time() -> None:
    figure = draw_distribution([take(wave(10e9, 3, 1, 50))], STILL)
    histogram, cumulative = figure.axes[0], figure.axes[1]
    shares = histogram.patches[0].get_data().values
    np.testing.assert_allclose([shares[0], shares[-1], shares.sum()], [25.0, 75.0, 100.0])
    np.testing.assert_allclose(cumulative.lines[0].get_ydata()[-1], 100.0)


def test_share_of_lengths_decreases() -> None:
    bursts = np.concatenate([np.repeat([0.0, 10e9], [2, length]) for length in (3, 1, 2, 2, 0)])
    times, share = draw_distribution([take(bursts[None])], STILL).axes[2].lines[0].get_data()
    np.testing.assert_allclose(times[1:], [10, 20, 30, 30])
    np.testing.assert_allclose(share, [100, 100, 75, 25, 0])


def test_no_lengths_are_drawn_with_too_much_missing() -> None:
    rates = wave(10e9, 5, 5, 20)
    rates[0, 4:200:20] = np.nan
    whole, few = take(wave(10e9, 5, 5, 20), "whole"), take(rates, "few")
    assert [len(axes.lines) for axes in draw_distribution([whole, few], STILL).axes[2:4]] == [2, 2]
    rates[0, 14] = np.nan
    figure = draw_distribution([whole, take(rates, "many")], STILL)
    for axes in figure.axes[2:4]:
        assert len(axes.lines) == 1
        assert [text.get_text() for text in axes.texts] == ["not drawn: too much of many is missing"]
    assert any("5.5 % missing per port · too much missing for" in text.get_text() for text in figure.texts)


def test_runs_without_bursts_are_drawn_too(tmp_path: Path) -> None:
    render("distribution", [take(np.zeros((2, 9))), take(np.full((2, 9), np.nan), "b")], tmp_path / "a.svg", STILL)
    said = (tmp_path / "a.svg").read_text()
    for label in (
        "length of bursts (ms)",
        "length of gaps (ms)",
        "node bandwidth (GB/s)",
        "0 whole bursts",
        "too much of b",
    ):
        assert label in said
