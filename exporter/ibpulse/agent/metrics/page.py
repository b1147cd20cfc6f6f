"""The `/metrics` page of a node: metrics of devices, sampler, exporter and flight recorder, and all rows in order."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry

from ibpulse import __version__
from ibpulse.agent.aggregator.snapshot import LATENESS_BUCKETS, TICK_DURATION_BUCKETS, SamplerSnapshot, Snapshot
from ibpulse.agent.metrics import node, ports
from ibpulse.base.units import SECOND_NS, parse_duration
from ibpulse.core.events import KINDS
from ibpulse.core.metrics import web
from ibpulse.core.metrics.row import Labels, Metric, Subject, labelled, single
from ibpulse.core.metrics.text import render_page
from ibpulse.core.metrics.web import WebCounts
from ibpulse.core.model import CAPTURE_ORIGINS, CaptureCounts, DevicePlace, DeviceReads, SamplerHealth


def _places(snapshot: Snapshot) -> list[tuple[str, DevicePlace]]:
    shown = {port.port.id.device for port in snapshot.ports}
    return [(place.device, place) for place in snapshot.fabric.topology.devices if place.device in shown]


def _quarantined(snapshot: Snapshot) -> list[tuple[str, bool]]:
    quarantined = snapshot.health.quarantined_devices
    healthy = {port.port.id.device for port in snapshot.ports}
    devices = sorted({*quarantined, *snapshot.fabric.stuck_devices, *healthy})
    return [(device, device in quarantined) for device in devices]


def _scheduler(snapshot: Snapshot) -> list[tuple[Labels, SamplerHealth]]:
    health = snapshot.health
    requested, actual = health.scheduler_requested, health.scheduler_actual
    return [((requested, actual, health.cpu_requested, health.cpu_actual), health)]


def _build(snapshot: Snapshot) -> list[tuple[Labels, None]]:
    return [((__version__, platform.python_version()), None)]


def _simulated(snapshot: Snapshot) -> list[tuple[Labels, None]]:
    return [((), None)] if snapshot.fabric.simulated else []


PLACE = labelled("device", _places)
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
QUARANTINE = labelled("device", _quarantined)
READS: Subject[Snapshot, DeviceReads] = labelled(
    "device", lambda snapshot: ((reads.device, reads) for reads in snapshot.health.reads)
)
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

EVENT_KIND: Subject[Snapshot, int] = labelled("kind", lambda snapshot: snapshot.event_counts.items())
SIMULATED = Subject((), _simulated)
BUILD = Subject(("version", "python"), _build)
EXPORTER_ROWS = (
    node.NODE.gauge(
        "ibpulse_aggregated_until_timestamp_seconds",
        "Wall time of the newest aggregated sample. All windows end here.",
        lambda snapshot: None if snapshot.end_wall_ns is None else snapshot.end_wall_ns / 1e9,
    ),
    node.NODE.counter(
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

REASON: Subject[Snapshot, int] = labelled("reason", lambda snapshot: snapshot.captures.taken)
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


SILENT, HUNG, UNREADABLE, SLOW, MISSING = (
    "sampler-silent",
    "hung-device",
    "unreadable-port",
    "slow-counters",
    "missing-samples",
)
REASONS = (SILENT, HUNG, UNREADABLE, SLOW, MISSING)
# the supervisor restarts a silent sampler within three seconds
MAX_HEARTBEAT_AGE_SECONDS = 10.0
# above this share, lengths of bursts and steps are biased
MAX_MISSING_RATIO = 0.05
# jitter and quiet minutes never reach twice the sampling interval
MAX_RESOLUTION_INTERVALS = 2.0


def _unreliable(snapshot: Snapshot) -> Iterator[tuple[Labels, None]]:
    """The reasons, with device and port if it is one of these; missing samples only if nothing explains them."""
    health, causes = snapshot.health, 0
    if (health.heartbeat_age_seconds or 0.0) > MAX_HEARTBEAT_AGE_SECONDS:
        causes += 1
        yield (SILENT, "", ""), None
    for device in health.quarantined_devices:
        causes += 1
        yield (HUNG, device, ""), None
    for port in snapshot.ports:
        resolution = port.effective_resolution_seconds
        if port.left_alone:
            causes += 1
            yield (UNREADABLE, *ports.port_values(port.port.id)), None
        elif resolution is not None and resolution > MAX_RESOLUTION_INTERVALS * port.sampling_interval_seconds:
            yield (SLOW, *ports.port_values(port.port.id)), None
    if not causes and _misses_samples(snapshot):
        yield (MISSING, "", ""), None


def _misses_samples(snapshot: Snapshot) -> bool:
    """Whether too many samples of the longest window are missing, once the sampler has run for as long."""
    sampler = snapshot.sampler
    ran_ns = (sampler.ticks + sampler.missed_ticks) * sampler.interval_seconds * SECOND_NS
    if not snapshot.windows or ran_ns < parse_duration(snapshot.windows[-1]):
        return False
    sampled = any(port.directions and port.port.rail and port.port.active for port in snapshot.ports)
    return sampled and snapshot.node[-1].observed_ratio < 1 - MAX_MISSING_RATIO


def _alone(snapshot: Snapshot) -> list[tuple[str, bool]]:
    """The only job on the node, which has all its traffic, and whether that is sustained MoE saturation."""
    jobs = {job.claim.id for job in snapshot.jobs or () if job.ports}
    return [(name, snapshot.traffic.moe_saturated) for name in jobs] if len(jobs) == 1 else []


STALLS: Subject[Snapshot, bool] = labelled("job_id", lambda snapshot: snapshot.job_stalls.items())
UNRELIABLE = Subject(("reason", "device", "port"), _unreliable)
ALONE = labelled("job_id", _alone)

CONCLUSION_ROWS = (
    ALONE.gauge(
        "ibpulse_job_moe_saturated",
        "1 while the traffic of the node's only job is sustained MoE saturation, as ibpulse_node_moe_saturated, "
        "otherwise 0. Absent with several jobs or none.",
        int,
    ),
    STALLS.gauge(
        "ibpulse_job_stall",
        "1 while a job is silent on this node for longer than its steps explain: at once after a lost link or lost "
        "packets, otherwise after 60 s if traffic was cut off, 180 s if it began like a pause, 600 s before there are "
        "steps, and after twice its longest pause so far. Otherwise 0; absent before any traffic.",
        int,
    ),
    UNRELIABLE.gauge(
        "ibpulse_unreliable",
        f"1 while the numbers of the node, or of a device or port of it, cannot be trusted, by reason: "
        f"{', '.join(REASONS)}. Absent otherwise.",
        lambda _: 1,
    ),
)

_UP_TO_COUNTERS = (
    *ports.ROWS,
    *node.ROWS,
    *ports.TRAFFIC_ROWS,
    *node.TRAFFIC_ROWS,
    *node.JOB_ROWS,
    *CONCLUSION_ROWS,
    *ports.DIAGNOSTIC_COUNTERS,
)
_AFTER_COUNTERS = (
    *ports.STATE_ROWS,
    *DEVICE_ROWS,
    *SAMPLER_ROWS,
    *EXPORTER_ROWS,
    *CAPTURE_ROWS,
)
SNAPSHOT_ROWS = (*_UP_TO_COUNTERS, *_AFTER_COUNTERS)
TABLE: tuple[Metric, ...] = (*SNAPSHOT_ROWS, *web.ROWS)


def rows_of(snapshot: Snapshot) -> Iterator[Metric]:
    """The rows for a snapshot: those of the table, and those of counters that only its ports have."""
    yield from _UP_TO_COUNTERS
    yield from ports.other_rows(snapshot)
    yield from _AFTER_COUNTERS


def render(
    snapshot: Snapshot | None,
    registry: CollectorRegistry,
    accept: str | None = None,
    names: Sequence[str] = (),
    counts: WebCounts | None = None,
) -> tuple[bytes, str]:
    """Body and content type of `/metrics`; the parameters are those of `render_page`.

    Without a snapshot, all families that come from it are omitted.
    """
    rows = () if snapshot is None else rows_of(snapshot)
    return render_page(rows, snapshot, registry, counts, accept, names)
