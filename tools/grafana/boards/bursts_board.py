"""The raw samples of one node through the Infinity data source, and its captures. Needs no query of Prometheus but
those of the variables.
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
    "The node keeps the last minutes (sampler.history); what is older is in its captures. What has no colour is a "
    "hole: nothing was measured there."
)
EMPTY = "The node keeps no samples of this time: choose the last minutes, one node, and see that Grafana reaches it"
CAPTURES = "/api/v1/captures"
SUMMARY = "/api/v1/summary"
SECONDS = 60


def _heatmap(direction: str) -> dashboard.Panel:
    query = window_query(direction=direction, unit="ratio", statistic="max")
    return heat(
        PanelHead(
            f"Rails at 10 ms, {direction}",
            "One row per port, its colour is its share of the line rate. Down to 20 s every column is one 10 ms "
            f"sample; over longer spans it is the highest sample of the column. {HISTORY}",
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
        "Mean of all ports and both directions, each against its own line rate: the bursts, gaps and steps of the "
        f"node. Over more than 20 s every point is a mean. Storage and management ports count as well. {HISTORY}"
    )
    face = PanelHead("Utilisation of the node at 10 ms", text, "percentunit", EMPTY, width=24)
    # a mean leaves holes out; Grafana's sum would make a zero of them
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
    text = f"Each port and direction by itself, the highest sample of every point. {HISTORY}"
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
        f"Every statistic of the last {SECONDS} s of each port, computed from the same samples now; it does not follow "
        "the time that is shown. CVs are at the time scale of the samples.",
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
        Field("url", "Address", "string"),
    ]
    face = PanelHead(
        "Captures on this node",
        "What the flight recorder kept, the newest first. A click on the file downloads it as Parquet, if your browser "
        "reaches the node; `ibpulse report` and `ibpulse render` read it.",
        "none",
        "No capture is stored, or the flight recorder has no directory",
        width=24,
    )
    link = Link("Download", NODE_ADDRESS + "${__data.fields.Address}")
    return _listing(face, InfinityQuery("A", CAPTURES, {}, "captures").as_table(columns), ("File", link))


def board() -> Board:
    """The board of raw samples."""
    infinity = layout.infinity(PLUGIN)
    names = (
        "One of its two data sources is no Prometheus; the linter's name for it holds a hyphen, which no variable can."
    )
    return Board(
        uid=layout.BURSTS,
        title="ibpulse / Burst explorer",
        question="What did every port of this node do in these seconds, 10 ms by 10 ms?",
        # the linter takes the first data source for that of the panels
        variables=[
            infinity,
            layout.datasource(),
            layout.job(),
            layout.instance(single=True),
            layout.choice("scheme", "Scheme", "How Grafana's server asks the node.", ("http", "https")),
        ],
        sections=[
            Section("", [_heatmap("transmit"), _heatmap("receive"), _utilization()]),
            Section("Ports and captures", [_ports(), _summary(), _captures()]),
        ],
        start="now-20s",
        refresh="",
        exceptions=[Breach("template-datasource-rule", names)],
    )
