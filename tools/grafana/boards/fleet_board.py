"""All nodes: saturation, idle rails and the overall traffic; the worst nodes first."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from tools.grafana import layout, panels
from tools.grafana.layout import Board, Breach, Section
from tools.grafana.panels import ORANGE, VERMILION, Figure, Link, PanelHead, figure_panels, heat, lines
from tools.grafana.queries import Query, Scope, by_node, by_port
from tools.grafana.tables import Column, table

S = Scope()
NO_NODES = "No node of this selection reports"
WORST = 20
LABELS = {"instance": "Node", "job": "Job", "cluster": "Cluster"}
TO_NODE = Link("Open the node", layout.row_link(layout.NODE))
TO_NODE_OF_SERIES = Link("Open the node", layout.series_link(layout.NODE))

UTILIZATION = (
    f"({S.pick('instance:ibpulse_transmit_utilization:mean5m')} + "
    f"{S.pick('instance:ibpulse_receive_utilization:mean5m')}) / 2"
)
DUTY = (
    f"({S.pick('instance:ibpulse_transmit_duty_cycle:ratio5m')} + "
    f"{S.pick('instance:ibpulse_receive_duty_cycle:ratio5m')}) / 2"
)
DOWN = S.on_rails(f"1 - {S.pick('ibpulse_port_up')}")
SLOW = S.pick("ibpulse_port_rail_slow")
IDLE = S.pick("instance:ibpulse_idle_rails:sum")
STEP = S.pick("instance:ibpulse_step_period_seconds:scored")
MOE_SHARE = S.pick("instance:ibpulse_moe_saturated:ratio")
SATURATED_SHARE = S.pick("instance:ibpulse_bandwidth_saturated:ratio")
PEAK = by_node("max", S.pick("ibpulse_node_bandwidth_peak_utilization_ratio", window="1m"))

UTILIZATION_TITLE, LABELS_TITLE = "Utilisation of all nodes", "Traffic signatures"
JOB_TITLES = ("Bandwidth by job", "Nodes by job")
WHOLE_TITLES = (UTILIZATION_TITLE, LABELS_TITLE, *JOB_TITLES)
WHOLE_JOBS = (
    "Recorded for whole jobs, which keeps it cheap for thousands of nodes: the Instance variable has no effect."
)


def cv(timescale: str) -> str:
    """The coefficient of variation of each node at a time scale, over the last minute."""
    return S.pick("ibpulse_node_burstiness_cv", timescale=timescale, window="1m")


FIGURES = (
    Figure(
        "Nodes",
        "Nodes whose exporter responded to the last scrape. All numbers below exclude missing nodes.",
        "none",
        f"count({S.pick('ibpulse_node_rails')})",
    ),
    Figure(
        "Bandwidth",
        "Transmit + receive of all rails of all nodes, mean of five minutes. Bytes sent from one node to another "
        "are counted at both.",
        "Bps",
        f"sum({S.pick('instance:ibpulse_bandwidth_bytes:rate5m')})",
    ),
    Figure(
        "Mean utilisation",
        "Mean share of the line rate over all nodes, both directions, five minutes. A fleet can be at 0.4 here while "
        "every burst reaches the line rate: see the heatmap.",
        "percentunit",
        f"avg({UTILIZATION})",
    ),
    Figure(
        "Rails that carry traffic",
        "Rails with traffic ÷ all rails. A low value is normal while nodes are free, but a fault while jobs run.",
        "percentunit",
        f"sum({S.pick('ibpulse_node_active_rails')}) / sum({S.pick('ibpulse_node_rails')})",
    ),
    Figure(
        "Nodes saturated",
        "Nodes whose median 10 ms sample of the last half minute is near the line rate, both directions together.",
        "none",
        f"sum({S.pick('ibpulse_node_bandwidth_saturated')})",
        ((1, VERMILION),),
    ),
    Figure(
        "MoE-like at line rate",
        "Nodes in sustained MoE saturation: traffic that resembles a published MoE run, with hardly a pause and peaks "
        "at the line rate. The resemblance is a guess; duty cycle and peaks are measured.",
        "none",
        f"sum({S.pick('ibpulse_node_moe_saturated')})",
        ((1, VERMILION),),
    ),
    Figure(
        "Idle or slow rails",
        "Rails that carry less than a twentieth (idle) or three quarters (slow) of their siblings' median while the "
        "siblings work. If half of the rails fail together, this shows nothing: compare with the rails that carry "
        "traffic.",
        "none",
        f"sum({IDLE}) + sum({SLOW})",
        ((1, VERMILION),),
    ),
    Figure(
        "Rails down",
        "Rails whose link is not ACTIVE. A device that disappeared from the kernel's list no longer counts as a rail "
        "and is not counted.",
        "none",
        f"sum({DOWN})",
        ((1, VERMILION),),
    ),
)


def _utilization() -> model.Panel:
    buckets = S.pick("job_le:ibpulse_node_bandwidth_utilization_ratio_bucket:rate5m")
    return heat(
        PanelHead(
            UTILIZATION_TITLE,
            "Distribution of the 10 ms samples of all nodes between idle and the line rate; strong colours mean much "
            "time. Two bands, at the bottom and at the top, are bursts; one at the top alone is saturation. See the "
            f"table for single nodes. {WHOLE_JOBS}",
            "percentunit",
            "No recorded distribution: load the recording rules, and keep classic histograms when scraping",
            width=12,
            height=9,
        ),
        [Query(f"sum by (le) ({buckets})", "{{le}}", heatmap=True)],
        cell_unit="cps",
    )


def _labels() -> model.Panel:
    nodes = S.pick("job_signature:ibpulse_nodes:count", signature="~.+")
    return lines(
        PanelHead(
            LABELS_TITLE,
            "Nodes by the label that their traffic resembles most. A label is a resemblance to two published runs, not "
            f"an identification of the model; most jobs are unknown. {WHOLE_JOBS}",
            "none",
            "No recorded signatures: load the recording rules",
            width=12,
            height=9,
        ),
        [Query(f"sum by (signature) ({nodes})", "{{signature}}")],
        stacked=True,
        colors={label: color for label, (_, color) in panels.SIGNATURES.items()},
    )


def _nodes() -> model.Panel:
    trouble = f"{by_node('max', IDLE)} + {by_node('sum', SLOW)} + {by_node('sum', DOWN)}"
    signature = S.pick("ibpulse_node_workload_signature")
    columns = [
        Column("Bad rails", trouble, "none", ((1, VERMILION),)),
        Column("MoE saturation", by_node("max", MOE_SHARE), "percentunit", ((0.8, VERMILION),)),
        Column("Saturated", by_node("max", SATURATED_SHARE), "percentunit", ((0.5, ORANGE), (0.9, VERMILION))),
        Column("Peak of line rate", PEAK, "percentunit", ((0.9, ORANGE),)),
        Column("Mean utilisation", by_node("max", UTILIZATION), "percentunit"),
        Column("Duty cycle", by_node("max", DUTY), "percentunit"),
        Column("CV at 10 ms", by_node("max", cv("10ms")), "none"),
        Column("CV at 100 ms", by_node("max", cv("100ms")), "none"),
        Column("Step", by_node("max", STEP), "s"),
        Column("Missed samples", by_node("max", S.pick("instance:ibpulse_missed_ticks:ratio")), "percentunit"),
        Column("", f"max by (cluster, job, instance, signature) ({signature} == 1)", "none"),
    ]
    return table(
        PanelHead(
            "Nodes, worst first",
            "One row per node: those with most bad rails (idle, slow or down) first, then those longest at the line "
            "rate. Click a node to open its board. An empty cell is an unknown value, such as the step of a node "
            "without a rhythm. CVs of different time scales cannot be compared.",
            "none",
            NO_NODES,
            width=24,
            height=11,
        ),
        columns,
        LABELS | {"signature": "Looks like"},
        sort=("Bad rails", "MoE saturation", "Saturated"),
        link=TO_NODE,
        words={"Looks like": panels.texts(panels.SIGNATURES)},
    )


def _bad_rails() -> model.Panel:
    idle = S.pick("ibpulse_port_rail_idle")
    # a single number, because Grafana names columns differently when only one query of a table returns data
    codes = (f"3 * ({DOWN}) > 0", f"2 * {idle} > 0", f"{SLOW} > 0")
    state = " or ".join(by_port("max", code) for code in codes)
    return table(
        PanelHead(
            "Rails in trouble now",
            "Only rails that are down, or idle or slow while their siblings work, with the worst state of each; click "
            "a rail to open its node. An empty table is the good case. Storage and management ports are excluded.",
            "none",
            "No rail is idle, slow or down",
            width=12,
        ),
        [Column("State", state, "none", ((1, ORANGE), (2, VERMILION)))],
        {"instance": "Node", "device": "Device", "port": "Port", "job": "Job", "cluster": "Cluster"},
        sort=("State",),
        link=TO_NODE,
        words={"State": panels.words(v1=("slow", ORANGE), v2=("idle", VERMILION), v3=("down", VERMILION))},
    )


def _worst(title: str, text: str, unit: str, expr: str, nothing: str = NO_NODES) -> model.Panel:
    face = PanelHead(
        title, f"{text} The {WORST} highest at each moment; click one to open the node.", unit, nothing, width=12
    )
    return lines(face, [Query(f"topk({WORST}, {expr})")], link=TO_NODE_OF_SERIES)


def _spread(title: str, text: str, unit: str, expr: str) -> model.Panel:
    levels = {"0.95": "95 %", "0.5": "median", "0.05": "5 %"}
    return lines(
        PanelHead(title, text, unit, NO_NODES, width=12),
        [Query(f"quantile({level}, {expr})", name) for level, name in levels.items()],
    )


def _shares() -> model.Panel:
    face = PanelHead(
        "Least balanced rails",
        "Jain index of the rails' bytes: 1 when all carry the same, k/n when only k of n do. The lowest nodes; "
        "investigate below 0.98. Absent without traffic.",
        "none",
        "No node carries traffic",
        width=12,
    )
    fairness = S.pick("ibpulse_node_rail_fairness_ratio")
    return lines(face, [Query(f"bottomk({WORST}, {fairness})")], maximum=1, link=TO_NODE_OF_SERIES)


def _by_job(title: str, text: str, unit: str, record: str) -> model.Panel:
    nothing = "No recorded data: load the recording rules"
    return lines(PanelHead(title, f"{text} {WHOLE_JOBS}", unit, nothing, width=12), [Query(S.pick(record), "{{job}}")])


def _history() -> list[model.Panel]:
    return [
        _by_job(
            JOB_TITLES[0],
            "Transmit + receive of all rails of each job's nodes, mean of five minutes.",
            "Bps",
            "job:ibpulse_bandwidth_bytes:rate5m",
        ),
        _by_job(
            JOB_TITLES[1],
            "Nodes whose exporter responds. A step down means that nodes left or exporters failed.",
            "none",
            "job:ibpulse_nodes:count",
        ),
        _worst(
            "Longest in MoE saturation",
            "Share of the last ten minutes in sustained MoE saturation, by node.",
            "percentunit",
            MOE_SHARE,
        ),
        _worst(
            "Longest at line rate",
            "Share of the last quarter of an hour in which the node's bandwidth was saturated.",
            "percentunit",
            SATURATED_SHARE,
        ),
        _spread(
            "Duty cycle of the nodes",
            "Share of the time with traffic: median of all nodes, 5th and 95th percentile. Five minutes.",
            "percentunit",
            DUTY,
        ),
        _spread(
            "Burstiness of the nodes at 10 ms",
            "Coefficient of variation of the active bandwidth of single 10 ms samples. It compares the length of "
            "bursts with 10 ms and does not identify the job.",
            "none",
            cv("10ms"),
        ),
        _worst(
            "Longest steps",
            "Step period of the traffic, where it is clear. Steps of different jobs differ: compare within a job.",
            "s",
            STEP,
            "No node has a clear rhythm",
        ),
        _worst(
            "Idle rails",
            "Rails without traffic while their siblings carry traffic, by node. If it lasts for minutes, it is a "
            "fault.",
            "none",
            IDLE,
        ),
    ]


def board() -> Board:
    """The board about the fleet."""
    whole = "The recorded sum over instances makes this panel cheap; its description says so."
    return Board(
        uid="ibpulse-fleet",
        title="ibpulse / Fleet",
        question="Which nodes are saturated, which have a bad rail, and what does the traffic of the fleet look like?",
        variables=[layout.datasource(), layout.job(), layout.instance()],
        sections=[
            Section("", [*figure_panels(FIGURES, NO_NODES), _utilization(), _labels(), _nodes()]),
            Section("Rails", [_bad_rails(), _shares()]),
            Section("Over time", _history()),
        ],
        start="now-3h",
        refresh="1m",
        exceptions=[Breach("target-instance-rule", whole, title) for title in WHOLE_TITLES],
    )
