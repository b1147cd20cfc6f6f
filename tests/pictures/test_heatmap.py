"""Heatmaps, distributions and predicted steps as figures, pixels and text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from ibpulse.core.statistics.signs import GAINS, PATH, SOURCE, Readings, Signs
from ibpulse.workbench.models.prediction import StepTimeline, schedule_statistics
from ibpulse.workbench.pictures.distribution import draw_distribution, find_lengths
from ibpulse.workbench.pictures.heatmap import draw_heatmap
from ibpulse.workbench.pictures.options import PictureOptions
from ibpulse.workbench.pictures.panels import THEMES, Figure, Polygon
from ibpulse.workbench.pictures.run import PictureRun
from ibpulse.workbench.pictures.steps import PredictedPicture, draw_predicted_steps, sample_timeline
from ibpulse.workbench.pictures.still import render
from tests.pictures.runs import STILL, count_colour, event, pixels, rails, take

DARKEST, BRIGHTEST = "#440154", "#fde725"


def draw(tmp_path: Path, rates: np.ndarray, options: PictureOptions = STILL) -> np.ndarray:
    render("heatmap", [take(rates)], tmp_path / "a.png", options)
    return pixels(tmp_path / "a.png")


def maps(figure: Figure) -> list[np.ndarray]:
    """The values of the maps of a figure, without the scale."""
    images = [image for axes in figure.axes for image in axes.images]
    return [np.asarray(image.get_array().filled(np.nan)) for image in images if image.get_array().shape[1] > 1]


def row_pixels(picture: np.ndarray, row: int, part: slice) -> np.ndarray:
    """A part, 0 to 1, of the middle of a row of the first map."""
    run = take(rails())
    axes = draw_heatmap([run], STILL).axes[0]
    place = axes.get_position()
    height, width = picture.shape[:2]
    y = round(height * (1 - place.y1 + place.height * (row + 0.5) / 3))
    x = [round(width * (place.x0 + place.width * at)) for at in (part.start, part.stop)]
    return picture[y - 3 : y + 4, x[0] : x[1]]


def test_idle_rail_is_dark_busy_rail_bright(tmp_path: Path) -> None:
    picture = draw(tmp_path, rails())
    idle, busy = (row_pixels(picture, row, slice(0.1, 0.9)) for row in (0, 1))
    assert count_colour(idle, DARKEST) == idle.shape[0] * idle.shape[1]
    assert count_colour(busy, BRIGHTEST) == busy.shape[0] * busy.shape[1]


def test_signs_have_a_line_per_rail_and_a_legend() -> None:
    run = take(rails())
    readings = Readings(np.array([0, 100, 200]), np.full((GAINS, 2), np.nan), np.full(2, 100e9))
    signs = Signs(np.array([SOURCE, PATH], dtype=np.int8), np.full(200, 0.01), readings)
    figure = draw_heatmap([replace(run, signs={run.ports[1]: signs})], STILL)
    found = maps(figure)[-1]
    assert found[:, [0, -1]].tolist() == [[0, 0], [SOURCE, PATH], [0, 0]]
    texts = {text.get_text() for text in figure.texts}
    assert {"source", "path"} <= texts
    assert "receiver" not in texts
    assert len(maps(draw_heatmap([run], STILL))) == len(maps(figure)) - 1


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_missing_data_is_hatched(tmp_path: Path, theme: str) -> None:
    picture = draw(tmp_path, rails(), replace(STILL, theme=theme))
    hole = row_pixels(picture, 2, slice(0.55, 0.95))
    assert count_colour(hole, DARKEST) == 0
    assert count_colour(hole, THEMES[theme].hole) > 100
    assert count_colour(hole, THEMES[theme].hatch, within=60) > 20
    assert count_colour(row_pixels(picture, 2, slice(0.05, 0.45)), THEMES[theme].hole) == 0


def test_long_recording_shows_maximum_and_mean() -> None:
    rates = np.full((1, 50_000), 10e9)
    rates[0, 23_456] = 90e9
    highest, mean = maps(draw_heatmap([take(rates)], STILL))
    assert highest.shape[1] < 1000
    assert highest.max() == 90.0
    assert (np.sort(highest.ravel())[:-1] == 10.0).all()
    ticks = -(-50_000 // (-(-50_000 // 50_000) * highest.shape[1]))
    assert mean.max() == pytest.approx(10 + 80 / ticks, rel=0.05)


def incident() -> PictureRun:
    """An idle rail, one that is down in the second half, and one whose second half is missing, with an event each."""
    rates, down = rails(), np.zeros((3, 200), dtype=np.bool_)
    rates[1, 100:], down[1, 100:] = 0.0, True
    return take(rates, down=down, events=[event(1.0, "mlx5_1:1"), event(1.5, "mlx5_2:1", "unreadable")])


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_down_link_is_a_line(tmp_path: Path, theme: str) -> None:
    render("heatmap", [incident()], tmp_path / "a.png", replace(STILL, theme=theme))
    picture, axes = pixels(tmp_path / "a.png"), draw_heatmap([incident()], STILL).axes[0]
    place, height, width = axes.get_position(), *pixels(tmp_path / "a.png").shape[:2]
    top, low = (round(height * (1 - place.y1 + place.height * part)) for part in (1 / 3, 2 / 3))
    row = picture[top + 2 : low - 2, round(width * (place.x0 + 0.55 * place.width)) : round(width * place.x1) - 4]
    line, around = (count_colour(row, colour) for colour in (THEMES[theme].down, THEMES[theme].background))
    assert line > 0.1 * row[..., 0].size
    assert line + around == row[..., 0].size
    # without colours too: the line is far from the background
    grey = row @ [0.299, 0.587, 0.114]
    assert np.ptp(grey) > 80
    assert count_colour(row[len(row) // 2 - 1 : len(row) // 2 + 1], THEMES[theme].down) == 2 * row.shape[1]


def test_events_are_numbered_and_told(tmp_path: Path) -> None:
    render("heatmap", [incident()], tmp_path / "a.svg", STILL)
    said = texts(tmp_path / "a.svg").splitlines()
    assert [line for line in said if line in ("1", "2", "3")] == ["1", "2", "1"]  # two marks, and the legend
    assert "1  1.00 s  mlx5_1:1: link-down in words" in said
    assert "2  1.50 s  mlx5_2:1: unreadable in words" in said
    assert "event, and the uncertainty of its time" in said
    assert "node7 · 2025-11-21 00:00:00 UTC · 2 s at 10 ms · 16.7 % missing per port · 16.7 % link down" in said


def test_scale_stops_at_the_line_rate(tmp_path: Path) -> None:
    rates = np.full((2, 200), 80e9)
    rates[1, 7] = 150e9
    render("heatmap", [take(rates)], tmp_path / "a.svg", STILL)
    assert "1 GB = 10⁹ bytes · ▲ above the line rate: up to 150 GB/s" in texts(tmp_path / "a.svg")
    figure = draw_heatmap([take(rates)], STILL)
    limits = {image.get_clim() for axes in figure.axes for image in axes.images if image.get_array().shape[1] > 1}
    assert limits == {(0.0, 100.0)}
    patches = [patch for axes in figure.axes for patch in axes.patches]
    arrows = [patch for patch in patches if isinstance(patch, Polygon) and len(patch.get_xy()) == 4]
    assert len(arrows) == 1


def texts(path: Path) -> str:
    found = ElementTree.parse(path).getroot().iter("{http://www.w3.org/2000/svg}text")
    return "\n".join("".join(text.itertext()) for text in found).replace("\u00a0", " ")


def test_svg_labels_are_text_with_units(tmp_path: Path) -> None:
    render("heatmap", [take(rails(3000), "before")], tmp_path / "a.svg", STILL)
    said = texts(tmp_path / "a.svg")
    assert "node bandwidth (GB/s), transmit + receive" in said
    assert "highest 10 ms sample in each column of 40 ms" in said
    assert "mean of each column of 40 ms" in said
    assert "event, and" not in said
    assert "above the line rate" not in said


@pytest.mark.parametrize("name", ["a.png", "a.svg"])
def test_the_same_recording_gives_the_same_bytes(tmp_path: Path, name: str) -> None:
    (tmp_path / "again").mkdir()
    for folder in (tmp_path, tmp_path / "again"):
        render("heatmap", [take(rails())], folder / name, STILL)
    assert (tmp_path / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_long_names_are_cut_and_lines_wrapped(tmp_path: Path) -> None:
    runs = [replace(take(rails(), "x" * 200), host="h" * 60), take(rails(), "$b$")]
    runs[1] = replace(runs[1], node=replace(runs[1].node, facts=(("idle rails", "mlx5_0:1, " * 30),)))
    render("heatmap", runs, tmp_path / "a.svg", STILL)
    said = texts(tmp_path / "a.svg").splitlines()
    assert "$b$" in said
    assert max(map(len, said)) < 80
    assert {line[-1] for line in said if line.startswith(("xx", "mlx5_0:1, "))} == {"…"}


ACTIVE = 0.1e9


def wave(high: float, busy: int, silent: int, times: int) -> np.ndarray:
    return np.tile(np.repeat([high, 0.0], [busy, silent]), times)[None]


def test_bursts_gaps_and_shares_of_a_wave() -> None:
    bursts, gaps = find_lengths(take(wave(10e9, 3, 2, 5)), ACTIVE)
    np.testing.assert_allclose(bursts.seconds, [0.03] * 4)
    np.testing.assert_allclose(gaps.seconds, [0.02] * 5)
    assert gaps.ended.tolist() == [True] * 4 + [False]
    figure = draw_distribution([take(wave(10e9, 3, 1, 50))], STILL)
    histogram, cumulative = figure.axes[0], figure.axes[1]
    shares = histogram.patches[0].get_data().values
    np.testing.assert_allclose([shares[0], shares[-1], shares.sum()], [25.0, 75.0, 100.0])
    np.testing.assert_allclose(cumulative.lines[0].get_ydata()[-1], 100.0)
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
    assert "0 whole bursts" in said
    assert "too much of b" in said


LINE = StepTimeline(1.0, ((0.1, 0.3, 5.0), (0.3, 0.4, 2.0), (0.7, 0.95, 4.0)))
OPTIONS = PictureOptions(width_pixels=1000, dpi=100)


def test_samples_are_means_over_intervals() -> None:
    edges = np.array([0.0, 0.05, 0.2, 0.35, 0.8, 1.15, 3.15])
    # by hand: bytes between the edges, divided by the time
    expected = [
        0.0,
        5 * 0.1 / 0.15,
        (5 * 0.1 + 2 * 0.05) / 0.15,
        (2 * 0.05 + 4 * 0.1) / 0.45,
        (4 * 0.15 + 5 * 0.05) / 0.35,
    ]
    expected.append(1.0 + 0.2 + 1.0)
    assert sample_timeline(LINE, edges).tolist() == pytest.approx(expected)


def test_many_samples_have_the_exact_statistics() -> None:
    values = sample_timeline(LINE, np.arange(20_001) * 0.0317)
    exact = schedule_statistics(LINE.spans, LINE.period, 0.0317)
    mean = sum((end - begin) * rate for begin, end, rate in LINE.spans) / LINE.period
    assert (values.mean(), values.max()) == pytest.approx((mean, exact.peak), rel=1e-2)
    active = values[values > 1e-9]
    assert active.size / values.size == pytest.approx(exact.duty, abs=0.01)
    assert active.std() / active.mean() == pytest.approx(exact.cv, abs=0.01)


def test_the_prediction_has_the_phase_of_the_measurement() -> None:
    measured = 2 * sample_timeline(LINE, 0.37 + np.arange(201) * 0.01)
    figure = draw_predicted_steps(PredictedPicture("job", (LINE,), measured, 0.01, "run"), OPTIONS)
    (axes,) = figure.axes
    predicted, drawn = axes.patches
    np.testing.assert_allclose(predicted.get_data().values, drawn.get_data().values, atol=0.6e-9)
    assert drawn.get_data().values.tolist() == pytest.approx((measured / 1e9).tolist())
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["predicted", "run"]


def test_undrawn_measurements_have_a_reason_and_several_readings_a_band() -> None:
    missing = PredictedPicture("job", (LINE,), np.zeros(0), 0.01, "run", not_drawn="not drawn: no whole step in run")
    figure = draw_predicted_steps(missing, OPTIONS)
    assert any("not drawn: no whole step in run" in text.get_text() for text in figure.texts)
    other = StepTimeline(1.0, ((0.0, 0.5, 3.0),))
    figure = draw_predicted_steps(PredictedPicture("job", (LINE, other), np.zeros(0), 0.01), OPTIONS)
    (band,) = figure.axes[0].patches
    edges = np.arange(201) * 0.01
    rows = 2e-9 * np.stack([sample_timeline(line, edges) for line in (LINE, other)])
    data = band.get_data()
    np.testing.assert_allclose(data.values, rows.max(axis=0))
    np.testing.assert_allclose(data.baseline, rows.min(axis=0))
