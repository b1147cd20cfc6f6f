"""The rows of single ports. They must not say how a value comes about."""

from __future__ import annotations

from ibpulse.metrics.row import UTILIZATION_BUCKETS, both, row

PORT = ("device", "port")
PORT_WINDOW = (*PORT, "window")

IDENTITY_LABELS = (
    *("link_layer", "rate", "guid", "board", "hca_type", "firmware", "driver", "pci_address", "numa_node", "netdev"),
    *("kind", "gpu", "gpu_distance"),
)

PORT_INFO = row(
    "ibpulse_port_info",
    "info",
    "What the port is: identity as the kernel tells it, kind of function, nearest GPUs and how near, whether it is a "
    "rail, where its bytes are read. Always 1.",
    (*PORT, *IDENTITY_LABELS, "rail", "source"),
)
PORT_UP = row("ibpulse_port_up", "gauge", "1 while the port is ACTIVE, else 0.", PORT)
PORT_RATE = row(
    "ibpulse_port_rate_bytes_per_second",
    "gauge",
    "Data rate of one direction after line coding. Absent while the port is not ACTIVE: the kernel then shows a dummy.",
    PORT,
    "bytes_per_second",
)
PORT_BYTES = both(
    "ibpulse_port_{}_bytes_total",
    "counter",
    "Bytes in {} direction since this process began, counted on over holes and counter resets.",
    unit="bytes",
)
PORT_OBSERVED = row(
    "ibpulse_port_observed_seconds_total",
    "counter",
    "Time covered by good samples (both directions read at both ends, no reset) while the port was ACTIVE.",
    PORT,
    "seconds",
)
PORT_UTILIZATION_SECONDS = both(
    "ibpulse_port_{}_utilization_seconds_total",
    "counter",
    "Sum of {} utilisation x time over good samples. Its rate ÷ that of observed seconds is the mean utilisation.",
    unit="seconds",
)
PORT_UTILIZATION_SQUARED_SECONDS = both(
    "ibpulse_port_{}_utilization_squared_seconds_total",
    "counter",
    "Sum of squared {} utilisation x time over good samples, for the variance over any span.",
    unit="seconds",
)
PORT_ACTIVE_SECONDS = both(
    "ibpulse_port_{}_active_seconds_total",
    "counter",
    "Time of good samples whose {} rate was above the threshold. Its rate ÷ that of observed seconds is the duty.",
    unit="seconds",
)
PORT_ACTIVE_UTILIZATION_SECONDS = both(
    "ibpulse_port_{}_active_utilization_seconds_total",
    "counter",
    "Sum of {} utilisation x time over active samples.",
    unit="seconds",
)
PORT_ACTIVE_UTILIZATION_SQUARED_SECONDS = both(
    "ibpulse_port_{}_active_utilization_squared_seconds_total",
    "counter",
    "Sum of squared {} utilisation x time over active samples, for their coefficient of variation over any span.",
    unit="seconds",
)
PORT_UTILIZATION = both(
    "ibpulse_port_{}_utilization_ratio",
    "histogram",
    "Utilisation of the {} direction at every tick that a good sample covers. Taken by this program's own timer.",
    unit="ratio",
    buckets=UTILIZATION_BUCKETS,
)
PORT_PEAK = both(
    "ibpulse_port_{}_peak_bytes_per_second",
    "gauge",
    "Highest {} rate of a single sample in the window. No scrape resets it.",
    PORT_WINDOW,
    "bytes_per_second",
)
PORT_DUTY_CYCLE = both(
    "ibpulse_port_{}_duty_cycle_ratio",
    "gauge",
    "Share of the observed time of the window in which the {} rate was above the threshold.",
    PORT_WINDOW,
    "ratio",
)
PORT_BURSTINESS = both(
    "ibpulse_port_{}_burstiness_cv",
    "gauge",
    "Coefficient of variation of the active {} samples of the window, at the time scale of the port's samples.",
    PORT_WINDOW,
)
PORT_RESETS = row(
    "ibpulse_port_resets_total",
    "counter",
    "Samples at which a byte counter was lower than before: a reset of the counter, never taken as traffic.",
    PORT,
)
PORT_SAMPLING_INTERVAL = row(
    "ibpulse_port_sampling_interval_seconds",
    "gauge",
    "Time between two samples of the port. Longer than the sampler's for counters that the kernel caches.",
    PORT,
    "seconds",
)
PORT_RESOLUTION = row(
    "ibpulse_port_effective_resolution_seconds",
    "gauge",
    "Lower quartile of the time between two changes of the port's counters under traffic, over the last minute. Absent "
    "while too few "
    "were seen. Above the sampling interval the device refreshes slowly, or the traffic is regular single ticks.",
    PORT,
    "seconds",
)
PORT_LEFT_ALONE = row(
    "ibpulse_port_left_alone",
    "gauge",
    "1 while files of the port that kept failing are left alone and only retried from time to time.",
    PORT,
)
