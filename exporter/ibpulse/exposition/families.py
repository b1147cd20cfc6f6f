"""Which number of a snapshot is which metric."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Iterator, Sequence

from ibpulse import __version__, metrics
from ibpulse.aggregator.snapshot import (
    DirectionSnapshot,
    DirectionWindow,
    NodeTraffic,
    NodeWindow,
    PortSnapshot,
    Snapshot,
)
from ibpulse.analysis.signature import LABELS
from ibpulse.exposition.lines import Family, Sample, Value, known
from ibpulse.metrics import Metric
from ibpulse.model import CaptureCounts


def capture_families(counts: CaptureCounts) -> Iterator[Family]:
    """All families of the flight recorder."""
    yield metrics.CAPTURES, [((reason,), taken) for reason, taken in counts.taken]
    yield metrics.CAPTURE_ERRORS, [((), counts.errors)]
    yield metrics.CAPTURES_STORED, [((), counts.stored)]
    yield metrics.CAPTURE_STORED_BYTES, [((), counts.stored_bytes)]
    yield metrics.CAPTURE_LAST, known([((), counts.newest_seconds)])


_PLACES = {metric.name: place for place, metric in enumerate(metrics.DIAGNOSTIC_COUNTERS)}


def counter_families(snapshot: Snapshot) -> Iterator[Family]:
    """A family per counter, those of the table first and in its order, then what has stopped and what was stalled."""
    ports = [((port.port.device, str(port.port.port)), port) for port in snapshot.counters]
    samples: dict[str, list[Sample]] = {}
    files: dict[str, str] = {}
    for labels, port in ports:
        for counter in port.totals:
            files.setdefault(counter.name, counter.file)
            samples.setdefault(counter.name, []).append((labels, counter.total))
    for name in sorted(samples, key=lambda name: (_PLACES.get(name, len(_PLACES)), name)):
        yield metrics.find_counter(name, files[name]), samples[name]
    yield (
        metrics.PORT_COUNTER_SATURATED,
        [((*labels, counter.file), 1) for labels, port in ports for counter in port.totals if counter.saturated],
    )
    yield metrics.PORT_TRANSMIT_STALLED, known([(labels, port.stalled_ratio) for labels, port in ports])


def traffic_families(snapshot: Snapshot) -> Iterator[Family]:
    """The families of bursts, rails, step, signature and saturation."""
    yield from _port_traffic_families(snapshot)
    yield from _node_traffic_families(snapshot.traffic)


def _port_traffic_families(snapshot: Snapshot) -> Iterator[Family]:
    ports = [((port.port.id.device, str(port.port.id.port)), port.traffic) for port in snapshot.ports if port.traffic]
    yield metrics.PORT_BURSTS, [(labels, traffic.bursts) for labels, traffic in ports]
    yield metrics.PORT_BURST_SECONDS, [(labels, traffic.burst_seconds) for labels, traffic in ports]
    rails = [(labels, traffic.rail) for labels, traffic in ports if traffic.rail]
    yield metrics.PORT_RAIL_SHARE, known([(labels, rail.share) for labels, rail in rails])
    yield metrics.PORT_RAIL_IDLE, [(labels, int(rail.idle)) for labels, rail in rails]
    yield metrics.PORT_RAIL_SLOW, [(labels, int(rail.slow)) for labels, rail in rails]
    for way in range(2):
        states = known([(labels, traffic.saturated[way]) for labels, traffic in ports])
        yield metrics.PORT_SATURATED[way], [(labels, int(state is True)) for labels, state in states]
        yield (
            metrics.PORT_SATURATED_SECONDS[way],
            [(labels, traffic.saturated_seconds[way]) for labels, traffic in ports],
        )


def _node_traffic_families(traffic: NodeTraffic) -> Iterator[Family]:
    yield metrics.NODE_UTILIZATION, known([((), traffic.utilization)])
    yield metrics.NODE_BURST_DURATION, [((), traffic.burst_durations)]
    yield metrics.NODE_GAP_DURATION, [((), traffic.gap_durations)]
    yield metrics.NODE_BURSTS, [((), traffic.bursts)]
    yield metrics.NODE_BURST_BYTES, [((), traffic.burst_bytes)]
    yield metrics.NODE_ACTIVE_RAILS, [((), traffic.active_rails)]
    yield metrics.NODE_RAIL_FAIRNESS, known([((), traffic.fairness)])
    if traffic.step_score is not None:
        period = math.nan if traffic.step_seconds is None else traffic.step_seconds
        yield metrics.NODE_STEP_PERIOD, [((), period)]
        yield metrics.NODE_STEP_SCORE, [((), traffic.step_score)]
    yield metrics.NODE_SIGNATURE, [((label,), int(label == traffic.signature)) for label in LABELS]
    yield metrics.NODE_SIGNATURE_CONFIDENCE, [((), traffic.confidence)]
    yield metrics.NODE_SATURATED, [((), int(traffic.saturated))]
    yield metrics.NODE_SATURATED_SECONDS, [((), traffic.saturated_seconds)]
    yield metrics.NODE_MOE_SATURATED, [((), int(traffic.moe_saturated))]
    yield metrics.NODE_MOE_SATURATED_SECONDS, [((), traffic.moe_saturated_seconds)]


def families(snapshot: Snapshot) -> Iterator[Family]:
    """All families of a snapshot, in the order of the table within each part; what is None is left out."""
    yield from _port_families(snapshot)
    yield from _direction_families(snapshot)
    yield from _node_families(snapshot)
    yield from traffic_families(snapshot)
    yield from counter_families(snapshot)
    yield from _device_families(snapshot)
    yield from _sampler_families(snapshot)
    yield from _exporter_families(snapshot)
    yield from capture_families(snapshot.captures)


def _port_families(snapshot: Snapshot) -> Iterator[Family]:
    everything = [((port.port.id.device, str(port.port.id.port)), port) for port in snapshot.ports]
    yield metrics.PORT_INFO, [((*labels, *_identity(port)), 1) for labels, port in everything]
    yield metrics.PORT_UP, [(labels, int(port.port.active)) for labels, port in everything]
    rates = [(labels, port.port.rate_bytes_per_second) for labels, port in everything]
    yield metrics.PORT_RATE, known(rates)
    placed = [(labels, port) for labels, port in everything if port.directions]
    for metric, value in _PORT_VALUES:
        yield metric, known([(labels, value(port)) for labels, port in placed])


_PORT_VALUES: tuple[tuple[Metric, Callable[[PortSnapshot], Value]], ...] = (
    (metrics.PORT_OBSERVED, lambda port: port.observed_seconds),
    (metrics.PORT_RESETS, lambda port: port.resets),
    (metrics.PORT_SAMPLING_INTERVAL, lambda port: port.sampling_interval_seconds),
    (metrics.PORT_RESOLUTION, lambda port: port.effective_resolution_seconds),
    (metrics.PORT_LEFT_ALONE, lambda port: int(port.left_alone)),
    (metrics.SAMPLER_READ_ERRORS, lambda port: port.read_errors),
    (metrics.SAMPLER_UNCERTAIN_READS, lambda port: port.uncertain_reads),
)


def _identity(port: PortSnapshot) -> tuple[str, ...]:
    """The labels of `ibpulse_port_info` after device and port."""
    identity = port.port.identity
    values = tuple(getattr(identity, label) for label in metrics.IDENTITY_LABELS)
    source = port.port.source.name if port.port.source else ""
    return (*values, "true" if port.port.rail else "false", source)


def _direction_families(snapshot: Snapshot) -> Iterator[Family]:
    for way in range(2):
        placed = [
            ((port.port.id.device, str(port.port.id.port)), port.directions[way])
            for port in snapshot.ports
            if port.directions
        ]
        yield metrics.PORT_BYTES[way], known([(labels, side.bytes_total) for labels, side in placed])
        yield metrics.PORT_ACTIVE_SECONDS[way], [(labels, side.active_seconds) for labels, side in placed]
        yield from _moment_families(way, placed)
        for pair, value in _WINDOW_VALUES:
            yield (
                pair[way],
                known(
                    [
                        ((*labels, name), value(window))
                        for labels, side in placed
                        for name, window in zip(snapshot.windows, side.windows, strict=True)
                    ]
                ),
            )


def _moment_families(way: int, placed: Sequence[tuple[tuple[str, str], DirectionSnapshot]]) -> Iterator[Family]:
    rated = [(labels, side.moments) for labels, side in placed if side.moments]
    yield metrics.PORT_UTILIZATION_SECONDS[way], [(labels, sums.utilization_seconds) for labels, sums in rated]
    yield (
        metrics.PORT_UTILIZATION_SQUARED_SECONDS[way],
        [(labels, sums.utilization_squared_seconds) for labels, sums in rated],
    )
    yield (
        metrics.PORT_ACTIVE_UTILIZATION_SECONDS[way],
        [(labels, sums.active_utilization_seconds) for labels, sums in rated],
    )
    yield (
        metrics.PORT_ACTIVE_UTILIZATION_SQUARED_SECONDS[way],
        [(labels, sums.active_utilization_squared_seconds) for labels, sums in rated],
    )
    yield metrics.PORT_UTILIZATION[way], [(labels, sums.histogram) for labels, sums in rated]


_WINDOW_VALUES: tuple[tuple[tuple[Metric, Metric], Callable[[DirectionWindow], Value]], ...] = (
    (metrics.PORT_PEAK, lambda window: window.peak_bytes_per_second),
    (metrics.PORT_DUTY_CYCLE, lambda window: window.duty_cycle_ratio),
    (metrics.PORT_BURSTINESS, lambda window: window.burstiness_cv),
)

_NODE_VALUES: tuple[tuple[Metric, Callable[[NodeWindow], Value]], ...] = (
    (metrics.NODE_BYTES_PER_SECOND[0], lambda window: window.transmit_bytes_per_second),
    (metrics.NODE_BYTES_PER_SECOND[1], lambda window: window.receive_bytes_per_second),
    (metrics.NODE_PEAK, lambda window: window.bandwidth_peak_bytes_per_second),
    (metrics.NODE_ACTIVE_MEAN, lambda window: window.bandwidth_active_mean_bytes_per_second),
    (metrics.NODE_DUTY_CYCLE, lambda window: window.duty_cycle_ratio),
    (metrics.NODE_PEAK_TO_MEAN, lambda window: window.peak_to_mean_ratio),
)


def _node_families(snapshot: Snapshot) -> Iterator[Family]:
    named = list(zip(snapshot.windows, snapshot.node, strict=True))
    yield metrics.NODE_RAILS, [((), snapshot.node_rails)]
    for metric, value in _NODE_VALUES:
        yield metric, known([((name,), value(window)) for name, window in named])
    yield (
        metrics.NODE_BURSTINESS,
        known(
            [
                ((timescale, name), value)
                for name, window in named
                for timescale, value in zip(snapshot.timescales, window.burstiness_cv, strict=True)
            ]
        ),
    )


def _device_families(snapshot: Snapshot) -> Iterator[Family]:
    shown = {port.port.id.device for port in snapshot.ports}
    places = [place for place in snapshot.fabric.topology.devices if place.device in shown]
    yield metrics.DEVICE_PCIE, known([((place.device,), place.pcie_bytes_per_second) for place in places])
    yield metrics.DEVICE_PCIE_MAX, known([((place.device,), place.pcie_max_bytes_per_second) for place in places])


def _sampler_families(snapshot: Snapshot) -> Iterator[Family]:
    sampler, health = snapshot.sampler, snapshot.health
    yield metrics.SAMPLER_INTERVAL, [((), sampler.interval_seconds)]
    yield metrics.SAMPLER_TICKS, [((), sampler.ticks)]
    yield metrics.SAMPLER_MISSED_TICKS, [((), sampler.missed_ticks)]
    yield metrics.SAMPLER_RESTARTS, [((), health.restarts)]
    yield metrics.SAMPLER_TAKEOVERS, [((), health.takeovers)]
    yield metrics.SAMPLER_CLOCK_STEPS, [((), sampler.clock_steps)]
    yield metrics.SAMPLER_CPU, [((), sampler.cpu_seconds)]
    yield metrics.SAMPLER_LATENESS, [((), sampler.lateness)]
    yield metrics.SAMPLER_TICK_DURATION, [((), sampler.tick_duration)]
    yield metrics.SAMPLER_HEARTBEAT_AGE, known([((), health.heartbeat_age_seconds)])
    scheduler = (health.scheduler_requested, health.scheduler_actual, health.cpu_requested, health.cpu_actual)
    yield metrics.SAMPLER_SCHEDULER_INFO, [(scheduler, 1)]
    sick = {*health.quarantined_devices, *snapshot.fabric.stuck_devices}
    devices = sorted(sick | {port.port.id.device for port in snapshot.ports})
    yield (
        metrics.DEVICE_QUARANTINED,
        [((device,), int(device in health.quarantined_devices)) for device in devices],
    )
    yield metrics.DEVICE_READ_P99, known([((reads.device,), reads.p99_seconds) for reads in health.reads])
    yield (
        metrics.DEVICE_INTERVAL_LENGTHENED,
        [((reads.device,), 1) for reads in health.reads if reads.interval_lengthened],
    )
    yield metrics.CGROUP_THROTTLED, known([((), health.throttled_periods)])


def _exporter_families(snapshot: Snapshot) -> Iterator[Family]:
    until = None if snapshot.end_wall_ns is None else snapshot.end_wall_ns / 1e9
    yield metrics.FABRIC_NOTICES, [((), len(snapshot.fabric.notices))]
    yield metrics.AGGREGATED_UNTIL, known([((), until)])
    yield metrics.AGGREGATOR_SKIPPED, [((), snapshot.skipped_seconds)]
    yield metrics.BUILD_INFO, [((__version__, platform.python_version()), 1)]
