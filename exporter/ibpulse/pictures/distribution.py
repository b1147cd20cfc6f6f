"""The distribution: the share of time at each bandwidth, and the lengths of bursts and gaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ibpulse.analysis.bursts import Thresholds, split_runs, start_runs
from ibpulse.arrays import Floats
from ibpulse.pictures.figure import LARGE, SMALL, THEMES, Axes, Colours, Figure, matplotlib, settings, ticker
from ibpulse.pictures.options import PictureOptions
from ibpulse.pictures.panels import LINE_STEP, SEPARATOR, Page, plain, run_parts, wrap
from ibpulse.pictures.picture_run import PictureRun, Scale, choose_scale
from ibpulse.text import duration_text, threshold_text

BINS = 50
STYLES = ("-", "--", "-.", ":")
LEFT, RIGHT, BETWEEN, HEIGHT, TITLE, AXIS, LINE = 0.75, 0.2, 0.85, 1.9, 0.35, 0.6, 0.42


def draw_distribution(runs: Sequence[PictureRun], options: PictureOptions) -> Figure:
    """The picture of up to four runs: histogram, cumulative share, burst lengths, gap lengths.

    Raises:
        PictureError: utilisation is requested, but a line rate is unknown.
    """
    scale, colours = choose_scale(runs, options), THEMES[options.theme]
    with matplotlib.rc_context(settings(colours)):
        summaries = [_summary(run, _thresholds(options), options.width_inches - LEFT - RIGHT) for run in runs]
        tops = np.cumsum([0.12, *(LINE + LINE_STEP * (len(lines) - 1) for lines in summaries)]).tolist()
        heads = tops[-1] + 0.03
        height = heads + 2 * (TITLE + HEIGHT + AXIS) + 0.25
        page = Page(options.width_inches, height, options.dpi, colours)
        width = (page.width - LEFT - RIGHT - BETWEEN) / 2
        first, second = (
            [page.axes(left, top, width, HEIGHT) for left in (LEFT, LEFT + width + BETWEEN)]
            for top in (heads + TITLE, heads + 2 * TITLE + HEIGHT + AXIS)
        )
        for place, (run, lines) in enumerate(zip(runs, summaries, strict=True)):
            _draw_head(page, tops[place], place, run, lines)
        _draw_samples(first[0], first[1], runs, scale, options, colours)
        _draw_lengths(second[0], second[1], runs, _thresholds(options), colours)
        for axes in (*first, *second):
            plain(axes)
        foot = [
            f"active: above {threshold_text(options.active_bytes_per_second)}",
            options.directions_text,
            "1 GB = 10⁹ bytes",
            "missing data is excluded",
        ]
        page.write(0.15, height - 0.22, SEPARATOR.join(foot), SMALL, color=colours.faint)
    return page.figure


def _thresholds(options: PictureOptions) -> Thresholds:
    return Thresholds(options.active_bytes_per_second, options.burst_low_bytes_per_second)


def _draw_head(page: Page, top: float, place: int, run: PictureRun, summary: Sequence[str]) -> None:
    """Name and line of a run, the legend of all four plots, and its summary."""
    line = page.axes(0.15, top + 0.06, 0.45, 0.1)
    line.axhline(0.5, color=page.colours.runs[place], linestyle=STYLES[place], linewidth=2.4)
    line.set_axis_off()
    page.write(LEFT, top, run.name, LARGE, weight="bold")
    for number, text in enumerate(summary):
        page.write(LEFT, top + 0.21 + LINE_STEP * number, text, SMALL, color=page.colours.faint)


def _summary(run: PictureRun, thresholds: Thresholds, width: float) -> list[str]:
    """Description, key numbers and silence of a run, in lines that fit the width."""
    chosen = [f"{label} {text}" for label, text in run.node.facts if label in ("mean", "peak", "duty cycle")]
    bursts, gaps = map(len, find_lengths(run, thresholds))
    values, seconds = _known(run.node.bandwidth, run.node.seconds)
    silent = 100 * seconds[values == 0].sum() / max(seconds.sum(), 1e-300)
    parts = [
        *run_parts(run),
        *chosen,
        f"no traffic {silent:.1f} % of the time",
        f"{bursts} whole bursts, {gaps} whole gaps",
    ]
    return wrap(parts, width)


def _draw_samples(
    left: Axes, right: Axes, runs: Sequence[PictureRun], scale: Scale, options: PictureOptions, colours: Colours
) -> None:
    """Histogram and cumulative share, by time: each sample has the weight of its seconds."""
    edges = np.linspace(0.0, scale.node, BINS + 1)
    for place, run in enumerate(runs):
        style: dict[str, Any] = {"color": colours.runs[place], "linestyle": STYLES[place], "linewidth": 1.6}
        values, seconds = _known(scale.of_node(run), run.node.seconds)
        counted, _ = np.histogram(values, edges, weights=seconds)
        left.stairs(100 * counted / max(seconds.sum(), 1e-300), edges, **style)
        order = np.argsort(values)
        share = 100 * np.cumsum(seconds[order]) / max(seconds.sum(), 1e-300)
        right.plot(np.append(0.0, values[order]), np.append(0.0, share), drawstyle="steps-post", **style)
    name = f"node {scale.label}"
    for axes in (left, right):
        axes.set_xlim(0.0, scale.node)
        axes.set_xlabel(name)
    width = f"{scale.node / BINS:.3g} {scale.sign}"
    left.set_ylabel(f"share of time (%)\nper bin of {width}")
    left.set_ylim(bottom=0.0)
    left.set_title(f"Time at each bandwidth, samples of {_interval(runs)}", loc="left", weight="bold")
    right.set_ylabel("share of time at or below (%)")
    right.set_ylim(0.0, 103.0)
    right.set_title("Cumulative share of time", loc="left", weight="bold")


def _interval(runs: Sequence[PictureRun]) -> str:
    return ", ".join(dict.fromkeys(duration_text(run.interval_ns) for run in runs))


def _known(values: Floats, seconds: Floats) -> tuple[Floats, Floats]:
    known = ~np.isnan(values)
    return values[known], seconds[known]


def _draw_lengths(
    left: Axes, right: Axes, runs: Sequence[PictureRun], thresholds: Thresholds, colours: Colours
) -> None:
    """The share of bursts, and of gaps, by minimum length."""
    found = [find_lengths(run, thresholds) for run in runs]
    for axes, what, lengths in zip((left, right), ("bursts", "gaps"), zip(*found, strict=True), strict=True):
        known = np.concatenate(lengths) * 1e3
        if known.size:
            axes.set_xscale("log")
            axes.set_xlim(known.min() / 1.25, known.max() * 1.25)
            axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.xaxis.set_minor_locator(ticker.NullLocator())
            axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        for place, times in enumerate(lengths):
            style: dict[str, Any] = {"color": colours.runs[place], "linestyle": STYLES[place], "linewidth": 1.6}
            axes.plot(*_steps(times * 1e3), drawstyle="steps-pre", **style)
        axes.set_xlabel(f"length of {what} (ms)")
        axes.set_ylabel(f"share of {what} at least\nthis long (%)")
        axes.set_ylim(0.0, 103.0)
        axes.set_title(f"Length of {what}", loc="left", weight="bold")


def _steps(times: Floats) -> tuple[Floats, Floats]:
    """The curve of the lengths in percent, from the left edge down to 0."""
    ordered, share = survival(times)
    if not len(ordered):
        return ordered, share
    return np.concatenate((ordered[:1] / 1e3, ordered, ordered[-1:])), 100 * np.concatenate(([1.0], share, [0.0]))


def find_lengths(run: PictureRun, thresholds: Thresholds) -> tuple[Floats, Floats]:
    """Seconds of the whole bursts and gaps of the sum, without runs that touch missing data or an end."""
    # missing data at the end terminates the last run
    rates, seconds = np.append(run.node.bandwidth, np.nan)[None], np.append(run.node.seconds, 0.0)[None]
    _, runs = split_runs(start_runs(1), rates, seconds, thresholds)
    return runs.seconds[runs.bursts()], runs.seconds[runs.gaps()]


def survival(lengths: Floats) -> tuple[Floats, Floats]:
    """The sorted lengths, and for each the share that is at least as long; both empty without lengths."""
    ordered = np.sort(lengths)
    return ordered, 1 - np.arange(len(ordered)) / max(len(ordered), 1)
