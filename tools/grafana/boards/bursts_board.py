"""The raw samples of one node through the Infinity data source, and its captures. Queries Prometheus only for
the variables.
"""

from __future__ import annotations

from grafana_foundation_sdk.builders import table as table_builder
from grafana_foundation_sdk.builders import timeseries
from grafana_foundation_sdk.models import common, dashboard

from tools.grafana import layout, panels
from tools.grafana.layout import Board, Breach, Section
from tools.grafana.panels import Link, PanelHead, finish_panel, heat, link_property
from tools.grafana.queries import INFINITY, NODE_ADDRESS, PLUGIN, Field, InfinityQuery, window_query

HISTORY = (
    "The node keeps the last minutes (sampler.history); older samples are in its captures. Cells without a colour are "
    "missing data."
)
EMPTY = "The node has no samples of this time: choose the last minutes and one node, and check that Grafana reaches it"
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
    "Share of the rails": "percentunit",
}


def _heatmap(direction: str) -> dashboard.Panel:
    query = window_query(direction=direction, unit="ratio", statistic="max")
    return heat(
        PanelHead(
            f"Rails at 10 ms, {direction}",
            "One row per port; the colour is its share of the line rate. Up to a span of 20 s, every column is one 10 "
            f"ms sample; over longer spans, it is the highest sample of the column. {HISTORY}",
            "percentunit",
            EMPTY,
            width=24,
            height=7,
        ),
        (),
        sources=[query],
        datasource=INFINITY,
        color_max=1,
    )


def _series(face: PanelHead, query: InfinityQuery) -> timeseries.Panel:
    return (
        timeseries.Panel()
        .title(face.title)
        .description(face.description)
        .datasource(INFINITY)
        .targets([query])
        .unit(face.unit)
        .no_value(face.nothing)
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
    face = PanelHead("Utilisation of the node at 10 ms", text, "percentunit", EMPTY, width=24)
    # a mean skips missing samples; Grafana's sum would turn them into zero
    mean = {
        "mode": "reduceRow",
        "reduce": {"reducer": "mean"},
        "alias": "utilisation",
        "replaceFields": True,
    }
    panel = _series(face, window_query(unit="ratio", statistic="mean"))
    panel.with_transformation(dashboard.DataTransformerConfig(id_val="calculateField", options=mean))
    return finish_panel(panel.color_scheme(panels.fixed(panels.ORANGE)).fill_opacity(20), face)


def _ports() -> dashboard.Panel:
    text = f"Each port and direction separately; every point is the highest of its samples. {HISTORY}"
    face = PanelHead("Ports at 10 ms", text, "Bps", EMPTY, width=24)
    return finish_panel(_series(face, window_query(statistic="max")).color_scheme(panels.by_last_value()), face)


def _listing(face: PanelHead, query: InfinityQuery, link: tuple[str, Link] | None = None) -> dashboard.Panel:
    panel = (
        table_builder.Panel()
        .title(face.title)
        .description(face.description)
        .datasource(INFINITY)
        .targets([query])
        .unit(face.unit)
        .no_value(face.nothing)
        .cell_height(common.TableCellHeight.SM)
        .filterable(True)
    )
    for heading, unit in _UNITS.items():
        panel.override_by_name(heading, [dashboard.DynamicConfigValue(id_val="unit", value=unit)])
    if link is not None:
        panel.override_by_name(link[0], [link_property(link[1])])
    return finish_panel(panel, face)


def _summary() -> dashboard.Panel:
    columns = [
        Field("port", "Port", "string"),
        Field("transmit.mean_bytes_per_second", "Transmit mean"),
        Field("transmit.peak_bytes_per_second", "Transmit peak"),
        Field("transmit.duty_cycle_ratio", "Transmit duty"),
        Field("transmit.burstiness_cv", "Transmit CV"),
        Field("receive.mean_bytes_per_second", "Receive mean"),
        Field("receive.peak_bytes_per_second", "Receive peak"),
        Field("receive.duty_cycle_ratio", "Receive duty"),
        Field("receive.burstiness_cv", "Receive CV"),
        Field("bursts", "Bursts"),
        Field("rail_share_ratio", "Share of the rails"),
    ]
    face = PanelHead(
        "Statistics of the newest minute",
        f"Every statistic of the last {SECONDS} s of each port, computed now from the same samples; it does not follow "
        "the time range. CVs are at the time scale of the samples.",
        "none",
        EMPTY,
        width=24,
    )
    return _listing(face, InfinityQuery("A", SUMMARY, {"window": f"{SECONDS}s"}, "ports").as_table(columns))


def _captures() -> dashboard.Panel:
    columns = [
        Field("trigger_ms", "Triggered", "timestamp_epoch"),
        Field("reason", "Reason", "string"),
        Field("size_bytes", "Size"),
        Field("name", "File", "string"),
    ]
    face = PanelHead(
        "Captures on this node",
        "Files that the flight recorder wrote, newest first. Click a file to download it as Parquet, if your browser "
        "can reach the node or the gateway; `ibpulse report` and `ibpulse render` read it.",
        "none",
        "No capture is stored, or the flight recorder has no directory",
        width=24,
    )
    link = Link("Download", f"{NODE_ADDRESS}{CAPTURES}/${{__data.fields.File}}")
    return _listing(face, InfinityQuery("A", CAPTURES, {}, "captures").as_table(columns), ("File", link))


def board() -> Board:
    """The board of raw samples."""
    infinity = layout.infinity(PLUGIN)
    names = "One data source is not Prometheus; the linter expects a hyphen in its name, which variables cannot have."
    return Board(
        uid=layout.BURSTS,
        title="ibpulse / Burst explorer",
        question="What did every port of this node do in these seconds, 10 ms by 10 ms?",
        # the linter assumes that the panels use the first data source
        variables=[
            infinity,
            layout.datasource(),
            layout.job(),
            layout.instance(single=True),
            layout.choice(
                "scheme", "Scheme", "Scheme that Grafana's server uses for requests to the node.", ("http", "https")
            ),
            layout.text(
                "gateway",
                "Gateway",
                "Where a gateway has the nodes, such as gateway:10056/node/; empty to ask each node itself.",
            ),
        ],
        sections=[
            Section("", [_heatmap("transmit"), _heatmap("receive"), _utilization()]),
            Section("Ports and captures", [_ports(), _summary(), _captures()]),
        ],
        start="now-20s",
        refresh="",
        exceptions=[Breach("template-datasource-rule", names)],
    )
