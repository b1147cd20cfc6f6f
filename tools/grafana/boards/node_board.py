"""One node: its state, its jobs, the traffic of its rails. Shape, rails and counters are in modules of their own."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from tools.grafana import colors, layout, links, marks, variables
from tools.grafana.boards.node_rails import every_sample, rail_panels
from tools.grafana.boards.node_shape import STEP, shape_panels
from tools.grafana.boards.node_trust import trust_panels
from tools.grafana.boards.node_wire import jobs_of_node, port_panels, wire_panels
from tools.grafana.colors import BAD_TEXT, NOTICE_TEXT
from tools.grafana.layout import Board, Section
from tools.grafana.panels import Figure, Link, PanelHead, figure_panels, heat, lines, number, states, status_row
from tools.grafana.queries import Query, Scope, by_node, by_port
from tools.grafana.rule_levels import NODE

S = Scope()
RAILS = Scope(device="$device")
SILENT = "No traffic in this span, or the node did not report"
NO_NODE = "The node does not report: choose one, or look at the fleet board"
TO_SAMPLES = Link("Show the 10 ms samples of this moment", links.series_link(layout.BURSTS))
# an exporter forgets within its pod, the recording does not; without recordings, what the exporter says
MISSING = f"({by_node('max', S.pick('instance:ibpulse_missing_rails:sum'))}) or " + by_node(
    "max", f"clamp_min({S.pick('ibpulse_node_expected_rails')} - {S.pick('ibpulse_node_rails')}, 0)"
)
BAD = ((1, BAD_TEXT),)
FIRING = {"alertname": "~IBPulse.+", "alertstate": "firing", "severity": "~critical|warning"}


def _newest(name: str, **labels: str) -> str:
    return by_node("max", S.pick(name, **labels))


STATE = (
    Figure(
        "Firing alerts",
        "critical ones and warnings about this node; also 0 where no alerts are loaded.",
        "none",
        f"count({S.pick('ALERTS', **FIRING)}) or 0 * max({S.pick('ibpulse_node_rails')})",
        BAD,
    ),
    Figure(
        "Rails",
        "compute ports, as far as the node sees them.",
        "none",
        _newest("ibpulse_node_rails"),
    ),
    Figure(
        "Down",
        "rails whose link is not ACTIVE.",
        "none",
        f"sum({by_port('max', S.on_rails('1 - ' + S.pick('ibpulse_port_up')))})",
        BAD,
    ),
    Figure(
        "Missing",
        "rails that the node should have and does not: the device disappeared, or lost its counters.",
        "none",
        MISSING,
        BAD,
    ),
    Figure(
        "Trained down",
        "rails at a lower rate than others of their make.",
        "none",
        f"sum({by_port('max', S.pick('ibpulse_port_trained_down'))})",
        BAD,
    ),
    Figure(
        "Idle or slow",
        "rails that carry hardly anything, or less than three quarters of their siblings' median, while these work.",
        "none",
        f"sum({by_port('max', S.pick('ibpulse_port_rail_idle') + ' + ' + S.pick('ibpulse_port_rail_slow'))})",
        BAD,
    ),
    Figure(
        "Link drops 24h",
        "times that a link went down in 24 hours; recorded.",
        "none",
        f"round({_newest('instance:ibpulse_link_events:increase1d')})",
        BAD,
    ),
    Figure(
        "Errors 24h",
        "errors of links and packets in 24 hours; recorded. The row Why has them by kind.",
        "none",
        f"round({_newest('instance:ibpulse_errors:increase1d')})",
        ((1, NOTICE_TEXT),),
    ),
    Figure(
        "Age of the data",
        "time since the newest sample, normally some seconds.",
        "s",
        f"time() - {_newest('ibpulse_aggregated_until_timestamp_seconds')}",
        ((60, BAD_TEXT),),
    ),
)

SILENT = "the node does not answer, or there is nothing to measure"
TRAFFIC = (
    Figure(
        "Bandwidth",
        "Transmit + receive of all rails, mean of the last ten seconds. The panels below show the structure within "
        "them.",
        "Bps",
        S.bandwidth("10s"),
    ),
    Figure(
        "Highest sample",
        "Highest 10 ms sample of the last minute, all rails and both directions together, ÷ their line rate, to which "
        "idle rails and rails that are down contribute. Unknown while the line rate of a rail is unknown.",
        "percentunit",
        _newest("ibpulse_node_bandwidth_peak_utilization_ratio", window="1m"),
    ),
    Figure(
        "Duty cycle",
        "Share of the last minute in which the node's bandwidth was above the threshold. It depends on the time scale: "
        "a sample with 1 ms of traffic counts as busy.",
        "percentunit",
        _newest("ibpulse_node_duty_cycle_ratio", window="1m"),
    ),
    Figure(
        "Step",
        "Period of the node's bandwidth; for a training job, its step. Unknown when nothing repeats clearly; with many "
        "similar micro-batches it may be one of these.",
        "s",
        STEP,
    ),
    Figure(
        "Fairness",
        "Jain index of the rails' bytes: 1 when all carry the same, k/n when only k of n do; investigate below 0.98. "
        "Unknown without traffic.",
        "none",
        _newest("ibpulse_node_rail_fairness_ratio"),
    ),
)


def _state() -> model.Panel:
    head = PanelHead("State of the node", "What is wrong with the node now.", "none", SILENT, width=24, height=4)
    return status_row(head, STATE)


def _label() -> model.Panel:
    signature = S.pick("ibpulse_node_workload_signature")
    confidence = f"round({by_node('max', S.pick('ibpulse_node_workload_signature_confidence_ratio'))}, 0.001)"
    face = PanelHead(
        "Which kind?",
        "The label that the traffic resembles most now, with its confidence, at most 0.6 unless the node is "
        "idle. A resemblance to two published runs; it does not identify the model.",
        "percentunit",
        SILENT,
        width=4,
        height=5,
    )
    expr = f"max by ({NODE}, signature) ({signature} == 1) * on ({NODE}) group_left () {confidence}"
    return number(face, [Query(expr, "{{signature}}", instant=True)], names=colors.SIGNATURES)


def _rails_in_time(direction: str) -> model.Panel:
    used = by_port("max", RAILS.rate(f"ibpulse_port_{direction}_utilization_seconds_total"))
    observed = by_port("max", RAILS.rate("ibpulse_port_observed_seconds_total"))
    return heat(
        PanelHead(
            f"When is which rail busy, {direction}?",
            f"One row per rail; the colour is its mean {direction} utilisation between two points of the graph. A "
            "row bluer than the others is an idle rail. Bursts shorter than a point are averaged away; the "
            "burst explorer shows every 10 ms sample.",
            "percentunit",
            SILENT,
            width=12,
            height=9,
        ),
        [Query(RAILS.on_rails(f"{used} / {observed}"), "{{device}}:{{port}}")],
        color_max=1,
        rows=True,
    )


def _bandwidth() -> model.Panel:
    peak = by_node("max", S.over("max_over_time", "ibpulse_node_bandwidth_peak_bytes_per_second", window="1m"))
    return lines(
        PanelHead(
            "How close is the node to its line rate?",
            "Highest 10 ms sample, mean of the active samples, and mean, of transmit + receive of all rails, over a "
            "minute each, together with the rails' line rate. If the peak is far above the mean, a smoother schedule "
            "could use the pauses. Peaks of ports do not add up to the peak of the node.",
            "Bps",
            NO_NODE,
            width=24,
        ),
        [
            Query(peak, "peak"),
            Query(_newest("ibpulse_node_bandwidth_active_mean_bytes_per_second", window="1m"), "active mean"),
            Query(S.bandwidth(), "mean"),
            Query(S.line_rate(), "line rate"),
        ],
        link=TO_SAMPLES,
    )


def _saturation() -> model.Panel:
    queries = [
        Query(_newest("ibpulse_node_bandwidth_saturated"), "saturated"),
        Query(_newest("ibpulse_node_moe_saturated"), "MoE saturation"),
        Query(f"max({RAILS.pick('ibpulse_port_transmit_saturated')})", "a port saturated, transmit"),
        Query(f"max({RAILS.pick('ibpulse_port_receive_saturated')})", "a port saturated, receive"),
    ]
    face = PanelHead(
        "When was it saturated?",
        "Times when the median 10 ms sample of the last half minute was near the line rate, for the node and for its "
        "busiest port, and times of sustained MoE saturation. States begin and end about a quarter of a minute late. A "
        "run can peak at the line rate without being saturated.",
        "bool_yes_no",
        NO_NODE,
        width=12,
        height=6,
    )
    return states(face, queries, colors.YES_IS_BAD)


def board() -> Board:
    """The board about one node."""
    first = [_state(), _label(), *figure_panels(TRAFFIC, SILENT, graph=True)]
    first += [_rails_in_time("transmit"), _rails_in_time("receive"), _saturation(), jobs_of_node(S)]
    return Board(
        uid=layout.NODE,
        title="ibpulse / Node",
        question="Is something wrong with this node, and what traffic do its rails carry, how close to the line rate?",
        variables=[
            variables.datasource(),
            variables.cluster(single=True),
            variables.job(),
            variables.instance(single=True),
            variables.device(),
            *variables.node_address(),
        ],
        sections=[
            Section("", first),
            Section("How does the traffic look: bandwidth, bursts, rhythm?", [_bandwidth(), *shape_panels(S)]),
            Section("Which rail differs?", rail_panels(RAILS)),
            Section("How are the 10 ms samples of each device distributed?", every_sample(RAILS), collapsed=True),
            Section("Which ports are there, in what state?", port_panels(RAILS), collapsed=True),
            Section("Why: congestion, loss, errors, PCIe?", wire_panels(RAILS), collapsed=True),
            Section("Can ibpulse itself be trusted?", trust_panels(S), collapsed=True),
        ],
        marks=marks.of_node(S),
        pages=[links.LIVE_PAGE, links.GPUS, links.NODES],
    )
