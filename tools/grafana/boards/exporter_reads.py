"""Reads of the counters, devices in trouble, what interrupted sampling."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from tools.grafana import panels
from tools.grafana.panels import PanelHead, lines, states
from tools.grafana.queries import Query, Scope, by_node

S = Scope(device="$device")
NODES = Scope()
NOTHING = "No exporter of this selection answers"
PORT_NAME = "{{instance}} {{device}}:{{port}}"
EVENTS = {
    "ibpulse_sampler_restarts_total": "restarts",
    "ibpulse_sampler_takeovers_total": "takeovers",
    "ibpulse_sampler_clock_steps_total": "steps of the clock",
}


def read_panels() -> list[model.Panel]:
    """How well the counters can be read."""
    return [_resolution(), _failed(), _slow(), _quarantine(), _left_alone(), _lengthened()]


def event_panels() -> list[model.Panel]:
    """What interrupted sampling."""
    return [_interruptions(), _resets(), _behind()]


def _resolution() -> model.Panel:
    return lines(
        PanelHead(
            "Effective resolution",
            "Time between two changes of a port's counters under traffic, beside the time between two reads. Far above "
            "it the device refreshes slowly, or the traffic is regular single ticks.",
            "s",
            "No port had enough traffic to tell",
        ),
        [
            Query(S.pick("ibpulse_port_effective_resolution_seconds"), PORT_NAME),
            Query(f"max({S.pick('ibpulse_port_sampling_interval_seconds')})", "longest interval"),
        ],
    )


def _failed() -> model.Panel:
    return lines(
        PanelHead(
            "Failed and uncertain reads",
            "Reads per second that failed, and reads that took so long that nobody knows when the counter was taken. "
            "Both are holes.",
            "cps",
            NOTHING,
        ),
        [
            Query(by_node("sum", S.rate("ibpulse_sampler_read_errors_total")), "{{instance}} failed"),
            Query(by_node("sum", S.rate("ibpulse_sampler_uncertain_reads_total")), "{{instance}} uncertain"),
        ],
    )


def _slow() -> model.Panel:
    return lines(
        PanelHead(
            "Slow reads",
            "99th percentile of the time that one read of a byte counter took, by device. Each read talks to the "
            "firmware: a device that answers slowly is sampled less often.",
            "s",
            NOTHING,
        ),
        [Query(S.pick("ibpulse_device_read_p99_seconds"), "{{instance}} {{device}}")],
    )


def _quarantine() -> model.Panel:
    return states(
        PanelHead(
            "Devices in quarantine",
            "Devices that are sampled by a process of their own because a read of them hung. The others are not "
            "affected.",
            "bool_yes_no",
            NOTHING,
        ),
        [Query(S.pick("ibpulse_device_quarantined"), "{{instance}} {{device}}")],
        panels.YES_IS_BAD,
    )


def _left_alone() -> model.Panel:
    return states(
        PanelHead(
            "Ports left alone",
            "Ports whose files kept failing and are only retried from time to time.",
            "bool_yes_no",
            NOTHING,
        ),
        [Query(S.pick("ibpulse_port_left_alone"), PORT_NAME)],
        panels.YES_IS_BAD,
    )


def _lengthened() -> model.Panel:
    return states(
        PanelHead(
            "Devices sampled more slowly",
            "Devices whose interval was lengthened because their reads take long. No row is the good case.",
            "bool_yes_no",
            "Every device is sampled at the interval that was asked for",
        ),
        [Query(S.pick("ibpulse_device_interval_lengthened"), "{{instance}} {{device}}")],
        panels.YES_IS_BAD,
    )


def _interruptions() -> model.Panel:
    return lines(
        PanelHead(
            "Restarts, takeovers, steps of the clock",
            "What interrupted sampling: a sampler that ended, a hung read that a new sampler was started for, a step "
            "of the wall clock. Each leaves a hole of a fraction of a second.",
            "none",
            NOTHING,
        ),
        [
            Query(by_node("sum", NODES.over("increase", name)), f"{{{{instance}}}} {word}")
            for name, word in EVENTS.items()
        ],
    )


def _resets() -> model.Panel:
    return lines(
        PanelHead(
            "Resets of counters",
            "Samples at which a byte counter was lower than before. Never taken as traffic; again and again it is some "
            "tool that clears them.",
            "none",
            NOTHING,
        ),
        [Query(by_node("sum", S.over("increase", "ibpulse_port_resets_total")))],
    )


def _behind() -> model.Panel:
    return lines(
        PanelHead(
            "How far the numbers are behind",
            "Wall time of Prometheus - the newest tick that is in the numbers, about a second when all is well; and "
            "time that was left out because aggregation fell behind. It needs clocks that agree.",
            "s",
            NOTHING,
        ),
        [
            Query(f"time() - {NODES.pick('ibpulse_aggregated_until_timestamp_seconds')}", "{{instance}} behind"),
            Query(NODES.over("increase", "ibpulse_aggregator_skipped_seconds_total"), "{{instance}} left out"),
        ],
    )
