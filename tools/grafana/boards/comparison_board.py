"""Two selections side by side: the published table and pictures of each, and the changes between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from grafana_foundation_sdk.models import dashboard as model

from tools.grafana import layout, panels
from tools.grafana.layout import Board, Breach, Section
from tools.grafana.panels import PanelHead, heat, lines, number
from tools.grafana.queries import RANGE, Query, Scope

A = Scope()
B = Scope(job="$job_b", instance="$instance_b", shift="$shift")
SELECTIONS = {"A": A, "B": B}
NOTHING = "No data of this selection in this span: check the variables A and B, and how far B is moved back"
SHIFTS = ("0s", "10m", "1h", "6h", "1d", "7d")


@dataclass(frozen=True, slots=True)
class Statistic:
    """One number of the published table, over the whole time range of the board."""

    title: str
    text: str
    unit: str
    expr: Callable[[Scope], str]


def _mean(name: str, **labels: str) -> Callable[[Scope], str]:
    return lambda scope: f"avg({scope.over('avg_over_time', name, RANGE, **labels)})"


def _median(name: str, **labels: str) -> Callable[[Scope], str]:
    return lambda scope: f"avg({scope.over('quantile_over_time', name, RANGE, '0.5', **labels)})"


def _bandwidth(scope: Scope) -> str:
    names = (f"ibpulse_node_{direction}_bytes_per_second" for direction in ("transmit", "receive"))
    return f"avg({' + '.join(scope.over('avg_over_time', name, RANGE, window='1m') for name in names)})"


def _peak(scope: Scope) -> str:
    return f"max({scope.over('max_over_time', 'ibpulse_node_bandwidth_peak_bytes_per_second', RANGE, window='1m')})"


STATISTICS = (
    Statistic(
        "Duty cycle",
        "Share of the time above the threshold, mean over the span and the nodes. The published runs: dense 0.75, MoE "
        "0.92, in a trimmed window; both had 0.11 over the whole job. Compare windows of equal length within a job.",
        "percentunit",
        _mean("ibpulse_node_duty_cycle_ratio", window="1m"),
    ),
    Statistic(
        "Bandwidth when active",
        "Mean of the samples above the threshold, transmit + receive of a node.",
        "Bps",
        _mean("ibpulse_node_bandwidth_active_mean_bytes_per_second", window="1m"),
    ),
    Statistic(
        "Peak",
        "Highest 10 ms sample of any chosen node in the span.",
        "Bps",
        _peak,
    ),
    Statistic(
        "CV at 10 ms",
        "Burstiness of single samples, median over the minutes of the span. The published runs: dense 0.20, MoE 0.42. "
        "A run with expert parallelism also has 0.20: the number does not identify the model.",
        "none",
        _median("ibpulse_node_burstiness_cv", timescale="10ms", window="1m"),
    ),
    Statistic(
        "CV at 100 ms",
        "The same for means over 100 ms, where the order of the two published runs is reversed (models of "
        "them: dense 0.38, MoE 0.20).",
        "none",
        _median("ibpulse_node_burstiness_cv", timescale="100ms", window="1m"),
    ),
    Statistic(
        "Mean bandwidth",
        "Transmit + receive of a node, silence included.",
        "Bps",
        _bandwidth,
    ),
    Statistic(
        "Step",
        "Median step period where it is clear. Steps of different jobs differ: compare only the same job at two times.",
        "s",
        _median("instance:ibpulse_step_period_seconds:scored"),
    ),
    Statistic(
        "Time in MoE saturation",
        "Share of the span in which a node was in sustained MoE saturation, mean over the nodes.",
        "percentunit",
        _mean("ibpulse_node_moe_saturated"),
    ),
)


def _compared(statistic: Statistic) -> model.Panel:
    a, b = (statistic.expr(scope) for scope in SELECTIONS.values())
    queries = [Query(a, "A", True), Query(b, "B", True), Query(f"({b}) / ({a}) - 1", "B relative to A", True)]
    text = f"{statistic.text} The third number is B ÷ A - 1; a change of a few per cent is insignificant."
    face = PanelHead(statistic.title, text, statistic.unit, NOTHING, width=6, height=4)
    return number(face, queries, graph=False, units={"C": "percentunit"})


def _distribution(name: str, scope: Scope) -> model.Panel:
    return heat(
        PanelHead(
            f"Utilisation of the 10 ms samples, {name}",
            "Samples per second of all chosen nodes in each band of utilisation. Bands at both ends are bursts; one at "
            "the top is saturation. Relative to the rails that carry traffic.",
            "percentunit",
            NOTHING,
            width=12,
            height=9,
        ),
        [Query(scope.buckets("ibpulse_node_bandwidth_utilization_ratio", "rate"), "{{le}}", heatmap=True)],
        cell_unit="cps",
    )


def _bursts(name: str, scope: Scope) -> model.Panel:
    return heat(
        PanelHead(
            f"Bursts by length, {name}",
            "Bursts of the chosen nodes that ended, by their length in whole samples. A run that never pauses has "
            "none.",
            "s",
            NOTHING,
            width=12,
        ),
        [Query(scope.buckets("ibpulse_node_burst_duration_seconds"), "{{le}}", heatmap=True)],
        cell_unit="none",
    )


def _labels(name: str, scope: Scope) -> model.Panel:
    return lines(
        PanelHead(
            f"Signature, {name}",
            "Share of the chosen nodes by the label that their traffic resembles most. A resemblance, not an "
            "identification.",
            "percentunit",
            NOTHING,
            width=12,
        ),
        [Query(f"avg by (signature) ({scope.pick('ibpulse_node_workload_signature')})", "{{signature}}")],
        stacked=True,
        maximum=1,
        colors={label: color for label, (_, color) in panels.SIGNATURES.items()},
    )


def _both(title: str, text: str, unit: str, expr: Callable[[Scope], str], width: int = 12) -> model.Panel:
    text = f"{text} B is drawn at the time of A, shifted by the Shift variable."
    queries = [Query(expr(scope), name) for name, scope in SELECTIONS.items()]
    return lines(PanelHead(title, text, unit, NOTHING, width=width), queries)


def _history() -> list[model.Panel]:
    return [
        _both(
            "Bandwidth over time",
            "Mean of the chosen nodes, transmit + receive, over a minute.",
            "Bps",
            lambda scope: f"avg({scope.bandwidth()})",
        ),
        _both(
            "Duty cycle over time",
            "Mean of the chosen nodes, over a minute.",
            "percentunit",
            lambda scope: f"avg({scope.pick('ibpulse_node_duty_cycle_ratio', window='1m')})",
        ),
        _both(
            "Burstiness at 10 ms over time",
            "Median of the chosen nodes.",
            "none",
            lambda scope: f"quantile(0.5, {scope.pick('ibpulse_node_burstiness_cv', timescale='10ms', window='1m')})",
        ),
        _both(
            "Step over time",
            "Median of the chosen nodes, where the step is clear.",
            "s",
            lambda scope: f"quantile(0.5, {scope.pick('instance:ibpulse_step_period_seconds:scored')})",
        ),
    ]


def _saturation() -> list[model.Panel]:
    return [
        _both(
            "Saturation over time",
            "Share of the time in which the median sample of half a minute was near the line rate, mean of the nodes.",
            "percentunit",
            lambda scope: f"avg({scope.rate('ibpulse_node_bandwidth_saturated_seconds_total')})",
        ),
        _both(
            "MoE saturation over time",
            "Share of the time in sustained MoE saturation, mean of the nodes. The published MoE run had peaks at the "
            "line rate and a mean of half of it: it is in this state, but not saturated in the first sense.",
            "percentunit",
            lambda scope: f"avg({scope.rate('ibpulse_node_moe_saturated_seconds_total')})",
        ),
    ]


def board() -> Board:
    """The board of two selections."""
    pictures = [make(name, scope) for make in (_distribution, _bursts, _labels) for name, scope in SELECTIONS.items()]
    compared = [_compared(statistic) for statistic in STATISTICS]
    sections = [
        Section("", [*compared, *pictures[:2]]),
        Section("Pictures", [*pictures[2:], *_history()]),
        Section("Saturation history", _saturation()),
    ]
    shown = [panel for section in sections for panel in section.panels]
    reason = "The second selection has variables of its own, job_b and instance_b."
    of_b = [panel.title or "" for panel in shown if "$job_b" in repr([vars(target) for target in panel.targets or []])]
    return Board(
        uid="ibpulse-comparison",
        title="ibpulse / Dense and MoE",
        question="How do two selections (jobs, nodes, or the same at two times) use the network, and what changed?",
        variables=[
            layout.datasource(),
            layout.job(label="Job"),
            layout.instance(label="Instance"),
            layout.job("job_b", "Job B"),
            layout.instance("instance_b", "Instance B", "job_b"),
            layout.choice("shift", "Shift B back by", "How far B is moved back in time.", SHIFTS),
        ],
        sections=sections,
        start="now-1h",
        refresh="1m",
        exceptions=[
            Breach(rule, reason, title)
            for rule in ("target-job-rule", "target-instance-rule")
            for title in dict.fromkeys(of_b)
        ],
    )
