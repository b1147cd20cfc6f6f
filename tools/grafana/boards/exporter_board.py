"""The exporter about itself: whether its numbers can be trusted, and what they cost."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from tools.grafana import layout, panels
from tools.grafana.boards.exporter_reads import event_panels, read_panels
from tools.grafana.layout import Board, Section
from tools.grafana.panels import ORANGE, VERMILION, Figure, PanelHead, figure_panels, heat, lines
from tools.grafana.queries import Query, Scope, by_node
from tools.grafana.tables import Column, table

NODES = Scope()
NOTHING = "No exporter of this selection answers"


def cost_panels() -> list[model.Panel]:
    """Processor, memory, scrapes, requests, captures, versions."""
    return [_cpu(), _memory(), _scrapes(), _requests(), _captures(), _capture_size(), _versions()]


def _cpu() -> model.Panel:
    return lines(
        PanelHead(
            "CPU", "Processor time of the daemon, and of its sampler; 1 is a whole core.", "percentunit", NOTHING
        ),
        [
            Query(NODES.rate("process_cpu_seconds_total"), "{{instance}} daemon"),
            Query(NODES.rate("ibpulse_sampler_cpu_seconds_total"), "{{instance}} sampler"),
        ],
    )


def _memory() -> model.Panel:
    return lines(
        PanelHead(
            "Memory of the daemon",
            "Resident memory of the main process; the sampler's is not in it, the shared ring is.",
            "bytes",
            NOTHING,
        ),
        [Query(NODES.pick("process_resident_memory_bytes"))],
    )


def _scrapes() -> model.Panel:
    return lines(
        PanelHead(
            "Scrapes",
            "How long a scrape took, as Prometheus saw it.",
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
            "Captures taken and captures that could not be written, in a point of the picture. Absent without a "
            "directory for them.",
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
            "Version, scheduling class that was asked for and that the sampler got, things that the last scan has to "
            "tell (see the page of the node), captures.",
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
            "requested": "Scheduler asked for",
            "actual": "Scheduler",
            "cpu_actual": "CPU",
        },
        sort=("Notices",),
    )


S = Scope(device="$device")


CPU = " + ".join(
    by_node("sum", NODES.rate(part)) for part in ("process_cpu_seconds_total", "ibpulse_sampler_cpu_seconds_total")
)
MISSED = NODES.pick("instance:ibpulse_missed_ticks:ratio")
AGE = NODES.pick("ibpulse_sampler_heartbeat_age_seconds")
RESOLUTION = S.pick("ibpulse_port_effective_resolution_seconds")
INTERVAL = S.pick("ibpulse_port_sampling_interval_seconds")
FIGURES = (
    Figure(
        "Not answering",
        "Targets that Prometheus could not scrape last time. Their numbers end at the last scrape that worked.",
        "none",
        f"sum(1 - {NODES.pick('up')})",
        ((1, VERMILION),),
    ),
    Figure(
        "Missed ticks",
        "Highest share of ticks that a sampler came too late for, of ten minutes. They are holes, and a short peak may "
        "lie in one.",
        "percentunit",
        f"max({MISSED})",
        (
            (0.001, ORANGE),
            (0.01, VERMILION),
        ),
    ),
    Figure(
        "Lateness, 99 %",
        "How late samplers wake for a tick, 99th percentile of all. Late reads are divided by their true time, so "
        "lateness costs no accuracy until ticks are missed.",
        "s",
        NODES.quantile(0.99, "ibpulse_sampler_lateness_seconds", ""),
    ),
    Figure(
        "Sampler silent for",
        "Age of the oldest sign of life of a sampler. It is restarted within three seconds.",
        "s",
        f"max({AGE})",
        ((5, VERMILION),),
    ),
    Figure(
        "Coarsest counters",
        "Time between two changes of the slowest refreshed counters ÷ time between two reads. Above 2, peaks, duty "
        "cycle and burstiness of that port are smeared. Unknown without traffic.",
        "none",
        f"max({RESOLUTION} / {INTERVAL})",
        ((2, VERMILION),),
    ),
    Figure(
        "Devices quarantined",
        "Devices whose reads hung, sampled by a process of their own.",
        "none",
        f"sum({S.pick('ibpulse_device_quarantined')})",
        ((1, VERMILION),),
    ),
    Figure(
        "CPU per node",
        "Processor time of the daemon and its sampler, mean of the nodes; 1 is a whole core.",
        "percentunit",
        f"avg({CPU})",
    ),
    Figure(
        "Series per node",
        "Samples that a scrape brings, highest of the nodes. A node of 8 ports stays below 1,000 by default.",
        "none",
        f"max({NODES.pick('scrape_samples_scraped')})",
    ),
)


def _lateness() -> model.Panel:
    return heat(
        PanelHead(
            "Lateness of the samplers",
            "How late the main samplers of all chosen nodes woke, ticks per second in each band. A band that rises "
            "is a busy node, or a CPU limit.",
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
            "Cost of a tick",
            "How long reading all ports took, ticks per second in each band. A band at milliseconds is a slow device "
            "or a sampler that was held up.",
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
            "Missed ticks by node",
            "Share of the ticks of ten minutes that were skipped because the sampler came too late. Below one in a "
            "hundred no statistic notices.",
            "percentunit",
            "No recorded share: load the recording rules",
        ),
        [Query(NODES.pick("instance:ibpulse_missed_ticks:ratio"))],
        thresholds=panels.steps((0.01, VERMILION)),
    )


def _ticks() -> model.Panel:
    return lines(
        PanelHead(
            "Ticks per second",
            "Ticks at which the main sampler read its ports, and how many its interval asks for.",
            "cps",
            NOTHING,
        ),
        [
            Query(NODES.rate("ibpulse_sampler_ticks_total"), "{{instance}} read"),
            Query(f"1 / {NODES.pick('ibpulse_sampler_interval_seconds')}", "{{instance}} wanted"),
        ],
    )


def _throttled() -> model.Panel:
    return lines(
        PanelHead(
            "CPU limit",
            "Periods per second in which the kernel throttled the container. Each costs samples: remove the limit. "
            "Absent outside a container.",
            "cps",
            "No CPU limit, which is how it should be",
        ),
        [Query(NODES.rate("ibpulse_cgroup_throttled_periods_total"))],
        thresholds=panels.steps((0.1, VERMILION)),
    )


def board() -> Board:
    """The board of the exporters."""
    ticks = [_lateness(), _tick_cost(), _missed(), _ticks(), _throttled()]
    return Board(
        uid="ibpulse-exporter",
        title="ibpulse / Exporter health",
        question="Can the numbers be trusted: does every exporter answer, in time, at the resolution that it claims?",
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
