"""The one table of exported metrics: name, type, labels, unit, help, buckets. It must not know how a value comes about.

`docs/metrics.md` is written from it; the renderer takes every header from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MetricType = Literal["counter", "gauge", "histogram", "info"]

SAMPLER_BUCKETS = "as the sampler counts them"


# rows are keys of caches, so they are compared by identity
@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One row: `name` is the name of its samples (of their stem for a histogram), `unit` a suffix of the family name.

    `buckets` are the upper bounds without infinity; a histogram with none takes those of its sampler.
    """

    name: str
    type: MetricType
    help: str
    labels: tuple[str, ...] = ()
    unit: str = ""
    buckets: tuple[float, ...] = ()

    @property
    def family(self) -> str:
        """The name of the family in OpenMetrics: without the suffix that its type demands."""
        if self.type == "counter":
            return self.name.removesuffix("_total")
        return self.name.removesuffix("_info") if self.type == "info" else self.name


TABLE: list[Metric] = []


def _row(
    name: str,
    kind: MetricType,
    text: str,
    labels: tuple[str, ...] = (),
    unit: str = "",
    buckets: tuple[float, ...] = (),
) -> Metric:
    metric = Metric(name, kind, text, labels, unit, buckets)
    TABLE.append(metric)
    return metric


def _both(
    name: str,
    kind: MetricType,
    text: str,
    labels: tuple[str, ...] = ("device", "port"),
    unit: str = "",
    buckets: tuple[float, ...] = (),
) -> tuple[Metric, Metric]:
    """A row for transmit and one for receive, in the order of `model.DIRECTIONS`."""
    transmit = _row(name.format("transmit"), kind, text.format("transmit"), labels, unit, buckets)
    return transmit, _row(name.format("receive"), kind, text.format("receive"), labels, unit, buckets)


_PORT = ("device", "port")
_PORT_WINDOW = (*_PORT, "window")
_WINDOW = ("window",)

# fine near idle (0.002 of 400 Gb/s is the default threshold of active) and near full
UTILIZATION_BUCKETS = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5),
    *(0.6, 0.7, 0.8, 0.85, 0.9, 0.94, 0.96, 0.98, 1.0),
)

IDENTITY_LABELS = (
    *("link_layer", "rate", "guid", "board", "hca_type", "firmware", "driver", "pci_address", "numa_node", "netdev"),
)

# ports

PORT_INFO = _row(
    "ibpulse_port_info",
    "info",
    "What the port is: identity as the kernel tells it, whether it is a rail, where its bytes are read. Always 1.",
    (*_PORT, *IDENTITY_LABELS, "rail", "source"),
)
PORT_UP = _row("ibpulse_port_up", "gauge", "1 while the port is ACTIVE, else 0.", _PORT)
PORT_RATE = _row(
    "ibpulse_port_rate_bytes_per_second",
    "gauge",
    "Data rate of one direction after line coding. Absent while the port is not ACTIVE: the kernel then shows a dummy.",
    _PORT,
    "bytes_per_second",
)
PORT_BYTES = _both(
    "ibpulse_port_{}_bytes_total",
    "counter",
    "Bytes in {} direction since this process began, counted on over holes and counter resets.",
    unit="bytes",
)
PORT_OBSERVED = _row(
    "ibpulse_port_observed_seconds_total",
    "counter",
    "Time covered by good samples (both directions read at both ends, no reset) while the port was ACTIVE.",
    _PORT,
    "seconds",
)
PORT_UTILIZATION_SECONDS = _both(
    "ibpulse_port_{}_utilization_seconds_total",
    "counter",
    "Sum of {} utilisation x time over good samples. Its rate ÷ that of observed seconds is the mean utilisation.",
    unit="seconds",
)
PORT_UTILIZATION_SQUARED_SECONDS = _both(
    "ibpulse_port_{}_utilization_squared_seconds_total",
    "counter",
    "Sum of squared {} utilisation x time over good samples, for the variance over any span.",
    unit="seconds",
)
PORT_ACTIVE_SECONDS = _both(
    "ibpulse_port_{}_active_seconds_total",
    "counter",
    "Time of good samples whose {} rate was above the threshold. Its rate ÷ that of observed seconds is the duty.",
    unit="seconds",
)
PORT_ACTIVE_UTILIZATION_SECONDS = _both(
    "ibpulse_port_{}_active_utilization_seconds_total",
    "counter",
    "Sum of {} utilisation x time over active samples.",
    unit="seconds",
)
PORT_ACTIVE_UTILIZATION_SQUARED_SECONDS = _both(
    "ibpulse_port_{}_active_utilization_squared_seconds_total",
    "counter",
    "Sum of squared {} utilisation x time over active samples, for their coefficient of variation over any span.",
    unit="seconds",
)
PORT_UTILIZATION = _both(
    "ibpulse_port_{}_utilization_ratio",
    "histogram",
    "Utilisation of the {} direction at every tick that a good sample covers. Taken by this program's own timer.",
    unit="ratio",
    buckets=UTILIZATION_BUCKETS,
)
PORT_PEAK = _both(
    "ibpulse_port_{}_peak_bytes_per_second",
    "gauge",
    "Highest {} rate of a single sample in the window. No scrape resets it.",
    _PORT_WINDOW,
    "bytes_per_second",
)
PORT_DUTY_CYCLE = _both(
    "ibpulse_port_{}_duty_cycle_ratio",
    "gauge",
    "Share of the observed time of the window in which the {} rate was above the threshold.",
    _PORT_WINDOW,
    "ratio",
)
PORT_BURSTINESS = _both(
    "ibpulse_port_{}_burstiness_cv",
    "gauge",
    "Coefficient of variation of the active {} samples of the window, at the time scale of the port's samples.",
    _PORT_WINDOW,
)
PORT_RESETS = _row(
    "ibpulse_port_resets_total",
    "counter",
    "Samples at which a byte counter was lower than before: a reset of the counter, never taken as traffic.",
    _PORT,
)
PORT_SAMPLING_INTERVAL = _row(
    "ibpulse_port_sampling_interval_seconds",
    "gauge",
    "Time between two samples of the port. Longer than the sampler's for counters that the kernel caches.",
    _PORT,
    "seconds",
)
PORT_RESOLUTION = _row(
    "ibpulse_port_effective_resolution_seconds",
    "gauge",
    "Median time between two changes of the port's counters under traffic, over the last minute. Absent while too few "
    "were seen. Above the sampling interval the device refreshes slowly, or the traffic is regular single ticks.",
    _PORT,
    "seconds",
)
PORT_LEFT_ALONE = _row(
    "ibpulse_port_left_alone",
    "gauge",
    "1 while files of the port that kept failing are left alone and only retried from time to time.",
    _PORT,
)

# the node: the sum over its rails

NODE_RAILS = _row("ibpulse_node_rails", "gauge", "Ports of the node that count as rails, ACTIVE or not.")
NODE_BYTES_PER_SECOND = _both(
    "ibpulse_node_{}_bytes_per_second",
    "gauge",
    "Mean {} rate of all rails together in the window.",
    _WINDOW,
    "bytes_per_second",
)
NODE_PEAK = _row(
    "ibpulse_node_bandwidth_peak_bytes_per_second",
    "gauge",
    "Highest bandwidth (transmit + receive of all rails at the same tick) in the window.",
    _WINDOW,
    "bytes_per_second",
)
NODE_ACTIVE_MEAN = _row(
    "ibpulse_node_bandwidth_active_mean_bytes_per_second",
    "gauge",
    "Mean bandwidth of the ticks of the window that are above the threshold.",
    _WINDOW,
    "bytes_per_second",
)
NODE_DUTY_CYCLE = _row(
    "ibpulse_node_duty_cycle_ratio",
    "gauge",
    "Share of the observed time of the window in which the node's bandwidth was above the threshold.",
    _WINDOW,
    "ratio",
)
NODE_BURSTINESS = _row(
    "ibpulse_node_burstiness_cv",
    "gauge",
    "Coefficient of variation of the node's active bandwidth in the window, of means over the time scale. "
    "Absent for time scales finer than the slowest sampled rail.",
    ("timescale", "window"),
)

# the sampler

SAMPLER_INTERVAL = _row("ibpulse_sampler_interval_seconds", "gauge", "Time between two ticks.", unit="seconds")
SAMPLER_TICKS = _row("ibpulse_sampler_ticks_total", "counter", "Ticks at which the main sampler read its ports.")
SAMPLER_MISSED_TICKS = _row(
    "ibpulse_sampler_missed_ticks_total",
    "counter",
    "Ticks that the main sampler skipped because it came too late. They are holes, never invented values.",
)
SAMPLER_READ_ERRORS = _row(
    "ibpulse_sampler_read_errors_total", "counter", "Reads of the port's byte counters that failed.", _PORT
)
SAMPLER_UNCERTAIN_READS = _row(
    "ibpulse_sampler_uncertain_reads_total",
    "counter",
    "Ticks at which reading the port took over a tenth of the time between two samples, so that nobody knows when the "
    "counter was taken. They are holes.",
    _PORT,
)
SAMPLER_RESTARTS = _row(
    "ibpulse_sampler_restarts_total", "counter", "Times a sampler process was started again after it ended."
)
SAMPLER_TAKEOVERS = _row(
    "ibpulse_sampler_takeovers_total",
    "counter",
    "Times a new sampler took over the healthy devices because a read of one device hung.",
)
SAMPLER_CLOCK_STEPS = _row(
    "ibpulse_sampler_clock_steps_total", "counter", "Steps of the wall clock that the sampler followed. Each is a hole."
)
SAMPLER_CPU = _row(
    "ibpulse_sampler_cpu_seconds_total", "counter", "CPU time of the main sampler process.", unit="seconds"
)
SAMPLER_LATENESS = _row(
    "ibpulse_sampler_lateness_seconds", "histogram", "How late the main sampler woke for a tick.", unit="seconds"
)
SAMPLER_TICK_DURATION = _row(
    "ibpulse_sampler_tick_duration_seconds",
    "histogram",
    "How long the main sampler took to read all ports at a tick.",
    unit="seconds",
)
SAMPLER_HEARTBEAT_AGE = _row(
    "ibpulse_sampler_heartbeat_age_seconds",
    "gauge",
    "Age of the main sampler's last sign of life at the last aggregation.",
    unit="seconds",
)
SAMPLER_SCHEDULER_INFO = _row(
    "ibpulse_sampler_scheduler_info",
    "info",
    "Scheduling class and CPU that were asked for and that the sampler got. Always 1.",
    ("requested", "actual", "cpu_requested", "cpu_actual"),
)
DEVICE_QUARANTINED = _row(
    "ibpulse_device_quarantined",
    "gauge",
    "1 while the device is sampled by a process of its own because a read of it hung.",
    ("device",),
)
CGROUP_THROTTLED = _row(
    "ibpulse_cgroup_throttled_periods_total",
    "counter",
    "Periods in which the kernel throttled this container for its CPU limit. They cost ticks: remove the limit.",
)

# the exporter

FABRIC_NOTICES = _row(
    "ibpulse_fabric_notices", "gauge", "Things the last scan of the fabric has to tell; see the log or the page at /."
)
AGGREGATED_UNTIL = _row(
    "ibpulse_aggregated_until_timestamp_seconds",
    "gauge",
    "Wall time of the newest tick in these numbers. All windows end here.",
    unit="seconds",
)
AGGREGATOR_SKIPPED = _row(
    "ibpulse_aggregator_skipped_seconds_total",
    "counter",
    "Time left out of all numbers because aggregation fell behind by more than the history holds.",
    unit="seconds",
)
BUILD_INFO = _row("ibpulse_build_info", "info", "Version of ibpulse and of Python. Always 1.", ("version", "python"))


_PREFACE = """\
# Metrics

This page is written by a program from the table of metrics.

Transmit and receive are separate names. Units are base units: bytes, seconds, ratios from 0 to 1.
A *good sample* of a port has both counters read at both of its ends and no reset between them. All else is a hole:
it is left out, and never counted as zero.

**Windows** (`window` label) end at the newest aggregated tick, `ibpulse_aggregated_until_timestamp_seconds`, and cover
exactly that many whole seconds of ticks. Numbers are aggregated once a second, about 0.25 s after the second is over
(later by one sampling interval of the slowest sampled port), so a scrape sees a window that ended 0.25 s to 1.3 s ago.
Scrapes never change a value. With a window at least as long as the scrape interval, `max_over_time` over a peak misses
nothing.

**What is not known is absent**, never NaN and never 0: a window without a good sample has no peak, a window with fewer
than two active samples has no coefficient of variation, a port of unknown data rate has no utilisation, a port whose
counters were never read has no totals. A port that left the fabric has no series; its totals go on when it comes back.

**Counters start at 0 with the process.** Windows are filled from the history that the ring file kept.

Mean utilisation, duty cycle and coefficient of variation of any span and any set of ports (sum each rate first):

```
mean = rate(ibpulse_port_transmit_utilization_seconds_total[5m]) / rate(ibpulse_port_observed_seconds_total[5m])
duty = rate(ibpulse_port_transmit_active_seconds_total[5m]) / rate(ibpulse_port_observed_seconds_total[5m])
a    = rate(ibpulse_port_transmit_active_seconds_total[5m])
m    = rate(ibpulse_port_transmit_active_utilization_seconds_total[5m]) / a
cv   = sqrt(clamp_min(rate(ibpulse_port_transmit_active_utilization_squared_seconds_total[5m]) / a - m^2, 0)) / m
```
"""

_SECTIONS = (
    ("Ports", ("ibpulse_port_",)),
    ("Node: the sum over its rails", ("ibpulse_node_",)),
    ("Sampler", ("ibpulse_sampler_", "ibpulse_device_", "ibpulse_cgroup_")),
    ("Exporter", ("ibpulse_fabric_", "ibpulse_aggregat", "ibpulse_build_")),
)


def metrics_markdown() -> str:
    """The text of `docs/metrics.md`."""
    parts = [_PREFACE]
    for title, prefixes in _SECTIONS:
        parts.append(f"\n## {title}\n\n| name | type | labels | unit | what |\n|---|---|---|---|---|\n")
        parts += [_markdown_row(metric) for metric in TABLE if metric.name.startswith(prefixes)]
    parts.append(f"\nBuckets of `_utilization_ratio`: {', '.join(map(repr, UTILIZATION_BUCKETS))}, +Inf.\n")
    return "".join(parts)


def _markdown_row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    unit = metric.unit.replace("_", " ")
    kind = "gauge" if metric.type == "info" else metric.type
    return f"| `{metric.name}` | {kind} | {labels} | {unit} | {metric.help} |\n"
