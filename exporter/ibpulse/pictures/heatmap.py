"""The heatmap: all rails over time, on one scale for all runs, with the bandwidth and the key numbers of each below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ibpulse.pictures.figure import SMALL, THEMES, Figure, matplotlib, settings, ticker
from ibpulse.pictures.options import PictureOptions
from ibpulse.pictures.panels import (
    HOLE,
    LINE_INCHES,
    Page,
    describe_column,
    draw_band,
    draw_colour_bar,
    draw_rows,
    facts_inches,
    hatch_holes,
    head_lines,
    label_inches,
    mark_holes,
    plain,
    time_unit,
)
from ibpulse.pictures.picture_run import Columns, PictureRun, Scale, choose_scale, reduce

MARGIN, BETWEEN, RIGHT = 0.15, 0.35, 1.15
HEAD, TITLE, ROW, LEAST_ROWS, NODE, AXIS, FOOT = 0.55, 0.3, 0.22, 1.3, 1.3, 0.6, 0.3
FACT = 1.08


@dataclass(frozen=True, slots=True)
class _Plan:
    """Positions in inches from the left and upper edge."""

    lefts: tuple[float, ...]
    width: float
    rows: float
    maps: tuple[str, ...]
    head: float
    reduced: bool

    @property
    def node_top(self) -> float:
        return self.head + len(self.maps) * (TITLE + self.rows) + TITLE + (LINE_INCHES if self.reduced else 0.0)

    @property
    def facts_top(self) -> float:
        return self.node_top + NODE + AXIS

    def facts(self, run: PictureRun) -> int:
        """The number of columns of key numbers that makes their rows even."""
        count = max(1, len(run.node.facts))
        rows = -(-count // max(2, int(self.width / FACT)))
        return -(-count // rows)


def draw_heatmap(runs: Sequence[PictureRun], options: PictureOptions) -> Figure:
    """The picture of one or two runs.

    A run with more samples than fit gets two maps: the highest sample and the mean of each column.

    Raises:
        PictureError: utilisation is requested, but a line rate is unknown.
    """
    scale, colours = choose_scale(runs, options), THEMES[options.theme]
    with matplotlib.rc_context(settings(colours)):
        plan = _make_plan(runs, options)
        height = plan.facts_top + max(facts_inches(run, plan.facts(run)) for run in runs) + FOOT
        page = Page(options.width_inches, height, options.dpi, colours)
        for left, run in zip(plan.lefts, runs, strict=True):
            page.head(left, 0.12, run, plan.width, plan.width)
            _draw_maps(page, plan, left, run, scale, options)
            _draw_node(page, plan, left, run, scale, options)
            page.facts(left, plan.facts_top, plan.width, run, plan.facts(run))
        bar = len(plan.maps) * (TITLE + plan.rows) - TITLE
        where = page.axes(options.width_inches - RIGHT + 0.15, plan.head + TITLE, 0.14, bar)
        draw_colour_bar(where, scale.port, f"{scale.label}\nper rail, {options.directions_text}")
        page.write(MARGIN, height - 0.22, _foot(runs), SMALL, color=colours.faint)
    return page.figure


def _most_columns(width_inches: float, dpi: int) -> int:
    # at least one pixel, because rounding could lose narrower ones
    return max(1, int(width_inches * dpi))


def _make_plan(runs: Sequence[PictureRun], options: PictureOptions) -> _Plan:
    labels = label_inches(runs)
    room = options.width_inches - MARGIN - RIGHT
    width = (room - labels * len(runs) - BETWEEN * (len(runs) - 1)) / len(runs)
    lefts = tuple(MARGIN + labels + place * (width + BETWEEN + labels) for place in range(len(runs)))
    reduced = any(run.ticks > _most_columns(width, options.dpi) for run in runs)
    head = HEAD + 0.16 * (max(len(head_lines(run, width)) for run in runs) - 1)
    maps = {"both": ("max", "mean"), "max": ("max",), "mean": ("mean",)}[options.statistic] if reduced else ("max",)
    return _Plan(lefts, width, max(LEAST_ROWS, ROW * max(len(run.ports) for run in runs)), maps, head, reduced)


def _draw_maps(page: Page, plan: _Plan, left: float, run: PictureRun, scale: Scale, options: PictureOptions) -> None:
    columns = reduce(scale.of_ports(run), run.seconds, _most_columns(plan.width, options.dpi))
    for place, statistic in enumerate(plan.maps):
        top = plan.head + place * (TITLE + plan.rows) + TITLE
        page.write(left, top - 0.2, _title(run, columns, statistic), SMALL)
        axes = page.axes(left, top, plan.width, plan.rows)
        hatch_holes(axes, page.colours)
        values = columns.highest if statistic == "max" else columns.mean
        draw_rows(axes, values, run, columns.ticks, scale.port, page.colours)
        axes.tick_params(axis="x", labelbottom=False, length=0)


def _title(run: PictureRun, columns: Columns, statistic: str) -> str:
    tick = describe_column(run, 1)
    if columns.ticks == 1:
        return f"every {tick} sample of each rail"
    column = describe_column(run, columns.ticks)
    if statistic == "max":
        return f"highest {tick} sample in each column of {column}"
    return f"mean of each column of {column}"


def _draw_node(page: Page, plan: _Plan, left: float, run: PictureRun, scale: Scale, options: PictureOptions) -> None:
    values = scale.of_node(run)[None]
    columns = reduce(values, run.node.seconds[None], _most_columns(plan.width, options.dpi))
    size, sign = time_unit(run.span_seconds)
    axes = page.axes(left, plan.node_top, plan.width, NODE)
    column = columns.ticks * run.interval_seconds / size
    draw_band(axes, columns, column, page.colours, describe_column(run, 1))
    mark_holes(axes, columns.partly[0], column, page.colours)
    axes.set_xlim(0.0, run.span_seconds / size)
    axes.set_ylim(0.0, scale.node)
    axes.yaxis.set_major_locator(ticker.MaxNLocator(4))
    axes.set_xlabel(f"time since the beginning ({sign})")
    above = 0.2 + (LINE_INCHES if plan.reduced else 0.0)
    page.write(left, plan.node_top - above, f"node {scale.label}, {options.directions_text}", SMALL)
    plain(axes)
    if columns.ticks > 1:
        axes.legend(
            loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, borderpad=0.2, borderaxespad=0, handlelength=1.4
        )


def _foot(runs: Sequence[PictureRun]) -> str:
    parts = ["1 GB = 10⁹ bytes", "one colour scale for all" if len(runs) > 1 else ""]
    if any(run.hole_ratio for run in runs):
        parts.append(HOLE)
    return " · ".join(part for part in parts if part)
