"""Two selections side by side: two sets of nodes, two training jobs, or one of them at two times."""

from __future__ import annotations

from collections.abc import Callable

from grafana_foundation_sdk.models import dashboard as model

from tools.grafana import layout, links, marks, variables
from tools.grafana.boards.compare_statistics import OF_JOBS, OF_NODES, compared
from tools.grafana.layout import Board, Section
from tools.grafana.panels import PanelHead, heat, lines
from tools.grafana.queries import Query, Scope

A = Scope()
B = Scope(job="$job_b", instance="$instance_b", shift="$shift")
NODES = {"A": A, "B": B}
JOBS = {
    "A": Scope(instance="", job_id="$job_id"),
    "B": Scope(job="$job_b", instance="", job_id="$job_id_b", shift="$shift"),
}
NOTHING = "No data of this selection in this span: check the variables of A and B, and how far B is moved back"
NO_JOB = "Nothing is known of one of these training jobs in its span: see docs/jobs.md"
# Prometheus 2 refuses an offset of zero
SHIFTS = {
    "15 minutes": "15m",
    "1 hour": "1h",
    "6 hours": "6h",
    "1 day": "1d",
    "7 days": "7d",
    "none": "1s",
}


def _distribution(name: str, scope: Scope) -> model.Panel:
    return heat(
        PanelHead(
            f"Which utilisation do 10 ms samples have, {name}?",
            "Share of the time of the chosen nodes in each band of utilisation; both pictures have one scale. Bands at "
            "both ends are bursts; one at the top is saturation.",
            "percentunit",
            NOTHING,
            width=12,
            height=10,
        ),
        [Query(scope.time_share("ibpulse_node_bandwidth_utilization_ratio"), "{{le}}", heatmap=True)],
        cell_unit="percentunit",
        color_max=1,
    )


def _bursts(name: str, scope: Scope) -> model.Panel:
    return heat(
        PanelHead(
            f"How long are bursts, {name}?",
            "Bursts of the chosen nodes that ended, by their length in whole samples. A run that never pauses has "
            "none. Each picture has a scale of its own.",
            "s",
            NOTHING,
            width=12,
            height=10,
        ),
        [Query(scope.buckets("ibpulse_node_burst_duration_seconds"), "{{le}}", heatmap=True)],
        cell_unit="none",
    )


def _both(title: str, text: str, unit: str, expr: Callable[[Scope], str]) -> model.Panel:
    text = f"{text} B is drawn at the time of A, shifted by the Shift variable."
    queries = [Query(expr(scope), name) for name, scope in NODES.items()]
    return lines(PanelHead(title, text, unit, NOTHING, width=12), queries)


def _history() -> list[model.Panel]:
    return [
        _both(
            "How much traffic do the nodes have?",
            "Mean of the chosen nodes, transmit + receive, over five minutes.",
            "Bps",
            lambda scope: f"avg({scope.pick('instance:ibpulse_bandwidth_bytes:rate5m')})",
        ),
        _both(
            "How long are the nodes active?",
            "Mean of the chosen nodes, over a minute.",
            "percentunit",
            lambda scope: f"avg({scope.pick('ibpulse_node_duty_cycle_ratio', window='1m')})",
        ),
        _both(
            "How bursty are the nodes at 10 ms?",
            "Median of the chosen nodes.",
            "none",
            lambda scope: f"quantile(0.5, {scope.pick('ibpulse_node_burstiness_cv', timescale='10ms', window='1m')})",
        ),
        _both(
            "How long is a step?",
            "Median of the chosen nodes, where the step is clear.",
            "s",
            lambda scope: f"quantile(0.5, {scope.pick('instance:ibpulse_step_period_seconds:scored')})",
        ),
    ]


def _saturation() -> list[model.Panel]:
    return [
        _both(
            "When were the nodes saturated?",
            "Share of the time in which the median sample of half a minute was near the line rate, mean of the nodes.",
            "percentunit",
            lambda scope: f"avg({scope.rate('ibpulse_node_bandwidth_saturated_seconds_total')})",
        ),
        _both(
            "When were the nodes in MoE saturation?",
            "Share of the time in sustained MoE saturation, mean of the nodes. The published MoE run had peaks at the "
            "line rate and a mean of half of it: it is in this state, but not saturated in the first sense.",
            "percentunit",
            lambda scope: f"avg({scope.rate('ibpulse_node_moe_saturated_seconds_total')})",
        ),
    ]


def board() -> Board:
    """The board of two selections."""
    pictures = [make(name, scope) for make in (_distribution, _bursts) for name, scope in NODES.items()]
    sections = [
        Section("", [compared(statistic, NODES, NOTHING, 6) for statistic in OF_NODES]),
        Section("How do two training jobs differ?", [compared(statistic, JOBS, NO_JOB, 8) for statistic in OF_JOBS]),
        Section("How do the nodes differ over time?", _history()),
        Section(
            "How are samples distributed, when were nodes saturated?",
            [*pictures, *_saturation()],
            collapsed=True,
        ),
    ]
    return Board(
        uid=layout.COMPARE,
        title="ibpulse / Compare",
        question="How do two selections (nodes, training jobs, or the same at two times) use the network?",
        variables=[
            variables.datasource(),
            variables.cluster(),
            variables.job(),
            variables.instance(),
            variables.training_job(),
            variables.job("job_b", "Scrape job B"),
            variables.instance("instance_b", "Instance B", "job_b"),
            variables.training_job("job_id_b", "Training job B", "job_b"),
            variables.choice("shift", "Shift B back by", "How far B is moved back in time.", SHIFTS),
            *variables.node_address(shown=False),
        ],
        sections=sections,
        start="now-15m",
        refresh="1m",
        marks=marks.of_fleet(A, marks=False),
        pages=[links.NODES],
    )
