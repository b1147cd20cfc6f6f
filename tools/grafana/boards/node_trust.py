"""Whether the numbers of a node can be trusted, and what measuring costs."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from tools.grafana import colors
from tools.grafana.panels import PanelHead, lines, states
from tools.grafana.queries import Query, Scope, by_node, by_port

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
    ticks, missed = (scope.rate(f"ibpulse_sampler_{name}_total") for name in ("ticks", "missed_ticks"))
    failed = by_port("sum", scope.rate("ibpulse_sampler_read_errors_total"))
    slow = scope.pick("ibpulse_device_read_p99_seconds")
    return [
        states(
            PanelHead(
                "Can the numbers be trusted?",
                "Reasons why they cannot, by device and port where it is one. An empty panel is the good case.",
                "none",
                "Yes, as far as the node can tell",
                width=12,
            ),
            [
                Query(
                    f"max by (reason, device, port) ({scope.pick('ibpulse_unreliable')})",
                    "{{reason}} {{device}} {{port}}",
                )
            ],
            colors.words(v1=("no", colors.VERMILION)),
        ),
        lines(
            PanelHead(
                "How many samples are missing?",
                "Share of the samples that the sampler missed because it woke too late, and reads of each port that "
                "failed, per second. Below 1 %, statistics are not affected.",
                "none",
                NOTHING,
                width=12,
            ),
            [
                Query(by_node("sum", f"{missed} / ({ticks} + {missed})"), "missed"),
                Query(f"{failed} > 0", "{{device}}:{{port}} failed reads"),
            ],
        ),
        lines(
            PanelHead(
                "Was sampling interrupted?",
                "Between two points of the graph: samplers that ended, hung reads for which a new sampler was started, "
                "steps of the wall clock, seconds that aggregation skipped, periods throttled by a CPU limit, and "
                "captures that could not be written.",
                "none",
                NOTHING,
            ),
            [Query(by_node("sum", scope.over("increase", name)), word) for name, word in INTERRUPTIONS.items()],
        ),
        lines(
            PanelHead(
                "How long does a read take?",
                "99th percentile of the time to read one byte counter of each device. Each read is a request to the "
                "firmware.",
                "s",
                NOTHING,
            ),
            [Query(f"max by (device) ({slow})", "{{device}}")],
        ),
        lines(
            PanelHead(
                "What does measuring cost?",
                "CPU time of the daemon and of its sampler; 100 % is one full core.",
                "percentunit",
                NOTHING,
            ),
            [
                Query(by_node("sum", scope.rate("process_cpu_seconds_total")), "daemon"),
                Query(by_node("sum", scope.rate("ibpulse_sampler_cpu_seconds_total")), "sampler"),
            ],
        ),
    ]
