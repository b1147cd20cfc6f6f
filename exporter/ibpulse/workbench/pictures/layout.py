"""The static parts of an animation, drawn once, and the positions of the moving ones, in pixels.

A picture is an array of indices into one palette of 256 colours; frames are made by writing indices into a copy.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ibpulse.base.text import duration_text
from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Counts, Pixels
from ibpulse.workbench.pictures import panels
from ibpulse.workbench.pictures.options import PictureOptions
from ibpulse.workbench.pictures.run import PictureRun, Scale

# positions in the palette: the colour map, then single colours, then shades from background to text, then the rest
LEVELS = 112
BACKGROUND, HOLE_FILL, HOLE_LINE, BAR, MARK, CURSOR, DOWN = range(LEVELS, LEVELS + 7)
INK, INKS = DOWN + 1, 16
REST = INK + INKS

# in inches
MARGIN, RIGHT, HEAD, TITLE, ROW, MIN_ROWS, AXIS, TIMELINE = 0.15, 0.95, 0.52, 0.02, 0.19, 1.0, 0.5, 0.75
BETWEEN, BARS, GAP = 0.4, 0.27, 0.14
MAX_MARKS = 6


@dataclass(frozen=True, slots=True)
class Rect:
    """A rectangle, in pixels from the left and upper edge."""

    left: int
    top: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Band:
    """The rectangles of a run: a bar per rail, its recent past as rows of columns, all of it as a line, and a text.

    A row is `row` pixels high, with `line` pixels for a link that is down, from `line_top` on. `columns` are shown,
    each at least one pixel wide and `ticks` samples long.
    """

    bars: Rect
    rails: Rect
    timeline: Rect
    text: Rect
    row: int
    line_top: int
    line: int
    ticks: int
    columns: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The static part: `base` (height, width), indices into `palette` (256, 3), and the bands of the runs."""

    base: Pixels
    palette: Pixels
    bands: tuple[Band, ...]
    letter_pixels: int


def lay_out_animation(runs: Sequence[PictureRun], scale: Scale, options: PictureOptions) -> Layout:
    """The layout of the runs, one above the other."""
    colours = panels.THEMES[options.theme]
    with panels.matplotlib.rc_context(panels.settings(colours)):
        labels = panels.label_inches(runs)
        width = options.width_inches - RIGHT - MARGIN - labels
        marks = [panels.gather_marks(run, width, MAX_MARKS) for run in runs]
        heights = [_band_inches(run, found) for run, found in zip(runs, marks, strict=True)]
        tops = np.cumsum([0.1, *heights]).tolist()
        bands = [
            _place_band(run, labels, top, panels.STRIP_INCHES if found else 0.0, options)
            for run, found, top in zip(runs, marks, tops, strict=False)
        ]
        foot = _foot(runs, bands, scale, options)
        page = panels.Page(
            options.width_inches,
            tops[-1] + panels.LEGEND_INCHES + panels.LINE_STEP * len(foot) + 0.12,
            options.dpi,
            colours,
        )
        bars = []
        for run, band, found, top in zip(runs, bands, marks, tops, strict=False):
            _draw_band(page, band, run, scale, top, options)
            _draw_timeline(page, band.timeline, run, scale, found)
            bars.append(_draw_scale(page, band, scale, options))
        panels.explain_runs(page, MARGIN, tops[-1], runs)
        page.lines(MARGIN, tops[-1] + panels.LEGEND_INCHES, foot)
        buffer = io.BytesIO()
        page.figure.savefig(buffer, format="png")
        picture = np.asarray(panels.Image.open(buffer).convert("RGB"))
    palette, base = _quantize(picture, colours)
    for bar in bars:
        levels = np.linspace(LEVELS - 1, 0, bar.height).round().astype(np.uint8)
        base[bar.top : bar.top + bar.height, bar.left : bar.left + bar.width] = levels[:, None]
    return Layout(base, palette, tuple(bands), round(panels.SMALL * options.dpi / 72))


def _rows_inches(run: PictureRun) -> float:
    return max(MIN_ROWS, ROW * len(run.ports))


def _band_inches(run: PictureRun, marks: panels.EventMarks) -> float:
    events = panels.STRIP_INCHES + panels.LINE_STEP * len(marks.lines) + GAP if marks else 0.0
    return HEAD + _rows_inches(run) + AXIS + TIMELINE + AXIS + TITLE + events


def _place_band(run: PictureRun, labels: float, top: float, strip: float, options: PictureOptions) -> Band:
    dpi = options.dpi
    row = round(_rows_inches(run) * dpi / len(run.ports))
    left, right = round((MARGIN + labels) * dpi), round((options.width_inches - RIGHT) * dpi)
    bars = Rect(left, round((top + HEAD) * dpi), round((right - left) * BARS), row * len(run.ports))
    begin = bars.left + bars.width + round(BETWEEN * dpi)
    rails = Rect(begin, bars.top, right - begin, bars.height)
    shown = max(1, round(options.window_ns / run.interval_ns))
    ticks = -(-shown // rails.width)
    below = bars.top + bars.height + round((AXIS + strip) * dpi)
    timeline = Rect(left, below, right - left, round(TIMELINE * dpi))
    text = Rect(begin, round((top + 0.02) * dpi), options.width_pixels - begin - 4, round(0.22 * dpi))
    line = max(2, round(min(panels.DOWN_ROWS * row, panels.DOWN_INCHES * dpi)))
    return Band(bars, rails, timeline, text, row, (row - line) // 2, line, ticks, max(1, shown // ticks))


def _draw_band(
    page: panels.Page, band: Band, run: PictureRun, scale: Scale, top: float, options: PictureOptions
) -> None:
    page.head(MARGIN, top, run, band.text.left / options.dpi - MARGIN, page.width)
    bars = _axes(page, band.bars)
    bars.set_xlim(0.0, scale.port)
    bars.set_ylim(len(run.ports), 0.0)
    bars.set_yticks(np.arange(len(run.ports)) + 0.5, run.ports)
    bars.tick_params(axis="y", length=0)
    bars.xaxis.set_major_locator(panels.ticker.MaxNLocator(4))
    bars.set_xlabel(f"rail now ({scale.sign})", fontsize=panels.SMALL)
    panels.plain(bars, grid=False)
    rails = _axes(page, band.rails)
    shown_seconds = band.columns * band.ticks * run.interval_seconds
    rails.set_xlim(-shown_seconds, 0.0)
    rails.set_yticks([])
    rails.xaxis.set_major_locator(panels.ticker.MaxNLocator(5))
    rails.set_xlabel("time before now (s)", fontsize=panels.SMALL)


def _draw_timeline(page: panels.Page, place: Rect, run: PictureRun, scale: Scale, marks: panels.EventMarks) -> None:
    axes = _axes(page, place)
    panels.draw_node(axes, run, scale, place.width, page.colours)
    # room for the mark of the span shown above
    axes.set_ylim(0.0, scale.node * 1.1)
    axes.yaxis.set_major_locator(panels.ticker.MaxNLocator(3))
    axes.set_ylabel(f"node ({scale.sign})", fontsize=panels.SMALL)
    axes.xaxis.label.set_fontsize(panels.SMALL)
    if marks:
        dpi = page.figure.dpi
        height = round(panels.STRIP_INCHES * dpi)
        marks.draw_lines(axes, page.colours)
        marks.draw_strip(_axes(page, Rect(place.left, place.top - height, place.width, height)), page.colours)
        page.lines(place.left / dpi, (place.top + place.height) / dpi + AXIS, marks.lines)


def _draw_scale(page: panels.Page, band: Band, scale: Scale, options: PictureOptions) -> Rect:
    """The colour scale; returns the rectangle to fill."""
    dpi = options.dpi
    place = Rect(round((page.width - RIGHT + 0.12) * dpi), band.rails.top, round(0.13 * dpi), band.rails.height)
    axes = _axes(page, place)
    axes.set_ylim(0.0, scale.port)
    panels.label_scale(axes, scale, f"rail ({scale.sign})", 4, panels.SMALL)
    axes.spines[:].set_visible(False)
    return place


def _axes(page: panels.Page, place: Rect) -> panels.Axes:
    dpi = page.figure.dpi
    return page.axes(place.left / dpi, place.top / dpi, place.width / dpi, place.height / dpi)


def _foot(runs: Sequence[PictureRun], bands: Sequence[Band], scale: Scale, options: PictureOptions) -> list[str]:
    frame = duration_text(round(SECOND_NS * options.speed / options.frames_per_second))
    tick = duration_text(runs[0].interval_ns)
    one = all(band.ticks == 1 for band in bands)
    reduced = any(run.ticks > band.timeline.width for run, band in zip(runs, bands, strict=True))
    parts = [
        f"bar: mean of {frame}",
        f"mark: highest {tick} sample shown",
        f"colours: every {tick} sample" if one else f"colours: highest {tick} sample of a column",
        options.directions_text,
        "1 GB = 10⁹ bytes",
        f"line: mean, pale: highest {tick} sample" if reduced else "",
        scale.exceeded,
    ]
    return panels.wrap([part for part in parts if part], options.width_inches - 2 * MARGIN)


def _quantize(picture: Pixels, colours: panels.Colours) -> tuple[Pixels, Pixels]:
    """The palette, and the picture as indices into it; the colours of legend and scale are exact."""
    drawn = panels.Image.fromarray(picture).quantize(256 - REST, dither=panels.Image.Dither.NONE)
    own = np.array(drawn.getpalette(), dtype=np.uint8).reshape(-1, 3)
    palette = np.zeros((256, 3), dtype=np.uint8)
    palette[:LEVELS] = np.round(255 * panels.matplotlib.colormaps[panels.COLOUR_MAP](np.linspace(0, 1, LEVELS))[:, :3])
    singles = (
        colours.background,
        colours.hole,
        colours.hatch,
        colours.line,
        colours.text,
        colours.runs[2],
        colours.down,
    )
    for place, colour in enumerate(singles, start=LEVELS):
        palette[place] = _rgb(colour)
    part = np.linspace(0, 1, INKS)[:, None]
    palette[INK:REST] = np.round((1 - part) * _rgb(colours.background) + part * _rgb(colours.text))
    palette[REST : REST + len(own)] = own
    base = (np.asarray(drawn) + REST).astype(np.uint8)
    for place in (0, LEVELS - 1, DOWN):
        base[(picture == palette[place]).all(axis=-1)] = place
    return palette, base


def _rgb(colour: str) -> Counts:
    return np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)])
