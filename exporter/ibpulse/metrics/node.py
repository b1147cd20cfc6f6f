"""The rows of the node: the sum over its rails. They must not say how a value comes about."""

from __future__ import annotations

from ibpulse.metrics.row import both, row

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
