"""One node: the traffic of its rails, now and over time. Shape, rails and counters are in modules of their own."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from tools.grafana import layout, panels
from tools.grafana.boards.node_rails import every_sample, rail_panels
from tools.grafana.boards.node_shape import STEP, shape_panels
from tools.grafana.boards.node_wire import port_panels, wire_panels
from tools.grafana.layout import Board, Breach, Section
from tools.grafana.panels import ORANGE, VERMILION, Figure, Link, PanelHead, figure_panels, heat, lines, number, states
from tools.grafana.queries import Query, Scope, by_node
from tools.grafana.recording_rules import NODE

S = Scope()
RAILS = Scope(device="$device")
SILENT = "No traffic in this span, or the node did not report"
NO_NODE = "The node does not report: choose one, or check the exporter board"
TO_SAMPLES = Link("Show the 10 ms samples of this moment", layout.series_link(layout.BURSTS))
BAD_RAILS = (
    f"sum({S.pick('ibpulse_port_rail_idle')}) + sum({S.pick('ibpulse_port_rail_slow')}) + "
    f"sum({S.on_rails('1 - ' + S.pick('ibpulse_port_up'))})"
)


FIGURES = (
    Figure(
        "Bandwidth",
        "Transmit + receive of all rails, mean of the last ten seconds. The panels below show the structure within "
        "them.",
        "Bps",
        S.bandwidth("10s"),
    ),
    Figure(
        "Peak of line rate",
        "Highest 10 ms sample of the last minute, all rails and both directions together, ÷ their line rate, to which "
        "idle rails and rails that are down contribute. Unknown while the line rate of a rail is unknown.",
        "percentunit",
        S.pick("ibpulse_node_bandwidth_peak_utilization_ratio", window="1m"),
        ((0.9, ORANGE),),
    ),
    Figure(
        "Duty cycle",
        "Share of the last minute in which the node's bandwidth was above the threshold. It depends on the time scale: "
        "a sample with 1 ms of traffic counts as busy.",
        "percentunit",
        S.pick("ibpulse_node_duty_cycle_ratio", window="1m"),
    ),
    Figure(
        "CV at 10 ms",
        "Standard deviation ÷ mean of the active 10 ms samples of the last minute. It compares the length of bursts "
        "with 10 ms; at other time scales, the value differs.",
        "none",
        S.pick("ibpulse_node_burstiness_cv", timescale="10ms", window="1m"),
    ),
    Figure(
        "Step",
        "Period of the node's bandwidth; for a training job, its step. Unknown when nothing repeats clearly; with many "
        "similar micro-batches it may be one of these.",
        "s",
        STEP,
    ),
    Figure(
        "Rails with traffic",
        "Rails with traffic ÷ all rails of the node.",
        "percentunit",
        f"{S.pick('ibpulse_node_active_rails')} / {S.pick('ibpulse_node_rails')}",
    ),
    Figure(
        "Bad rails",
        "Rails that are down, or idle or slow while their siblings work.",
        "none",
        BAD_RAILS,
        ((1, VERMILION),),
    ),
)


def _label() -> model.Panel:
    signature = S.pick("ibpulse_node_workload_signature")
    confidence = by_node("max", S.pick("ibpulse_node_workload_signature_confidence_ratio"))
    face = PanelHead(
        "Looks like",
        "The label that the traffic resembles most, with its confidence, at most 0.6 unless the node is "
        "idle. A resemblance to two published runs; it does not identify the model.",
        "percentunit",
        "unknown",
        width=3,
        height=4,
    )
    query = Query(f"({signature} == 1) * on ({NODE}) group_left () {confidence}", "{{signature}}")
    return number(face, [query], graph=False, named=True)


def _rails_in_time(direction: str) -> model.Panel:
    used = RAILS.rate(f"ibpulse_port_{direction}_utilization_seconds_total")
    observed = RAILS.rate("ibpulse_port_observed_seconds_total")
    return heat(
        PanelHead(
            f"Rails over time, {direction}",
            f"One row per rail; the colour is its mean {direction} utilisation between two points of the graph. A "
            "faint row among strong ones is an idle rail. Bursts shorter than a point are averaged away; the "
            "burst explorer shows every 10 ms sample.",
            "percentunit",
            SILENT,
            width=12,
        ),
        [Query(RAILS.on_rails(f"{used} / {observed}"), "{{device}}:{{port}}")],
        color_max=1,
    )


def _bandwidth() -> model.Panel:
    peak = S.over("max_over_time", "ibpulse_node_bandwidth_peak_bytes_per_second", window="1m")
    return lines(
        PanelHead(
            "Bandwidth and line rate",
            "Highest 10 ms sample, mean of the active samples, and mean, of transmit + receive of all rails, over a "
            "minute each, together with the rails' line rate. If the peak is far above the mean, a smoother schedule "
            "could use the pauses. Peaks of ports do not add up to the peak of the node.",
            "Bps",
            NO_NODE,
            width=12,
        ),
        [
            Query(peak, "peak"),
            Query(S.pick("ibpulse_node_bandwidth_active_mean_bytes_per_second", window="1m"), "mean when active"),
            Query(S.bandwidth(), "mean"),
            Query(S.line_rate(), "line rate"),
        ],
        link=TO_SAMPLES,
    )


def _saturation() -> model.Panel:
    queries = [
        Query(S.pick("ibpulse_node_bandwidth_saturated"), "saturated"),
        Query(S.pick("ibpulse_node_moe_saturated"), "MoE saturation"),
        Query(f"max({RAILS.pick('ibpulse_port_transmit_saturated')})", "a port saturated, transmit"),
        Query(f"max({RAILS.pick('ibpulse_port_receive_saturated')})", "a port saturated, receive"),
    ]
    face = PanelHead(
        "Saturation",
        "Times when the median 10 ms sample of the last half minute was near the line rate, for the node and for its "
        "busiest port, and times of sustained MoE saturation. States begin and end about a quarter of a minute late. A "
        "run can peak at the line rate without being saturated.",
        "bool_yes_no",
        NO_NODE,
        width=12,
    )
    return states(face, queries, panels.YES_IS_BAD)


def board() -> Board:
    """The board about one node."""
    single = "The board is about one node: rails have the same names on all nodes."
    first = [_rails_in_time("transmit"), _rails_in_time("receive"), _bandwidth(), _saturation()]
    return Board(
        uid=layout.NODE,
        title="ibpulse / Node",
        question="What traffic do the rails of this node carry, how close to line rate, and is one of them bad?",
        variables=[layout.datasource(), layout.job(), layout.instance(single=True), layout.device()],
        sections=[
            Section("", [_label(), *figure_panels(FIGURES, "unknown"), *first]),
            Section("Shape of the traffic: bursts, gaps, rhythm", shape_panels(S)),
            Section("Rails: balance, peaks, duty cycle", rail_panels(RAILS)),
            Section("Every 10 ms sample, device by device", every_sample(RAILS), collapsed=True),
            Section("Ports: state and identity", port_panels(RAILS), collapsed=True),
            Section("Causes: congestion, loss, PCIe", wire_panels(RAILS), collapsed=True),
        ],
        exceptions=[Breach("template-instance-rule", single)],
        alerts=S.pick("ALERTS", alertname="~IBPulse.+", alertstate="firing"),
    )
