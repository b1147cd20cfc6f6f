"""The picture of a profiler trace and the wire of its node, one above the other."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from ibpulse.base.errors import PictureError
from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Counts, Floats
from ibpulse.workbench.overlap.exposed import WireActivity
from ibpulse.workbench.overlap.intervals import IntervalSet
from ibpulse.workbench.overlap.report import TraceOverlap
from ibpulse.workbench.pictures.options import KINDS
from ibpulse.workbench.pictures.panels import (
    LARGE,
    SMALL,
    THEMES,
    Axes,
    Colours,
    Figure,
    Page,
    draw_legend,
    hatch_missing,
    matplotlib,
    plain,
    save_figure,
    settings,
    shorten,
    ticker,
    time_unit,
)

LEFT, RIGHT, HEAD, AXIS = 1.25, 0.2, 0.62, 0.55
SHORT, TALL, BETWEEN, LEGEND = 0.55, 1.1, 0.3, 0.28
MAX_STEP_LINES = 60
Layer = tuple[str, IntervalSet, str]
"""Label, times and colour."""


def save_trace_picture(
    report: TraceOverlap, wire: WireActivity | None, output: Path, theme: str, step: int | None = None
) -> None:
    """Draw one device of a trace, whole or one step of it, above the rate of its wire."""
    save_figure(draw_trace(report, wire, theme, step), output, theme)


def draw_trace(report: TraceOverlap, wire: WireActivity | None, theme: str, step: int | None = None) -> Figure:
    """The figure; a column of pixels shows the share of its time that each kind of work takes."""
    begin, end = _span(report, step)
    size, dpi = KINDS["heatmap"].width_pixels, KINDS["heatmap"].dpi
    colours = THEMES[theme]
    with matplotlib.rc_context(settings(colours)):
        height = HEAD + SHORT + BETWEEN + TALL + (BETWEEN + TALL if wire else 0) + AXIS + LEGEND
        page = Page(size / dpi, height, dpi, colours)
        width = page.width - LEFT - RIGHT
        page.write(0.15, 0.12, shorten(report.short_title, page.width - 0.3, LARGE), LARGE, weight="bold")
        page.write(0.15, 0.36, _describe(report), SMALL, color=colours.faint)
        edges = begin + np.linspace(0, end - begin, int(width * dpi) + 1).astype(np.int64)
        layers = _layers(report, colours)
        device = report.overlap.device
        top = HEAD
        axes = [page.axes(LEFT, top, width, SHORT)]
        _draw_layers(axes[0], edges, [("computation", device.computation, colours.faint)])
        axes[0].set_ylabel("computation", rotation=0, ha="right", va="center")
        top += SHORT + BETWEEN
        axes.append(page.axes(LEFT, top, width, TALL))
        _draw_layers(axes[1], edges, layers)
        axes[1].set_ylabel("communication", rotation=0, ha="right", va="center")
        if wire and report.wire:
            top += TALL + BETWEEN
            axes.append(page.axes(LEFT, top, width, TALL))
            _draw_wire(axes[2], wire, report.wire.match.lag_ns, begin, end, colours)
        _finish(axes, report, begin, end, colours)
        draw_legend(page, LEFT, height - LEGEND, {label: partial(_fill, colour) for label, _, colour in layers})
    return page.figure


def _span(report: TraceOverlap, step: int | None) -> tuple[int, int]:
    device = report.overlap.device
    if step is None:
        return device.begin_ns, device.end_ns
    for each, _ in report.overlap.steps:
        if each.number == step and each.end_ns > each.begin_ns:
            return each.begin_ns, each.end_ns
    raise PictureError(f"trace {report.trace.path} has no step {step}; omit --step, or choose one that the table lists")


def _describe(report: TraceOverlap) -> str:
    whole = report.overlap.whole
    parts = [f"communication {whole.communication_ns / 1e6:,.1f} ms", f"exposed {whole.exposed_ns / 1e6:,.1f} ms"]
    if report.wire and report.wire.simulated:
        parts.insert(0, "wire SIMULATED")
    split = report.wire.whole if report.wire else None
    if split:
        parts += [f"moving {split.moving_ns / 1e6:,.1f} ms", f"waiting {split.waiting_ns / 1e6:,.1f} ms"]
    return " · ".join(parts)


def _layers(report: TraceOverlap, colours: Colours) -> list[Layer]:
    """The parts of communication, from the bottom to the top of the panel."""
    overlap = report.overlap
    hidden = overlap.device.communication - overlap.exposed
    blue, orange, green, _ = colours.runs
    layers = [("overlapped", hidden, colours.grid)]
    if not report.wire:
        return [*layers, ("exposed", overlap.exposed, orange)]
    rest = overlap.exposed - report.wire.moving - report.wire.waiting
    layers += [("exposed, moving", report.wire.moving, blue), ("exposed, waiting", report.wire.waiting, orange)]
    return [*layers, ("exposed, inside the node or not recorded", rest, green)] if rest.total_ns else layers


def _draw_layers(axes: Axes, edges: Counts, layers: Sequence[Layer]) -> None:
    """Shares of the time of each column, on top of each other."""
    below: Floats = np.zeros(edges.size - 1)
    for _, times, colour in layers:
        above = below + times.lengths_ns(edges[:-1], edges[1:]) / np.maximum(1, np.diff(edges))
        places = np.repeat(edges - edges[0], 2)[1:-1]
        axes.fill_between(places, np.repeat(below, 2), np.repeat(above, 2), color=colour, linewidth=0)
        below = above
    axes.set_ylim(0.0, 1.0)
    axes.set_yticks([])


def _draw_wire(axes: Axes, wire: WireActivity, lag_ns: int, begin: int, end: int, colours: Colours) -> None:
    edges = wire.edges_ns - lag_ns
    first = max(0, int(np.searchsorted(edges, begin, side="right")) - 1)
    last = min(wire.rates.size, int(np.searchsorted(edges, end)))
    rates = wire.rates[first:last] / 1e9
    hatch_missing(axes, colours)
    places = np.repeat(edges[first : last + 1] - begin, 2)[1:-1]
    known = np.repeat(~np.isnan(rates), 2)
    heights = np.repeat(np.nan_to_num(rates), 2)
    highest = 1.1 * max(float(heights.max(initial=0.0)), 0.1)
    axes.fill_between(places, 0.0, highest, where=known, color=colours.background, linewidth=0)
    axes.fill_between(places, 0.0, heights, where=known, color=colours.line, linewidth=0)
    axes.set_ylim(0.0, highest)
    axes.set_ylabel("wire, GB/s", rotation=0, ha="right", va="center")


def _finish(axes: Sequence[Axes], report: TraceOverlap, begin: int, end: int, colours: Colours) -> None:
    """A common axis of time below the last panel, and lines where steps begin."""
    size, sign = (1_000_000, "ms") if end - begin < 2 * SECOND_NS else (SECOND_NS, "")
    if not sign:
        seconds, sign = time_unit((end - begin) / SECOND_NS)
        size *= seconds
    begins = [step.begin_ns - begin for step, _ in report.overlap.steps if begin <= step.begin_ns <= end]
    places = ticker.MaxNLocator(10).tick_values(0.0, (end - begin) / size)
    shown = [place for place in places if 0 <= place * size <= end - begin]
    for each in axes:
        plain(each)
        each.set_xlim(0, end - begin)
        for place in begins if len(begins) <= MAX_STEP_LINES else ():
            each.axvline(place, color=colours.text, linewidth=0.5, linestyle=":")
        each.set_xticks([place * size for place in shown], [f"{place:g}" for place in shown])
        each.tick_params(axis="x", labelbottom=each is axes[-1])
    axes[-1].set_xlabel(f"{sign} from the beginning" + (", dotted: steps of the profiler" if begins else ""))


def _fill(colour: str, axes: Axes, colours: Colours) -> None:
    axes.set_facecolor(colour)
