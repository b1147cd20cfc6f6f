"""The jobs of the past, as the event log tells of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ibpulse.events.event import Event, is_port_name
from ibpulse.jobs.claims import BASES, Claim, Key, PlacedJob, is_job_id
from ibpulse.model import PortId

BEGAN, CHANGED, ENDED = "job-began", "job-change", "job-ended"
# longer lists would make events longer than their readers accept
MOST_PORTS = 256


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job with the ports that it had last; it is running if `ended_ns` is None.

    It began or ended at most the uncertainty before the wall times, when that was noticed. `began_ns` is None if it was
    running already when it was first seen.
    """

    job: PlacedJob
    began_ns: int | None
    began_uncertainty_ns: int = 0
    ended_ns: int | None = None
    ended_uncertainty_ns: int = 0


def job_details(job: PlacedJob, *, known: bool = True, with_cgroup: bool = False) -> dict[str, Any]:
    """The details of an event about a job; `known` says whether it is known when it began."""
    claim = job.claim
    details: dict[str, Any] = {
        "job_id": claim.id,
        "scheduler": claim.scheduler,
        "source": claim.source,
        "ports": [str(port) for port in job.ports[:MOST_PORTS]],
        "basis": job.basis,
        "name": claim.name,
        "namespace": claim.namespace,
        "running_before": not known,
        "cgroup": with_cgroup,
    }
    return {name: value for name, value in details.items() if value}


def read_job(details: Mapping[str, Any]) -> PlacedJob | None:
    """The job that the details of an event describe; None if they describe none. What the job holds is not in them."""
    words = {name: details.get(name, "") for name in ("job_id", "scheduler", "source", "basis", "name", "namespace")}
    ports = details.get("ports", [])
    if not all(isinstance(word, str) for word in words.values()) or not isinstance(ports, list):
        return None
    if not is_job_id(words["job_id"]) or words["basis"] not in ("", *BASES):
        return None
    claim = Claim(words["job_id"], words["scheduler"], words["source"], words["name"], words["namespace"])
    names = [name for name in ports if isinstance(name, str) and is_port_name(name)]
    split = (name.rpartition(":") for name in names)
    return PlacedJob(claim, tuple(PortId(device, int(number)) for device, _, number in split), words["basis"])


def trace_jobs(events: Iterable[Event]) -> tuple[JobRecord, ...]:
    """The jobs in events, which are in the order in which they were noticed; jobs in the order in which they ended.

    Those that are running come last. A job that came back under its id is two records.
    """
    running: dict[Key, JobRecord] = {}
    ended: list[JobRecord] = []
    for event in events:
        if event.kind not in (BEGAN, CHANGED, ENDED) or (job := read_job(event.details)) is None:
            continue
        key = job.claim.key
        before = running.pop(key, None)
        if event.kind == ENDED:
            record = before or JobRecord(job, None)
            ended.append(replace(record, ended_ns=event.time_ns, ended_uncertainty_ns=event.uncertainty_ns))
        elif event.kind == CHANGED:
            running[key] = replace(before or JobRecord(job, None), job=job)
        elif event.details.get("running_before"):
            running[key] = JobRecord(job, None)
        else:
            running[key] = JobRecord(job, event.time_ns, event.uncertainty_ns)
    return (*ended, *running.values())


def had_cgroup(events: Iterable[Event]) -> set[Key]:
    """The jobs that had a cgroup when they began."""
    noted = (event for event in events if event.kind == BEGAN and event.details.get("cgroup"))
    return {job.claim.key for event in noted if (job := read_job(event.details)) is not None}
