"""Pictures of a dataset: nodes over time, nodes and rails, and lateness over time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ibpulse.base.text import escape_controls, moment_text, natural_key
from ibpulse.base.units import MILLISECOND_NS, SECOND_NS
from ibpulse.core.arrays import Floats
from ibpulse.core.model import DIRECTIONS
from ibpulse.core.statistics.lateness import MIN_LATE_MS, Lateness, match_steps, medians_of_others
from ibpulse.core.statistics.nodes import RailSplit
from ibpulse.workbench.fleet.report import FleetReport, PeerGroup, find_peers
from ibpulse.workbench.fleet.source import ReportSource
from ibpulse.workbench.pictures import panels
from ibpulse.workbench.pictures.options import PictureOptions

# inches
MARGIN, RIGHT, HEAD, TITLE, AXIS, FOOT = 0.15, 1.35, 0.62, 0.3, 0.5, 0.12
MAX_ROW, MIN_ROW, MAX_MAP, LATENESS = 0.22, 0.09, 7.0, 3.2
# rows of this height have a name of their own, and higher ones are divided by lines
NAMED_ROW, DIVIDED_ROW = 0.1, 0.15
MAX_NAMED_LATE = 6
DIVERGING = "RdBu_r"
MAX_FACTOR = 2.0
# length of the close-up
CLOSE_STEPS, MAX_CLOSE_SECONDS = 6, 12.0
# a point of lateness over time is the median of this many steps
POINT_STEPS, MAX_POINTS = 6, 60


def render_fleet(
    kind: str, source: ReportSource, report: FleetReport, order: str, output: Path, options: PictureOptions
) -> None:
    """Draw a picture of a dataset into a PNG or SVG file."""
    fleet = _Fleet(source, report, order, options)
    with panels.matplotlib.rc_context(panels.settings(fleet.colours)):
        figure = DRAWINGS[kind](fleet)
    panels.save_figure(figure, output, options.theme)


class _Fleet:
    """A page about a dataset with its heading, and rows for nodes."""

    page: panels.Page

    def __init__(self, source: ReportSource, report: FleetReport, order: str, options: PictureOptions) -> None:
        self.source, self.report, self.order, self.options = source, report, order, options
        self.colours = panels.THEMES[options.theme]
        self.late: dict[str, Lateness] = {}
        for row in report.steps:
            if row.late is not None:
                self.late.setdefault(row.node, row.late)
        self.nodes = _sort_nodes(report, order)
        self.names = [escape_controls(name) for name in self.nodes]
        self.row = min(MAX_ROW, max(MIN_ROW, MAX_MAP / max(1, len(self.nodes))))
        self.rows = max(1.0, self.row * len(self.nodes))
        self.left = MARGIN + panels.LETTER_INCHES * max(map(len, self.names), default=1) + 0.15
        self.width = options.width_inches - self.left - RIGHT

    def begin(self, height: float, title: str, foot: str) -> None:
        """Begin the page below its heading, `height` inches high without heading and foot."""
        report, inches = self.report, HEAD + height + FOOT + panels.LINE_STEP
        self.page = panels.Page(self.options.width_inches, inches, self.options.dpi, self.colours)
        self.page.write(MARGIN, 0.12, title, 11.5, weight="bold")
        parts = ["SIMULATED"] if report.simulated else []
        parts += [report.choice.text, f"{len(report.nodes)} nodes", moment_text(report.origin_ns)]
        parts += [f"{report.seconds:.4g} s", _clock_text(report)]
        line = panels.wrap([escape_controls(part) for part in parts], self.options.width_inches - 2 * MARGIN)[0]
        self.page.lines(MARGIN, 0.36, [line])
        self.page.lines(MARGIN, HEAD + height, [foot])

    def name_rows(self, axes: panels.Axes) -> None:
        """Write the names of the nodes at the rows, as many as fit."""
        every = max(1, int(np.ceil(NAMED_ROW / self.row)))
        places = np.arange(0, len(self.names), every)
        size = panels.SMALL if self.row >= 0.15 else panels.TINY * 0.8
        axes.set_yticks(places + 0.5, [self.names[place] for place in places], fontsize=size)
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(len(self.names), 0.0)

    def draw_bar(self, colours: str, bounds: tuple[float, float], label: str) -> panels.Axes:
        """Draw a bar of colours at the right."""
        axes = self.page.axes(self.options.width_inches - 0.5, HEAD + TITLE, 0.12, min(self.rows, 3.0))
        gradient = np.linspace(0, 1, 256)[:, np.newaxis]
        extent = (0.0, 1.0, *bounds)
        axes.imshow(gradient, cmap=panels.matplotlib.colormaps[colours], aspect="auto", origin="lower", extent=extent)
        axes.set_xticks([])
        axes.yaxis.tick_left()
        axes.yaxis.set_major_locator(panels.ticker.MaxNLocator(5))
        axes.tick_params(axis="y", labelsize=panels.TINY)
        axes.yaxis.set_label_position("right")
        axes.set_ylabel(label, fontsize=panels.TINY)
        return axes


def _sort_nodes(report: FleetReport, order: str) -> list[str]:
    names = sorted(report.nodes, key=natural_key)
    if order == "rack":
        labels = {name: node.labels for name, node in report.nodes.items()}
        return sorted(names, key=lambda name: [natural_key(labels[name].get(kind, "")) for kind in ("leaf", "rack")])
    late: dict[str, float] = {}
    for row in report.steps if order == "lateness" else ():
        if row.lateness is not None:
            late[row.node] = max(late.get(row.node, -np.inf), row.lateness.lateness_ms)
    return sorted(names, key=lambda name: -late.get(name, -np.inf))


def _clock_text(report: FleetReport) -> str:
    known = [node.bound_ns for node in report.nodes.values() if node.bound_ns is not None]
    if not known:
        return "clocks unknown"
    return f"clocks ± {max(known) / 1e6:.3g} ms" + ("" if len(known) == len(report.nodes) else ", some unknown")


def _draw_waterfall(fleet: _Fleet) -> panels.Figure:
    """Nodes over time, as a whole and a few steps in detail; late nodes with their lateness."""
    foot = "Hatched: missing data. Times are those of the collector; clocks are corrected as measured."
    fleet.begin(2 * (TITLE + fleet.rows + AXIS), f"Bandwidth of nodes, sorted by {fleet.order}", foot)
    parts = [_fill_columns(fleet, *span) for span in ((0.0, fleet.report.seconds), _find_close_up(fleet.report))]
    highest = float(np.nanmax([np.nanmax(values, initial=0.0) for _, _, values in parts])) / 1e9 or 1.0
    top = HEAD
    for (begin, seconds, values), text in zip(parts, ("all of it", "some steps in detail"), strict=True):
        title = f"{text}: mean of each column of {1e3 * seconds:.4g} ms"
        fleet.page.write(fleet.left, top + 0.05, title, panels.SMALL)
        axes = fleet.page.axes(fleet.left, top + TITLE, fleet.width, fleet.rows)
        panels.hatch_missing(axes, fleet.colours)
        length = seconds * values.shape[1]
        size, sign = panels.time_unit(length)
        span = begin / size, (begin + length) / size
        panels.paint_rows(axes, values / 1e9, panels.COLOUR_MAP, (0.0, highest), span)
        fleet.name_rows(axes)
        for edge in range(1, len(fleet.nodes)) if fleet.row >= DIVIDED_ROW else ():
            axes.axhline(edge, color=fleet.colours.background, linewidth=0.5)
        axes.set_xlabel(f"time since the beginning ({sign})", fontsize=panels.SMALL)
        style: dict[str, Any] = {"fontsize": panels.TINY, "color": fleet.colours.down, "va": "center"}
        for name, late in fleet.late.items():
            place = 1 - (fleet.nodes.index(name) + 0.5) / len(fleet.nodes)
            label = f"◂ {late.lateness_ms:.1f} ms"
            axes.text(1.003, place, label, transform=axes.transAxes, clip_on=False, **style)
        top += TITLE + fleet.rows + AXIS
    fleet.draw_bar(panels.COLOUR_MAP, (0.0, highest), "GB/s, transmit + receive")
    return fleet.page.figure


def _find_close_up(report: FleetReport) -> tuple[float, float]:
    """The span of some steps in the middle, in seconds after the origin; one tenth of the whole without steps."""
    periods = [row.step_ms for row in report.steps if row.step_ms is not None]
    length = CLOSE_STEPS * float(np.median(periods)) / 1e3 if periods else report.seconds / 10
    length = min(length, MAX_CLOSE_SECONDS, report.seconds)
    begin = (report.seconds - length) / 2
    return begin, begin + length


def _fill_columns(fleet: _Fleet, begin: float, end: float) -> tuple[float, float, Floats]:
    """Begin and seconds of columns of whole samples, at most one for each pixel, and the means of nodes in them.

    The means are (nodes, columns), NaN where data is missing.
    """
    interval = max(node.interval_ns for node in fleet.report.nodes.values()) / SECOND_NS
    samples = max(1, round((end - begin) / interval))
    per_column = -(-samples // max(1, int(fleet.width * fleet.options.dpi)))
    seconds, columns = per_column * interval, -(-samples // per_column)
    return begin, seconds, np.array([fleet.source.means(name, begin, seconds, columns) for name in fleet.nodes])


def _draw_rails(fleet: _Fleet) -> panels.Figure:
    """Nodes and rails in both directions: the rate of each port over the usual one of its direction."""
    height = TITLE + fleet.rows + 0.75
    foot = "Hatched: unknown. A crossed port carries nothing. Means over the seconds that all rails of a node have."
    fleet.begin(height, f"Nodes and rails, sorted by {fleet.order}", foot)
    width = (fleet.width - 0.3) / 2
    for place, (split, way) in enumerate(zip(fleet.report.splits, DIRECTIONS, strict=False)):
        left = fleet.left + place * (width + 0.3)
        fleet.page.write(left, HEAD + 0.05, f"{way}: factor of the usual rate", panels.SMALL)
        axes = fleet.page.axes(left, HEAD + TITLE, width, fleet.rows)
        _draw_split(fleet, axes, split)
        if place:
            axes.set_yticks([])
    bounds = (-np.log2(MAX_FACTOR), np.log2(MAX_FACTOR))
    bar = fleet.draw_bar(DIVERGING, bounds, "")
    bar.set_yticks([bounds[0], -0.5, 0.0, 0.5, bounds[1]], ["0.5", "0.71", "1", "1.41", "2"], fontsize=panels.TINY)
    return fleet.page.figure


def _draw_split(fleet: _Fleet, axes: panels.Axes, split: RailSplit) -> None:
    panels.hatch_missing(axes, fleet.colours)
    order = [split.nodes.index(name) for name in fleet.nodes]
    factors = (split.node[:, np.newaxis] * split.rail * split.rest)[order]
    shown, most = np.log2(np.clip(factors, 1 / MAX_FACTOR, MAX_FACTOR)), np.log2(MAX_FACTOR)
    panels.paint_rows(axes, shown, DIVERGING, (-most, most), (0.0, len(split.rails)))
    for row, column in np.argwhere(split.idle[order]):
        axes.plot([column, column + 1], [row, row + 1], color=fleet.colours.down, linewidth=1.0)
        axes.plot([column, column + 1], [row + 1, row], color=fleet.colours.down, linewidth=1.0)
    fleet.name_rows(axes)
    names = [escape_controls(name) for name in split.rails]
    axes.set_xticks(np.arange(len(names)) + 0.5, names, rotation=45, ha="right", fontsize=panels.TINY)
    axes.set_xlim(0.0, len(names))


def _draw_lateness(fleet: _Fleet) -> panels.Figure:
    """Lateness over time: late nodes with names, the others in the background."""
    report, colours = fleet.report, fleet.colours
    middles, lateness = _follow_lateness(fleet.source)
    foot = f"Median of neighbouring steps on the job's own clock. Within ± {MIN_LATE_MS:g} ms (grey) nobody is named."
    fleet.begin(TITLE + LATENESS + AXIS, "Lateness of nodes over time", foot)
    axes = fleet.page.axes(MARGIN + 0.6, HEAD + TITLE, fleet.options.width_inches - MARGIN - 0.6 - 1.3, LATENESS)
    size, sign = panels.time_unit(report.seconds)
    late = sorted(fleet.late, key=lambda name: -fleet.late[name].lateness_ms)[:MAX_NAMED_LATE]
    for name, values in lateness.items():
        if name not in late:
            axes.plot(middles / size, values, color=colours.faint, linewidth=0.6, alpha=0.5)
    cycle = (*colours.runs, colours.text, colours.down)
    for place, name in enumerate(late):
        values, bound, colour = lateness[name], fleet.late[name].uncertainty_ms, cycle[place % len(cycle)]
        label = f"{escape_controls(name)} ± {bound:.1f} ms"
        axes.fill_between(middles / size, values - bound, values + bound, color=colour, alpha=0.15, linewidth=0)
        axes.plot(middles / size, values, color=colour, linewidth=1.2, label=label)
    axes.axhspan(-MIN_LATE_MS, MIN_LATE_MS, color=colours.grid, alpha=0.5, linewidth=0, zorder=0)
    axes.set_xlim(0.0, report.seconds / size)
    axes.set_xlabel(f"time since the beginning ({sign})", fontsize=panels.SMALL)
    axes.set_ylabel("ms later than its peers", fontsize=panels.SMALL)
    panels.plain(axes)
    if late:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), borderpad=0.2, handlelength=1.2)
    return fleet.page.figure


def _follow_lateness(source: ReportSource) -> tuple[Floats, Mapping[str, Floats]]:
    """Seconds (points,), and the lateness of every node against its peers in ms, as medians over neighbouring steps."""
    lateness: dict[str, Floats] = {}
    groups = source.steps()
    count = min(MAX_POINTS, max(1, max(map(len, groups), default=0) // POINT_STEPS))
    edges = np.linspace(0.0, (source.end_ns - source.origin_ns) / SECOND_NS, count + 1)
    for peers in find_peers(groups):
        for name, (times, values) in _against_peers(peers, source).items():
            places = np.clip(np.searchsorted(edges, times) - 1, 0, count - 1)
            medians = np.full(count, np.nan)
            for place in np.unique(places):
                medians[place] = np.median(values[places == place])
            # of several pipelines on a node, the latest one
            lateness[name] = np.fmax(lateness.get(name, np.full(count, np.nan)), medians)
    return (edges[:-1] + edges[1:]) / 2, lateness


def _against_peers(peers: PeerGroup, source: ReportSource) -> dict[str, tuple[Floats, Floats]]:
    """Times in seconds and lateness in ms of the steps of each node."""
    groups = {name: group for name, group in peers.groups.items() if len(group) > 1}
    if len(groups) < 2:
        return {}
    ends = [group.columns["begin"] - source.nodes[name].offset_ns for name, group in groups.items()]
    silences, times = [], []
    for end, group, places in zip(ends, groups.values(), match_steps(ends), strict=True):
        silence = group.columns["transmit_first"] - group.columns["begin"]
        silences.append(np.append(silence, np.nan)[places])
        times.append(np.append(end, np.nan)[places])
    against = (np.array(silences) - medians_of_others(np.array(silences))) / MILLISECOND_NS
    known = ~np.isnan(against)
    return {name: (times[row][known[row]] / SECOND_NS, against[row, known[row]]) for row, name in enumerate(groups)}


DRAWINGS: Mapping[str, Callable[[_Fleet], panels.Figure]] = {
    "waterfall": _draw_waterfall,
    "rails": _draw_rails,
    "lateness": _draw_lateness,
}
