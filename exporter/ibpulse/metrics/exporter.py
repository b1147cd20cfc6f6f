"""The rows in which the exporter reports on itself, on devices and on the flight recorder."""

from __future__ import annotations

from ibpulse.metrics.row import row

DEVICE = ("device",)

DEVICE_PCIE = row(
    "ibpulse_device_pcie_bytes_per_second",
    "gauge",
    "What the narrowest PCIe link on the way from the device to the root carries now, one direction, after line "
    "coding. Absent where the kernel does not say.",
    DEVICE,
    "bytes_per_second",
)
DEVICE_PCIE_MAX = row(
    "ibpulse_device_pcie_max_bytes_per_second",
    "gauge",
    "What the narrowest of these links would carry if each ran as both its ends can. More than the value of now means "
    "a link that trained down.",
    DEVICE,
    "bytes_per_second",
)


CAPTURE_ORIGINS = ("api", "alertmanager", "traffic-stalled", "rail-lost", "moe-saturation", "step-slower")
"""What can ask for a capture: a request, an alert, and the local rules."""

CAPTURES = row(
    "ibpulse_captures_total",
    "counter",
    f"Captures that were taken, by what asked for them: {', '.join(CAPTURE_ORIGINS)}.",
    ("reason",),
)
CAPTURE_ERRORS = row(
    "ibpulse_capture_errors_total",
    "counter",
    "Captures that were asked for and could not be written; the log says why. Nothing else suffers from it.",
)
CAPTURES_STORED = row("ibpulse_captures_stored", "gauge", "Captures in the directory.")
CAPTURE_STORED_BYTES = row(
    "ibpulse_capture_stored_bytes", "gauge", "Size of all captures in the directory.", unit="bytes"
)
CAPTURE_LAST = row(
    "ibpulse_capture_last_timestamp_seconds",
    "gauge",
    "Wall time of the trigger of the newest capture in the directory.",
    unit="seconds",
)


PORT = ("device", "port")

SAMPLER_INTERVAL = row("ibpulse_sampler_interval_seconds", "gauge", "Time between two ticks.", unit="seconds")
SAMPLER_TICKS = row("ibpulse_sampler_ticks_total", "counter", "Ticks at which the main sampler read its ports.")
SAMPLER_MISSED_TICKS = row(
    "ibpulse_sampler_missed_ticks_total",
    "counter",
    "Ticks that the main sampler skipped because it came too late. They are holes, never invented values.",
)
SAMPLER_READ_ERRORS = row(
    "ibpulse_sampler_read_errors_total", "counter", "Reads of the port's byte counters that failed.", PORT
)
SAMPLER_UNCERTAIN_READS = row(
    "ibpulse_sampler_uncertain_reads_total",
    "counter",
    "Ticks at which reading the port took over a tenth of the time between two samples, so that nobody knows when the "
    "counter was taken, or at which less than half of that time had passed since a sample that was held up. They are "
    "holes.",
    PORT,
)
SAMPLER_RESTARTS = row(
    "ibpulse_sampler_restarts_total", "counter", "Times a sampler process was started again after it ended."
)
SAMPLER_TAKEOVERS = row(
    "ibpulse_sampler_takeovers_total",
    "counter",
    "Times a new sampler took over the healthy devices because a read of one device hung.",
)
SAMPLER_CLOCK_STEPS = row(
    "ibpulse_sampler_clock_steps_total", "counter", "Steps of the wall clock that the sampler followed. Each is a hole."
)
SAMPLER_CPU = row(
    "ibpulse_sampler_cpu_seconds_total", "counter", "CPU time of the main sampler process.", unit="seconds"
)
SAMPLER_LATENESS = row(
    "ibpulse_sampler_lateness_seconds", "histogram", "How late the main sampler woke for a tick.", unit="seconds"
)
SAMPLER_TICK_DURATION = row(
    "ibpulse_sampler_tick_duration_seconds",
    "histogram",
    "How long the main sampler took to read all ports at a tick.",
    unit="seconds",
)
SAMPLER_HEARTBEAT_AGE = row(
    "ibpulse_sampler_heartbeat_age_seconds",
    "gauge",
    "Age of the main sampler's last sign of life at the last aggregation.",
    unit="seconds",
)
SAMPLER_SCHEDULER_INFO = row(
    "ibpulse_sampler_scheduler_info",
    "info",
    "Scheduling class and CPU that were asked for and that the sampler got. Always 1.",
    ("requested", "actual", "cpu_requested", "cpu_actual"),
)
DEVICE_QUARANTINED = row(
    "ibpulse_device_quarantined",
    "gauge",
    "1 while the device is sampled by a process of its own because a read of it hung.",
    ("device",),
)
DEVICE_READ_P99 = row(
    "ibpulse_device_read_p99_seconds",
    "gauge",
    "99th percentile of the time that one read of a byte counter of the device took in the last seconds.",
    ("device",),
    unit="seconds",
)
DEVICE_INTERVAL_LENGTHENED = row(
    "ibpulse_device_interval_lengthened",
    "gauge",
    "1 while the device is sampled at a longer interval because its reads take too long, else absent. "
    "ibpulse_port_sampling_interval_seconds says at which.",
    ("device",),
)
CGROUP_THROTTLED = row(
    "ibpulse_cgroup_throttled_periods_total",
    "counter",
    "Periods in which the kernel throttled this container for its CPU limit. They cost ticks: remove the limit.",
)

FABRIC_NOTICES = row(
    "ibpulse_fabric_notices", "gauge", "Things the last scan of the fabric has to tell; see the log or the page at /."
)
AGGREGATED_UNTIL = row(
    "ibpulse_aggregated_until_timestamp_seconds",
    "gauge",
    "Wall time of the newest tick in these numbers. All windows end here.",
    unit="seconds",
)
AGGREGATOR_SKIPPED = row(
    "ibpulse_aggregator_skipped_seconds_total",
    "counter",
    "Time left out of all numbers because aggregation fell behind by more than the history holds.",
    unit="seconds",
)
BUILD_INFO = row("ibpulse_build_info", "info", "Version of ibpulse and of Python. Always 1.", ("version", "python"))
