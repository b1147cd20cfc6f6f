"""The drawing libraries, colours, and the parts that several pictures share: page, axes, captions, marks of events."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ibpulse.base.errors import PictureError
from ibpulse.base.files import write_whole
from ibpulse.base.installation import how_to_install
from ibpulse.base.text import count_text, duration_text, first_names, moment_text, natural_key
from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Bools, Floats
from ibpulse.core.events import Event
from ibpulse.core.statistics.signs import LETTERS
from ibpulse.core.statistics.steps.runs import find_runs
from ibpulse.workbench.pictures.run import Columns, PictureRun, Scale, reduce

try:
    import matplotlib
    from matplotlib import font_manager, ticker
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Polygon
    from PIL import Image, ImageDraw, ImageFont
except ImportError as error:
    raise PictureError(f"pictures need matplotlib and pillow; {how_to_install('matplotlib', 'pillow')}") from error

__all__ = [
    "Axes",
    "Figure",
    "FigureCanvasAgg",
    "Image",
    "ImageDraw",
    "ImageFont",
    "Polygon",
    "font_manager",
    "matplotlib",
    "ticker",
]

COLOUR_MAP = "viridis"
"""Perceptually uniform, also for people with colour vision deficiency (van der Walt, Smith, 2015)."""

FONT = "DejaVu Sans"
"""The font that comes with matplotlib: identical on every machine."""

TINY, SMALL, USUAL, LARGE = 7.0, 8.0, 9.0, 11.5
HATCH = "////"


@dataclass(frozen=True, slots=True)
class Colours:
    """The colours of a theme. `runs` come from the palette of Okabe and Ito, in the order of the runs.

    Missing data has the neutral colour `hole`, hatched with `hatch`. A link that is down is a line of colour `down` on
    the background. Both differ from the colour map in shape as well, hence also without colours.
    """

    background: str
    text: str
    faint: str
    grid: str
    hole: str
    hatch: str
    down: str
    line: str
    runs: tuple[str, ...]


THEMES: Mapping[str, Colours] = {
    "light": Colours(
        background="#ffffff",
        text="#1a1d21",
        faint="#59616b",
        grid="#d9dde2",
        hole="#e4e4e4",
        hatch="#858d97",
        down="#d55e00",
        line="#0072b2",
        runs=("#0072b2", "#d55e00", "#009e73", "#cc79a7"),
    ),
    "dark": Colours(
        background="#12161c",
        text="#eceff3",
        faint="#a3adb8",
        grid="#333b45",
        hole="#3c444e",
        hatch="#98a2ae",
        down="#ff8a3d",
        line="#56b4e9",
        runs=("#56b4e9", "#e69f00", "#2fc49c", "#e3a3c7"),
    ),
}


def settings(colours: Colours) -> dict[Any, Any]:
    """matplotlib's settings for a theme; SVG texts stay texts, and equal pictures are equal bytes."""
    return {
        "axes.edgecolor": colours.faint,
        "axes.facecolor": colours.background,
        "axes.labelcolor": colours.text,
        "axes.labelsize": USUAL,
        "axes.linewidth": 0.8,
        "axes.titlesize": USUAL,
        "figure.facecolor": colours.background,
        "font.family": FONT,
        "font.size": USUAL,
        "grid.color": colours.grid,
        "hatch.linewidth": 0.7,
        "legend.fontsize": SMALL,
        "legend.frameon": False,
        "path.simplify": False,
        "savefig.facecolor": colours.background,
        "svg.fonttype": "none",
        "svg.hashsalt": "ibpulse",
        "text.color": colours.text,
        # file names may contain dollar signs
        "text.parse_math": False,
        "xtick.color": colours.faint,
        "xtick.labelcolor": colours.text,
        "xtick.labelsize": SMALL,
        "ytick.color": colours.faint,
        "ytick.labelcolor": colours.text,
        "ytick.labelsize": SMALL,
    }


# otherwise files contain a date and a version, and no two are equal
_METADATA: dict[str, dict[str, str | None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": "ibpulse", "Format": None, "Type": None},
}


def save_figure(figure: Figure, output: Path, theme: str) -> None:
    """Write a figure as PNG or SVG, depending on the suffix."""
    kind = output.suffix.removeprefix(".").lower()

    def write(path: Path) -> None:
        with matplotlib.rc_context(settings(THEMES[theme])):
            figure.savefig(path, format=kind, metadata=_METADATA[kind])

    write_whole(output, write, PictureError)


SIGNS: Mapping[str, tuple[str, str]] = {
    "s": ("source", "#6fb7ff"),
    "p": ("path", "#ffb020"),
    "r": ("receiver", "#c792ea"),
    "l": ("loss", "#ff5d5d"),
    "k": ("link", "#ff9ad5"),
    "-": ("unknown, weak signs", "#8d97a3"),
    "=": ("usual peak", "#3f8f63"),
    "?": ("unknown", "#59636e"),
}
"""Name and colour of the letters of a strip, in the order of their codes; the colours are those of the live page."""
SEPARATOR = " · "
EVENT = "event, and the uncertainty of its time"
TIME_UNITS = ((3 * 3600, 3600, "h"), (600, 60, "min"), (0, 1, "s"))
LINE_INCHES, LINE_STEP = 0.2, 0.16
LETTER_INCHES = 0.085
# inches per point, for letters of average width
LETTER, BOLD_LETTER = 0.0082, 0.0096
GRADIENT = np.linspace(0, 1, 256)[:, None]
# height of the line of a link that is down, at most, in rows and in inches
DOWN_ROWS, DOWN_INCHES = 0.25, 0.06
SWATCH_INCHES = 0.3
LEGEND_INCHES = 0.24
ARROW_INCHES = 0.12
# share of the time line
NARROW = 0.006
# the strip of the marks of events
STRIP_INCHES = 0.2
# between the numbers of two marks
MIN_MARK_INCHES = 0.2
# inches per point of small letters
SMALL_LETTER = 0.007
# a number stays with its unit
FIXED_SPACE = "\u00a0"
MAX_KINDS, MAX_SUBJECTS = 3, 3


def time_unit(span_seconds: float) -> tuple[int, str]:
    """Seconds per unit, and the symbol of the unit, that make a span readable."""
    return next((size, sign) for least, size, sign in TIME_UNITS if span_seconds >= least)


def run_parts(run: PictureRun) -> list[str]:
    """Host, date, span and interval of a run, and the shares of missing data and of links that were down."""
    size, sign = time_unit(run.span_seconds)
    span = f"{run.span_seconds / size:.4g} {sign}"
    parts = [moment_text(run.begin_ns), f"{span} at {duration_text(run.interval_ns)}"]
    if run.host:
        parts.insert(0, run.host)
    if run.simulated:
        parts.insert(0, "SIMULATED")
    for ratio, what in ((run.missing_ratio, "missing per port"), (run.down_ratio, "link down")):
        if ratio:
            parts.append(f"{max(ratio * 100, 0.1):.1f} % {what}")
    if run.too_much_missing and run.node.facts:
        parts.append("too much missing for bursts, gaps, steps and peak")
    if run.merged_samples:
        parts.append(f"{run.merged_samples} samples merged, one above the line rate")
    return parts


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

    def lines(self, left: float, top: float, texts: Iterable[str]) -> None:
        """Small faint texts below each other."""
        for line, text in enumerate(texts):
            self.write(left, top + LINE_STEP * line, text, SMALL, color=self.colours.faint)

    def head(self, left: float, top: float, run: PictureRun, name: float, rest: float) -> None:
        """The name of a run, and its description below; both fit the width."""
        self.write(left, top, shorten(run.name, name, LARGE), LARGE, weight="bold")
        self.lines(left, top + 0.24, head_lines(run, rest))

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
    return wrap(run_parts(run), width)


def wrap(parts: Iterable[str], width: float) -> list[str]:
    """Parts in lines that fit the width; a number stays with its unit."""
    most, lines = max(20, int(width / (SMALL * LETTER))), [""]
    for part in parts:
        shown = part if len(part) <= most else f"{part[: most - 1]}…"
        if lines[-1] and len(lines[-1]) + len(SEPARATOR) + len(shown) > most:
            lines.append("")
        lines[-1] += f"{SEPARATOR if lines[-1] else ''}{shown}"
    return lines


def facts_inches(run: PictureRun, columns: int) -> float:
    """Height of the facts of a run."""
    return 0.4 * -(-len(run.node.facts) // columns)


def label_inches(runs: Sequence[PictureRun]) -> float:
    """Width of the longest name of a port."""
    return LETTER_INCHES * max(len(port) for run in runs for port in run.ports) + 0.15


def hatch_missing(axes: Axes, colours: Colours) -> None:
    """Make missing data visible as the background of the axes."""
    axes.set_facecolor(colours.hole)
    axes.patch.set_hatch(HATCH)
    axes.patch.set_edgecolor(colours.hatch)
    axes.patch.set_linewidth(0)


def paint_rows(
    axes: Axes, values: Floats, colours: Any, limits: tuple[float, float], span: tuple[float, float]
) -> None:
    """Rows of values in the colours of a map between two limits, over a span, the first row on top."""
    extent = (*span, len(values), 0.0)
    low, high = limits
    axes.imshow(values, cmap=colours, vmin=low, vmax=high, aspect="auto", interpolation="nearest", extent=extent)


def draw_rows(axes: Axes, run: PictureRun, columns: Columns, statistic: str, highest: float, colours: Colours) -> None:
    """Rows of colours over time, one per port, the first on top; missing data shows the background."""
    size, _ = time_unit(run.span_seconds)
    column = columns.ticks * run.interval_seconds / size
    values = columns.highest if statistic == "max" else columns.mean
    shown = np.where(columns.down, np.nan, values)
    paint_rows(axes, shown, matplotlib.colormaps[COLOUR_MAP], (0.0, highest), (0.0, columns.count * column))
    for row, down in enumerate(columns.down):
        _draw_down(axes, down, column, row, colours)
    axes.set_xlim(0.0, run.span_seconds / size)
    axes.set_yticks(np.arange(len(run.ports)) + 0.5, run.ports)
    axes.tick_params(axis="y", length=0)
    for edge in range(1, len(run.ports)):
        axes.axhline(edge, color=colours.background, linewidth=0.8)


def draw_signs(axes: Axes, run: PictureRun, ticks: int, colours: Colours) -> None:
    """Rows of the signs of what limited transmit, one per port, in columns of so many samples."""
    size, _ = time_unit(run.span_seconds)
    none = "." * -(-run.ticks // ticks)
    strips = [run.signs[port].strip(ticks) if port in run.signs else none for port in run.ports]
    letters = np.array([[float(LETTERS.index(letter)) for letter in strip] for strip in strips])
    painted = matplotlib.colors.ListedColormap([colours.background, *(colour for _, colour in SIGNS.values())])
    paint_rows(axes, letters, painted, (0, len(SIGNS)), (0.0, len(none) * ticks * run.interval_seconds / size))
    axes.set_xlim(0.0, run.span_seconds / size)
    axes.set_xticks([])
    axes.set_yticks([])


def explain_signs(page: Page, left: float, top: float, runs: Sequence[PictureRun]) -> None:
    """Samples of the signs that the runs show."""
    shown = {letter for run in runs for signs in run.signs.values() for letter in signs.strip(1)}
    painted = {name: _filled(colour) for letter, (name, colour) in SIGNS.items() if letter in shown}
    draw_legend(page, left, top, painted)


def _filled(colour: str) -> Swatch:
    return lambda axes, _: axes.set_facecolor(colour)


def _draw_down(axes: Axes, down: Bools, column: float, row: int, colours: Colours) -> None:
    """A link that is down in some columns of a row: a line along its middle on the background."""
    rows_per_inch = abs(axes.get_ylim()[1] - axes.get_ylim()[0]) / _inches(axes)
    line = min(DOWN_ROWS, DOWN_INCHES * rows_per_inch)
    first, end = find_runs(down)
    places = list(zip((first * column).tolist(), ((end - first) * column).tolist(), strict=True))
    for height, colour in ((1.0, colours.background), (line, colours.down)):
        place = (row + (1 - height) / 2, height)
        axes.broken_barh(places, place, facecolor=colour, linewidth=0, antialiased=False)


def _inches(axes: Axes) -> float:
    """Height of the axes."""
    return float(axes.bbox.height / axes.figure.dpi)


def draw_colour_bar(axes: Axes, scale: Scale, label: str) -> None:
    """The colour scale, upright, with its unit; an arrow on top if there are higher values."""
    axes.imshow(
        GRADIENT,
        cmap=matplotlib.colormaps[COLOUR_MAP],
        aspect="auto",
        origin="lower",
        extent=(0.0, 1.0, 0.0, scale.port),
    )
    label_scale(axes, scale, label, 5)


def label_scale(axes: Axes, scale: Scale, label: str, most_ticks: int, size: float = USUAL) -> None:
    """The numbers and the label of a colour scale, on its right, and an arrow on top if there are higher values."""
    if scale.exceeded:
        brightest = matplotlib.colormaps[COLOUR_MAP](1.0)
        arrow = [(0.0, 1.0), (0.5, 1.0 + ARROW_INCHES / _inches(axes)), (1.0, 1.0)]
        axes.add_patch(Polygon(arrow, transform=axes.transAxes, facecolor=brightest, edgecolor="none", clip_on=False))
    axes.set_xticks([])
    axes.yaxis.tick_right()
    axes.yaxis.set_label_position("right")
    axes.yaxis.set_major_locator(ticker.MaxNLocator(most_ticks))
    axes.set_ylabel(label, fontsize=size)


def explain_runs(page: Page, left: float, top: float, runs: Sequence[PictureRun]) -> None:
    """Samples of no traffic, missing data, a link that is down, and an event if there are any."""
    events = any(run.events for run in runs)
    draw_legend(page, left, top, {name: paint for name, paint in _SWATCHES.items() if events or name != EVENT})


def draw_legend(page: Page, left: float, top: float, swatches: Mapping[str, Swatch]) -> None:
    """Samples of colours, each with its name."""
    for name, paint in swatches.items():
        axes = page.axes(left, top + 0.015, SWATCH_INCHES, 0.12)
        axes.set_xlim(0.0, 1.0)
        axes.set_ylim(1.0, 0.0)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set_linewidth(0.4)
        paint(axes, page.colours)
        page.write(left + SWATCH_INCHES + 0.07, top, name, SMALL, color=page.colours.faint)
        left += SWATCH_INCHES + 0.07 + len(name) * SMALL * LETTER + 0.2


def _draw_event(axes: Axes, colours: Colours) -> None:
    axes.set_axis_off()
    axes.hlines(0.8, 0.0, 0.7, color=colours.text, linewidth=0.8)
    axes.vlines(0.7, 0.5, 1.0, color=colours.text, linewidth=0.8)
    axes.text(0.88, 1.0, "1", fontsize=TINY, weight="bold", color=colours.text, va="bottom", clip_on=False)


Swatch = Callable[[Axes, Colours], None]
_SWATCHES: Mapping[str, Swatch] = {
    "no traffic": lambda axes, _: axes.set_facecolor(matplotlib.colormaps[COLOUR_MAP](0.0)),
    "missing data": hatch_missing,
    "link down": lambda axes, colours: _draw_down(axes, np.array([True]), 1.0, 0, colours),
    EVENT: _draw_event,
}


def draw_node(axes: Axes, run: PictureRun, scale: Scale, most: int, colours: Colours) -> Columns:
    """The sum over the rails in at most `most` columns: their means as a line, a band up to their highest samples."""
    columns = reduce(scale.of_node(run)[None], run.node.seconds[None], most, peaks=scale.of_node(run, peaks=True)[None])
    size, sign = time_unit(run.span_seconds)
    column = columns.ticks * run.interval_seconds / size
    edges, mean = np.arange(columns.count + 1) * column, columns.mean[0]
    if columns.ticks > 1:
        axes.stairs(
            columns.highest[0],
            edges,
            baseline=np.nan_to_num(mean),
            fill=True,
            color=colours.line,
            alpha=0.3,
            linewidth=0,
            label=f"highest {duration_text(run.interval_ns)} sample",
        )
    axes.stairs(mean, edges, baseline=None, color=colours.line, linewidth=0.8, label="mean")
    _mark_missing(axes, columns.partly[0], column, colours)
    axes.set_xlim(0.0, run.span_seconds / size)
    axes.set_xlabel(f"time since the beginning ({sign})")
    plain(axes)
    return columns


def plain(axes: Axes, *, grid: bool = True) -> None:
    """Axes without clutter: no frame on top and right, a grid in the background."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    if grid:
        axes.grid(linewidth=0.6)


def _mark_missing(axes: Axes, missing: Bools, column: float, colours: Colours) -> None:
    """Hatched spans, from top to bottom, over columns with missing data; `column` is their width."""
    narrow = NARROW * column * len(missing)
    for begin, end in zip(*((each * column).tolist() for each in find_runs(missing)), strict=True):
        # hatching of a narrow span looks like a dashed line
        hatch, colour = (None, colours.hatch) if end - begin < narrow else (HATCH, colours.hole)
        axes.axvspan(begin, end, facecolor=colour, edgecolor=colours.hatch, hatch=hatch, linewidth=0, zorder=0.5)


@dataclass(frozen=True, slots=True)
class EventMarks:
    """The events of a run, in groups of neighbours that share one mark.

    `lines` are the texts, `times` (events,) the times at which the events were noticed and `earliest` (events,) those
    before which they did not happen, in seconds since the beginning of the run.
    """

    run: PictureRun
    groups: tuple[tuple[Event, ...], ...]
    lines: tuple[str, ...]
    times: Floats
    earliest: Floats

    def __bool__(self) -> bool:
        return bool(self.groups)

    @property
    def places(self) -> list[float]:
        """The time of each mark: that of its first event."""
        return [_seconds(self.run, group[0]) for group in self.groups]

    def draw_strip(self, axes: Axes, colours: Colours) -> None:
        """A strip above a plot over time: a tick for each event, a line back to its earliest time, and the numbers."""
        axes.set_axis_off()
        axes.set_xlim(0.0, self.run.span_seconds)
        axes.set_ylim(0.0, 1.0)
        axes.hlines(np.full(len(self.times), 0.12), self.earliest, self.times, color=colours.text, linewidth=0.8)
        axes.vlines(self.times, 0.0, 0.34, color=colours.text, linewidth=0.8)
        for number, place in enumerate(self.places, start=1):
            axes.text(place, 0.4, f"{number}", fontsize=TINY, ha="center", color=colours.text, weight="bold")

    def draw_lines(self, axes: Axes, colours: Colours) -> None:
        """A thin line through a plot over time for each mark."""
        size, _ = time_unit(self.run.span_seconds)
        for place in self.places:
            axes.axvline(place / size, color=colours.text, linewidth=0.6, linestyle=(0, (2, 2)), zorder=0.8)


def gather_marks(run: PictureRun, inches: float, most: int) -> EventMarks:
    """The events of a run as at most `most` marks on a time line of that width, which do not overlap.

    Events that are close to each other share a mark; none is left out. A text has at most two lines.
    """
    times = np.array([_seconds(run, event) for event in run.events])
    unsure = np.array([event.uncertainty_ns / SECOND_NS for event in run.events])
    groups = tuple(
        run.events[first:end] for first, end in _group(times, MIN_MARK_INCHES / inches * run.span_seconds, most)
    )
    letters = int(inches / (SMALL * SMALL_LETTER))
    lines = []
    for number, group in enumerate(groups, start=1):
        text = f"{number}  {_describe(run, group)}"
        lines += textwrap.wrap(
            text, letters, subsequent_indent="    ", max_lines=2, placeholder=" …", break_on_hyphens=False
        )
    return EventMarks(run, groups, tuple(lines), times, np.maximum(times - unsure, 0.0))


def _group(times: Floats, least: float, most: int) -> list[tuple[int, int]]:
    """At most `most` groups of sorted times, whose first times are more than `least` apart: first place and end."""
    edges: list[int] = []
    for place, time in enumerate(times.tolist()):
        if not edges or time - times[edges[-1]] > least:
            edges.append(place)
    while len(edges) > most:
        gaps = [times[edge] - times[edge - 1] for edge in edges[1:]]
        del edges[1 + int(np.argmin(gaps))]
    return list(pairwise([*edges, len(times)]))


def _seconds(run: PictureRun, event: Event) -> float:
    return (event.time_ns - run.begin_ns) / SECOND_NS


def _describe(run: PictureRun, events: tuple[Event, ...]) -> str:
    """Time and text of an event; of several the span, their kinds and their ports."""
    size, sign = time_unit(run.span_seconds)
    digits = 0 if run.span_seconds >= 1000 * size else 1 if run.span_seconds >= 100 * size else 2
    begin, end = (f"{_seconds(run, events[place]) / size:.{digits}f}" for place in (0, -1))
    when = (begin if begin == end else f"{begin} to {end}") + FIXED_SPACE + sign
    if len(events) == 1:
        return f"{when}  {events[0].text}"
    kinds = Counter(event.kind for event in events).most_common()
    rest = sum(number for _, number in kinds[MAX_KINDS:])
    counted = [*kinds[:MAX_KINDS], *([("more", rest)] if rest else [])]
    parts = [f"{number}{FIXED_SPACE}{kind}" for kind, number in counted]
    subjects = sorted({event.subject for event in events if event.subject}, key=natural_key)
    named = f" ({first_names(subjects, MAX_SUBJECTS)})" if subjects else ""
    return f"{when}  {count_text(len(events), 'event')}: {', '.join(parts)}{named}"
