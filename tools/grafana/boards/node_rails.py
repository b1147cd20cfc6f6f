"""The rails of a node, compared with each other."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from tools.grafana import colors
from tools.grafana.panels import PanelHead, heat, lines, states
from tools.grafana.queries import Query, Scope, by_port

PORT_NAME = "{{device}}:{{port}}"
SILENT = "No traffic on these devices in this span, or they were not read"
DIRECTIONS = ("transmit", "receive")


def rail_panels(scope: Scope) -> list[model.Panel]:
    """States, peaks and duty cycle by rail."""
    return [
        _states(scope),
        *(peaks(scope, direction) for direction in DIRECTIONS),
        *(_duty(scope, direction) for direction in DIRECTIONS),
    ]


def every_sample(scope: Scope) -> list[model.Panel]:
    """The distribution of the 10 ms samples, repeated for each device."""
    return [_samples(scope, direction) for direction in DIRECTIONS]


def _states(scope: Scope) -> model.Panel:
    state = f"2 * {scope.pick('ibpulse_port_rail_idle')} + {scope.pick('ibpulse_port_rail_slow')}"
    face = PanelHead(
        "Which rail is idle or slow?",
        "Idle: below a twentieth of the siblings' median over 3 s while they work. Slow: below three quarters over 10 "
        "s. Rails are not judged while their siblings are silent, nor on a node with one rail.",
        "none",
        "No rail of these devices is judged",
        width=24,
        height=6,
    )
    return states(face, [Query(by_port("max", state), PORT_NAME)], colors.RAIL_STATES)


def peaks(scope: Scope, direction: str, window: str = "1m") -> model.Panel:
    """The highest sample of each port; a peak of a window that is at least as long as a scrape misses nothing."""
    peak = scope.over("max_over_time", f"ibpulse_port_{direction}_peak_bytes_per_second", window=window)
    line = f"max({scope.pick('ibpulse_port_rate_bytes_per_second')})"
    return lines(
        PanelHead(
            f"How high are the peaks, {direction}?",
            "Highest 10 ms sample of each port, and the line rate of the fastest. Scrapes do not reset a peak, so "
            "peaks between two scrapes are not missed. Absent for a port whose counters are refreshed too slowly.",
            "Bps",
            SILENT,
            width=12,
        ),
        [Query(by_port("max", peak), PORT_NAME), Query(line, "line rate")],
        names={"line rate": ("line rate", colors.GREY)},
    )


def _duty(scope: Scope, direction: str) -> model.Panel:
    gauge = scope.pick(f"ibpulse_port_{direction}_duty_cycle_ratio", window="1m")
    return lines(
        PanelHead(
            f"How long is each rail busy, {direction}?",
            "Share of the last minute in which the port was above the threshold. A rail that is busy longer than its "
            "siblings with the same bytes is the slow one.",
            "percentunit",
            SILENT,
            width=12,
        ),
        [Query(by_port("max", gauge), PORT_NAME)],
        maximum=1,
    )


def _samples(scope: Scope, direction: str) -> model.Panel:
    histogram = f"ibpulse_port_{direction}_utilization_ratio"
    return heat(
        PanelHead(
            f"$device, {direction}",
            f"Share of the time in each band of {direction} utilisation. A band at the bottom and one at the top "
            "are bursts; one thin band is a steady flow. A sample is a mean: with 2 ms of traffic at line rate it "
            "is at 0.2.",
            "percentunit",
            SILENT,
            width=6,
            height=10,
            repeat="device",
        ),
        [Query(scope.time_share(histogram), "{{le}}", heatmap=True)],
        cell_unit="percentunit",
        color_max=1,
    )
