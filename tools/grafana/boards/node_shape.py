"""The shape of a node's traffic: distribution, burstiness, bursts, gaps, rhythm."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from tools.grafana.panels import PanelHead, heat, lines
from tools.grafana.queries import Query, Scope, by_node

TIMESCALES = ("10ms", "50ms", "100ms", "1s")
SILENT = "No traffic in this span, or the node did not report"
BURST, GAP = (f"ibpulse_node_{run}_duration_seconds" for run in ("burst", "gap"))
# comparisons filter out NaN, the value without a period
STEP = by_node("max", f"{Scope().pick('ibpulse_node_step_period_seconds')} >= 0")


def shape_panels(scope: Scope) -> list[model.Panel]:
    """Panels about distribution and burstiness, lengths of bursts and gaps, and the step."""
    return [utilization(scope), _burstiness(scope), _lengths(scope), _step()]


def utilization(scope: Scope) -> model.Panel:
    """The share of the time in each band of utilisation."""
    return heat(
        PanelHead(
            "Which utilisation do 10 ms samples have?",
            "Share of the time in each band of utilisation, both directions together, idle rails included. Two "
            "bands are bursts and pauses; one band at the top is saturation.",
            "percentunit",
            SILENT,
            width=12,
            height=10,
        ),
        [Query(scope.time_share("ibpulse_node_bandwidth_utilization_ratio"), "{{le}}", heatmap=True)],
        cell_unit="percentunit",
        color_max=1,
    )


def _burstiness(scope: Scope) -> model.Panel:
    return lines(
        PanelHead(
            "At which time scale is it bursty?",
            "Coefficient of variation of the active bandwidth of the last minute, of means over each time scale. The "
            "order of the lines shows the shape: bursts of a few samples give high values at 10 ms and low ones at 100 "
            "ms. CVs of different time scales cannot be compared. Absent if the counters are refreshed too slowly.",
            "none",
            SILENT,
            width=12,
            height=10,
        ),
        [
            Query(by_node("max", scope.pick("ibpulse_node_burstiness_cv", timescale=scale, window="1m")), f"at {scale}")
            for scale in TIMESCALES
        ],
    )


def durations(title: str, histogram: str, side: str, scope: Scope) -> model.Panel:
    """Bursts or gaps by their length."""
    return heat(
        PanelHead(
            title,
            f"Number of runs of samples {side} the threshold that ended, by their length in whole samples. Runs that "
            "are cut off by missing data are excluded.",
            "s",
            SILENT,
            width=12,
            height=10,
        ),
        [Query(scope.buckets(histogram), "{{le}}", heatmap=True)],
        cell_unit="none",
    )


def _lengths(scope: Scope) -> model.Panel:
    return lines(
        PanelHead(
            "How long are bursts and gaps?",
            "Mean and 95th percentile of bursts and gaps that ended. Those longer than the window are in "
            "no window; those that are cut off by missing data are excluded. Means need classic histograms. A gap is "
            "not exposed communication: see docs/overlap.md.",
            "s",
            SILENT,
            width=12,
        ),
        [
            Query(scope.mean(BURST), "burst, mean"),
            Query(scope.quantile(0.95, BURST), "burst, 95 %"),
            Query(scope.mean(GAP), "gap, mean"),
            Query(scope.quantile(0.95, GAP), "gap, 95 %"),
        ],
    )


def _step() -> model.Panel:
    return lines(
        PanelHead(
            "How long is a step?",
            "Period of the node's bandwidth where it is clear. A value that jumps is not a period; while the period "
            "changes, this shows the old one, the new one or none.",
            "s",
            "No clear period",
            width=12,
        ),
        [Query(STEP, "step")],
    )
