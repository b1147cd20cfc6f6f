"""The metrics of the node, the sum over its rails: windows, bursts, balance, step, signature, saturation."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ibpulse.aggregator.snapshot import (
    DURATION_BUCKETS,
    UTILIZATION_BUCKETS,
    NodeTraffic,
    NodeWindow,
    Snapshot,
)
from ibpulse.analysis.signature import LABELS
from ibpulse.metrics.row import Labels, Subject, single


def _windows(snapshot: Snapshot) -> Iterator[tuple[Labels, NodeWindow]]:
    for name, window in zip(snapshot.windows, snapshot.node, strict=True):
        yield (name,), window


def _burstiness(snapshot: Snapshot) -> Iterator[tuple[Labels, float | None]]:
    for (name,), window in _windows(snapshot):
        for timescale, value in zip(snapshot.timescales, window.burstiness_cv, strict=True):
            yield (timescale, name), value


NODE: Subject[Snapshot, Snapshot] = single(lambda snapshot: snapshot)
WINDOW = Subject(("window",), _windows)
TIMESCALE = Subject(("timescale", "window"), _burstiness)

ROWS = (
    NODE.gauge(
        "ibpulse_node_rails",
        "Ports of the node that count as rails, ACTIVE or not.",
        lambda snapshot: snapshot.node_rails,
    ),
    WINDOW.gauge(
        "ibpulse_node_transmit_bytes_per_second",
        "Mean transmit rate of all rails together in the window.",
        lambda window: window.transmit_bytes_per_second,
        "bytes_per_second",
    ),
    WINDOW.gauge(
        "ibpulse_node_receive_bytes_per_second",
        "Mean receive rate of all rails together in the window.",
        lambda window: window.receive_bytes_per_second,
        "bytes_per_second",
    ),
    WINDOW.gauge(
        "ibpulse_node_bandwidth_peak_bytes_per_second",
        "Highest bandwidth (transmit + receive of all rails at the same tick) in the window.",
        lambda window: window.bandwidth_peak_bytes_per_second,
        "bytes_per_second",
    ),
    WINDOW.gauge(
        "ibpulse_node_bandwidth_active_mean_bytes_per_second",
        "Mean bandwidth of the ticks of the window that are above the threshold.",
        lambda window: window.bandwidth_active_mean_bytes_per_second,
        "bytes_per_second",
    ),
    WINDOW.gauge(
        "ibpulse_node_duty_cycle_ratio",
        "Share of the observed time of the window in which the node's bandwidth was above the threshold.",
        lambda window: window.duty_cycle_ratio,
        "ratio",
    ),
    WINDOW.gauge(
        "ibpulse_node_bandwidth_peak_to_mean_ratio",
        "Highest bandwidth of a single tick ÷ mean bandwidth of the window.",
        lambda window: window.peak_to_mean_ratio,
        "ratio",
    ),
    TIMESCALE.gauge(
        "ibpulse_node_burstiness_cv",
        "Coefficient of variation of the node's active bandwidth in the window, of means over the time scale. "
        "Absent for time scales finer than the slowest sampled rail.",
        lambda value: value,
    ),
)


def _with_period(snapshot: Snapshot) -> list[tuple[Labels, NodeTraffic]]:
    """The traffic, once a period was looked for."""
    return [((), snapshot.traffic)] if snapshot.traffic.step_score is not None else []


def _signatures(snapshot: Snapshot) -> list[tuple[Labels, bool]]:
    return [((label,), label == snapshot.traffic.signature) for label in LABELS]


TRAFFIC: Subject[Snapshot, NodeTraffic] = single(lambda snapshot: snapshot.traffic)
STEP = Subject((), _with_period)
SIGNATURE = Subject(("signature",), _signatures)

TRAFFIC_ROWS = (
    TRAFFIC.histogram(
        "ibpulse_node_bandwidth_utilization_ratio",
        "Bandwidth of every tick ÷ the line rate, both directions, of the rails that carry traffic.",
        lambda traffic: traffic.utilization,
        "ratio",
        UTILIZATION_BUCKETS,
    ),
    TRAFFIC.histogram(
        "ibpulse_node_burst_duration_seconds",
        "Lengths of the bursts of the node's bandwidth, counted when they end. One that touches a hole is left out.",
        lambda traffic: traffic.burst_durations,
        "seconds",
        DURATION_BUCKETS,
    ),
    TRAFFIC.histogram(
        "ibpulse_node_gap_duration_seconds",
        "Lengths of the gaps between bursts of the node's bandwidth, counted when they end.",
        lambda traffic: traffic.gap_durations,
        "seconds",
        DURATION_BUCKETS,
    ),
    TRAFFIC.counter(
        "ibpulse_node_bursts_total",
        "Bursts of the node's bandwidth that began after a gap, of known length or not.",
        lambda traffic: traffic.bursts,
    ),
    TRAFFIC.counter(
        "ibpulse_node_burst_bytes_total",
        "Bytes of the bursts in the histogram of lengths. Divide by its count for bytes per burst.",
        lambda traffic: traffic.burst_bytes,
        "bytes",
    ),
    TRAFFIC.gauge(
        "ibpulse_node_active_rails",
        "Rails whose mean bandwidth is above the threshold, over the same seconds as the shares.",
        lambda traffic: traffic.active_rails,
    ),
    TRAFFIC.gauge(
        "ibpulse_node_rail_fairness_ratio",
        "Jain index of the rails' bytes over the last 3 s, or 10 s or 1 m if they were silent: 1 when all carry the "
        "same, k/n when k of n do. A rail that is down counts as 0. Absent without traffic.",
        lambda traffic: traffic.fairness,
        "ratio",
    ),
    STEP.gauge(
        "ibpulse_node_step_period_seconds",
        "Period of the sum over the rails, for a training job its step. NaN when the score is too low to name one.",
        lambda traffic: math.nan if traffic.step_seconds is None else traffic.step_seconds,
        "seconds",
    ),
    STEP.gauge(
        "ibpulse_node_step_period_score",
        "How well the best period repeats, 0 to 1; below 0.4 it is refused.",
        lambda traffic: traffic.step_score,
    ),
    SIGNATURE.gauge(
        "ibpulse_node_workload_signature",
        "1 for the label that the traffic resembles most, else 0. A resemblance to published runs, never a fact.",
        int,
    ),
    TRAFFIC.gauge(
        "ibpulse_node_workload_signature_confidence_ratio",
        "Confidence of the label; at most 0.6 unless idle. With unknown, that of the best label that was refused.",
        lambda traffic: traffic.confidence,
        "ratio",
    ),
    TRAFFIC.gauge(
        "ibpulse_node_bandwidth_saturated",
        "1 while the median utilisation of the node's bandwidth in the saturation window is at or above the level.",
        lambda traffic: int(traffic.saturated),
    ),
    TRAFFIC.counter(
        "ibpulse_node_bandwidth_saturated_seconds_total",
        "Observed time in which the node's bandwidth was saturated.",
        lambda traffic: traffic.saturated_seconds,
        "seconds",
    ),
    TRAFFIC.gauge(
        "ibpulse_node_moe_saturated",
        "1 while the traffic has for some time been moe_like, with hardly a pause and with peaks at the line.",
        lambda traffic: int(traffic.moe_saturated),
    ),
    TRAFFIC.counter(
        "ibpulse_node_moe_saturated_seconds_total",
        "Time in the state of sustained MoE saturation.",
        lambda traffic: traffic.moe_saturated_seconds,
        "seconds",
    ),
)
