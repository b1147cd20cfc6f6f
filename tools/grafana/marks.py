"""What happened, as marks in the graphs: firing alerts, captures, events."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as build

from tools.grafana.panels import PROMETHEUS
from tools.grafana.queries import Scope, by_node

STEP = "60s"
EVENTS = (
    "link-down",
    "link-flap",
    "rate-change",
    "disappeared",
    "appeared",
    "quarantined",
    "counter-reset",
    "counter-jump",
    "clock-step",
    "job-began",
    "job-ended",
)
"""Kinds of events that explain a change of the traffic or of the measurement."""


def of_node(scope: Scope) -> list[build.AnnotationQuery]:
    """Alerts, captures and events of the nodes in a scope, each with a switch at the top of the board."""
    alerts = scope.pick("ALERTS", alertname="~IBPulse.+", alertstate="firing")
    if scope.job_id:
        alerts += f" or {scope.alerts_of_job(alertstate='firing')}"
    return [_alerts(alerts), _captures(scope), _events(scope)]


def of_fleet(scope: Scope, marks: bool = True) -> list[build.AnnotationQuery]:
    """The same for many nodes: alerts by name, and what every single node does only on demand.

    Without `marks` the alerts are switched off too.
    """
    alerts = f"count by (alertname) ({scope.alerts(alertstate='firing')})"
    return [
        _alerts(alerts, "{{alertname}}", marks),
        _captures(scope, False),
        _events(scope, False),
    ]


def _annotation(name: str, color: str, expr: str, enabled: bool) -> build.AnnotationQuery:
    return (
        build.AnnotationQuery()
        .name(name)
        .datasource(PROMETHEUS)
        .enable(enabled)
        .hide(False)
        .icon_color(color)
        .expr(expr)
        .step(STEP)
    )


def _alerts(expr: str, text: str = "{{instance}} {{device}} {{job_id}}", enabled: bool = True) -> build.AnnotationQuery:
    return _annotation("Alerts", "orange", expr, enabled).title_format("{{alertname}}").text_format(text)


def _captures(scope: Scope, enabled: bool = True) -> build.AnnotationQuery:
    # the value is the time of the capture, in milliseconds
    expr = f"1000 * {by_node('max', scope.pick('ibpulse_capture_last_timestamp_seconds'))}"
    mark = _annotation("Captures", "blue", expr, enabled).use_value_for_time(True)
    return mark.title_format("capture").text_format("{{instance}}")


def _events(scope: Scope, enabled: bool = True) -> build.AnnotationQuery:
    kinds = "|".join(EVENTS)
    raised = scope.over("increase", "ibpulse_events_total", "1m", kind=f"~{kinds}")
    expr = f"sum by (instance, kind) ({raised}) > 0"
    return _annotation("Events", "purple", expr, enabled).title_format("{{kind}}").text_format("{{instance}}")
