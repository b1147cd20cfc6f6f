"""The metrics of devices, of the sampler, of the exporter itself and of the flight recorder."""

from __future__ import annotations

import platform

from ibpulse import __version__
from ibpulse.agent.aggregator.snapshot import LATENESS_BUCKETS, TICK_DURATION_BUCKETS, SamplerSnapshot, Snapshot
from ibpulse.core.events import KINDS
from ibpulse.core.metrics.row import Labels, Subject, single
from ibpulse.core.model import CAPTURE_ORIGINS, CaptureCounts, DevicePlace, DeviceReads, SamplerHealth

DEVICE_LABELS = ("device",)


def _places(snapshot: Snapshot) -> list[tuple[Labels, DevicePlace]]:
    shown = {port.port.id.device for port in snapshot.ports}
    return [((place.device,), place) for place in snapshot.fabric.topology.devices if place.device in shown]


def _quarantined(snapshot: Snapshot) -> list[tuple[Labels, bool]]:
    quarantined = snapshot.health.quarantined_devices
    healthy = {port.port.id.device for port in snapshot.ports}
    devices = sorted({*quarantined, *snapshot.fabric.stuck_devices, *healthy})
    return [((device,), device in quarantined) for device in devices]


def _reads(snapshot: Snapshot) -> list[tuple[Labels, DeviceReads]]:
    return [((reads.device,), reads) for reads in snapshot.health.reads]


def _scheduler(snapshot: Snapshot) -> list[tuple[Labels, SamplerHealth]]:
    health = snapshot.health
    requested, actual = health.scheduler_requested, health.scheduler_actual
    return [((requested, actual, health.cpu_requested, health.cpu_actual), health)]


def _build(snapshot: Snapshot) -> list[tuple[Labels, None]]:
    return [((__version__, platform.python_version()), None)]


def _simulated(snapshot: Snapshot) -> list[tuple[Labels, None]]:
    return [((), None)] if snapshot.fabric.simulated else []


def _event_counts(snapshot: Snapshot) -> list[tuple[Labels, int]]:
    return [((kind,), count) for kind, count in snapshot.event_counts.items()]


def _taken(snapshot: Snapshot) -> list[tuple[Labels, int]]:
    return [((reason,), count) for reason, count in snapshot.captures.taken]


PLACE = Subject(DEVICE_LABELS, _places)
DEVICE_ROWS = (
    PLACE.gauge(
        "ibpulse_device_pcie_bytes_per_second",
        "Current bandwidth of the slowest PCIe link between the device and the root complex, one direction, after line "
        "coding. Absent if the kernel does not report it.",
        lambda place: place.pcie_bytes_per_second,
    ),
    PLACE.gauge(
        "ibpulse_device_pcie_max_bytes_per_second",
        "Bandwidth of the slowest of these links if each ran at the maximum that both its ends support. A value above "
        "the current bandwidth means that a link trained down.",
        lambda place: place.pcie_max_bytes_per_second,
    ),
)

SAMPLER: Subject[Snapshot, SamplerSnapshot] = single(lambda snapshot: snapshot.sampler)
HEALTH: Subject[Snapshot, SamplerHealth] = single(lambda snapshot: snapshot.health)
SCHEDULER = Subject(("requested", "actual", "cpu_requested", "cpu_actual"), _scheduler)
QUARANTINE = Subject(DEVICE_LABELS, _quarantined)
READS = Subject(DEVICE_LABELS, _reads)
SAMPLER_ROWS = (
    SAMPLER.gauge(
        "ibpulse_sampler_interval_seconds", "Time between two sampler ticks.", lambda sampler: sampler.interval_seconds
    ),
    SAMPLER.counter(
        "ibpulse_sampler_ticks_total", "Ticks at which the main sampler read its ports.", lambda sampler: sampler.ticks
    ),
    SAMPLER.counter(
        "ibpulse_sampler_missed_ticks_total",
        "Ticks that the main sampler skipped because it woke too late. Their samples are missing, never interpolated.",
        lambda sampler: sampler.missed_ticks,
    ),
    HEALTH.counter(
        "ibpulse_sampler_restarts_total",
        "Restarts of a sampler process that had exited.",
        lambda health: health.restarts,
    ),
    HEALTH.counter(
        "ibpulse_sampler_takeovers_total",
        "Times a new sampler took over the healthy devices because a read of one device hung.",
        lambda health: health.takeovers,
    ),
    SAMPLER.counter(
        "ibpulse_sampler_clock_steps_total",
        "Steps of the wall clock followed by the sampler. Each one causes a missing sample.",
        lambda sampler: sampler.clock_steps,
    ),
    SAMPLER.counter(
        "ibpulse_sampler_cpu_seconds_total",
        "CPU time of the main sampler process.",
        lambda sampler: sampler.cpu_seconds,
    ),
    SAMPLER.histogram(
        "ibpulse_sampler_lateness_seconds",
        "Wake-up delay of the main sampler at each tick.",
        lambda sampler: sampler.lateness,
        LATENESS_BUCKETS,
    ),
    SAMPLER.histogram(
        "ibpulse_sampler_tick_duration_seconds",
        "Time the main sampler took to read all ports at a tick.",
        lambda sampler: sampler.tick_duration,
        TICK_DURATION_BUCKETS,
    ),
    HEALTH.gauge(
        "ibpulse_sampler_heartbeat_age_seconds",
        "Age of the main sampler's last heartbeat at the last aggregation.",
        lambda health: health.heartbeat_age_seconds,
    ),
    SCHEDULER.info(
        "ibpulse_sampler_scheduler_info", "Requested and actual scheduling class and CPU of the sampler. Always 1."
    ),
    QUARANTINE.gauge(
        "ibpulse_device_quarantined",
        "1 while the device is sampled in a separate process because one of its reads hung.",
        int,
    ),
    READS.gauge(
        "ibpulse_device_read_p99_seconds",
        "99th percentile of the time to read one byte counter of the device, over the last few seconds.",
        lambda reads: reads.p99_seconds,
    ),
    READS.gauge(
        "ibpulse_device_interval_lengthened",
        "1 while the device is sampled at a longer interval because its reads take too long, otherwise absent. "
        "ibpulse_port_sampling_interval_seconds gives the interval in use.",
        lambda reads: 1 if reads.interval_lengthened else None,
    ),
    HEALTH.counter(
        "ibpulse_cgroup_throttled_periods_total",
        "Periods in which the kernel throttled this container because of its CPU limit. Throttling causes missed "
        "ticks: remove the limit.",
        lambda health: health.throttled_periods,
    ),
)

SNAPSHOT: Subject[Snapshot, Snapshot] = single(lambda snapshot: snapshot)
EVENT_KIND = Subject(("kind",), _event_counts)
SIMULATED = Subject((), _simulated)
BUILD = Subject(("version", "python"), _build)
EXPORTER_ROWS = (
    SNAPSHOT.gauge(
        "ibpulse_aggregated_until_timestamp_seconds",
        "Wall time of the newest aggregated sample. All windows end here.",
        lambda snapshot: None if snapshot.end_wall_ns is None else snapshot.end_wall_ns / 1e9,
    ),
    SNAPSHOT.counter(
        "ibpulse_aggregator_skipped_seconds_total",
        "Time missing from all metrics because aggregation fell behind by more than the length of the history.",
        lambda snapshot: snapshot.skipped_seconds,
    ),
    EVENT_KIND.counter(
        "ibpulse_events_total", f"Events since this process started, by kind: {', '.join(KINDS)}.", lambda count: count
    ),
    SIMULATED.gauge(
        "ibpulse_simulated", "1 if the ports are those of a simulator or a replay, otherwise absent.", lambda _: 1
    ),
    BUILD.info("ibpulse_build_info", "Version of ibpulse and of Python. Always 1."),
)

REASON = Subject(("reason",), _taken)
CAPTURES: Subject[Snapshot, CaptureCounts] = single(lambda snapshot: snapshot.captures)
CAPTURE_ROWS = (
    REASON.counter(
        "ibpulse_captures_total", f"Captures taken, by trigger: {', '.join(CAPTURE_ORIGINS)}.", lambda count: count
    ),
    CAPTURES.counter(
        "ibpulse_capture_errors_total",
        "Requested captures that could not be written; the log gives the reason. Sampling and metrics are not "
        "affected.",
        lambda captures: captures.errors,
    ),
    CAPTURES.gauge(
        "ibpulse_captures_stored", "Captures stored in the capture directory.", lambda captures: captures.stored
    ),
    CAPTURES.gauge(
        "ibpulse_capture_stored_bytes",
        "Total size of the captures in the capture directory.",
        lambda captures: captures.stored_bytes,
    ),
    CAPTURES.gauge(
        "ibpulse_capture_last_timestamp_seconds",
        "Wall time of the trigger of the newest capture in the capture directory.",
        lambda captures: captures.newest_seconds,
    ),
)
