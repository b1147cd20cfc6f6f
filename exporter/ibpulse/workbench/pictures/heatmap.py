"""The heatmap: all rails over time, on one scale for all runs, with the bandwidth and the key numbers of each below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ibpulse.base.text import duration_text
from ibpulse.workbench.pictures import panels
from ibpulse.workbench.pictures.options import PictureOptions
from ibpulse.workbench.pictures.run import Columns, PictureRun, Scale, choose_scale, reduce

MAX_MARKS = 8
MARGIN, BETWEEN, RIGHT = 0.15, 0.35, 1.15
HEAD, TITLE, ROW, MIN_ROWS, NODE, AXIS = 0.55, 0.3, 0.22, 1.3, 1.3, 0.6
FACT, GAP, SIGN = 1.08, 0.12, 0.09


@dataclass(frozen=True, slots=True)
class _Plan:
    """Positions in inches from the left and upper edge."""

    lefts: tuple[float, ...]
    width: float
    rows: float
    maps: tuple[str, ...]
    head: float
    reduced: bool
    marks: tuple[panels.EventMarks, ...]
    signs: float

    @property
    def maps_top(self) -> float:
        return self.head + (panels.STRIP_INCHES if any(self.marks) else 0.0)

    @property
    def node_top(self) -> float:
        return self.signs_top + self.signs + TITLE + (panels.LINE_INCHES if self.reduced else 0.0)

    @property
    def signs_top(self) -> float:
        return self.maps_top + len(self.maps) * (TITLE + self.rows) + (TITLE if self.signs else 0.0)

    @property
    def facts_top(self) -> float:
        return self.node_top + NODE + AXIS

    def facts(self, run: PictureRun) -> int:
        """The number of columns of key numbers that makes their rows even."""
        count = max(1, len(run.node.facts))
        rows = -(-count // max(2, int(self.width / FACT)))
        return -(-count // rows)


def draw_heatmap(runs: Sequence[PictureRun], options: PictureOptions) -> panels.Figure:
    """The picture of one or two runs.

    A run with more samples than fit gets two maps: the highest sample and the mean of each column.
    """
    scale, colours = choose_scale(runs, options), panels.THEMES[options.theme]
    with panels.matplotlib.rc_context(panels.settings(colours)):
        plan = _make_plan(runs, options)
        marks_top = plan.facts_top + max(panels.facts_inches(run, plan.facts(run)) for run in runs)
        below = (
            marks_top
            + panels.LINE_STEP * max(len(marks.lines) for marks in plan.marks)
            + (GAP if any(plan.marks) else 0.0)
        )
        parts = ["1 GB = 10⁹ bytes", "one colour scale for all" if len(runs) > 1 else "", scale.exceeded]
        foot = panels.wrap(filter(None, parts), options.width_inches - 2 * MARGIN)
        foot_top = below + panels.LEGEND_INCHES * (2 if plan.signs else 1)
        height = foot_top + panels.LINE_STEP * len(foot) + 0.12
        page = panels.Page(options.width_inches, height, options.dpi, colours)
        for left, run, marks in zip(plan.lefts, runs, plan.marks, strict=True):
            page.head(left, 0.12, run, plan.width, plan.width)
            _draw_maps(page, plan, left, run, scale, options)
            axes = _draw_node(page, plan, left, run, scale, options)
            if marks:
                marks.draw_lines(axes, colours)
                marks.draw_strip(page.axes(left, plan.head + TITLE, plan.width, panels.STRIP_INCHES), colours)
                page.lines(left, marks_top, marks.lines)
            page.facts(left, plan.facts_top, plan.width, run, plan.facts(run))
        bar = len(plan.maps) * (TITLE + plan.rows) - TITLE
        where = page.axes(options.width_inches - RIGHT + 0.15, plan.maps_top + TITLE, 0.14, bar)
        panels.draw_colour_bar(where, scale, f"{scale.label}\nper {options.row}, {options.directions_text}")
        panels.explain_runs(page, MARGIN, below, runs)
        if plan.signs:
            panels.explain_signs(page, MARGIN, below + panels.LEGEND_INCHES, runs)
        page.lines(MARGIN, foot_top, foot)
    return page.figure


def _most_columns(width_inches: float, dpi: int) -> int:
    # at least one pixel, because rounding could lose narrower ones
    return max(1, int(width_inches * dpi))


def _make_plan(runs: Sequence[PictureRun], options: PictureOptions) -> _Plan:
    labels = panels.label_inches(runs)
    room = options.width_inches - MARGIN - RIGHT
    width = (room - labels * len(runs) - BETWEEN * (len(runs) - 1)) / len(runs)
    lefts = tuple(MARGIN + labels + place * (width + BETWEEN + labels) for place in range(len(runs)))
    reduced = any(run.ticks > _most_columns(width, options.dpi) for run in runs)
    head = HEAD + 0.16 * (max(len(panels.head_lines(run, width)) for run in runs) - 1)
    maps = {"both": ("max", "mean"), "max": ("max",), "mean": ("mean",)}[options.statistic] if reduced else ("max",)
    marks = tuple(panels.gather_marks(run, width, MAX_MARKS) for run in runs)
    rows = max(MIN_ROWS, ROW * max(len(run.ports) for run in runs))
    signs = SIGN * max(len(run.ports) for run in runs) if any(run.signs for run in runs) else 0.0
    return _Plan(lefts, width, rows, maps, head, reduced, marks, signs)


def _draw_maps(
    page: panels.Page, plan: _Plan, left: float, run: PictureRun, scale: Scale, options: PictureOptions
) -> None:
    columns = reduce(
        scale.of_ports(run),
        run.seconds,
        _most_columns(plan.width, options.dpi),
        run.down,
        scale.of_ports(run, peaks=True),
    )
    for place, statistic in enumerate(plan.maps):
        top = plan.maps_top + place * (TITLE + plan.rows) + TITLE
        above = 0.2 + (plan.maps_top - plan.head if not place else 0.0)
        page.write(left, top - above, _title(run, columns, statistic, options.row), panels.SMALL)
        axes = page.axes(left, top, plan.width, plan.rows)
        panels.hatch_missing(axes, page.colours)
        panels.draw_rows(axes, run, columns, statistic, scale.port, page.colours)
        axes.tick_params(axis="x", labelbottom=False, length=0)
    if run.signs:
        page.write(
            left, plan.signs_top - 0.2, f"signs of what limited transmit, a line per {options.row}", panels.SMALL
        )
        panels.draw_signs(page.axes(left, plan.signs_top, plan.width, plan.signs), run, columns.ticks, page.colours)


def _title(run: PictureRun, columns: Columns, statistic: str, row: str) -> str:
    tick = duration_text(run.interval_ns)
    if columns.ticks == 1:
        return f"every {tick} sample of each {row}"
    column = duration_text(columns.ticks * run.interval_ns)
    if statistic == "max":
        return f"highest {tick} sample in each column of {column}"
    return f"mean of each column of {column}"


def _draw_node(
    page: panels.Page, plan: _Plan, left: float, run: PictureRun, scale: Scale, options: PictureOptions
) -> panels.Axes:
    axes = page.axes(left, plan.node_top, plan.width, NODE)
    columns = panels.draw_node(axes, run, scale, _most_columns(plan.width, options.dpi), page.colours)
    axes.set_ylim(0.0, scale.node)
    axes.yaxis.set_major_locator(panels.ticker.MaxNLocator(4))
    above = 0.2 + (panels.LINE_INCHES if plan.reduced else 0.0)
    page.write(left, plan.node_top - above, f"{options.total} {scale.label}, {options.directions_text}", panels.SMALL)
    if columns.ticks > 1:
        axes.legend(
            loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, borderpad=0.2, borderaxespad=0, handlelength=1.4
        )
    return axes
