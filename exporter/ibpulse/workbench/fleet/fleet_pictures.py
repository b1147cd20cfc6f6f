"""Pictures of a dataset: nodes over time, nodes and rails, and lateness over time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ibpulse.base.text import escape_controls, moment_text
from ibpulse.core.statistics.lateness import ENOUGH_MS, Lateness
from ibpulse.core.statistics.rail_split import RailSplit
from ibpulse.workbench.fleet.fleet_picture_data import (
    FleetColumns,
    fill_columns,
    find_close_up,
    follow_lateness,
    sort_nodes,
)
from ibpulse.workbench.fleet.fleet_report import FleetReport
from ibpulse.workbench.fleet.report_source import ReportSource
from ibpulse.workbench.pictures.figure import (
    COLOUR_MAP,
    SMALL,
    THEMES,
    TINY,
    Axes,
    Figure,
    matplotlib,
    settings,
    ticker,
)
from ibpulse.workbench.pictures.options import PictureOptions
from ibpulse.workbench.pictures.panels import LETTER_INCHES, LINE_STEP, Page, hatch_missing, plain, time_unit, wrap

MARGIN, RIGHT, HEAD, TITLE, AXIS, FOOT = 0.15, 1.35, 0.62, 0.3, 0.5, 0.12
TALLEST_ROW, LOWEST_ROW, TALLEST_MAP = 0.22, 0.09, 7.0
# rows need this height for a name of their own
NAMED_ROW = 0.1
# higher ones are divided by lines
DIVIDED_ROW = 0.15
NAMED_LATE = 6
DIVERGING = "RdBu_r"
LARGEST_FACTOR = 2.0


class _Fleet:
    """A page about a dataset with its heading, and rows for nodes."""

    def __init__(self, report: FleetReport, nodes: Sequence[str], inches: float, options: PictureOptions) -> None:
        self.report, self.nodes, self.options = report, [escape_controls(name) for name in nodes], options
        self.colours = THEMES[options.theme]
        self.row = min(TALLEST_ROW, max(LOWEST_ROW, TALLEST_MAP / max(1, len(nodes))))
        self.rows = max(1.0, self.row * len(nodes))
        self.labels = LETTER_INCHES * max((len(name) for name in self.nodes), default=1) + 0.15
        self.left = MARGIN + self.labels
        self.width = options.width_inches - self.left - RIGHT
        self.page = Page(options.width_inches, inches, options.dpi, self.colours)

    def write_head(self, title: str) -> None:
        """The title, and what the dataset is."""
        report = self.report
        self.page.write(MARGIN, 0.12, title, 11.5, weight="bold")
        parts = ["SIMULATED"] if report.simulated else []
        parts += [report.choice.text, f"{len(report.nodes)} nodes", moment_text(report.origin_ns)]
        parts += [f"{report.seconds:.4g} s", _clock_words(report)]
        line = wrap([escape_controls(part) for part in parts], self.options.width_inches - 2 * MARGIN)[0]
        self.page.write(MARGIN, 0.36, line, SMALL, color=self.colours.faint)

    def name_rows(self, axes: Axes) -> None:
        """The names of the nodes at the rows, as many as fit."""
        every = max(1, int(np.ceil(NAMED_ROW / self.row)))
        places = np.arange(0, len(self.nodes), every)
        size = SMALL if self.row >= 0.15 else TINY * 0.8
        axes.set_yticks(places + 0.5, [self.nodes[place] for place in places], fontsize=size)
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(len(self.nodes), 0.0)


def _clock_words(report: FleetReport) -> str:
    bounds = [node.bound_ns for node in report.nodes.values()]
    known = [bound for bound in bounds if bound is not None]
    if not known:
        return "clocks unknown"
    return f"clocks ± {max(known) / 1e6:.3g} ms" + ("" if len(known) == len(bounds) else ", some unknown")


def draw_waterfall(source: ReportSource, report: FleetReport, order: str, options: PictureOptions) -> Figure:
    """Nodes over time, as a whole and a few steps in detail; a late node says by how much."""
    nodes = sort_nodes(report, order)
    fleet = _Fleet(report, nodes, 1.0, options)
    height = HEAD + 2 * (TITLE + fleet.rows + AXIS) + FOOT + LINE_STEP
    fleet = _Fleet(report, nodes, height, options)
    pixels = max(1, int(fleet.width * options.dpi))
    whole = fill_columns(source, nodes, (0.0, report.seconds), pixels)
    close = fill_columns(source, nodes, find_close_up(report), pixels)
    fleet.write_head(f"Bandwidth of nodes, sorted by {order}")
    highest = float(np.nanmax([np.nanmax(each.values, initial=0.0) for each in (whole, close)])) / 1e9 or 1.0
    top = HEAD
    for columns, text in ((whole, "all of it"), (close, "some steps in detail")):
        title = f"{text}: mean of each column of {1e3 * columns.seconds:.4g} ms"
        fleet.page.write(fleet.left, top + 0.05, title, SMALL)
        axes = fleet.page.axes(fleet.left, top + TITLE, fleet.width, fleet.rows)
        _draw_columns(fleet, axes, columns, highest)
        _write_late(fleet, axes, nodes)
        top += TITLE + fleet.rows + AXIS
    place = (options.width_inches - 0.5, HEAD + TITLE, 0.12, min(fleet.rows, 3.0))
    _draw_bar(fleet.page.axes(*place), COLOUR_MAP, (0.0, highest), "GB/s, transmit + receive")
    foot = "Hatched: missing data. Times are those of the collector; clocks are corrected as measured."
    fleet.page.write(MARGIN, top, foot, SMALL, color=fleet.colours.faint)
    return fleet.page.figure


def _draw_columns(fleet: _Fleet, axes: Axes, columns: FleetColumns, highest: float) -> None:
    hatch_missing(axes, fleet.colours)
    length = columns.seconds * columns.values.shape[1]
    size, sign = time_unit(length)
    begin, end = columns.begin / size, (columns.begin + length) / size
    axes.imshow(
        columns.values / 1e9,
        cmap=matplotlib.colormaps[COLOUR_MAP],
        vmin=0.0,
        vmax=highest,
        aspect="auto",
        interpolation="nearest",
        extent=(begin, end, len(fleet.nodes), 0.0),
    )
    fleet.name_rows(axes)
    if fleet.row >= DIVIDED_ROW:
        for edge in range(1, len(fleet.nodes)):
            axes.axhline(edge, color=fleet.colours.background, linewidth=0.5)
    axes.set_xlabel(f"time since the beginning ({sign})", fontsize=SMALL)


def _late_nodes(report: FleetReport) -> dict[str, Lateness]:
    found: dict[str, Lateness] = {}
    for row in report.steps:
        if row.late is not None:
            found.setdefault(row.node, row.late)
    return found


def _write_late(fleet: _Fleet, axes: Axes, nodes: Sequence[str]) -> None:
    """How late the late nodes are, next to their rows."""
    for name, late in _late_nodes(fleet.report).items():
        if name in nodes:
            text = f"◂ {late.lateness_ms:.1f} ms"
            style: dict[str, Any] = {"fontsize": TINY, "color": fleet.colours.down, "va": "center"}
            place = 1 - (nodes.index(name) + 0.5) / len(nodes)
            axes.text(1.003, place, text, transform=axes.transAxes, clip_on=False, **style)


def _draw_bar(axes: Axes, colours: str, bounds: tuple[float, float], label: str) -> None:
    gradient = np.linspace(0, 1, 256)[:, np.newaxis]
    extent = (0.0, 1.0, *bounds)
    axes.imshow(gradient, cmap=matplotlib.colormaps[colours], aspect="auto", origin="lower", extent=extent)
    axes.set_xticks([])
    axes.yaxis.tick_left()
    axes.yaxis.set_major_locator(ticker.MaxNLocator(5))
    axes.tick_params(axis="y", labelsize=TINY)
    axes.yaxis.set_label_position("right")
    axes.set_ylabel(label, fontsize=TINY)


def draw_rails(_: ReportSource, report: FleetReport, order: str, options: PictureOptions) -> Figure:
    """Nodes and rails in both directions: the rate of each port over the usual one of its direction."""
    nodes = sort_nodes(report, order)
    fleet = _Fleet(report, nodes, 1.0, options)
    height = HEAD + TITLE + fleet.rows + 0.75 + FOOT + LINE_STEP
    fleet = _Fleet(report, nodes, height, options)
    fleet.write_head(f"Nodes and rails, sorted by {order}")
    width = (fleet.width - 0.3) / 2
    for place, (split, way) in enumerate(zip(report.splits, ("transmit", "receive"), strict=False)):
        left = fleet.left + place * (width + 0.3)
        fleet.page.write(left, HEAD + 0.05, f"{way}: factor of the usual rate", SMALL)
        axes = fleet.page.axes(left, HEAD + TITLE, width, fleet.rows)
        _draw_split(fleet, axes, split, nodes)
        if place:
            axes.set_yticks([])
    bounds = (-np.log2(LARGEST_FACTOR), np.log2(LARGEST_FACTOR))
    bar = fleet.page.axes(options.width_inches - 0.5, HEAD + TITLE, 0.12, min(fleet.rows, 3.0))
    _draw_bar(bar, DIVERGING, bounds, "")
    bar.set_yticks([bounds[0], -0.5, 0.0, 0.5, bounds[1]], ["0.5", "0.71", "1", "1.41", "2"], fontsize=TINY)
    foot = "Hatched: unknown. A crossed port carries nothing. Means over the seconds that all rails of a node have."
    fleet.page.write(MARGIN, height - FOOT - LINE_STEP, foot, SMALL, color=fleet.colours.faint)
    return fleet.page.figure


def _draw_split(fleet: _Fleet, axes: Axes, split: RailSplit, nodes: Sequence[str]) -> None:
    hatch_missing(axes, fleet.colours)
    order = [split.nodes.index(name) for name in nodes if name in split.nodes]
    factors = (split.node[:, np.newaxis] * split.rail * split.rest)[order]
    shape = (0.0, len(split.rails), len(order), 0.0)
    limits = {"vmin": -np.log2(LARGEST_FACTOR), "vmax": np.log2(LARGEST_FACTOR)}
    cells = np.log2(np.clip(factors, 1 / LARGEST_FACTOR, LARGEST_FACTOR))
    axes.imshow(
        cells, cmap=matplotlib.colormaps[DIVERGING], aspect="auto", interpolation="nearest", extent=shape, **limits
    )
    for row, column in np.argwhere(split.idle[order]):
        axes.plot([column, column + 1], [row, row + 1], color=fleet.colours.down, linewidth=1.0)
        axes.plot([column, column + 1], [row + 1, row], color=fleet.colours.down, linewidth=1.0)
    fleet.name_rows(axes)
    names = [escape_controls(name) for name in split.rails]
    axes.set_xticks(np.arange(len(names)) + 0.5, names, rotation=45, ha="right", fontsize=TINY)
    axes.set_xlim(0.0, len(names))


def draw_lateness(source: ReportSource, report: FleetReport, _: str, options: PictureOptions) -> Figure:
    """Lateness over time: late nodes with names, the others in the background."""
    series = follow_lateness(source)
    fleet = _Fleet(report, [], HEAD + TITLE + 3.2 + AXIS + FOOT + LINE_STEP, options)
    fleet.write_head("Lateness of nodes over time")
    axes = fleet.page.axes(MARGIN + 0.6, HEAD + TITLE, options.width_inches - MARGIN - 0.6 - 1.3, 3.2)
    size, sign = time_unit(report.seconds)
    found = _late_nodes(report)
    late = sorted(found, key=lambda name: -found[name].lateness_ms)[:NAMED_LATE]
    for name, values in series.lateness.items():
        if name not in late:
            axes.plot(series.seconds / size, values, color=fleet.colours.faint, linewidth=0.6, alpha=0.5)
    for place, name in enumerate(late):
        label = f"{escape_controls(name)} ± {found[name].uncertainty_ms:.1f} ms"
        colour = (*fleet.colours.runs, fleet.colours.text, fleet.colours.down)[place % (len(fleet.colours.runs) + 2)]
        values, bound = series.lateness[name], found[name].uncertainty_ms
        axes.fill_between(series.seconds / size, values - bound, values + bound, color=colour, alpha=0.15, linewidth=0)
        axes.plot(series.seconds / size, values, color=colour, linewidth=1.2, label=label)
    axes.axhspan(-ENOUGH_MS, ENOUGH_MS, color=fleet.colours.grid, alpha=0.5, linewidth=0, zorder=0)
    axes.set_xlim(0.0, report.seconds / size)
    axes.set_xlabel(f"time since the beginning ({sign})", fontsize=SMALL)
    axes.set_ylabel("ms later than its peers", fontsize=SMALL)
    plain(axes)
    if late:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), borderpad=0.2, handlelength=1.2)
    foot = f"Median of neighbouring steps on the job's own clock. Within ± {ENOUGH_MS:g} ms (grey) nobody is named."
    bottom = HEAD + TITLE + 3.2 + AXIS
    fleet.page.write(MARGIN, bottom, foot, SMALL, color=fleet.colours.faint)
    return fleet.page.figure


Draw = Callable[[ReportSource, FleetReport, str, PictureOptions], Figure]
DRAWINGS: Mapping[str, Draw] = {"waterfall": draw_waterfall, "rails": draw_rails, "lateness": draw_lateness}


def render_fleet(
    kind: str, source: ReportSource, report: FleetReport, order: str, output: Path, options: PictureOptions
) -> None:
    """Draw a picture of a dataset into a PNG or SVG file.

    Raises:
        DatasetError: the dataset cannot be read.
        PictureError: the file cannot be written.
    """
    from ibpulse.workbench.pictures.figure import save_figure

    with matplotlib.rc_context(settings(THEMES[options.theme])):
        figure = DRAWINGS[kind](source, report, order, options)
    save_figure(figure, output, options.theme)
