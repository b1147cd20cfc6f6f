"""The recordings of each node, from its rails."""

from __future__ import annotations

from tools.grafana.rule_levels import DOWN_RAILS, NODE, PORT, RAILS, Recording, newest, summed
from tools.grafana.rule_numbers import Threshold, fixed

MOE_WINDOW = fixed("moe_window", "10m", "Ten minutes contain hundreds of steps; a burst in one phase cannot fill them.")
SATURATED_WINDOW = fixed(
    "saturated_window", "15m", "A training step, its evaluation and its checkpoint fit into a quarter of an hour."
)
STEP_SCORE = fixed("step_score", "0.4", "Below this score, the exporter itself reports no period.")
USED_MEMORY = fixed(
    "used_memory", "30m", "A node counts as used for this long after its last job, so that alerts about it outlast it."
)
CONGESTION_WINDOW = fixed("congestion_window", "10m", "As long as the window of MoE saturation.")
CONGESTION_STALLED = Threshold(
    "congestion_stalled",
    "0.1",
    "A sender that waits, or shows signs of the path, of the receiver or of loss, for a tenth of the time delays "
    "steps; less is normal in an all-to-all.",
)
CONGESTION_MARKS = Threshold(
    "congestion_marks", "100", "Congestion notifications per second and port; a few are normal when flows begin."
)
CONGESTION_SEQUENCE = fixed(
    "congestion_sequence", "1", "Lost or reordered packets per second and port; a healthy fabric has none."
)
THRESHOLDS = (
    MOE_WINDOW,
    SATURATED_WINDOW,
    STEP_SCORE,
    USED_MEMORY,
    CONGESTION_WINDOW,
    CONGESTION_STALLED,
    CONGESTION_MARKS,
    CONGESTION_SEQUENCE,
)

OBSERVED = "rate(ibpulse_port_observed_seconds_total[5m])"
IDLE, SLOW, TRAINED_DOWN = (newest(f"ibpulse_port_{state}") for state in ("rail_idle", "rail_slow", "trained_down"))
RAIL_COUNT = newest("ibpulse_node_rails", NODE)


def _of_rails(expr: str) -> str:
    """The sum over the rails of a node; copies of a series count once."""
    return f"sum by ({NODE}) (max by ({PORT}, pod) ({expr}) * on ({PORT}) group_left () {RAILS})"


def _mean_utilization(direction: str) -> Recording:
    return Recording(
        f"instance:ibpulse_{direction}_utilization:mean5m",
        f"{_of_rails(f'rate(ibpulse_port_{direction}_bytes_total[5m])')}\n"
        f"/ on ({NODE}) (max by ({NODE}) (avg_over_time(ibpulse_node_line_rate_bytes_per_second[5m])) / 2)",
        f"Mean {direction} utilisation of the node's rails: their bytes ÷ their line rate, idle rails included.",
    )


def _duty_cycle(direction: str) -> Recording:
    return Recording(
        f"instance:ibpulse_{direction}_duty_cycle:ratio5m",
        f"{_of_rails(f'rate(ibpulse_port_{direction}_active_seconds_total[5m])')}\n/ {_of_rails(OBSERVED)}",
        f"Share of the observed time in which the node's rails were active, {direction} direction.",
    )


def _of_day(kind: str) -> str:
    """What is recorded as seldom as Prometheus looks back."""
    return newest(f"last_over_time(instance:ibpulse_{kind}:max1d[10m])", NODE)


def _rails(kind: str, expr: str, text: str) -> Recording:
    return Recording(f"instance:ibpulse_{kind}_rails:sum", expr, text)


TRAFFIC = (
    Recording(
        "instance:ibpulse_bandwidth_bytes:rate5m",
        _of_rails("rate(ibpulse_port_transmit_bytes_total[5m]) + rate(ibpulse_port_receive_bytes_total[5m])"),
        "Bandwidth (transmit + receive) of the node's rails.",
    ),
    _mean_utilization("transmit"),
    _mean_utilization("receive"),
    _duty_cycle("transmit"),
    _duty_cycle("receive"),
    Recording(
        "instance:ibpulse_line_rate_bytes:sum",
        newest("ibpulse_node_line_rate_bytes_per_second", NODE),
        "Line rate of all rails of the node, both directions.",
    ),
    Recording(
        "instance:ibpulse_peak_utilization:ratio1m",
        newest('ibpulse_node_bandwidth_peak_utilization_ratio{window="1m"}', NODE),
        "Highest bandwidth of a single sample in the last minute ÷ the line rate of the node.",
    ),
    Recording(
        "instance:ibpulse_step_period_seconds:scored",
        f"{newest('ibpulse_node_step_period_seconds', NODE)}\n"
        f"and on ({NODE}) ({newest('ibpulse_node_step_period_score', NODE)} >= <step_score>)",
        "Step period where it is clear, otherwise absent, which makes medians over time meaningful.",
    ),
    Recording(
        "instance:ibpulse_moe_saturated:ratio",
        summed("rate", "ibpulse_node_moe_saturated_seconds_total", "<moe_window>", NODE),
        "Share of the time in sustained MoE saturation.",
    ),
    Recording(
        "instance:ibpulse_bandwidth_saturated:ratio",
        summed("rate", "ibpulse_node_bandwidth_saturated_seconds_total", "<saturated_window>", NODE),
        "Share of the time in which the node's bandwidth was saturated.",
    ),
    Recording(
        "instance_device_port:ibpulse_congested:bool",
        f"group by ({PORT}) (\n"
        f"  sum by ({PORT}) (rate(ibpulse_port_transmit_limit_seconds_total"
        '{sign=~"path|receiver|loss"}[<congestion_window>])) > <congestion_stalled>\n'
        "  or avg_over_time(ibpulse_port_transmit_stalled_ratio[<congestion_window>]) > <congestion_stalled>\n"
        "  or rate(ibpulse_rp_cnp_packets_handled_total[<congestion_window>]) > <congestion_marks>\n"
        "  or rate(ibpulse_np_ecn_marked_roce_packets_received_total[<congestion_window>]) > <congestion_marks>\n"
        "  or rate(ibpulse_packet_sequence_errors_total[<congestion_window>]) > <congestion_sequence>\n)",
        "1 for a port whose traffic waits, is marked, refused or gets lost; absent for others. "
        "Packets out of order alone do not count, because adaptive routing reorders them.",
    ),
)

STATE = (
    Recording(
        "instance:ibpulse_used:bool",
        f"max by ({NODE}) (max_over_time(ibpulse_node_jobs[<used_memory>]) > bool 0)\n"
        f"or on ({NODE})\n"
        f"max by ({NODE}) (changes(ibpulse_node_last_traffic_timestamp_seconds[<used_memory>]) > bool 0)",
        "1 if the node has or recently had a job; if its jobs are unknown, if its rails recently carried traffic.",
    ),
    _rails("idle", f"sum by ({NODE}) ({IDLE})", "Rails without traffic while their siblings carry traffic."),
    _rails("slow", f"sum by ({NODE}) ({SLOW})", "Rails that carry much less than their siblings."),
    _rails("trained_down", f"sum by ({NODE}) ({TRAINED_DOWN})", "Rails at a lower rate than others of their make."),
    _rails("down", f"count by ({NODE}) ({DOWN_RAILS})\nor on ({NODE}) 0 * {RAIL_COUNT}", "Rails whose link is down."),
    _rails(
        "missing",
        # the daemon's own memory ends with its pod; the day's counts only if ports are gone too, not if roles changed
        f"clamp_min(\n  (\n    ({_of_day('expected_rails')}\n"
        f"     unless on ({NODE}) count by ({NODE}) (count by ({PORT}) (ibpulse_port_info)) "
        f">= on ({NODE}) {_of_day('ports')})\n"
        f"    or on ({NODE}) {newest('ibpulse_node_expected_rails', NODE)}\n  )\n  - on ({NODE}) {RAIL_COUNT}, 0\n)",
        "Rails that the node should have and does not.",
    ),
    _rails(
        "bad",
        f"(\n  count by ({NODE}) (\n    {IDLE} == 1\n    or {SLOW} == 1\n    or {TRAINED_DOWN} == 1\n"
        f"    or ({DOWN_RAILS})\n  )\n  or on ({NODE}) 0 * {RAIL_COUNT}\n)\n"
        f"+ on ({NODE}) (instance:ibpulse_missing_rails:sum or on ({NODE}) 0 * {RAIL_COUNT})",
        "Rails that are idle, slow, trained down, down or missing, each counted once.",
    ),
)

NODES = (*TRAFFIC, *STATE)
