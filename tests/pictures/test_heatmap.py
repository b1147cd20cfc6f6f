from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from ibpulse.pictures import render
from ibpulse.pictures.figure import THEMES, Figure
from ibpulse.pictures.heatmap import draw_heatmap
from ibpulse.pictures.options import PictureOptions
from tests.pictures.runs import STILL, count_colour, pixels, take

DARKEST, BRIGHTEST = "#440154", "#fde725"


def rails(ticks: int = 200) -> np.ndarray:
    """An idle rail, a busy one, and one whose second half is missing."""
    rates = np.zeros((3, ticks))
    rates[1] = 100e9
    rates[2, : ticks // 2], rates[2, ticks // 2 :] = 50e9, np.nan
    return rates


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


def test_the_picture_has_the_width_that_was_asked_for(tmp_path: Path) -> None:
    assert draw(tmp_path, rails(), replace(STILL, width_pixels=1200, dpi=150)).shape[1] == 1200


def test_an_idle_rail_is_dark_and_a_busy_one_is_bright(tmp_path: Path) -> None:
    picture = draw(tmp_path, rails())
    idle, busy = (row_pixels(picture, row, slice(0.1, 0.9)) for row in (0, 1))
    assert count_colour(idle, DARKEST) == idle.shape[0] * idle.shape[1]
    assert count_colour(busy, BRIGHTEST) == busy.shape[0] * busy.shape[1]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_hole_is_hatched_and_never_the_colour_of_nothing(tmp_path: Path, theme: str) -> None:
    picture = draw(tmp_path, rails(), replace(STILL, theme=theme))
    hole = row_pixels(picture, 2, slice(0.55, 0.95))
    assert count_colour(hole, DARKEST) == 0
    assert count_colour(hole, THEMES[theme].hole) > 100
    assert count_colour(hole, THEMES[theme].hatch, within=60) > 20
    assert count_colour(row_pixels(picture, 2, slice(0.05, 0.45)), THEMES[theme].hole) == 0


def test_two_recordings_share_one_colour_scale() -> None:
    figure = draw_heatmap([take(rails() / 10, "a"), take(rails(), "b")], STILL)
    limits = {image.get_clim() for axes in figure.axes for image in axes.images if image.get_array().shape[1] > 1}
    assert limits == {(0.0, 100.0)}


def test_a_long_recording_shows_the_highest_and_the_mean_of_each_column() -> None:
    rates = np.full((1, 50_000), 10e9)
    rates[0, 23_456] = 90e9
    highest, mean = maps(draw_heatmap([take(rates)], STILL))
    assert highest.shape[1] < 1000
    assert highest.max() == 90.0
    assert (np.sort(highest.ravel())[:-1] == 10.0).all()
    ticks = -(-50_000 // (-(-50_000 // 50_000) * highest.shape[1]))
    assert mean.max() == pytest.approx(10 + 80 / ticks, rel=0.05)


@pytest.mark.parametrize(("statistic", "top"), [("max", 90.0), ("mean", 11.0)])
def test_one_of_the_two_can_be_asked_for(statistic: str, top: float) -> None:
    rates = np.full((1, 50_000), 10e9)
    rates[0, 23_456] = 90e9
    (values,) = maps(draw_heatmap([take(rates)], replace(STILL, statistic=statistic)))
    assert values.max() == pytest.approx(top, rel=0.1)


def test_the_highest_tick_of_a_long_recording_is_seen_in_the_picture(tmp_path: Path) -> None:
    rates = np.zeros((1, 20_000))
    rates[0, 12_345] = 100e9
    assert count_colour(draw(tmp_path, rates, replace(STILL, statistic="max")), BRIGHTEST) > 100


def texts(path: Path) -> str:
    found = ElementTree.parse(path).getroot().iter("{http://www.w3.org/2000/svg}text")
    return "\n".join("".join(text.itertext()) for text in found)


def test_an_svg_has_its_labels_with_units_as_texts(tmp_path: Path) -> None:
    render("heatmap", [take(rails(3000), "before")], tmp_path / "a.svg", STILL)
    said = texts(tmp_path / "a.svg")
    for label in (
        "time since the beginning (s)",
        "node bandwidth (GB/s), transmit + receive",
        "bandwidth (GB/s)",
        "mlx5_2:1",
        "before",
        "node7 · 2025-11-21 00:00:00 UTC · 30 s at 10 ms · 16.7 % missing",
        "highest 10 ms sample in each column of 40 ms",
        "mean of each column of 40 ms",
        "hatched: missing data",
    ):
        assert label in said


@pytest.mark.parametrize("name", ["a.png", "a.svg"])
def test_the_same_recording_gives_the_same_bytes(tmp_path: Path, name: str) -> None:
    (tmp_path / "again").mkdir()
    for folder in (tmp_path, tmp_path / "again"):
        render("heatmap", [take(rails())], folder / name, STILL)
    assert (tmp_path / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_a_long_time_is_in_minutes_and_hours(tmp_path: Path) -> None:
    for seconds, sign in ((700, "min"), (11_000, "h")):
        render("heatmap", [replace(take(np.zeros((1, seconds))), interval_ns=10**9)], tmp_path / "a.svg", STILL)
        assert f"time since the beginning ({sign})" in texts(tmp_path / "a.svg")


def test_long_names_are_cut_and_long_lines_wrapped_to_their_width(tmp_path: Path) -> None:
    runs = [replace(take(rails(), "x" * 200), host="h" * 60), take(rails(), "$b$")]
    runs[1] = replace(runs[1], node=replace(runs[1].node, facts=(("idle rails", "mlx5_0:1, " * 30),)))
    render("heatmap", runs, tmp_path / "a.svg", STILL)
    said = texts(tmp_path / "a.svg").splitlines()
    assert "$b$" in said
    assert max(map(len, said)) < 80
    assert {line[-1] for line in said if line.startswith(("xx", "mlx5_0:1, "))} == {"…"}
