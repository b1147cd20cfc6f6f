"""The kinds of panels: lines, heatmaps, single numbers, states. It must not know any metric or board.

What every panel must have, a title, a description, a unit and a text for no data, is asked for by the functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import common as build_common
from grafana_foundation_sdk.builders import dashboard as build_dashboard
from grafana_foundation_sdk.builders import heatmap, prometheus, stat, statetimeline, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models import heatmap as heatmap_model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from ibpulse.grafana import fields
from ibpulse.grafana.queries import Query

PROMETHEUS = common.DataSourceRef(type_val="prometheus", uid="$datasource")
LAST = build_common.ReduceDataOptions().calcs(["lastNotNull"]).values(False).fields("")
REF_IDS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class Face:
    """What every panel has. `nothing` is shown when there is no data and says why; the grid is 24 wide.

    `description` says what the panel shows, and what it cannot.
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
    face: Face,
    queries: Sequence[Query],
    *,
    thresholds: build_dashboard.ThresholdsConfig | None = None,
    maximum: float | None = None,
    stacked: bool = False,
    colors: Mapping[str, str] | None = None,
    link: Link | None = None,
) -> dashboard.Panel:
    """Values against time. One query is coloured by value, several by query; `colors` names colours of series."""
    panel = (
        timeseries.Panel()
        .title(face.title)
        .description(face.description)
        .datasource(PROMETHEUS)
        .targets(targets(queries))
        .unit(face.unit)
        .no_value(face.nothing)
        .min(0)
        .line_width(1)
        .fill_opacity(60 if stacked else 5)
        .show_points(common.VisibilityMode.NEVER)
        .span_nulls(False)
        .legend(_legend())
        .tooltip(_tooltip())
        .color_scheme(fields.by_last_value())
    )
    if maximum is not None:
        panel.max(maximum)
    if stacked:
        panel.stacking(build_common.StackingConfig().mode(common.StackingMode.NORMAL))
    if thresholds is not None:
        style = build_common.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED)
        panel.thresholds(thresholds).thresholds_style(style)
    if len(queries) > 1:
        for ref_id, color in zip(REF_IDS[: len(queries)], fields.SERIES * 3, strict=False):
            panel.override_by_query(ref_id, [fields.fixed_property(color)])
    for name, color in (colors or {}).items():
        panel.override_by_name(name, [fields.fixed_property(color)])
    if link is not None:
        panel.override_by_field_type("number", [link_property(link)])
    return settle(panel, face)


def heat(
    face: Face,
    queries: Sequence[Query],
    *,
    color_max: float | None = None,
    cell_unit: str | None = None,
    sources: Sequence[Builder[Dataquery]] | None = None,
    datasource: common.DataSourceRef = PROMETHEUS,
) -> dashboard.Panel:
    """Rows against time: buckets of a histogram, or one row per series, where zero has a colour and a hole has none.

    The unit is that of the rows; `cell_unit` is that of the colours. `sources` stand in place of the queries.
    """
    color = (
        heatmap.HeatmapColorOptions()
        .mode(heatmap_model.HeatmapColorMode.SCHEME)
        .scheme(fields.HEATMAP_SCHEME)
        .scale(heatmap_model.HeatmapColorScale.EXPONENTIAL)
        .exponent(0.5 if color_max is None else 1)
        .steps(64)
        .reverse(False)
    )
    if color_max is not None:
        color.min(0).max(color_max)
    # a bucket without samples is background; a rail without traffic is a value
    hidden = heatmap.FilterValueRange().le(1e-9 if color_max is None else -1)
    panel = (
        heatmap.Panel()
        .title(face.title)
        .description(face.description)
        .datasource(datasource)
        .targets(list(sources) if sources is not None else targets(queries))
        .unit(cell_unit or face.unit)
        .no_value(face.nothing)
        .calculate(False)
        .cell_gap(0)
        .color(color)
        .filter_values(hidden)
        .cell_values(heatmap.CellValues().unit(cell_unit or face.unit))
        .y_axis(heatmap.YAxisConfig().unit(face.unit).axis_placement(common.AxisPlacement.LEFT))
        .show_legend()
        .tooltip(heatmap.HeatmapTooltip().mode(common.TooltipDisplayMode.SINGLE).y_histogram(True))
    )
    return settle(panel, face)


def number(
    face: Face,
    queries: Sequence[Query],
    *,
    thresholds: build_dashboard.ThresholdsConfig | None = None,
    mappings: list[dashboard.ValueMapping] | None = None,
    graph: bool = True,
    named: bool = False,
    units: Mapping[str, str] | None = None,
) -> dashboard.Panel:
    """Large numbers; `named` shows the name of the series too, `units` gives queries units of their own."""
    panel = (
        stat.Panel()
        .title(face.title)
        .description(face.description)
        .datasource(PROMETHEUS)
        .targets(targets(queries))
        .unit(face.unit)
        .no_value(face.nothing)
        .reduce_options(LAST)
        .thresholds(thresholds or fields.steps())
        .color_scheme(fields.by_threshold())
        .color_mode(common.BigValueColorMode.VALUE)
        .graph_mode(common.BigValueGraphMode.AREA if graph else common.BigValueGraphMode.NONE)
        .text_mode(common.BigValueTextMode.VALUE_AND_NAME if named else common.BigValueTextMode.AUTO)
        .mappings(mappings or [])
    )
    for ref_id, unit in (units or {}).items():
        panel.override_by_query(ref_id, [dashboard.DynamicConfigValue(id_val="unit", value=unit)])
    return settle(panel, face)


def states(face: Face, queries: Sequence[Query], mappings: list[dashboard.ValueMapping]) -> dashboard.Panel:
    """One bar per series whose colour is its state."""
    panel = (
        statetimeline.Panel()
        .title(face.title)
        .description(face.description)
        .datasource(PROMETHEUS)
        .targets(targets(queries))
        .unit(face.unit)
        .no_value(face.nothing)
        .mappings(mappings)
        .color_scheme(fields.by_threshold())
        .thresholds(fields.steps((1, fields.VERMILION)))
        .show_value(common.VisibilityMode.NEVER)
        .merge_values(True)
        .row_height(0.85)
        .fill_opacity(80)
        .legend(_legend())
        .tooltip(_tooltip())
    )
    return settle(panel, face)


def link_property(link: Link) -> dashboard.DynamicConfigValue:
    """A link, as a property of an override."""
    return dashboard.DynamicConfigValue(id_val="links", value=[{"title": link.title, "url": link.url}])


def targets(queries: Sequence[Query]) -> list[Builder[Dataquery]]:
    """The queries as targets A, B, C."""
    return [_target(ref_id, query) for ref_id, query in zip(REF_IDS[: len(queries)], queries, strict=True)]


def settle(panel: Builder[dashboard.Panel], face: Face) -> dashboard.Panel:
    """The built panel with its size; where it stands is the layout's affair."""
    built = panel.build()
    built.grid_pos = dashboard.GridPos(w=face.width, h=face.height)
    if face.repeat:
        built.repeat, built.repeat_direction, built.max_per_row = face.repeat, "h", 4
    return built


def _target(ref_id: str, query: Query) -> prometheus.Dataquery:
    kind = PromQueryFormat.HEATMAP if query.heatmap else PromQueryFormat.TIME_SERIES
    target = prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(ref_id).format(kind)
    target.datasource(PROMETHEUS)
    return target.instant() if query.instant else target.range()


def _legend() -> build_common.VizLegendOptions:
    return (
        build_common.VizLegendOptions()
        .display_mode(common.LegendDisplayMode.LIST)
        .placement(common.LegendPlacement.BOTTOM)
        .show_legend(True)
        .calcs([])
    )


def _tooltip() -> build_common.VizTooltipOptions:
    return build_common.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING)
