"""Draws how costs grow with a size, one diagram per cost, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.report import Panel, Picture
from ibpulse.workbench.pictures.panels import THEMES, save_figure, settings

THEME = "light"
PANEL_INCHES = (3.2, 2.6)
CLOSEST = 0.07
"""Sizes closer than this part of the largest share a label."""


def draw_picture(picture: Picture, folder: Path) -> Path:
    """Write `NAME.svg` into a folder that is created if it is missing, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{picture.name}.svg"
    save_figure(draw(picture), path, THEME)
    return path


def draw(picture: Picture) -> Figure:
    """One diagram per cost, side by side, over the sizes; linear axes from zero, so that linear growth is a line."""
    width, height = PANEL_INCHES
    with matplotlib.rc_context(settings(THEMES[THEME])):
        figure = Figure(figsize=(width * len(picture.panels), height), layout="constrained")
        for axes, panel in zip(figure.subplots(1, len(picture.panels), squeeze=False)[0], picture.panels, strict=True):
            _draw_panel(axes, picture, panel)
    return figure


def _draw_panel(axes: Axes, picture: Picture, panel: Panel) -> None:
    colours = THEMES[THEME]
    for (name, values), colour in zip(panel.lines.items(), colours.runs, strict=False):
        axes.plot(picture.sizes, values, marker="o", markersize=3.5, linewidth=1.5, color=colour, label=name)
    axes.set_title(panel.title, loc="left")
    axes.set_xlabel(picture.size)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xticks(spread(picture.sizes))
    axes.grid(axis="y", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if len(panel.lines) > 1:
        axes.legend()


def spread(sizes: Sequence[float]) -> list[float]:
    """The sizes that get a label: the largest, and all below it that are far enough from the next one."""
    found: list[float] = []
    for size in sorted(sizes, reverse=True):
        if not found or found[-1] - size >= CLOSEST * max(sizes):
            found.append(size)
    return found[::-1]
