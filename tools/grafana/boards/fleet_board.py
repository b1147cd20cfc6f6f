"""All nodes: what is wrong first, then the training jobs and the traffic. Faults are in a module of their own."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from tools.grafana import colors, layout, links, marks, variables
from tools.grafana.boards.fleet_faults import NO_NODES, NO_RULES, TO_NODE, WHOLE, fault_history, fault_panels
from tools.grafana.colors import BAD_CELL, NOTICE_CELL
from tools.grafana.layout import Board, Section
from tools.grafana.panels import Figure, Link, PanelHead, figure_panels, heat, lines
from tools.grafana.queries import Query, Scope, by_node
from tools.grafana.rule_levels import JOB
from tools.grafana.tables import Column, table

S = Scope()
TOP = 20
WIDE = {"MoE saturation": 130, "Saturated": 110}
"""Pixels of columns by which a table is sorted; the arrow needs some."""
TO_JOB = Link("Open the job", links.row_link(layout.JOB, "job_id"))


def _mean(name: str) -> str:
    both = (by_node("max", S.pick(f"instance:ibpulse_{direction}_{name}")) for direction in ("transmit", "receive"))
    return f"({' + '.join(both)}) / 2"


UTILIZATION, DUTY = _mean("utilization:mean5m"), _mean("duty_cycle:ratio5m")
STEP = by_node("max", S.pick("instance:ibpulse_step_period_seconds:scored"))
BANDWIDTH = f"sum({S.pick('job:ibpulse_bandwidth_bytes:rate5m')})"


def _cv(timescale: str) -> str:
    return by_node("max", S.pick("ibpulse_node_burstiness_cv", timescale=timescale, window="1m"))


FIGURES = (
    Figure(
        "Nodes",
        f"Nodes that report and have rails. All numbers of traffic exclude missing nodes. {WHOLE}",
        "none",
        f"sum({S.pick('job:ibpulse_nodes:count')})",
    ),
    Figure(
        "Bandwidth",
        "Transmit + receive of all rails of all nodes, mean of five minutes. Bytes sent from one node to another "
        f"are counted at both. {WHOLE}",
        "Bps",
        BANDWIDTH,
    ),
    Figure(
        "Of line rate",
        "Bandwidth ÷ line rate of all rails, both directions, five minutes. A fleet can be at 40 % here while every "
        "burst reaches the line rate: see the heatmap.",
        "percentunit",
        f"{BANDWIDTH} / sum({by_node('max', S.pick('instance:ibpulse_line_rate_bytes:sum'))})",
    ),
    Figure(
        "Active rails",
        "Rails with traffic ÷ all rails. A low value is normal while nodes are free, but a fault while jobs run.",
        "percentunit",
        f"sum({S.pick('ibpulse_node_active_rails')}) / sum({S.pick('ibpulse_node_rails')})",
    ),
    Figure(
        "Saturated",
        "Nodes whose median 10 ms sample of the last half minute is near the line rate, both directions together. "
        "Not a fault: their jobs are bound by the network.",
        "none",
        f"sum({S.pick('ibpulse_node_bandwidth_saturated')})",
    ),
    Figure(
        "MoE saturation",
        "Nodes in sustained MoE saturation: traffic that resembles a published MoE run, with hardly a pause and peaks "
        "at the line rate. The resemblance is a guess; duty cycle and peaks are measured.",
        "none",
        f"sum({S.pick('ibpulse_node_moe_saturated')})",
    ),
    Figure(
        "Training jobs",
        f"Training jobs that own ports now, as far as nodes know their jobs. {WHOLE}",
        "none",
        f"count({S.pick('job_id:ibpulse_nodes:count')})",
    ),
    Figure(
        "Silent jobs",
        "Training jobs without traffic on any node for more than three minutes: they hang, write a checkpoint, or "
        f"compute. {WHOLE}",
        "none",
        f"count({S.silence()} > 180) or 0 * count({S.silence()})",
    ),
)


def _job(record: str) -> str:
    # without its name, which would be a column of the table and keep rows apart
    return f"max by ({JOB}) ({S.pick(record)})"


def _jobs() -> model.Panel:
    behind = f"min by ({JOB}) ({S.pick('instance_job_id:ibpulse_active_bandwidth_to_median:ratio')})"
    silent = S.silence()
    return table(
        PanelHead(
            "Which training jobs run, and which is slow or silent?",
            "Every job that owns ports. Slowest node: its bandwidth while active ÷ that of the median node of the job. "
            "Silent: time since the last traffic on any node. Click a job to open its board. Empty where no node knows "
            "its jobs.",
            "none",
            "No job is known on these nodes: see docs/jobs.md",
            width=12,
            height=10,
        ),
        [
            Column("Nodes", _job("job_id:ibpulse_nodes:count"), "none", width=75),
            Column("Slowest node", behind, "percentunit", (), 115),
            Column("Step", _job("job_id:ibpulse_step_period_seconds:median"), "s", width=80),
            Column("Bandwidth", _job("job_id:ibpulse_bandwidth_bytes:rate5m"), "Bps", width=110),
            Column("Silent", silent, "s", ((60, NOTICE_CELL), (180, BAD_CELL)), 90),
        ],
        {"job_id": "Training job"},
        sort=("Nodes",),
        link=TO_JOB,
    )


def _utilization() -> model.Panel:
    recorded = "job_le:ibpulse_node_bandwidth_utilization_ratio_bucket:rate5m"
    share = f"sum by (le) ({S.pick(recorded)}) / scalar(sum({S.pick(recorded, le='+Inf')}))"
    return heat(
        PanelHead(
            "Which utilisation do the 10 ms samples of all nodes have?",
            "Share of the 10 ms samples of all nodes in each band between idle and the line rate. Two bands, at the "
            f"bottom and at the top, are bursts; one at the top alone is saturation. {WHOLE}",
            "percentunit",
            "No recorded distribution: load the recording rules, and keep classic histograms when scraping",
            width=12,
            height=10,
        ),
        [Query(share, "{{le}}", heatmap=True)],
        cell_unit="percentunit",
        color_max=1,
    )


def _labels() -> model.Panel:
    nodes = S.pick("job_signature:ibpulse_nodes:count", signature="~.+")
    return lines(
        PanelHead(
            "Which of two published runs does the traffic resemble?",
            "Nodes by the label that their traffic resembles most. A label is a resemblance to two published runs, not "
            f"an identification of the model; most jobs are unknown. {WHOLE}",
            "none",
            "No recorded signatures: load the recording rules",
            width=12,
        ),
        [Query(f"sum by (signature) ({nodes})", "{{signature}}")],
        stacked=True,
        names=colors.SIGNATURES,
    )


def _bandwidth() -> model.Panel:
    return lines(
        PanelHead(
            "How much traffic does each scrape job have?",
            f"Transmit + receive of all rails of the nodes of each scrape job, mean of five minutes. {WHOLE}",
            "Bps",
            NO_RULES,
            width=12,
        ),
        [Query(S.pick("job:ibpulse_bandwidth_bytes:rate5m"), "{{cluster}} {{job}}")],
    )


def _nodes() -> model.Panel:
    signature = S.pick("ibpulse_node_workload_signature")
    columns = [
        Column("MoE saturation", by_node("max", S.pick("instance:ibpulse_moe_saturated:ratio")), "percentunit"),
        Column("Saturated", by_node("max", S.pick("instance:ibpulse_bandwidth_saturated:ratio")), "percentunit"),
        Column("Peak", by_node("max", S.pick("instance:ibpulse_peak_utilization:ratio1m")), "percentunit"),
        Column("Utilisation", UTILIZATION, "percentunit"),
        Column("Duty cycle", DUTY, "percentunit"),
        Column("CV at 10 ms", _cv("10ms"), "none"),
        Column("CV at 100 ms", _cv("100ms"), "none"),
        Column("Step", STEP, "s"),
        Column("Fairness", by_node("max", S.pick("ibpulse_node_rail_fairness_ratio")), "none"),
        Column("Congested", by_node("count", S.pick("instance_device_port:ibpulse_congested:bool")), "none"),
        Column("", f"max by (cluster, job, instance, node, signature) ({signature} == 1)", "none"),
    ]
    return table(
        PanelHead(
            "Which nodes are saturated, bursty or congested?",
            "One row per node: those longest in MoE saturation and at the line rate first. Click a node to open its "
            "board. A dash is an unknown value, such as the step of a node without a rhythm. CVs of different time "
            "scales cannot be compared. Investigate a fairness below 0.98. Congested: rails "
            "whose traffic waits, is marked or gets lost.",
            "none",
            NO_NODES,
            width=24,
            height=14,
        ),
        [Column(c.heading, c.expr, c.unit, width=WIDE.get(c.heading, 98)) for c in columns],
        {"instance": "Node", "signature": "Looks like"},
        sort=("MoE saturation", "Saturated"),
        link=TO_NODE,
        words={"Looks like": colors.texts(colors.SIGNATURES)},
    )


def _duty() -> model.Panel:
    levels = {"0.95": "95 %", "0.5": "median", "0.05": "5 %"}
    text = "Share of the time with traffic: median of all nodes, 5th and 95th percentile. Five minutes."
    return lines(
        PanelHead("How long are the nodes active?", text, "percentunit", NO_NODES, width=24),
        [Query(f"quantile({level}, {DUTY})", name) for level, name in levels.items()],
    )


def board() -> Board:
    """The board about the fleet."""
    sections = [
        Section("", fault_panels()),
        Section("When did the faults begin?", fault_history()),
        Section(
            "Which training jobs run, and how much traffic is there?",
            [*figure_panels(FIGURES, NO_NODES), _jobs(), _utilization()],
        ),
        Section("How did the traffic change?", [_bandwidth(), _labels()]),
        Section("What traffic does each node have?", [_nodes(), _duty()], collapsed=True),
    ]
    return Board(
        uid=layout.FLEET,
        title="ibpulse / Fleet",
        question="What is wrong now: which alerts fire, which nodes are missing, and which rails are bad?",
        variables=[
            variables.datasource(),
            variables.cluster(),
            variables.job(),
            variables.instance(),
            *variables.node_address(shown=False),
        ],
        sections=sections,
        start="now-3h",
        refresh="1m",
        marks=marks.of_fleet(S),
        pages=[links.NODES],
    )
