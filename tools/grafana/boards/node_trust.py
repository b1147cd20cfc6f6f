"""Whether the numbers of a node can be trusted, and what measuring costs."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from tools.grafana import colors
from tools.grafana.panels import PanelHead, lines, states
from tools.grafana.queries import Query, Scope, by_node, by_port

Lines = tuple[PanelHead, list[Query]]
NOTHING = "The node does not answer"
INTERRUPTIONS = {
    "ibpulse_sampler_restarts_total": "restarts",
    "ibpulse_sampler_takeovers_total": "takeovers",
    "ibpulse_sampler_clock_steps_total": "clock steps",
    "ibpulse_aggregator_skipped_seconds_total": "seconds skipped",
    "ibpulse_cgroup_throttled_periods_total": "periods throttled",
    "ibpulse_capture_errors_total": "captures failed",
}


def trust_panels(scope: Scope) -> list[model.Panel]:
    """Panels about the instrument itself, of one node."""
    return [_reasons(scope), *(lines(*panel) for panel in (_missing(scope), _interrupted(scope), *_costs(scope)))]


def _reasons(scope: Scope) -> model.Panel:
    return states(
        PanelHead(
            "Can the numbers be trusted?",
            "Reasons why they cannot, by device and port where it is one. An empty panel is the good case.",
            "none",
            "Yes, as far as the node can tell",
            width=12,
        ),
        [
            Query(
                f"max by (reason, device, port) ({scope.pick('ibpulse_unreliable')})", "{{reason}} {{device}} {{port}}"
            )
        ],
        colors.words(v1=("no", colors.VERMILION)),
    )


def _missing(scope: Scope) -> Lines:
    ticks, missed = (scope.rate(f"ibpulse_sampler_{name}_total") for name in ("ticks", "missed_ticks"))
    failed = by_port("sum", scope.rate("ibpulse_sampler_read_errors_total"))
    text = (
        "Share of the samples that the sampler missed because it woke too late, and reads of each port that failed, "
        "per second. Below 1 %, statistics are not affected."
    )
    return PanelHead("How many samples are missing?", text, "none", NOTHING, width=12), [
        Query(by_node("sum", f"{missed} / ({ticks} + {missed})"), "missed"),
        Query(f"{failed} > 0", "{{device}}:{{port}} failed reads"),
    ]


def _interrupted(scope: Scope) -> Lines:
    text = (
        "Between two points of the graph: samplers that ended, hung reads for which a new sampler was started, steps "
        "of the wall clock, seconds that aggregation skipped, periods throttled by a CPU limit, and captures that "
        "could not be written."
    )
    queries = [Query(by_node("sum", scope.over("increase", name)), word) for name, word in INTERRUPTIONS.items()]
    return PanelHead("Was sampling interrupted?", text, "none", NOTHING), queries


def _costs(scope: Scope) -> list[Lines]:
    read = "99th percentile of the time to read one byte counter of each device, each a request to the firmware."
    busy = "CPU time of the daemon and of its sampler; 100 % is one full core."
    slow = scope.pick("ibpulse_device_read_p99_seconds")
    daemon, sampler = (scope.rate(f"{name}_cpu_seconds_total") for name in ("process", "ibpulse_sampler"))
    return [
        (
            PanelHead("How long does a read take?", read, "s", NOTHING),
            [Query(f"max by (device) ({slow})", "{{device}}")],
        ),
        (
            PanelHead("What does measuring cost?", busy, "percentunit", NOTHING),
            [Query(by_node("sum", daemon), "daemon"), Query(by_node("sum", sampler), "sampler")],
        ),
    ]
