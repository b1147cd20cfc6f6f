"""The raw samples of one node through the Infinity data source, its captures, and what Prometheus has of the same."""

from __future__ import annotations

from grafana_foundation_sdk.builders import table as table_builder
from grafana_foundation_sdk.builders import timeseries
from grafana_foundation_sdk.models import common, dashboard

from tools.grafana import colors, layout, links, marks, variables
from tools.grafana.boards.node_rails import peaks
from tools.grafana.boards.node_shape import BURST, durations, utilization
from tools.grafana.layout import Board, Section
from tools.grafana.panels import EMPTY as EMPTY_CELL
from tools.grafana.panels import Link, PanelHead, finish_panel, heat, link_property, table_legend
from tools.grafana.queries import INFINITY, NODE_ADDRESS, PLUGIN, Field, InfinityQuery, Scope, window_query

HISTORY = (
    "The node keeps the last minutes (sampler.history); older samples are in its captures. Cells without a colour are "
    "missing data."
)
EMPTY = (
    "The node has no samples of this time, or Grafana does not reach it: choose the last minutes and one node, and set "
    "the variable Gateway if there is a gateway"
)
S = Scope()
WITHOUT_RAW = "15m"
"""Range of the panels from Prometheus, which has only one or two scrapes in the range of the board."""
CAPTURES = "/api/v1/captures"
SUMMARY = "/api/v1/summary"
SECONDS = 60
_UNITS = {
    "Size": "decbytes",
    "Transmit peak": "Bps",
    "Receive peak": "Bps",
    "Transmit mean": "Bps",
    "Receive mean": "Bps",
    "Transmit duty": "percentunit",
    "Receive duty": "percentunit",
    "Rail share": "percentunit",
}


def _heatmap(direction: str) -> dashboard.Panel:
    query = window_query(direction=direction, unit="ratio", statistic="max")
    return heat(
        PanelHead(
            f"What did each rail do, {direction}?",
            "One row per port; the colour is its share of the line rate. Up to a span of 20 s, every column is one 10 "
            f"ms sample; over longer spans, it is the highest sample of the column. {HISTORY}",
            "percentunit",
            EMPTY,
            width=24,
            height=8,
        ),
        (),
        sources=[query],
        datasource=INFINITY,
        color_max=1,
        rows=True,
    )


def _series(query: InfinityQuery) -> timeseries.Panel:
    return (
        timeseries.Panel()
        .targets([query])
        .min(0)
        .line_width(1)
        .line_interpolation(common.LineInterpolation.STEP_AFTER)
        .show_points(common.VisibilityMode.NEVER)
        .span_nulls(False)
    )


def _utilization() -> dashboard.Panel:
    text = (
        "Mean of all ports and both directions, each relative to its own line rate: the bursts, gaps and steps of the "
        f"node. Beyond a span of 20 s, every point is a mean. Includes storage and management ports. {HISTORY}"
    )
    face = PanelHead("Where are bursts, gaps and steps?", text, "percentunit", EMPTY, width=24)
    # a mean skips missing samples; Grafana's sum would turn them into zero
    mean = {
        "mode": "reduceRow",
        "reduce": {"reducer": "mean"},
        "alias": "utilisation",
        "replaceFields": True,
    }
    panel = _series(window_query(unit="ratio", statistic="mean"))
    panel.with_transformation(dashboard.DataTransformerConfig(id_val="calculateField", options=mean))
    return finish_panel(panel.color_scheme(colors.fixed(colors.BLUE)).fill_opacity(20), face, INFINITY)


def _ports() -> dashboard.Panel:
    text = f"Each port and direction separately; every point is the highest of its samples. {HISTORY}"
    face = PanelHead("How much did each port carry?", text, "Bps", EMPTY, width=24, height=11)
    panel = _series(window_query(statistic="max")).color_scheme(colors.by_series()).legend(table_legend())
    return finish_panel(panel, face, INFINITY)


def _listing(
    face: PanelHead, query: InfinityQuery, widths: dict[str, int], link: tuple[str, Link] | None = None
) -> dashboard.Panel:
    panel = (
        table_builder.Panel()
        .targets([query])
        .cell_height(common.TableCellHeight.SM)
        .override_by_field_type("number", [dashboard.DynamicConfigValue(id_val="noValue", value=EMPTY_CELL)])
    )
    for heading, unit in _UNITS.items():
        panel.override_by_name(heading, [dashboard.DynamicConfigValue(id_val="unit", value=unit)])
    for heading, width in widths.items():
        panel.override_by_name(heading, [dashboard.DynamicConfigValue(id_val="custom.width", value=width)])
    if link is not None:
        panel.override_by_name(link[0], [link_property(link[1])])
    return finish_panel(panel, face, INFINITY)


def _summary() -> dashboard.Panel:
    columns = [Field("port", "Port", "string")]
    for direction, heading in (("transmit", "Transmit"), ("receive", "Receive")):
        columns += [
            Field(f"{direction}.mean_bytes_per_second", f"{heading} mean"),
            Field(f"{direction}.peak_bytes_per_second", f"{heading} peak"),
            Field(f"{direction}.duty_cycle_ratio", f"{heading} duty"),
            Field(f"{direction}.burstiness_cv", f"{heading} CV"),
        ]
    columns += [Field("bursts", "Bursts"), Field("rail_share_ratio", "Rail share")]
    face = PanelHead(
        "What are the statistics of the newest minute?",
        f"Every statistic of the last {SECONDS} s of each port, computed now from the same samples; it does not follow "
        "the time range. CVs are at the time scale of the samples.",
        "none",
        EMPTY,
        width=24,
        height=11,
    )
    query = InfinityQuery("A", SUMMARY, {"last": f"{SECONDS}s"}, "ports").as_table(columns)
    return _listing(face, query, {column.text: 120 for column in columns})


def _captures() -> dashboard.Panel:
    columns = [
        Field("trigger_ms", "Triggered", "timestamp_epoch"),
        Field("reason", "Reason", "string"),
        Field("size_bytes", "Size"),
        Field("name", "File", "string"),
    ]
    face = PanelHead(
        "Which captures does this node have?",
        "Files that the flight recorder wrote, newest first. Click a file to download it as Parquet, if your browser "
        "can reach the node or the gateway; `ibpulse report` and `ibpulse render` read it.",
        "none",
        "No capture is stored, or the flight recorder has no directory",
        width=24,
    )
    link = Link("Download", f"{NODE_ADDRESS}{CAPTURES}/${{__data.fields.File}}")
    query = InfinityQuery("A", CAPTURES, {}, "captures").as_table(columns)
    return _listing(face, query, {"Triggered": 180, "Size": 100, "File": 560}, ("File", link))


def _recorded() -> list[dashboard.Panel]:
    found = [
        utilization(S),
        durations("How long are bursts?", BURST, "above", S),
        *(peaks(S, direction, "10s") for direction in ("transmit", "receive")),
    ]
    for panel in found:
        panel.time_from = WITHOUT_RAW
    return found


def board() -> Board:
    """The board of raw samples."""
    infinity = variables.infinity(PLUGIN)
    return Board(
        uid=layout.BURSTS,
        title="ibpulse / Burst explorer",
        question="What did every port of this node do in these seconds, 10 ms by 10 ms?",
        variables=[
            infinity,
            variables.datasource(),
            variables.cluster(single=True),
            variables.job(),
            variables.instance(single=True),
            *variables.node_address(),
        ],
        sections=[
            Section("", [_heatmap("transmit"), _heatmap("receive"), _utilization()]),
            Section("Which port was it, and what was captured?", [_ports(), _summary(), _captures()]),
            Section("What does Prometheus have, where no node or gateway can be reached?", _recorded()),
        ],
        start="now-20s",
        refresh="",
        marks=marks.of_node(S),
        pages=[links.LIVE_PAGE, links.GPUS, links.NODES],
    )
