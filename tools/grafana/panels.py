"""The kinds of panels and the presentation of their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import common as build_common
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import dashboard as build_dashboard
from grafana_foundation_sdk.builders import heatmap, prometheus, stat, statetimeline, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import heatmap as heatmap_model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from tools.grafana.queries import Query

# Okabe and Ito, "Color Universal Design", 2008
BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, PURPLE, YELLOW, GREY = "#56B4E9", "#CC79A7", "#F0E442", "#999999"
SERIES = (BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE, YELLOW, GREY)

HEATMAP_SCHEME = "Viridis"
PROMETHEUS = common.DataSourceRef(type_val="prometheus", uid="$datasource")
LAST = build_common.ReduceDataOptions().calcs(["lastNotNull"]).values(False).fields("")
REF_IDS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def steps(*levels: tuple[float, str], base: str = BLUE) -> build.ThresholdsConfig:
    """Absolute thresholds: the colour from each level upwards; `base` below the first."""
    first = [model.Threshold(value=None, color=base)]
    rest = [model.Threshold(value=level, color=color) for level, color in levels]
    return build.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(first + rest)


def by_threshold() -> build.FieldColor:
    """Colours by the thresholds."""
    return build.FieldColor().mode(model.FieldColorModeId.THRESHOLDS)


def by_last_value() -> build.FieldColor:
    """Each series by its last value, from yellow to blue, which makes one that differs from its siblings stand out."""
    return build.FieldColor().mode(model.FieldColorModeId.CONTINUOUS_YL_BL).series_by(model.FieldColorSeriesByMode.LAST)


def fixed(color: str) -> build.FieldColor:
    """One colour."""
    return build.FieldColor().mode(model.FieldColorModeId.FIXED).fixed_color(color)


def fixed_property(color: str) -> model.DynamicConfigValue:
    """One colour, as a property of an override."""
    return model.DynamicConfigValue(id_val="color", value={"mode": "fixed", "fixedColor": color})


def words(**named: tuple[str, str]) -> list[model.ValueMapping]:
    """Words and colours for whole numbers, named `v0`, `v1`: `v1=("down", VERMILION)`."""
    return texts({name.removeprefix("v"): value for name, value in named.items()})


def texts(named: dict[str, tuple[str, str]]) -> list[model.ValueMapping]:
    """Words and colours for values."""
    results = {
        value: model.ValueMappingResult(text=text, color=color, index=index)
        for index, (value, (text, color)) in enumerate(named.items())
    }
    return [model.ValueMap(options=results)]


YES_IS_BAD = words(v0=("no", BLUE), v1=("yes", VERMILION))
UP = words(v0=("down", VERMILION), v1=("ACTIVE", BLUE))
SIGNATURES = {
    "idle": ("idle", GREY),
    "dense_like": ("dense-like", BLUE),
    "moe_like": ("MoE-like", ORANGE),
    "unknown": ("unknown", SKY),
}


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
        .color_scheme(by_last_value())
    )
    if maximum is not None:
        panel.max(maximum)
    if stacked:
        panel.stacking(build_common.StackingConfig().mode(common.StackingMode.NORMAL))
    if thresholds is not None:
        style = build_common.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED)
        panel.thresholds(thresholds).thresholds_style(style)
    if len(queries) > 1:
        for ref_id, color in zip(REF_IDS[: len(queries)], SERIES * 3, strict=False):
            panel.override_by_query(ref_id, [fixed_property(color)])
    for name, color in (colors or {}).items():
        panel.override_by_name(name, [fixed_property(color)])
    if link is not None:
        panel.override_by_field_type("number", [link_property(link)])
    return finish_panel(panel, face)


def heat(
    face: PanelHead,
    queries: Sequence[Query],
    *,
    color_max: float | None = None,
    cell_unit: str | None = None,
    sources: Sequence[Builder[Dataquery]] | None = None,
    datasource: common.DataSourceRef = PROMETHEUS,
) -> dashboard.Panel:
    """Rows against time: buckets of a histogram, or one row per series; zero has a colour, missing data has none.

    The unit is that of the rows; `cell_unit` is that of the colours. `sources` replace the queries.
    """
    color = (
        heatmap.HeatmapColorOptions()
        .mode(heatmap_model.HeatmapColorMode.SCHEME)
        .scheme(HEATMAP_SCHEME)
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
    return finish_panel(panel, face)


def number(
    face: PanelHead,
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
        .thresholds(thresholds or steps())
        .color_scheme(by_threshold())
        .color_mode(common.BigValueColorMode.VALUE)
        .graph_mode(common.BigValueGraphMode.AREA if graph else common.BigValueGraphMode.NONE)
        .text_mode(common.BigValueTextMode.VALUE_AND_NAME if named else common.BigValueTextMode.AUTO)
        .mappings(mappings or [])
    )
    for ref_id, unit in (units or {}).items():
        panel.override_by_query(ref_id, [dashboard.DynamicConfigValue(id_val="unit", value=unit)])
    return finish_panel(panel, face)


def states(face: PanelHead, queries: Sequence[Query], mappings: list[dashboard.ValueMapping]) -> dashboard.Panel:
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
        .color_scheme(by_threshold())
        .thresholds(steps((1, VERMILION)))
        .show_value(common.VisibilityMode.NEVER)
        .merge_values(True)
        .row_height(0.85)
        .fill_opacity(80)
        .legend(_legend())
        .tooltip(_tooltip())
    )
    return finish_panel(panel, face)


def link_property(link: Link) -> dashboard.DynamicConfigValue:
    """A link, as a property of an override."""
    return dashboard.DynamicConfigValue(id_val="links", value=[{"title": link.title, "url": link.url}])


def targets(queries: Sequence[Query]) -> list[Builder[Dataquery]]:
    """The queries as targets A, B, C."""
    return [_target(ref_id, query) for ref_id, query in zip(REF_IDS[: len(queries)], queries, strict=True)]


def finish_panel(panel: Builder[dashboard.Panel], face: PanelHead) -> dashboard.Panel:
    """The built panel with its size; the layout places it."""
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


@dataclass(frozen=True, slots=True)
class Figure:
    """One large number; `levels` colour it from each value upwards."""

    title: str
    description: str
    unit: str
    expr: str
    levels: tuple[tuple[float, str], ...] = ()


def figure_panels(figures: Sequence[Figure], nothing: str) -> list[model.Panel]:
    """A narrow panel for each number; eight fill a line."""
    return [
        number(
            PanelHead(figure.title, figure.description, figure.unit, nothing, width=3, height=4),
            [Query(figure.expr, figure.title)],
            thresholds=steps(*figure.levels),
        )
        for figure in figures
    ]
