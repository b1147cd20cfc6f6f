"""The metrics of jobs: which job's traffic a port carries. No other metric has a label of a job."""

from __future__ import annotations

from collections.abc import Iterator

from ibpulse.aggregator.snapshot import Snapshot
from ibpulse.jobs.owners import count_owners
from ibpulse.metrics.ports import PORT_LABELS, port_values
from ibpulse.metrics.row import Labels, Subject, single
from ibpulse.model import PortId

# series of a shared port, whatever the number of its jobs
MOST_INFOS = 16


def _infos(snapshot: Snapshot) -> Iterator[tuple[Labels, None]]:
    written: dict[PortId, int] = {}
    for job in snapshot.jobs or ():
        claim = job.claim
        for port in job.ports:
            written[port] = written.get(port, 0) + 1
            if written[port] <= MOST_INFOS:
                names = (claim.id, claim.scheduler, claim.source, claim.name, claim.namespace)
                yield (*port_values(port), *names), None


def _counts(snapshot: Snapshot) -> Iterator[tuple[Labels, int]]:
    if snapshot.jobs is None:
        return
    counts = count_owners(snapshot.jobs)
    for port in snapshot.ports:
        if port.port.rail or port.port.id in counts:
            yield port_values(port.port.id), counts.get(port.port.id, 0)


OPTIONAL = ("name", "namespace")
INFO = Subject((*PORT_LABELS, "job_id", "scheduler", "source", *OPTIONAL), _infos, OPTIONAL)
COUNT = Subject(PORT_LABELS, _counts)
NODE: Subject[Snapshot, Snapshot] = single(lambda snapshot: snapshot)

ROWS = (
    NODE.gauge(
        "ibpulse_node_jobs",
        "Number of jobs on the node, of pods those that hold an RDMA device. Absent if nothing tells which jobs run.",
        lambda snapshot: None if snapshot.jobs is None else len(snapshot.jobs),
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
        f"sample for each of its jobs, at most {MOST_INFOS}. The labels name and namespace are only there with "
        "jobs.names. Always 1.",
    ),
)
