"""The numbers that two selections are compared by: of their nodes, and of two training jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from grafana_foundation_sdk.models import dashboard

from tools.grafana.panels import PanelHead, finish_panel, numbers, of_numbers
from tools.grafana.queries import RANGE, Query, Scope

RATIO = "B ÷ A"


@dataclass(frozen=True, slots=True)
class Statistic:
    """One number over the whole time range of the board."""

    title: str
    text: str
    unit: str
    expr: Callable[[Scope], str]


def _over(function: str, name: str, parameter: str = "", **labels: str) -> Callable[[Scope], str]:
    return lambda scope: f"avg({scope.over(function, name, RANGE, parameter, **labels)})"


def _bandwidth(scope: Scope) -> str:
    names = (f"ibpulse_node_{direction}_bytes_per_second" for direction in ("transmit", "receive"))
    return f"avg({' + '.join(scope.over('avg_over_time', name, RANGE, window='1m') for name in names)})"


def _peak(scope: Scope) -> str:
    return f"max({scope.over('max_over_time', 'ibpulse_node_bandwidth_peak_bytes_per_second', RANGE, window='1m')})"


OF_NODES = (
    Statistic(
        "Duty cycle",
        "Share of the time above the threshold, mean over the span and the nodes. The published runs: dense 0.75, MoE "
        "0.92, in a trimmed window; both had 0.11 over the whole job. Compare windows of equal length within a job.",
        "percentunit",
        _over("avg_over_time", "ibpulse_node_duty_cycle_ratio", window="1m"),
    ),
    Statistic(
        "Bandwidth when active",
        "Mean of the samples above the threshold, transmit + receive of a node.",
        "Bps",
        _over("avg_over_time", "ibpulse_node_bandwidth_active_mean_bytes_per_second", window="1m"),
    ),
    Statistic("Peak", "Highest 10 ms sample of any chosen node in the span.", "Bps", _peak),
    Statistic(
        "CV at 10 ms",
        "Burstiness of single samples, median over the minutes of the span. The published runs: dense 0.20, MoE 0.42. "
        "A run with expert parallelism also has 0.20: the number does not identify the model.",
        "none",
        _over("quantile_over_time", "ibpulse_node_burstiness_cv", "0.5", timescale="10ms", window="1m"),
    ),
    Statistic(
        "CV at 100 ms",
        "The same for means over 100 ms, where the order of the two published runs is reversed (models of "
        "them: dense 0.38, MoE 0.20).",
        "none",
        _over("quantile_over_time", "ibpulse_node_burstiness_cv", "0.5", timescale="100ms", window="1m"),
    ),
    Statistic("Mean bandwidth", "Transmit + receive of a node, silence included.", "Bps", _bandwidth),
    Statistic(
        "Step",
        "Median step period where it is clear. Steps of different jobs differ: compare only the same job at two times.",
        "s",
        _over("quantile_over_time", "instance:ibpulse_step_period_seconds:scored", "0.5"),
    ),
    Statistic(
        "Time in MoE saturation",
        "Share of the span in which a node was in sustained MoE saturation, mean over the nodes.",
        "percentunit",
        _over("avg_over_time", "ibpulse_node_moe_saturated"),
    ),
)

OF_JOBS = (
    Statistic(
        "Nodes of the job",
        "Nodes on which the job owns a port.",
        "none",
        _over("max_over_time", "job_id:ibpulse_nodes:count"),
    ),
    Statistic(
        "Step of the job",
        "Step period of the median node, median over the span.",
        "s",
        _over("quantile_over_time", "job_id:ibpulse_step_period_seconds:median", "0.5"),
    ),
    Statistic(
        "Duty cycle of the job",
        "Mean of the nodes and of the span.",
        "percentunit",
        _over("avg_over_time", "job_id:ibpulse_duty_cycle:mean"),
    ),
    Statistic(
        "Active bandwidth of a node",
        "Bandwidth of the job on its median node while active, mean of the span.",
        "Bps",
        _over("avg_over_time", "job_id:ibpulse_active_bandwidth_bytes:median"),
    ),
    Statistic(
        "Bandwidth of the job",
        "Transmit + receive of all ports of the job, silence included.",
        "Bps",
        _over("avg_over_time", "job_id:ibpulse_bandwidth_bytes:rate5m"),
    ),
    Statistic(
        "Fairness of the job",
        "Jain index over all its ports on all nodes, mean of the span.",
        "none",
        _over("avg_over_time", "job_id:ibpulse_rail_fairness:ratio5m"),
    ),
)


def compared(statistic: Statistic, selections: Mapping[str, Scope], nothing: str, width: int) -> dashboard.Panel:
    """A statistic of both selections, and their ratio, which Grafana computes: no server reads the series again."""
    queries = [Query(statistic.expr(scope), name, instant=True) for name, scope in selections.items()]
    text = f"{statistic.text} The third number is {RATIO}; a difference of a few per cent is insignificant."
    face = PanelHead(statistic.title, text, statistic.unit, nothing, width=width, height=4)
    a, b = selections
    join = {"byField": "Time", "mode": "outer"}
    divide = {"mode": "binary", "alias": RATIO, "binary": {"left": b, "operator": "/", "right": a}}
    panel = (
        numbers(queries)
        .with_transformation(dashboard.DataTransformerConfig(id_val="joinByField", options=join))
        .with_transformation(dashboard.DataTransformerConfig(id_val="calculateField", options=divide))
        .override_by_name(RATIO, RATIO_PROPERTIES)
    )
    return finish_panel(panel, of_numbers(face))


# a ratio to zero is infinite, and would be shown as a number of per cent
RATIO_PROPERTIES = [
    dashboard.DynamicConfigValue(id_val="unit", value="percentunit"),
    dashboard.DynamicConfigValue(id_val="decimals", value=0),
    dashboard.DynamicConfigValue(
        id_val="mappings",
        value=[{"type": "range", "options": {"from": 1000, "to": None, "result": {"text": "A is 0", "index": 0}}}],
    ),
]
