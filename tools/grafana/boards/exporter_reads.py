"""Reads of the counters, problem devices, interruptions of sampling."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from tools.grafana import panels
from tools.grafana.panels import PanelHead, lines, states
from tools.grafana.queries import Query, Scope, by_node

S = Scope(device="$device")
NODES = Scope()
NOTHING = "No exporter of this selection responds"
PORT_NAME = "{{instance}} {{device}}:{{port}}"
EVENTS = {
    "ibpulse_sampler_restarts_total": "restarts",
    "ibpulse_sampler_takeovers_total": "takeovers",
    "ibpulse_sampler_clock_steps_total": "clock steps",
}


def read_panels() -> list[model.Panel]:
    """Panels about the quality of the reads."""
    return [_resolution(), _failed(), _slow(), _quarantine(), _left_alone(), _lengthened()]


def event_panels() -> list[model.Panel]:
    """Panels about interruptions of sampling."""
    return [_interruptions(), _resets(), _behind()]


def _resolution() -> model.Panel:
    return lines(
        PanelHead(
            "Effective resolution",
            "Time between two changes of a port's counters under traffic, compared with the time between two reads. If "
            "it is far longer, the device refreshes slowly, or the traffic comes as regular single samples.",
            "s",
            "No port had enough traffic to judge",
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
            "Reads per second that failed, and reads so slow that the time of the counter value is uncertain. "
            "Both are missing data.",
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
            "99th percentile of the read time of a byte counter, by device. Each read is a request to the "
            "firmware: a device that responds slowly is sampled less often.",
            "s",
            NOTHING,
        ),
        [Query(S.pick("ibpulse_device_read_p99_seconds"), "{{instance}} {{device}}")],
    )


def _quarantine() -> model.Panel:
    return states(
        PanelHead(
            "Devices in quarantine",
            "Devices that a separate process samples because a read of them hung. The others are not affected.",
            "bool_yes_no",
            NOTHING,
        ),
        [Query(S.pick("ibpulse_device_quarantined"), "{{instance}} {{device}}")],
        panels.YES_IS_BAD,
    )


def _left_alone() -> model.Panel:
    return states(
        PanelHead(
            "Ports set aside",
            "Ports whose files kept failing, which are only retried now and then.",
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
            "Devices whose interval was lengthened because their reads take long. No rows is the good case.",
            "bool_yes_no",
            "Every device is sampled at the configured interval",
        ),
        [Query(S.pick("ibpulse_device_interval_lengthened"), "{{instance}} {{device}}")],
        panels.YES_IS_BAD,
    )


def _interruptions() -> model.Panel:
    return lines(
        PanelHead(
            "Restarts, takeovers, clock steps",
            "Interruptions of sampling: a sampler that ended, a hung read for which a new sampler was started, a step "
            "of the wall clock. Each leaves a fraction of a second of missing data.",
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
            "Counter resets",
            "Samples at which a byte counter was lower than before. Never counted as traffic; if it happens "
            "repeatedly, some tool is clearing them.",
            "none",
            NOTHING,
        ),
        [Query(by_node("sum", S.over("increase", "ibpulse_port_resets_total")))],
    )


def _behind() -> model.Panel:
    return lines(
        PanelHead(
            "Delay of the data",
            "Prometheus's time - the time of the newest aggregated sample, normally about a second, and the "
            "time that was skipped because aggregation fell behind. Requires synchronised clocks.",
            "s",
            NOTHING,
        ),
        [
            Query(f"time() - {NODES.pick('ibpulse_aggregated_until_timestamp_seconds')}", "{{instance}} behind"),
            Query(NODES.over("increase", "ibpulse_aggregator_skipped_seconds_total"), "{{instance}} skipped"),
        ],
    )
