"""Reads of the counters and problem devices in detail, the worst 20, and interruptions of sampling."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from tools.grafana import layout, links
from tools.grafana.boards.exporter_worst import NOTHING, TOP, worst
from tools.grafana.panels import Link, PanelHead, lines
from tools.grafana.queries import Query, Scope, by_port
from tools.grafana.tables import Column, table

S = Scope(device="$device")
NODES = Scope()
DEVICE = "cluster, job, instance, node, device"
EVENTS = {
    "ibpulse_sampler_restarts_total": "restarts",
    "ibpulse_sampler_takeovers_total": "takeovers",
    "ibpulse_sampler_clock_steps_total": "clock steps",
    "ibpulse_port_resets_total": "counter resets",
    "ibpulse_port_jumps_total": "counter jumps",
}


def read_panels() -> list[model.Panel]:
    """Panels about the quality of the reads, device by device."""
    return [_ports(), _devices()]


def event_panels() -> list[model.Panel]:
    """Panels about interruptions of sampling."""
    return [_interruptions(), _failed()]


def _top(expr: str) -> str:
    return f"topk({TOP}, {expr})"


def _ports() -> model.Panel:
    """The ports that are read badly."""
    resolution = S.pick("ibpulse_port_effective_resolution_seconds")
    interval = S.pick("ibpulse_port_sampling_interval_seconds")
    failed, uncertain = (
        by_port("sum", S.over("increase", f"ibpulse_sampler_{kind}_total", "1h"))
        for kind in ("read_errors", "uncertain_reads")
    )
    columns = [
        Column("Set aside", _top(by_port("max", f"{S.pick('ibpulse_port_left_alone')} == 1")), "none", width=100),
        Column("Failed 1h", _top(f"round({failed}) > 0"), "none", width=95),
        Column("Uncertain 1h", _top(f"round({uncertain}) > 0"), "none", width=105),
        Column("Resolution", _top(by_port("max", f"{resolution} > 2 * {interval}")), "s", width=90),
    ]
    return table(
        PanelHead(
            "Ports that are read badly",
            "Ports that are only retried now and then because their files kept failing; failed reads and reads "
            "whose time is uncertain, of the last hour, both missing data; and the time between two changes of "
            f"counters that change less often than every second read. At most {TOP} ports for each; a dash is not a "
            "problem.",
            "none",
            "Every port is read as it should be",
            width=12,
            height=11,
        ),
        columns,
        {"instance": "Node", "device": "Device", "port": "Port"},
        sort=("Set aside", "Failed 1h"),
        link=Link("Open the node", links.row_link(layout.NODE)),
        widths={"Device": 80, "Port": 55},
    )


def _devices() -> model.Panel:
    """The devices that are slow or hang."""

    def device(expr: str) -> str:
        return _top(f"max by ({DEVICE}) ({expr})")

    return table(
        PanelHead(
            "Devices that are slow or hang",
            "Devices that a separate process samples because a read of them hung, devices whose interval was "
            "lengthened because their reads take long, and the slowest reads: the 99th percentile of the read time "
            f"of a byte counter. Each read is a request to the firmware. At most {TOP} devices for each.",
            "none",
            NOTHING,
            width=12,
            height=11,
        ),
        [
            Column("Quarantined", device(f"{S.pick('ibpulse_device_quarantined')} == 1"), "none", width=120),
            Column("Slowed down", device(f"{S.pick('ibpulse_device_interval_lengthened')} == 1"), "none", width=125),
            Column("Read time, 99 %", device(S.pick("ibpulse_device_read_p99_seconds")), "s", width=145),
        ],
        {"instance": "Node", "device": "Device"},
        sort=("Quarantined", "Slowed down", "Read time, 99 %"),
        link=Link("Open the node", links.row_link(layout.NODE)),
        widths={"Device": 90},
    )


def _interruptions() -> model.Panel:
    return lines(
        PanelHead(
            "Restarts, takeovers, clock steps, resets",
            "Interruptions of sampling on all chosen nodes, between two points of the graph: a sampler that ended, "
            "a hung read for which a new sampler was started, a step of the wall clock, a byte counter that was "
            "lower than before, or higher than possible. Each leaves a fraction of a second of missing data, and none "
            "is counted as traffic.",
            "none",
            NOTHING,
            width=12,
        ),
        [Query(f"sum({NODES.over('increase', name)})", word) for name, word in EVENTS.items()],
    )


def _failed() -> model.Panel:
    return lines(
        PanelHead(
            "Failed reads",
            f"Reads of byte counters that failed, per second. The {TOP} nodes with most of them in this span.",
            "none",
            "No recorded reads: load the recording rules",
            width=12,
        ),
        [Query(worst("instance:ibpulse_read_errors:rate5m"))],
    )
