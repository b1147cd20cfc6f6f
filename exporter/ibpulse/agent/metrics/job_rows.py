"""The metrics of jobs: whose traffic a port carries, and the statistics of each job's rails."""

from __future__ import annotations

from collections.abc import Iterator

from ibpulse.agent.aggregator.job_totals import MAX_JOBS
from ibpulse.agent.aggregator.snapshot import JobSnapshot, Snapshot
from ibpulse.agent.jobs.owners import count_owners
from ibpulse.agent.metrics.ports import PORT_LABELS, port_values
from ibpulse.core.metrics.row import Labels, Subject, single
from ibpulse.core.model import PortId

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


def _statistics(snapshot: Snapshot) -> list[tuple[Labels, JobSnapshot]]:
    return [((job.job_id,), job) for job in snapshot.job_statistics]


OPTIONAL = ("name", "namespace")
INFO = Subject((*PORT_LABELS, "job_id", "scheduler", "source", *OPTIONAL), _infos, OPTIONAL)
COUNT = Subject(PORT_LABELS, _counts)
STATISTICS = Subject(("job_id",), _statistics)
NODE: Subject[Snapshot, Snapshot] = single(lambda snapshot: snapshot)

ROWS = (
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
        "seconds",
    ),
    STATISTICS.gauge(
        "ibpulse_job_duty_cycle_ratio",
        "Fraction of the last minute, or of the time since the job was first seen, during which the bandwidth of its "
        "rails was above the threshold.",
        lambda job: job.duty_cycle_ratio,
        "ratio",
    ),
    STATISTICS.gauge(
        "ibpulse_job_active_bandwidth_bytes_per_second",
        "Mean bandwidth of the job's rails in the samples above the threshold, over the same time.",
        lambda job: job.active_bytes_per_second,
        "bytes_per_second",
    ),
    STATISTICS.gauge(
        "ibpulse_job_rail_fairness_ratio",
        "Fairness index of the bytes of the job's rails, as for the node.",
        lambda job: job.fairness,
        "ratio",
    ),
    STATISTICS.gauge(
        "ibpulse_job_last_traffic_timestamp_seconds",
        "Wall time of the last sample in which the bandwidth of the job's rails was above the threshold. Absent "
        "without such a sample since the job was first seen.",
        lambda job: None if job.last_traffic_ns is None else job.last_traffic_ns / 1e9,
        "seconds",
    ),
)
