"""The parts that several pictures share: page, axes, captions, headings and facts."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from ibpulse.arrays import Floats
from ibpulse.pictures.figure import (
    COLOUR_MAP,
    HATCH,
    LARGE,
    SMALL,
    USUAL,
    Axes,
    Colours,
    Figure,
    FigureCanvasAgg,
    matplotlib,
    ticker,
)
from ibpulse.pictures.picture_run import Columns, PictureRun
from ibpulse.text import duration_text
from ibpulse.units import SECOND_NS

HOLE = "hatched: missing data"
TIME_UNITS = ((3 * 3600, 3600, "h"), (600, 60, "min"), (0, 1, "s"))
LINE_INCHES = 0.2
LETTER_INCHES = 0.085
# inches per point, for letters of average width
LETTER, BOLD_LETTER = 0.0082, 0.0096
GRADIENT = np.linspace(0, 1, 256)[:, None]


def time_unit(span_seconds: float) -> tuple[int, str]:
    """Seconds per unit, and the symbol of the unit, that make a span readable."""
    return next((size, sign) for least, size, sign in TIME_UNITS if span_seconds >= least)


def describe_run(run: PictureRun) -> str:
    """Host, date, span and interval of a run, and the share of missing data."""
    begin = datetime.fromtimestamp(run.begin_ns // SECOND_NS, UTC)
    size, sign = time_unit(run.span_seconds)
    span = f"{run.span_seconds / size:.4g} {sign}"
    parts = [f"{begin:%Y-%m-%d %H:%M:%S} UTC", f"{span} at {duration_text(run.interval_ns)}"]
    if run.host:
        parts.insert(0, run.host)
    if run.hole_ratio:
        parts.append(f"{max(run.hole_ratio * 100, 0.1):.1f} % missing")
    return " · ".join(parts)


def describe_column(run: PictureRun, ticks: int) -> str:
    """The length of a column, such as `90 ms`."""
    return duration_text(ticks * run.interval_ns)


class Page:
    """A figure with positions in inches from its left and upper edge."""

    def __init__(self, width: float, height: float, dpi: int, colours: Colours) -> None:
        self.width, self.height, self.colours = width, height, colours
        self.figure = Figure(figsize=(width, height), dpi=dpi)
        FigureCanvasAgg(self.figure)

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        """Axes at that position."""
        bottom = self.height - top - height
        place = (left / self.width, bottom / self.height, width / self.width, height / self.height)
        return self.figure.add_axes(place)

    def write(self, left: float, top: float, text: str, size: float = USUAL, **style: Any) -> None:
        """A text with its upper left corner at that position, unless its style says otherwise."""
        chosen: dict[str, Any] = {"ha": "left", "va": "top", "fontsize": size, "color": self.colours.text, **style}
        self.figure.text(left / self.width, 1 - top / self.height, text, **chosen)

    def head(self, left: float, top: float, run: PictureRun, name: float, rest: float) -> None:
        """The name of a run, and its description below; both fit the width."""
        self.write(left, top, shorten(run.name, name, LARGE), LARGE, weight="bold")
        for line, text in enumerate(head_lines(run, rest)):
            self.write(left, top + 0.24 + 0.16 * line, text, SMALL, color=self.colours.faint)

    def facts(self, left: float, top: float, width: float, run: PictureRun, columns: int) -> None:
        """The key numbers of a run in rows of `columns`."""
        for place, (label, text) in enumerate(run.node.facts):
            row, column = divmod(place, columns)
            x, y = left + column * width / columns, top + row * 0.4
            self.write(x, y, label, SMALL, color=self.colours.faint)
            room = width * (columns - column) / columns
            self.write(x, y + 0.15, shorten(text, room, USUAL), USUAL, weight="bold")


def shorten(text: str, width: float, size: float) -> str:
    """As much of a bold text as fits the width."""
    most = max(2, int(width / (size * BOLD_LETTER)))
    return text if len(text) <= most else f"{text[: most - 1]}…"


def head_lines(run: PictureRun, width: float) -> list[str]:
    """The description of a run, in lines that fit the width."""
    lines = textwrap.wrap(describe_run(run), max(20, int(width / (SMALL * LETTER))))
    return [line.removesuffix(" ·") for line in lines]


def facts_inches(run: PictureRun, columns: int) -> float:
    """Height of the facts of a run."""
    return 0.4 * -(-len(run.node.facts) // columns)


def label_inches(runs: Sequence[PictureRun]) -> float:
    """Width of the longest name of a port."""
    return LETTER_INCHES * max(len(port) for run in runs for port in run.ports) + 0.15


def hatch_holes(axes: Axes, colours: Colours) -> None:
    """Make missing data visible as the background of the axes."""
    axes.set_facecolor(colours.hole)
    axes.patch.set_hatch(HATCH)
    axes.patch.set_edgecolor(colours.hatch)
    axes.patch.set_linewidth(0)


def draw_rows(axes: Axes, values: Floats, run: PictureRun, ticks: int, highest: float, colours: Colours) -> None:
    """Rows of colours over time, one per port, the first on top; missing data shows the background."""
    size, _ = time_unit(run.span_seconds)
    columns = values.shape[1]
    axes.imshow(
        values,
        cmap=matplotlib.colormaps[COLOUR_MAP],
        vmin=0.0,
        vmax=highest,
        aspect="auto",
        interpolation="nearest",
        extent=(0.0, columns * ticks * run.interval_seconds / size, len(run.ports), 0.0),
    )
    axes.set_xlim(0.0, run.span_seconds / size)
    axes.set_yticks(np.arange(len(run.ports)) + 0.5, run.ports)
    axes.tick_params(axis="y", length=0)
    for edge in range(1, len(run.ports)):
        axes.axhline(edge, color=colours.background, linewidth=0.8)


def draw_colour_bar(axes: Axes, highest: float, label: str) -> None:
    """The colour scale, upright, with its unit."""
    axes.imshow(
        GRADIENT,
        cmap=matplotlib.colormaps[COLOUR_MAP],
        aspect="auto",
        origin="lower",
        extent=(0.0, 1.0, 0.0, highest),
    )
    axes.set_xticks([])
    axes.yaxis.tick_right()
    axes.yaxis.set_label_position("right")
    axes.yaxis.set_major_locator(ticker.MaxNLocator(5))
    axes.set_ylabel(label)


def draw_band(axes: Axes, columns: Columns, column: float, colours: Colours, tick: str) -> None:
    """The mean of each column as a line, and a band up to its highest sample."""
    mean, highest = columns.mean[0], columns.highest[0]
    edges = np.arange(columns.count + 1) * column
    if columns.ticks > 1:
        base = np.nan_to_num(mean)
        axes.stairs(
            highest,
            edges,
            baseline=base,
            fill=True,
            color=colours.line,
            alpha=0.3,
            linewidth=0,
            label=f"highest {tick} sample",
        )
    axes.stairs(mean, edges, baseline=None, color=colours.line, linewidth=0.8, label="mean")


def plain(axes: Axes, *, grid: bool = True) -> None:
    """Axes without clutter: no frame on top and right, a grid in the background."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    if grid:
        axes.grid(linewidth=0.6)


def mark_holes(axes: Axes, missing: npt.NDArray[np.bool_], column: float, colours: Colours) -> None:
    """Hatched spans, from top to bottom, over columns with missing data; `column` is their width."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], missing, [False])).astype(np.int8)))
    for first, end in zip(edges[::2], edges[1::2], strict=True):
        axes.axvspan(
            first * column,
            end * column,
            facecolor=colours.hole,
            edgecolor=colours.hatch,
            hatch=HATCH,
            linewidth=0,
            zorder=0.5,
        )
