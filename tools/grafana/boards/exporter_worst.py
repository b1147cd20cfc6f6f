"""The exporters with a problem, and the worst of them over time: at most 20 of any number of nodes."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from tools.grafana import colors, layout, links
from tools.grafana.colors import BAD_CELL, NOTICE_CELL
from tools.grafana.panels import Link, PanelHead, lines
from tools.grafana.queries import RANGE, Query, Scope, by_node
from tools.grafana.tables import Column, table

S = Scope()
TOP = 20
NOTHING = "No exporter of this selection responds"
TO_NODE = Link("Open the node", links.row_link(layout.NODE))
TO_NODE_OF_SERIES = Link("Open the node", links.series_link(layout.NODE))
MISSED = S.pick("instance:ibpulse_missed_ticks:ratio")
AGE = f"time() - {S.pick('ibpulse_aggregated_until_timestamp_seconds')}"


def worst(name: str, function: str = "max_over_time", span: str = RANGE) -> str:
    """A gauge of the 20 nodes with the highest value in the range of the board, one set for the whole range."""
    chosen = by_node("max", f"{function}({S.pick(name)}[{span}] @ end())")
    return f"{by_node('max', S.pick(name))} and topk({TOP}, {chosen})"


def worst_rate(name: str) -> str:
    """The rate of a counter of the 20 nodes with the highest one over the range of the board."""
    chosen = by_node("sum", f"increase({S.pick(name)}[{RANGE}] @ end())")
    return f"{by_node('sum', S.rate(name))} and topk({TOP}, {chosen} > 0)"


def problem_table() -> model.Panel:
    """Only what is wrong now, at most 20 nodes for each problem."""

    def column(heading: str, expr: str, beyond: str, unit: str, color: str = NOTICE_CELL) -> Column:
        value = f"topk({TOP}, {by_node('max', expr)} {beyond})"
        return Column(heading, value, unit, ((1e-9, color),), 108)

    return table(
        PanelHead(
            "Exporters with a problem",
            "Only nodes with a problem: not answering, samples missed (more than 0.1 % in ten minutes), data older "
            "than a minute, devices quarantined, ports set aside, failed reads per second, counters updated less "
            "often than every second read, a CPU limit that throttles, captures that could not be written, notices "
            f"of the last scan of the devices. At most {TOP} nodes for each; a dash is not a problem. Click a node "
            "to open its board.",
            "none",
            "No exporter has a problem",
            width=24,
            height=10,
        ),
        [
            column("Down", f"1 - {S.pick('up')}", "> 0", "none", BAD_CELL),
            column("Missed", MISSED, "> 0.001", "percentunit"),
            column("Data age", AGE, "> 60", "s", BAD_CELL),
            column("Quarantined", S.pick("instance:ibpulse_quarantined_devices:sum"), "> 0", "none"),
            column("Set aside", S.pick("instance:ibpulse_set_aside_ports:sum"), "> 0", "none"),
            column("Failed reads", S.pick("instance:ibpulse_read_errors:rate5m"), "> 0", "none"),
            column("Coarseness", S.pick("instance:ibpulse_effective_resolution:ratio"), "> 2", "none"),
            column("Throttled", S.rate("ibpulse_cgroup_throttled_periods_total"), "> 0.1", "none"),
            column("No captures", S.over("increase", "ibpulse_capture_errors_total", "1h"), "> 0", "none"),
            column("Notices", S.pick("ibpulse_fabric_notices"), "> 0", "none"),
        ],
        {"instance": "Node"},
        sort=("Down", "Data age", "Missed"),
        link=TO_NODE,
    )


def _line(title: str, text: str, unit: str, expr: str, nothing: str = NOTHING) -> model.Panel:
    face = PanelHead(title, f"{text} The {TOP} nodes with the highest value in this span.", unit, nothing, width=12)
    return lines(face, [Query(expr)], link=TO_NODE_OF_SERIES)


def worst_panels() -> list[model.Panel]:
    """The worst exporters over time."""
    chosen = by_node("max", f"max_over_time({MISSED}[{RANGE}] @ end())")
    missed = lines(
        PanelHead(
            "Missed samples by node",
            "Share of the samples of ten minutes that were skipped because the sampler woke up too late. Below 1 %, "
            f"statistics are not affected. The {TOP} nodes with the highest value in this span.",
            "percentunit",
            "No recorded share: load the recording rules",
            width=12,
        ),
        [Query(f"{by_node('max', MISSED)} and topk({TOP}, {chosen})")],
        thresholds=colors.steps((0.01, colors.VERMILION)),
        link=TO_NODE_OF_SERIES,
    )
    return [
        missed,
        _line(
            "CPU limit",
            "Periods per second in which the kernel throttled the container. Each costs samples: remove the limit.",
            "none",
            worst_rate("ibpulse_cgroup_throttled_periods_total"),
            "No exporter was throttled",
        ),
        _line("CPU of the daemon", "1 is one full core.", "percentunit", worst_rate("process_cpu_seconds_total")),
        _line(
            "CPU of the sampler", "1 is one full core.", "percentunit", worst_rate("ibpulse_sampler_cpu_seconds_total")
        ),
        _line(
            "Memory of the daemon",
            "Resident memory of the main process, including the shared ring but not the sampler.",
            "bytes",
            worst("process_resident_memory_bytes"),
        ),
        _line("Scrapes", "Duration of a scrape, as measured by Prometheus.", "s", worst("scrape_duration_seconds")),
        _line(
            "Skipped by the aggregation",
            "Seconds per second that are missing from all metrics because aggregation fell behind.",
            "none",
            worst_rate("ibpulse_aggregator_skipped_seconds_total"),
            "No exporter skipped anything",
        ),
        _line(
            "Size of the captures",
            "All captures in the directory of a node.",
            "decbytes",
            worst("ibpulse_capture_stored_bytes"),
            "No captures",
        ),
    ]
