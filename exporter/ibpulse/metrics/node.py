"""The rows of the node and of what the traffic does: bursts, balance, step, signature, saturation."""

from __future__ import annotations

from ibpulse.metrics.row import DURATION_BUCKETS, UTILIZATION_BUCKETS, both, row

WINDOW = ("window",)

NODE_RAILS = row("ibpulse_node_rails", "gauge", "Ports of the node that count as rails, ACTIVE or not.")
NODE_BYTES_PER_SECOND = both(
    "ibpulse_node_{}_bytes_per_second",
    "gauge",
    "Mean {} rate of all rails together in the window.",
    WINDOW,
    "bytes_per_second",
)
NODE_PEAK = row(
    "ibpulse_node_bandwidth_peak_bytes_per_second",
    "gauge",
    "Highest bandwidth (transmit + receive of all rails at the same tick) in the window.",
    WINDOW,
    "bytes_per_second",
)
NODE_ACTIVE_MEAN = row(
    "ibpulse_node_bandwidth_active_mean_bytes_per_second",
    "gauge",
    "Mean bandwidth of the ticks of the window that are above the threshold.",
    WINDOW,
    "bytes_per_second",
)
NODE_DUTY_CYCLE = row(
    "ibpulse_node_duty_cycle_ratio",
    "gauge",
    "Share of the observed time of the window in which the node's bandwidth was above the threshold.",
    WINDOW,
    "ratio",
)
NODE_BURSTINESS = row(
    "ibpulse_node_burstiness_cv",
    "gauge",
    "Coefficient of variation of the node's active bandwidth in the window, of means over the time scale. "
    "Absent for time scales finer than the slowest sampled rail.",
    ("timescale", "window"),
)


PORT = ("device", "port")

# single ports

PORT_BURSTS = row(
    "ibpulse_port_bursts_total",
    "counter",
    "Bursts of the port's bandwidth (transmit + receive) that began after a gap.",
    PORT,
)
PORT_BURST_SECONDS = row(
    "ibpulse_port_burst_seconds_total",
    "counter",
    "Time that the port's bandwidth spent in bursts, whole or not.",
    PORT,
    "seconds",
)
PORT_RAIL_SHARE = row(
    "ibpulse_port_rail_share_ratio",
    "gauge",
    "The rail's part of the bytes of all rails, over the last seconds with traffic. Equal rails of n have 1/n.",
    PORT,
    "ratio",
)
PORT_RAIL_IDLE = row(
    "ibpulse_port_rail_idle",
    "gauge",
    "1 while the rail carries less than 5 % of the median of its siblings and they are active, over 3 s.",
    PORT,
)
PORT_RAIL_SLOW = row(
    "ibpulse_port_rail_slow",
    "gauge",
    "1 while the rail carries less than 75 % of the median of its siblings, by its mean or its mean when active, "
    "over 10 s, and is not idle.",
    PORT,
)
PORT_SATURATED = both(
    "ibpulse_port_{}_saturated",
    "gauge",
    "1 while the median {} utilisation of the last saturation window is at or above the saturation level.",
    PORT,
)
PORT_SATURATED_SECONDS = both(
    "ibpulse_port_{}_saturated_seconds_total",
    "counter",
    "Observed time in which the {} direction was saturated.",
    PORT,
    "seconds",
)

# the node

NODE_PEAK_TO_MEAN = row(
    "ibpulse_node_bandwidth_peak_to_mean_ratio",
    "gauge",
    "Highest bandwidth of a single tick ÷ mean bandwidth of the window.",
    ("window",),
    "ratio",
)
NODE_UTILIZATION = row(
    "ibpulse_node_bandwidth_utilization_ratio",
    "histogram",
    "Bandwidth of every tick ÷ the line rate, both directions, of the rails that carry traffic.",
    unit="ratio",
    buckets=UTILIZATION_BUCKETS,
)
NODE_BURST_DURATION = row(
    "ibpulse_node_burst_duration_seconds",
    "histogram",
    "Lengths of the bursts of the node's bandwidth, counted when they end. One that touches a hole is left out.",
    unit="seconds",
    buckets=DURATION_BUCKETS,
)
NODE_GAP_DURATION = row(
    "ibpulse_node_gap_duration_seconds",
    "histogram",
    "Lengths of the gaps between bursts of the node's bandwidth, counted when they end.",
    unit="seconds",
    buckets=DURATION_BUCKETS,
)
NODE_BURSTS = row(
    "ibpulse_node_bursts_total",
    "counter",
    "Bursts of the node's bandwidth that began after a gap, of known length or not.",
)
NODE_BURST_BYTES = row(
    "ibpulse_node_burst_bytes_total",
    "counter",
    "Bytes of the bursts in the histogram of lengths. Divide by its count for bytes per burst.",
    unit="bytes",
)
NODE_ACTIVE_RAILS = row(
    "ibpulse_node_active_rails",
    "gauge",
    "Rails whose mean bandwidth is above the threshold, over the same seconds as the shares.",
)
NODE_RAIL_FAIRNESS = row(
    "ibpulse_node_rail_fairness_ratio",
    "gauge",
    "Jain index of the rails' bytes over the last 3 s, or 10 s or 1 m if they were silent: 1 when all carry the same, "
    "k/n when k of n do. A rail that is down counts as 0. Absent without traffic.",
    unit="ratio",
)
NODE_STEP_PERIOD = row(
    "ibpulse_node_step_period_seconds",
    "gauge",
    "Period of the sum over the rails, for a training job its step. NaN when the score is too low to name one.",
    unit="seconds",
)
NODE_STEP_SCORE = row(
    "ibpulse_node_step_period_score", "gauge", "How well the best period repeats, 0 to 1; below 0.4 it is refused."
)
NODE_SIGNATURE = row(
    "ibpulse_node_workload_signature",
    "gauge",
    "1 for the label that the traffic resembles most, else 0. A resemblance to published runs, never a fact.",
    ("signature",),
)
NODE_SIGNATURE_CONFIDENCE = row(
    "ibpulse_node_workload_signature_confidence_ratio",
    "gauge",
    "Confidence of the label; at most 0.6 unless idle. With unknown, that of the best label that was refused.",
    unit="ratio",
)
NODE_SATURATED = row(
    "ibpulse_node_bandwidth_saturated",
    "gauge",
    "1 while the median utilisation of the node's bandwidth in the saturation window is at or above the level.",
)
NODE_SATURATED_SECONDS = row(
    "ibpulse_node_bandwidth_saturated_seconds_total",
    "counter",
    "Observed time in which the node's bandwidth was saturated.",
    unit="seconds",
)
NODE_MOE_SATURATED = row(
    "ibpulse_node_moe_saturated",
    "gauge",
    "1 while the traffic has for some time been moe_like, with hardly a pause and with peaks at the line.",
)
NODE_MOE_SATURATED_SECONDS = row(
    "ibpulse_node_moe_saturated_seconds_total",
    "counter",
    "Time in the state of sustained MoE saturation.",
    unit="seconds",
)
