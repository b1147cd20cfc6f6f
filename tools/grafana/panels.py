"""The kinds of panels and the presentation of their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from grafana_foundation_sdk.builders import common as build_common
from grafana_foundation_sdk.builders import dashboard as build_dashboard
from grafana_foundation_sdk.builders import heatmap, prometheus, stat, statetimeline, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models import heatmap as heatmap_model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from tools.grafana import colors as palette
from tools.grafana.colors import SERIES, fixed_property, steps
from tools.grafana.queries import Query

HEATMAP_SCHEME = "RdYlBu"
"""From blue to red in both themes. Grafana inverts sequential schemes in one of them: many would look like few."""
PROMETHEUS = common.DataSourceRef(type_val="prometheus", uid="$datasource")
NOW = build_common.ReduceDataOptions().calcs(["last"]).values(False).fields("")
"""The last value even if it is unknown: the last known one may be as old as the time range."""
LAST = build_common.ReduceDataOptions().calcs(["lastNotNull"]).values(False).fields("")
EMPTY = "–"
"""Text of a value that is missing; otherwise Grafana repeats the sentence for a panel without data in it."""
REF_IDS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

WIDE = 12
"""From this width on, a legend is a table with numbers at the side of a panel."""
MIN_AXIS = {"percentunit": 0.01, "s": 0.001, "Bps": 1e6, "bytes": 1e6, "decbytes": 1e6, "none": 1, "reqps": 1}
"""Where an axis ends at least; Grafana's own choice for a line of zeros is 100, which is 10000 % of a share."""
DECIMALS = {"percentunit": 1}
"""Decimals of the bounds of buckets. Grafana chooses those of times: without any, 1.5 ms and 2 ms look the same."""


@dataclass(frozen=True, slots=True)
class PanelHead:
    """What all panels have in common. `nothing` is shown when there is no data and says why; the grid is 24 wide.

    `description` says what the panel shows, and its limits.
    """

    title: str
    description: str
    unit: str
    nothing: str
    width: int = 8
    height: int = 8
    repeat: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """A link at values; its address may hold `${__field.labels.instance}` and the like."""

    title: str
    url: str


def lines(
    face: PanelHead,
    queries: Sequence[Query],
    *,
    thresholds: build_dashboard.ThresholdsConfig | None = None,
    maximum: float | None = None,
    stacked: bool = False,
    names: Mapping[str, tuple[str, str]] | None = None,
    link: Link | None = None,
) -> dashboard.Panel:
    """Values against time. Queries that bring one series each have fixed colours, the series of others the palette's.

    `names` are words and colours for series by the names that their query gives them.
    """
    panel = (
        timeseries.Panel()
        .targets(targets(queries))
        .min(0)
        .line_width(1)
        .fill_opacity(60 if stacked else 0)
        .show_points(common.VisibilityMode.NEVER)
        .span_nulls(False)
        .legend(_legend(face.width))
        .tooltip(_tooltip())
        .color_scheme(palette.by_series())
    )
    if maximum is not None:
        panel.max(maximum)
    elif face.unit in MIN_AXIS:
        panel.axis_soft_max(MIN_AXIS[face.unit])
    if stacked:
        panel.stacking(build_common.StackingConfig().mode(common.StackingMode.NORMAL))
    if thresholds is not None:
        style = build_common.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED)
        panel.thresholds(thresholds).thresholds_style(style)
    if len(queries) <= len(SERIES) and not any("{{" in query.legend for query in queries):
        for ref_id, color in zip(REF_IDS[: len(queries)], SERIES * 3, strict=False):
            panel.override_by_query(ref_id, [fixed_property(color)])
    for name, (word, color) in (names or {}).items():
        named = dashboard.DynamicConfigValue(id_val="displayName", value=word)
        panel.override_by_name(name, [named, fixed_property(color)])
    empty = [dashboard.DynamicConfigValue(id_val="noValue", value=EMPTY)]
    panel.override_by_field_type("number", empty if link is None else [*empty, link_property(link)])
    return finish_panel(panel, face)


def heat(
    face: PanelHead,
    queries: Sequence[Query],
    *,
    color_max: float | None = None,
    color_min: float = 0,
    cell_unit: str | None = None,
    rows: bool = False,
    sources: Sequence[Builder[Dataquery]] | None = None,
    datasource: common.DataSourceRef = PROMETHEUS,
) -> dashboard.Panel:
    """Buckets of a histogram against time, or one row per series (`rows`): zero has a colour, missing data none.

    The unit is that of the rows; `cell_unit` is that of the colours. `sources` replace the queries.
    """
    color = heatmap.HeatmapColorOptions().steps(64).reverse(False)
    if rows:
        color.mode(heatmap_model.HeatmapColorMode.SCHEME).scheme(HEATMAP_SCHEME)
        color.scale(heatmap_model.HeatmapColorScale.LINEAR)
    else:
        # weak bands would vanish without the exponent, which has no effect on a scheme
        color.mode(heatmap_model.HeatmapColorMode.OPACITY).fill(palette.BLUE)
        color.scale(heatmap_model.HeatmapColorScale.EXPONENTIAL).exponent(0.5)
    if color_max is not None:
        color.min(color_min).max(color_max)
    # a bucket without samples is background; a rail without traffic is a value
    hidden = heatmap.FilterValueRange().le(-1 if rows else 1e-9)
    axis = heatmap.YAxisConfig().unit(face.unit).axis_placement(common.AxisPlacement.LEFT)
    if face.unit in DECIMALS:
        axis.decimals(DECIMALS[face.unit])
    panel = (
        heatmap.Panel()
        .targets(list(sources) if sources is not None else targets(queries))
        .calculate(False)
        .cell_gap(0)
        .color(color)
        .filter_values(hidden)
        .cell_values(heatmap.CellValues().unit(cell_unit or face.unit))
        .y_axis(axis)
        .show_legend()
        .tooltip(heatmap.HeatmapTooltip().mode(common.TooltipDisplayMode.SINGLE).y_histogram(True))
    )
    return finish_panel(panel, replace(face, unit=cell_unit or face.unit), datasource)


def number(
    face: PanelHead,
    queries: Sequence[Query],
    *,
    thresholds: build_dashboard.ThresholdsConfig | None = None,
    mappings: Sequence[dashboard.ValueMapping] = (),
    graph: bool = False,
    names: Mapping[str, tuple[str, str]] | None = None,
) -> dashboard.Panel:
    """Large numbers. `graph` adds a sparkline, for which a panel has to be 5 high; `names` are as for `lines`."""
    panel = (
        stat.Panel()
        .targets(targets(queries))
        .reduce_options(NOW if graph else LAST)
        .thresholds(thresholds or steps())
        .color_scheme(palette.by_threshold())
        .color_mode(common.BigValueColorMode.VALUE)
        .graph_mode(common.BigValueGraphMode.AREA if graph else common.BigValueGraphMode.NONE)
        .text_mode(common.BigValueTextMode.VALUE_AND_NAME if names else common.BigValueTextMode.AUTO)
        .mappings([*mappings, palette.NOTHING])
    )
    for name, (word, _) in (names or {}).items():
        panel.override_by_name(name, [dashboard.DynamicConfigValue(id_val="displayName", value=word)])
    return finish_panel(panel, of_numbers(face))


def states(face: PanelHead, queries: Sequence[Query], mappings: list[dashboard.ValueMapping]) -> dashboard.Panel:
    """One bar per series whose colour is its state."""
    panel = (
        statetimeline.Panel()
        .targets(targets(queries))
        .mappings(mappings)
        # with colours by threshold, merged values would ignore the mappings
        .color_scheme(palette.fixed(palette.GREY))
        .show_value(common.VisibilityMode.NEVER)
        .merge_values(True)
        .row_height(0.85)
        .fill_opacity(80)
        .legend(_list_legend())
        .tooltip(_tooltip())
    )
    return finish_panel(panel, face)


def link_property(link: Link) -> dashboard.DynamicConfigValue:
    """A link, as a property of an override."""
    return dashboard.DynamicConfigValue(id_val="links", value=[{"title": link.title, "url": link.url}])


def targets(queries: Sequence[Query]) -> list[Builder[Dataquery]]:
    """The queries as targets A, B, C."""
    return [_target(ref_id, query) for ref_id, query in zip(REF_IDS[: len(queries)], queries, strict=True)]


def finish_panel(
    panel: Builder[dashboard.Panel], face: PanelHead, datasource: common.DataSourceRef = PROMETHEUS
) -> dashboard.Panel:
    """The built panel with its head and its size; the layout places it."""
    built = panel.build()
    built.title, built.description, built.datasource = face.title, face.description, datasource
    assert built.field_config
    built.field_config.defaults.unit, built.field_config.defaults.no_value = face.unit, face.nothing
    built.grid_pos = dashboard.GridPos(w=face.width, h=face.height)
    if face.repeat:
        built.repeat, built.repeat_direction, built.max_per_row = face.repeat, "h", 4
    return built


def of_numbers(face: PanelHead) -> PanelHead:
    """Why there is no number is in the description, because it does not fit in its place."""
    text = f"{face.description} {palette.NO_DATA.capitalize()}: {face.nothing}."
    return replace(face, description=text, nothing=palette.NO_DATA)


def _target(ref_id: str, query: Query) -> prometheus.Dataquery:
    kind = PromQueryFormat.HEATMAP if query.heatmap else PromQueryFormat.TIME_SERIES
    target = prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(ref_id).format(kind)
    target.datasource(PROMETHEUS)
    return target.instant() if query.instant else target.range()


def _legend(width: int) -> build_common.VizLegendOptions:
    return table_legend() if width >= WIDE else _list_legend()


def table_legend() -> build_common.VizLegendOptions:
    """A legend at the side, with the last and the highest value of each series."""
    return (
        build_common.VizLegendOptions()
        .display_mode(common.LegendDisplayMode.TABLE)
        .placement(common.LegendPlacement.RIGHT)
        .show_legend(True)
        .calcs(["lastNotNull", "max"])
        .sort_by("Last *")
        .sort_desc(True)
    )


def _list_legend() -> build_common.VizLegendOptions:
    return (
        build_common.VizLegendOptions()
        .display_mode(common.LegendDisplayMode.LIST)
        .placement(common.LegendPlacement.BOTTOM)
        .show_legend(True)
        .calcs([])
    )


def _tooltip() -> build_common.VizTooltipOptions:
    return build_common.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING)


@dataclass(frozen=True, slots=True)
class Figure:
    """One large number; `levels` colour it from each value upwards."""

    title: str
    description: str
    unit: str
    expr: str
    levels: tuple[tuple[float, str], ...] = ()


def figure_panels(figures: Sequence[Figure], nothing: str, graph: bool = False) -> list[dashboard.Panel]:
    """A narrow panel for each number of this moment; eight fill a line, and with a graph six.

    With a `graph`, they are about a single node. What is missing is unknown at its time, not what it was before.
    """
    width, height = (4, 5) if graph else (3, 4)
    return [
        number(
            PanelHead(figure.title, figure.description, figure.unit, nothing, width=width, height=height),
            [Query(f"max({figure.expr}) or vector(NaN)" if graph else figure.expr, figure.title, instant=not graph)],
            thresholds=steps(*figure.levels),
            graph=graph,
        )
        for figure in figures
    ]


def numbers(queries: Sequence[Query]) -> stat.Panel:
    """A panel of several numbers of this moment with their names."""
    return (
        stat.Panel()
        .targets(targets(queries))
        .mappings([palette.NOTHING])
        .reduce_options(LAST)
        .thresholds(steps())
        .color_scheme(palette.by_threshold())
        .color_mode(common.BigValueColorMode.VALUE)
        .graph_mode(common.BigValueGraphMode.NONE)
        .text_mode(common.BigValueTextMode.VALUE_AND_NAME)
        .orientation(common.VizOrientation.VERTICAL)
    )


def status_row(face: PanelHead, figures: Sequence[Figure]) -> dashboard.Panel:
    """Numbers of this moment side by side in one panel, whose description has those of all of them."""
    told = " ".join(f"{figure.title}: {figure.description}" for figure in figures)
    # else, a wide screen has each name far from its number
    panel = numbers([Query(figure.expr, figure.title, instant=True) for figure in figures]).wide_layout(False)
    for ref_id, figure in zip(REF_IDS, figures, strict=False):
        levels = dashboard.DynamicConfigValue(id_val="thresholds", value=steps(*figure.levels).build())
        panel.override_by_query(ref_id, [dashboard.DynamicConfigValue(id_val="unit", value=figure.unit), levels])
    return finish_panel(panel, of_numbers(replace(face, description=f"{face.description} {told}")))
