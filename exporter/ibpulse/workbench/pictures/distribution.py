"""The distribution: the share of time at each bandwidth, and the lengths of bursts and gaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ibpulse.base.text import duration_text, threshold_text
from ibpulse.core.arrays import Floats
from ibpulse.core.statistics.steps.runs import RunLengths, find_bursts, find_survival
from ibpulse.workbench.pictures import panels
from ibpulse.workbench.pictures.options import PictureOptions
from ibpulse.workbench.pictures.run import PictureRun, Scale, choose_scale

BINS = 50
STYLES = ("-", "--", "-.", ":")
LEFT, RIGHT, BETWEEN, HEIGHT, TITLE, AXIS, LINE = 0.75, 0.2, 0.85, 1.9, 0.35, 0.6, 0.42


def draw_distribution(runs: Sequence[PictureRun], options: PictureOptions) -> panels.Figure:
    """The picture of up to four runs: histogram, cumulative share, burst lengths, gap lengths."""
    scale, colours = choose_scale(runs, options), panels.THEMES[options.theme]
    with panels.matplotlib.rc_context(panels.settings(colours)):
        active = options.active_bytes_per_second
        summaries = [_summary(run, active, options.width_inches - LEFT - RIGHT) for run in runs]
        tops = np.cumsum([0.12, *(LINE + panels.LINE_STEP * (len(lines) - 1) for lines in summaries)]).tolist()
        heads = tops[-1] + 0.03
        height = heads + 2 * (TITLE + HEIGHT + AXIS) + 0.25
        page = panels.Page(options.width_inches, height, options.dpi, colours)
        width = (page.width - LEFT - RIGHT - BETWEEN) / 2
        first, second = (
            [page.axes(left, top, width, HEIGHT) for left in (LEFT, LEFT + width + BETWEEN)]
            for top in (heads + TITLE, heads + 2 * TITLE + HEIGHT + AXIS)
        )
        for place, (run, lines) in enumerate(zip(runs, summaries, strict=True)):
            _draw_head(page, tops[place], place, run, lines)
        _draw_samples(first[0], first[1], runs, scale, options, colours)
        _draw_lengths(second[0], second[1], runs, active, colours)
        for axes in (*first, *second):
            panels.plain(axes)
        foot = [
            f"active: above {threshold_text(active)}",
            options.directions_text,
            "1 GB = 10⁹ bytes",
            "missing data is excluded; runs cut off count as at least so long",
        ]
        page.lines(0.15, height - 0.22, [panels.SEPARATOR.join(foot)])
    return page.figure


def _draw_head(page: panels.Page, top: float, place: int, run: PictureRun, summary: Sequence[str]) -> None:
    """Name and line of a run, the legend of all four plots, and its summary."""
    line = page.axes(0.15, top + 0.06, 0.45, 0.1)
    line.axhline(0.5, color=page.colours.runs[place], linestyle=STYLES[place], linewidth=2.4)
    line.set_axis_off()
    page.write(LEFT, top, run.name, panels.LARGE, weight="bold")
    page.lines(LEFT, top + 0.21, summary)


def _summary(run: PictureRun, active: float, width: float) -> list[str]:
    """Description, key numbers and silence of a run, in lines that fit the width."""
    chosen = [f"{label} {text}" for label, text in run.node.facts if label in ("mean", "peak", "duty cycle")]
    bursts, gaps = (int(lengths.ended.sum()) for lengths in find_lengths(run, active))
    least = "at least " if np.isnan(run.node.bandwidth).any() else ""
    values, seconds = _known(run.node.bandwidth, run.node.seconds)
    silent = 100 * seconds[values == 0].sum() / max(seconds.sum(), 1e-300)
    parts = [
        *panels.run_parts(run),
        *chosen,
        f"no traffic {silent:.1f} % of the time",
        *([] if run.too_much_missing else [f"{least}{bursts} whole bursts, {gaps} whole gaps"]),
    ]
    return panels.wrap(parts, width)


def _draw_samples(
    left: panels.Axes,
    right: panels.Axes,
    runs: Sequence[PictureRun],
    scale: Scale,
    options: PictureOptions,
    colours: panels.Colours,
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
    left: panels.Axes, right: panels.Axes, runs: Sequence[PictureRun], active: float, colours: panels.Colours
) -> None:
    """The share of bursts, and of gaps, by minimum length; without runs that miss too many samples."""
    drawn = [(place, find_lengths(run, active)) for place, run in enumerate(runs) if not run.too_much_missing]
    omitted = [f"not drawn: too much of {run.name} is missing" for run in runs if run.too_much_missing]
    for kind, (axes, what) in enumerate(zip((left, right), ("bursts", "gaps"), strict=True)):
        curves = [(place, *_curve(lengths[kind])) for place, lengths in drawn]
        known = np.concatenate([[], *(times[1:] for _, times, _ in curves)])
        if known.size:
            axes.set_xscale("log")
            axes.set_xlim(known.min() / 1.25, known.max() * 1.25)
            axes.xaxis.set_major_locator(panels.ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.xaxis.set_minor_locator(panels.ticker.NullLocator())
            axes.xaxis.set_major_formatter(panels.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        for place, times, share in curves:
            style: dict[str, Any] = {"color": colours.runs[place], "linestyle": STYLES[place], "linewidth": 1.6}
            axes.plot(times, share, drawstyle="steps-pre", **style)
        if omitted:
            corner: dict[str, Any] = {"transform": axes.transAxes, "ha": "right", "va": "top"}
            axes.text(0.98, 0.96, "\n".join(omitted), fontsize=panels.SMALL, color=colours.text, **corner)
        axes.set_xlabel(f"length of {what} (ms)")
        axes.set_ylabel(f"share of {what} at least\nthis long (%)")
        axes.set_ylim(0.0, 103.0)
        axes.set_title(f"Length of {what}", loc="left", weight="bold")


def _curve(lengths: RunLengths) -> tuple[Floats, Floats]:
    """Lengths in ms and the share in percent that is at least as long, from the left edge on; empty without lengths.

    The curve ends above 0 if the longest run is cut off.
    """
    times, longer = find_survival(lengths)
    if not len(times):
        return times, longer
    times = np.concatenate((times[:1] / 1e3, times, times[-1:])) * 1e3
    return times, 100 * np.concatenate(([1.0, 1.0], longer))


def find_lengths(run: PictureRun, active: float) -> tuple[RunLengths, RunLengths]:
    """Lengths of the bursts and gaps of the sum whose beginning is there."""
    runs = find_bursts(run.node.bandwidth, run.node.seconds, active)
    return runs.lengths(burst=True), runs.lengths(burst=False)
