"""Health of the exporters: can the numbers be trusted, and what does ibpulse cost?"""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from tools.grafana import layout, links, marks, variables
from tools.grafana.boards.exporter_reads import event_panels, read_panels
from tools.grafana.boards.exporter_worst import AGE, MISSED, NOTHING, problem_table, worst_panels
from tools.grafana.colors import BAD_TEXT, NOTICE_TEXT
from tools.grafana.layout import Board, Section
from tools.grafana.panels import Figure, PanelHead, figure_panels, heat, lines
from tools.grafana.queries import Query, Scope, by_node
from tools.grafana.tables import Column, table

S = Scope()
NO_RULES = "No recorded data: load the recording rules"
LATENESS = "job_le:ibpulse_sampler_lateness_seconds_bucket:rate5m"
READ_TIME = "job_le:ibpulse_sampler_tick_duration_seconds_bucket:rate5m"
WHOLE = "Recorded for whole scrape jobs: the Instance variable has no effect."
CPU = " + ".join(
    by_node("sum", S.rate(part)) for part in ("process_cpu_seconds_total", "ibpulse_sampler_cpu_seconds_total")
)

FIGURES = (
    Figure(
        "Not answering",
        f"Exporters that Prometheus could not scrape last time. Their data ends at the last successful scrape. {WHOLE}",
        "none",
        f"sum({S.pick('job:ibpulse_exporters:count')}) - sum({S.pick('job:ibpulse_exporters_up:count')})",
        ((1, BAD_TEXT),),
    ),
    Figure(
        "Missed",
        "Highest share of samples that any sampler missed within ten minutes. A short peak may be hidden in the "
        "missing data.",
        "percentunit",
        f"max({MISSED})",
        ((0.001, NOTICE_TEXT), (0.01, BAD_TEXT)),
    ),
    Figure(
        "Late, 99 %",
        "Delay with which samplers wake up for a sample, 99th percentile of all. Rates are computed from the true read "
        f"times, so a delay costs no accuracy until samples are missed. {WHOLE}",
        "s",
        f"histogram_quantile(0.99, sum by (le) ({S.pick(LATENESS)}))",
    ),
    Figure(
        "Oldest data",
        "Time since the newest sample of the node that is furthest behind, normally some seconds. Requires "
        "synchronised clocks.",
        "s",
        f"max({AGE})",
        ((60, BAD_TEXT),),
    ),
    Figure(
        "Heartbeat",
        "Age of the oldest heartbeat of a sampler. A silent sampler is restarted within three seconds.",
        "s",
        f"max({S.pick('ibpulse_sampler_heartbeat_age_seconds')})",
        ((5, BAD_TEXT),),
    ),
    Figure(
        "Quarantined",
        "Devices whose reads hung, sampled by a separate process.",
        "none",
        f"sum({S.pick('instance:ibpulse_quarantined_devices:sum')})",
        ((1, BAD_TEXT),),
    ),
    Figure(
        "CPU per node",
        "CPU time of the daemon and its sampler, mean of the nodes; 100 % is one full core.",
        "percentunit",
        f"avg({CPU})",
    ),
    Figure(
        "Most series",
        "Series per scrape, highest of the nodes. A node with 8 ports and one job stays below 1,100 by default.",
        "none",
        f"max({S.pick('scrape_samples_scraped')})",
    ),
)


def _recorded(title: str, text: str, record: str) -> model.Panel:
    share = f"sum by (le) ({S.pick(record)}) / scalar(sum({S.pick(record, le='+Inf')}))"
    return heat(
        PanelHead(title, f"{text} {WHOLE}", "s", NO_RULES, width=12, height=10),
        [Query(share, "{{le}}", heatmap=True)],
        cell_unit="percentunit",
        color_max=1,
    )


def _timing() -> list[model.Panel]:
    return [
        _recorded(
            "Wake-up delay of the samplers",
            "Share of the samples of all nodes by the wake-up delay of the main sampler. A rising band indicates busy "
            "nodes, or a CPU limit.",
            LATENESS,
        ),
        _recorded(
            "Read time of all ports",
            "Share of the samples of all nodes by the time to read all ports once. A band at milliseconds is a slow "
            "device or a delayed sampler.",
            READ_TIME,
        ),
    ]


def _cost() -> list[model.Panel]:
    builds = f"count by (version, python) ({S.pick('ibpulse_build_info')})"
    classes = f"count by (requested, actual, cpu_actual) ({S.pick('ibpulse_sampler_scheduler_info')})"
    return [
        table(
            PanelHead("Versions", "Nodes by version of ibpulse and of Python.", "none", NOTHING, width=8),
            [Column("Nodes", builds, "none", width=80)],
            {"version": "Version", "python": "Python"},
            sort=("Nodes",),
        ),
        table(
            PanelHead(
                "Scheduling of the samplers",
                "Nodes by the requested and the actual scheduling class of the sampler, and its CPU.",
                "none",
                NOTHING,
            ),
            [Column("Nodes", classes, "none", width=80)],
            {"requested": "Requested", "actual": "Actual", "cpu_actual": "CPU"},
            sort=("Nodes",),
            widths={"Requested": 140, "Actual": 130, "CPU": 80},
        ),
        lines(
            PanelHead("Requests", "Requests per second that the exporters answered, by status.", "reqps", NOTHING),
            [Query(f"sum by (code) ({S.rate('ibpulse_http_requests_total')})", "{{code}}")],
        ),
        lines(
            PanelHead(
                "Captures",
                "Captures taken on all chosen nodes, and captures that could not be written, between two points of the "
                "graph. Absent without a capture directory.",
                "none",
                "The flight recorder has no directory",
                width=12,
            ),
            [
                Query(f"sum({S.over('increase', 'ibpulse_captures_total')})", "taken"),
                Query(f"sum({S.over('increase', 'ibpulse_capture_errors_total')})", "failed"),
                Query(f"sum({S.pick('ibpulse_captures_stored')})", "stored"),
            ],
        ),
        lines(
            PanelHead(
                "Samples per second",
                "Times per second that the main samplers of all chosen nodes read their ports, and the number that "
                "their intervals require.",
                "none",
                NOTHING,
                width=12,
            ),
            [
                Query(f"sum({S.rate('ibpulse_sampler_ticks_total')})", "read"),
                Query(f"sum(1 / {S.pick('ibpulse_sampler_interval_seconds')})", "required"),
            ],
        ),
    ]


def board() -> Board:
    """The board about the exporters."""
    sections = [
        Section("", [*figure_panels(FIGURES, NOTHING), problem_table(), *_timing()]),
        Section("The worst over time", worst_panels(), collapsed=True),
        Section("Reads and devices", read_panels(), collapsed=True),
        Section("Interruptions", event_panels(), collapsed=True),
        Section("Versions, requests, captures", _cost(), collapsed=True),
    ]
    return Board(
        uid=layout.EXPORTER,
        title="ibpulse / Exporter health",
        question="Can the numbers be trusted: does every exporter respond, in time, at the resolution that it claims?",
        variables=[
            variables.datasource(),
            variables.cluster(),
            variables.job(listed=True),
            variables.instance(),
            variables.device(),
            *variables.node_address(shown=False),
        ],
        sections=sections,
        start="now-3h",
        refresh="1m",
        marks=marks.of_fleet(S, marks=False),
        pages=[links.NODES],
    )
