"""The metrics of the node, summed over its rails, and of its jobs."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ibpulse.agent.aggregator.jobs import MAX_JOBS
from ibpulse.agent.aggregator.snapshot import DURATION_BUCKETS, UTILIZATION_BUCKETS, JobSnapshot, NodeTraffic, Snapshot
from ibpulse.agent.jobs.owners import count_owners
from ibpulse.agent.metrics.ports import PORT_LABELS, port_values
from ibpulse.core.answers.summary import NodeConclusions, NodeWindow
from ibpulse.core.metrics.row import Labels, Subject, labelled, single
from ibpulse.core.model import PortId
from ibpulse.core.statistics.signature import LABELS


def _burstiness(snapshot: Snapshot) -> Iterator[tuple[Labels, float | None]]:
    for name, window in zip(snapshot.windows, snapshot.node, strict=True):
        for timescale, value in window.burstiness_cv.items():
            yield (timescale, name), value


NODE: Subject[Snapshot, Snapshot] = single(lambda snapshot: snapshot)
WINDOW: Subject[Snapshot, NodeWindow] = labelled(
    "window", lambda snapshot: zip(snapshot.windows, snapshot.node, strict=True)
)
TIMESCALE = Subject(("timescale", "window"), _burstiness)

ROWS = (
    NODE.gauge(
        "ibpulse_node_rails",
        "Number of the node's ports that are rails, ACTIVE or not.",
        lambda snapshot: snapshot.rails.rails,
    ),
    NODE.gauge(
        "ibpulse_node_expected_rails",
        "Number of rails that the node should have: ports.expected-rails, or the most rails that the event log "
        "remembers, or its PCI functions of their make if there are more.",
        lambda snapshot: snapshot.expected_rails,
    ),
    NODE.gauge(
        "ibpulse_node_line_rate_bytes_per_second",
        "Sum of the line rates of all rails, both directions, whether they are active, idle or down. While a link is "
        "down, its last rate while it was ACTIVE counts. A rail whose rate was never known counts like the "
        "fastest other one.",
        lambda snapshot: snapshot.rails.line_rate_bytes_per_second,
    ),
    WINDOW.gauge(
        "ibpulse_node_observed_ratio",
        "Share of the window with a sample of all rails. Peak, duty cycle, mean while active, burstiness and bursts "
        "are those of this share; the means are those of all bytes.",
        lambda window: window.observed_ratio,
    ),
    WINDOW.gauge(
        "ibpulse_node_transmit_bytes_per_second",
        "Mean transmit rate in the window, summed over all rails, of all bytes, also across missing samples.",
        lambda window: window.transmit_bytes_per_second,
    ),
    WINDOW.gauge(
        "ibpulse_node_receive_bytes_per_second",
        "Mean receive rate in the window, summed over all rails, of all bytes, also across missing samples.",
        lambda window: window.receive_bytes_per_second,
    ),
    WINDOW.gauge(
        "ibpulse_node_bandwidth_peak_bytes_per_second",
        "Highest bandwidth (transmit + receive of all rails in the same sample) in the window.",
        lambda window: window.bandwidth_peak_bytes_per_second,
    ),
    WINDOW.gauge(
        "ibpulse_node_bandwidth_peak_utilization_ratio",
        "Highest bandwidth of a single sample in the window ÷ the node's line rate at that sample.",
        lambda window: window.bandwidth_peak_utilization_ratio,
    ),
    WINDOW.gauge(
        "ibpulse_node_bandwidth_active_mean_bytes_per_second",
        "Mean bandwidth of the samples above the threshold in the window.",
        lambda window: window.bandwidth_active_mean_bytes_per_second,
    ),
    WINDOW.gauge(
        "ibpulse_node_duty_cycle_ratio",
        "Fraction of the window's observed time during which the node's bandwidth was above the threshold, with all "
        "rails taken to one instant of each sample.",
        lambda window: window.duty_cycle_ratio,
    ),
    WINDOW.gauge(
        "ibpulse_node_bandwidth_peak_to_mean_ratio",
        "Highest bandwidth of a single sample ÷ mean bandwidth of the window.",
        lambda window: window.peak_to_mean_ratio,
    ),
    TIMESCALE.gauge(
        "ibpulse_node_burstiness_cv",
        "Coefficient of variation of the node's active bandwidth in the window, averaged over the time scale first, "
        "with all rails taken to one instant of each sample. Absent for time scales that are not a multiple of the "
        "sampling interval of every rail.",
        lambda value: value,
    ),
)


def _with_period(snapshot: Snapshot) -> list[tuple[Labels, NodeConclusions]]:
    """The conclusions, as soon as a period has been searched for."""
    found = snapshot.traffic.concluded
    return [((), found)] if found.step_period_score is not None else []


TRAFFIC: Subject[Snapshot, NodeTraffic] = single(lambda snapshot: snapshot.traffic)
STEP = Subject((), _with_period)
SIGNATURE: Subject[Snapshot, bool] = labelled(
    "signature",
    lambda snapshot: ((label, label == snapshot.traffic.concluded.workload_signature) for label in LABELS),
)

TRAFFIC_ROWS = (
    NODE.gauge(
        "ibpulse_node_last_traffic_timestamp_seconds",
        "Wall time of the last sample in which the bandwidth of the rails was above the threshold. Of the nodes of a "
        "job, the one with the lowest value stopped first. Absent without such a sample since the beginning of the "
        "history.",
        lambda snapshot: None if snapshot.last_traffic_ns is None else snapshot.last_traffic_ns / 1e9,
    ),
    TRAFFIC.histogram(
        "ibpulse_node_bandwidth_utilization_ratio",
        "Bandwidth of every sample ÷ the line rate of all rails, in both directions, idle rails included.",
        lambda traffic: traffic.utilization,
        UTILIZATION_BUCKETS,
    ),
    TRAFFIC.histogram(
        "ibpulse_node_burst_duration_seconds",
        "Lengths of the bursts of the node's bandwidth, counted when they end. Those cut off by three or "
        "more missing samples are excluded, long ones more often: see ibpulse_node_observed_ratio. Its count is no "
        "number of bursts per time.",
        lambda traffic: traffic.burst_durations,
        DURATION_BUCKETS,
    ),
    TRAFFIC.histogram(
        "ibpulse_node_gap_duration_seconds",
        "Lengths of the idle gaps between bursts of the node's bandwidth, counted when they end. As for bursts, those "
        "cut off by three or more missing samples are excluded.",
        lambda traffic: traffic.gap_durations,
        DURATION_BUCKETS,
    ),
    TRAFFIC.counter(
        "ibpulse_node_bursts_total",
        "Bursts of the node's bandwidth that began after an idle gap, whether or not their length is known. Those that "
        "begin in three or more missing samples are not seen: divide by ibpulse_node_burst_watched_seconds_total to "
        "get bursts per second.",
        lambda traffic: traffic.bursts,
    ),
    TRAFFIC.counter(
        "ibpulse_node_burst_watched_seconds_total",
        "Time in which the beginning of a burst of the node's bandwidth is counted: that up to each sample "
        "from the one before, unless three or more are missing between both.",
        lambda traffic: traffic.burst_watched_seconds,
    ),
    TRAFFIC.counter(
        "ibpulse_node_burst_bytes_total",
        "Bytes in the bursts counted by the burst duration histogram. Divide by its count to get bytes per burst.",
        lambda traffic: traffic.burst_bytes,
    ),
    NODE.gauge(
        "ibpulse_node_active_rails",
        "Number of rails whose mean bandwidth is above the threshold, over the same seconds as the rail shares.",
        lambda snapshot: snapshot.rails.active_rails,
    ),
    TRAFFIC.gauge(
        "ibpulse_node_rail_fairness_ratio",
        "Jain's fairness index of the rails' bytes over the last 3 s (10 s or 1 m if there was no traffic in them): 1 "
        "when all rails carry the same, k/n when only k of n carry traffic. With several jobs, the harmonic mean of "
        "the indexes of those with traffic, weighted by their rails. A rail that is down counts as 0. Absent without "
        "traffic.",
        lambda traffic: traffic.concluded.rail_fairness_ratio,
    ),
    STEP.gauge(
        "ibpulse_node_step_period_seconds",
        "Period of the traffic summed over the rails: for a training job, the step time. NaN if the score is too low.",
        lambda found: math.nan if found.step_period_seconds is None else found.step_period_seconds,
    ),
    STEP.gauge(
        "ibpulse_node_step_period_score",
        "How well the best period repeats, from 0 to 1; a period that scores below 0.4 is rejected.",
        lambda found: found.step_period_score,
    ),
    SIGNATURE.gauge(
        "ibpulse_node_workload_signature",
        "1 for the label that the traffic resembles most, otherwise 0. Similarity to published runs, not proof of the "
        "workload.",
        int,
    ),
    TRAFFIC.gauge(
        "ibpulse_node_workload_signature_confidence_ratio",
        "Confidence of the label, at most 0.6 unless idle. If the label is unknown, the confidence of the best "
        "rejected label.",
        lambda traffic: traffic.concluded.workload_signature_confidence,
    ),
    TRAFFIC.gauge(
        "ibpulse_node_bandwidth_saturated",
        "1 while the median utilisation of the node's bandwidth in the saturation window is at or above the saturation "
        "level.",
        lambda traffic: int(traffic.saturated),
    ),
    TRAFFIC.counter(
        "ibpulse_node_bandwidth_saturated_seconds_total",
        "Observed time during which the node's bandwidth was saturated.",
        lambda traffic: traffic.saturated_seconds,
    ),
    TRAFFIC.gauge(
        "ibpulse_node_moe_saturated",
        "1 while the traffic has been moe_like for some time, almost continuous and with peaks near line rate.",
        lambda traffic: int(traffic.moe_saturated),
    ),
    TRAFFIC.counter(
        "ibpulse_node_moe_saturated_seconds_total",
        "Time spent in sustained MoE saturation.",
        lambda traffic: traffic.moe_saturated_seconds,
    ),
)


# series of a shared port, whatever the number of its jobs
MAX_INFOS = 16


def _infos(snapshot: Snapshot) -> Iterator[tuple[Labels, None]]:
    written: dict[PortId, int] = {}
    for job in snapshot.jobs or ():
        claim = job.claim
        for port in job.ports:
            written[port] = written.get(port, 0) + 1
            if written[port] <= MAX_INFOS:
                names = (claim.id, claim.scheduler, claim.source, claim.name, claim.namespace)
                yield (*port_values(port), *names), None


def _counts(snapshot: Snapshot) -> Iterator[tuple[Labels, int]]:
    if snapshot.jobs is None:
        return
    counts = count_owners(snapshot.jobs)
    for port in snapshot.ports:
        if (port.port.rail and snapshot.jobs_known) or port.port.id in counts:
            yield port_values(port.port.id), counts.get(port.port.id, 0)


OPTIONAL = ("name", "namespace")
INFO = Subject((*PORT_LABELS, "job_id", "scheduler", "source", *OPTIONAL), _infos, OPTIONAL)
COUNT = Subject(PORT_LABELS, _counts)
STATISTICS: Subject[Snapshot, JobSnapshot] = labelled(
    "job_id", lambda snapshot: ((job.job_id, job) for job in snapshot.job_statistics)
)

JOB_ROWS = (
    NODE.gauge(
        "ibpulse_node_jobs",
        "Number of jobs on the node, of pods those that hold an RDMA device. Absent if there may be others.",
        lambda snapshot: len(snapshot.jobs) if snapshot.jobs is not None and snapshot.jobs_known else None,
    ),
    COUNT.gauge(
        "ibpulse_port_jobs",
        "Number of jobs whose traffic the port carries, as far as that is known; for rails and for ports that a job "
        "names.",
        lambda count: count,
    ),
    INFO.info(
        "ibpulse_port_job_info",
        "A job whose traffic the port carries, its scheduler, and the source that names it. A shared port has one "
        f"sample for each of its jobs, at most {MAX_INFOS}. The labels name and namespace are only there with "
        "jobs.names. Always 1.",
    ),
    STATISTICS.gauge(
        "ibpulse_job_step_period_seconds",
        "Period of the traffic of the job's rails: its step time, while they are silent that of the last steps. NaN if "
        f"none was found. Like all statistics of jobs, for at most {MAX_JOBS} jobs of a node, and only for those that "
        "share no port.",
        lambda job: job.step_seconds,
    ),
    STATISTICS.gauge(
        "ibpulse_job_duty_cycle_ratio",
        "Fraction of the last minute, or of the time since the job was first seen, during which the bandwidth of its "
        "rails was above the threshold.",
        lambda job: job.duty_cycle_ratio,
    ),
    STATISTICS.gauge(
        "ibpulse_job_active_bandwidth_bytes_per_second",
        "Mean bandwidth of the job's rails in the samples above the threshold, over the same time.",
        lambda job: job.active_bytes_per_second,
    ),
    STATISTICS.gauge(
        "ibpulse_job_rail_fairness_ratio",
        "Fairness index of the bytes of the job's rails, as for the node.",
        lambda job: job.fairness,
    ),
    STATISTICS.gauge(
        "ibpulse_job_last_traffic_timestamp_seconds",
        "Wall time of the last sample in which the bandwidth of the job's rails was above the threshold. Absent "
        "without such a sample since the job was first seen.",
        lambda job: None if job.last_traffic_ns is None else job.last_traffic_ns / 1e9,
    ),
)
