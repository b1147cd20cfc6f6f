"""The exporter's own health: whether its numbers can be trusted, and their cost."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from tools.grafana import layout, panels
from tools.grafana.boards.exporter_reads import event_panels, read_panels
from tools.grafana.layout import Board, Section
from tools.grafana.panels import ORANGE, VERMILION, Figure, PanelHead, figure_panels, heat, lines
from tools.grafana.queries import Query, Scope, by_node
from tools.grafana.tables import Column, table

NODES = Scope()
NOTHING = "No exporter of this selection responds"
S = Scope(device="$device")
CPU = " + ".join(
    by_node("sum", NODES.rate(part)) for part in ("process_cpu_seconds_total", "ibpulse_sampler_cpu_seconds_total")
)
MISSED = NODES.pick("instance:ibpulse_missed_ticks:ratio")
AGE = NODES.pick("ibpulse_sampler_heartbeat_age_seconds")
RESOLUTION = S.pick("ibpulse_port_effective_resolution_seconds")
INTERVAL = S.pick("ibpulse_port_sampling_interval_seconds")


def cost_panels() -> list[model.Panel]:
    """Processor, memory, scrapes, requests, captures, versions."""
    return [_cpu(), _memory(), _scrapes(), _requests(), _captures(), _capture_size(), _versions()]


def _cpu() -> model.Panel:
    return lines(
        PanelHead("CPU", "CPU time of the daemon and of its sampler; 1 is one full core.", "percentunit", NOTHING),
        [
            Query(NODES.rate("process_cpu_seconds_total"), "{{instance}} daemon"),
            Query(NODES.rate("ibpulse_sampler_cpu_seconds_total"), "{{instance}} sampler"),
        ],
    )


def _memory() -> model.Panel:
    return lines(
        PanelHead(
            "Memory of the daemon",
            "Resident memory of the main process, including the shared ring but not the sampler.",
            "bytes",
            NOTHING,
        ),
        [Query(NODES.pick("process_resident_memory_bytes"))],
    )


def _scrapes() -> model.Panel:
    return lines(
        PanelHead(
            "Scrapes",
            "Duration of a scrape, as measured by Prometheus.",
            "s",
            NOTHING,
        ),
        [Query(NODES.pick("scrape_duration_seconds"))],
    )


def _requests() -> model.Panel:
    return lines(
        PanelHead("Requests", "Requests per second that the exporter answered, by status.", "reqps", NOTHING),
        [Query(f"sum by (code) ({NODES.rate('ibpulse_http_requests_total')})", "{{code}}")],
    )


def _captures() -> model.Panel:
    return lines(
        PanelHead(
            "Captures",
            "Captures taken and captures that could not be written, between two points of the graph. Absent without a "
            "capture directory.",
            "none",
            "The flight recorder has no directory",
        ),
        [
            Query(by_node("sum", NODES.over("increase", "ibpulse_captures_total")), "{{instance}} taken"),
            Query(by_node("sum", NODES.over("increase", "ibpulse_capture_errors_total")), "{{instance}} failed"),
        ],
    )


def _capture_size() -> model.Panel:
    return lines(
        PanelHead("Size of the captures", "All captures in the directory of each node.", "decbytes", "No captures"),
        [Query(NODES.pick("ibpulse_capture_stored_bytes"))],
    )


def _versions() -> model.Panel:
    build = f"max by (cluster, job, instance, version, python) ({NODES.pick('ibpulse_build_info')})"
    scheduler = (
        "max by (cluster, job, instance, requested, actual, cpu_actual) "
        f"({NODES.pick('ibpulse_sampler_scheduler_info')})"
    )
    newest = by_node("max", NODES.pick("ibpulse_capture_last_timestamp_seconds"))
    return table(
        PanelHead(
            "Exporters",
            "Version, requested and actual scheduling class of the sampler, notices of the last device scan (details "
            "are on the node's page), captures.",
            "none",
            NOTHING,
            width=24,
        ),
        [
            Column("", build, "none"),
            Column("", scheduler, "none"),
            Column("Notices", by_node("max", NODES.pick("ibpulse_fabric_notices")), "none", ((1, ORANGE),)),
            Column("Captures", by_node("max", NODES.pick("ibpulse_captures_stored")), "none"),
            Column("Newest capture", f"1000 * {newest}", "dateTimeAsIso"),
        ],
        {
            "instance": "Node",
            "job": "Job",
            "cluster": "Cluster",
            "version": "Version",
            "python": "Python",
            "requested": "Scheduler requested",
            "actual": "Scheduler",
            "cpu_actual": "CPU",
        },
        sort=("Notices",),
    )


FIGURES = (
    Figure(
        "Not answering",
        "Targets that Prometheus could not scrape last time. Their data ends at the last successful scrape.",
        "none",
        f"sum(1 - {NODES.pick('up')})",
        ((1, VERMILION),),
    ),
    Figure(
        "Missed samples",
        "Highest share of samples that any sampler missed within ten minutes. A short peak may be hidden in the "
        "missing data.",
        "percentunit",
        f"max({MISSED})",
        (
            (0.001, ORANGE),
            (0.01, VERMILION),
        ),
    ),
    Figure(
        "Wake-up delay, 99 %",
        "Delay with which samplers wake up for a sample, 99th percentile of all. Rates are computed from the true read "
        "times, so a delay costs no accuracy until samples are missed.",
        "s",
        NODES.quantile(0.99, "ibpulse_sampler_lateness_seconds", ""),
    ),
    Figure(
        "Time since heartbeat",
        "Age of the oldest heartbeat of a sampler. A silent sampler is restarted within three seconds.",
        "s",
        f"max({AGE})",
        ((5, VERMILION),),
    ),
    Figure(
        "Coarsest counters",
        "Time between two changes of the most slowly refreshed counters ÷ time between two reads. Above 2, peaks, duty "
        "cycle and burstiness of that port are smeared. Unknown without traffic.",
        "none",
        f"max({RESOLUTION} / {INTERVAL})",
        ((2, VERMILION),),
    ),
    Figure(
        "Devices quarantined",
        "Devices whose reads hung, sampled by a separate process.",
        "none",
        f"sum({S.pick('ibpulse_device_quarantined')})",
        ((1, VERMILION),),
    ),
    Figure(
        "CPU per node",
        "CPU time of the daemon and its sampler, mean of the nodes; 1 is one full core.",
        "percentunit",
        f"avg({CPU})",
    ),
    Figure(
        "Series per node",
        "Series per scrape, highest of the nodes. A node with 8 ports stays below 1,000 by default.",
        "none",
        f"max({NODES.pick('scrape_samples_scraped')})",
    ),
)


def _lateness() -> model.Panel:
    return heat(
        PanelHead(
            "Wake-up delay of the samplers",
            "Wake-up delay of the main samplers of all chosen nodes, samples per second in each band. A rising band "
            "indicates a busy node, or a CPU limit.",
            "s",
            NOTHING,
            width=12,
        ),
        [Query(NODES.buckets("ibpulse_sampler_lateness_seconds", "rate"), "{{le}}", heatmap=True)],
        cell_unit="cps",
    )


def _tick_cost() -> model.Panel:
    return heat(
        PanelHead(
            "Read time of all ports",
            "Time to read all ports once, samples per second in each band. A band at milliseconds is a slow device "
            "or a delayed sampler.",
            "s",
            NOTHING,
            width=12,
        ),
        [Query(NODES.buckets("ibpulse_sampler_tick_duration_seconds", "rate"), "{{le}}", heatmap=True)],
        cell_unit="cps",
    )


def _missed() -> model.Panel:
    return lines(
        PanelHead(
            "Missed samples by node",
            "Share of the samples of ten minutes that were skipped because the sampler woke up too late. Below 1 %, "
            "statistics are not affected.",
            "percentunit",
            "No recorded share: load the recording rules",
        ),
        [Query(NODES.pick("instance:ibpulse_missed_ticks:ratio"))],
        thresholds=panels.steps((0.01, VERMILION)),
    )


def _ticks() -> model.Panel:
    return lines(
        PanelHead(
            "Samples per second",
            "Times per second that the main sampler read its ports, and the number that its interval requires.",
            "cps",
            NOTHING,
        ),
        [
            Query(NODES.rate("ibpulse_sampler_ticks_total"), "{{instance}} read"),
            Query(f"1 / {NODES.pick('ibpulse_sampler_interval_seconds')}", "{{instance}} required"),
        ],
    )


def _throttled() -> model.Panel:
    return lines(
        PanelHead(
            "CPU limit",
            "Periods per second in which the kernel throttled the container. Each costs samples: remove the limit. "
            "Absent outside a container.",
            "cps",
            "No CPU limit, as recommended",
        ),
        [Query(NODES.rate("ibpulse_cgroup_throttled_periods_total"))],
        thresholds=panels.steps((0.1, VERMILION)),
    )


def board() -> Board:
    """The board about the exporters."""
    ticks = [_lateness(), _tick_cost(), _missed(), _ticks(), _throttled()]
    return Board(
        uid="ibpulse-exporter",
        title="ibpulse / Exporter health",
        question="Can the numbers be trusted: does every exporter respond, in time, at the resolution that it claims?",
        variables=[layout.datasource(), layout.job(), layout.instance(), layout.device()],
        sections=[
            Section("", [*figure_panels(FIGURES, NOTHING), *ticks]),
            Section("Reads and devices", read_panels()),
            Section("Events", event_panels()),
            Section("Cost, captures, versions", cost_panels()),
        ],
        start="now-3h",
        refresh="1m",
    )
