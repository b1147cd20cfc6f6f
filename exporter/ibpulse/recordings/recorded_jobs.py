"""The jobs of a recording: those of its span, each with the ports that it had first in it.

Later changes of their ports are events of the recording, as those of the states of ports are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import orjson

from ibpulse.client import DaemonConnection, reading
from ibpulse.errors import DaemonError
from ibpulse.events import Event
from ibpulse.events.event import MAX_INTEGER
from ibpulse.jobs import PlacedJob
from ibpulse.jobs.claims import Key
from ibpulse.jobs.job_history import BEGAN, CHANGED, ENDED, Holding, JobRecord, job_details, read_job
from ibpulse.model import PortId
from ibpulse.units import MILLISECOND_NS

MOST_JOBS = 1000
MOST_JOB_BYTES = 500_000
NOT_FOUND = 404
_TIMES = ("began", "ended")


def jobs_between(records: Iterable[JobRecord], begin_ns: int, end_ns: int) -> tuple[JobRecord, ...]:
    """The jobs that ran between two wall times, by their begin, each with the ports that it had first in between."""
    found = []
    for record in records:
        late = record.began_ns is not None and record.began_ns >= end_ns
        if late or (record.ended_ns is not None and record.ended_ns <= begin_ns):
            continue
        had = next((each for each in record.holdings if each.overlaps(begin_ns, end_ns)), None)
        found.append(_with_ports(record, record.job.ports if had is None else had.ports))
    return tuple(sorted(found, key=lambda record: record.began_ns or 0))


def _with_ports(record: JobRecord, ports: tuple[PortId, ...]) -> JobRecord:
    job = replace(record.job, ports=ports, claim=replace(record.job.claim, gpus=(), gpu_indexes=(), devices=()))
    return replace(record, job=job, holdings=(Holding(ports),))


def trace_holdings(jobs: Iterable[JobRecord], events: Iterable[Event]) -> tuple[JobRecord, ...]:
    """The jobs of a recording with all ports that they had in it, by its events."""
    told: dict[Key, list[tuple[Event, PlacedJob]]] = {}
    for event in events:
        job = read_job(event.details) if event.kind in (BEGAN, CHANGED) else None
        if job is not None:
            told.setdefault(job.claim.key, []).append((event, job))
    return tuple(_trace(record, told.get(record.job.claim.key, ())) for record in jobs)


def _trace(record: JobRecord, events: Iterable[tuple[Event, PlacedJob]]) -> JobRecord:
    first_ns, last_ns = record.began_ns or 0, MAX_INTEGER if record.ended_ns is None else record.ended_ns
    found = record
    for event, job in events:
        if not first_ns <= event.time_ns <= last_ns:
            continue
        if event.kind == BEGAN:
            found = replace(record, holdings=(Holding(job.ports, event),))
        else:
            found = found.changed(job, event)
    if record.ended_ns is None:
        return found
    return found.ended(Event(record.ended_ns, ENDED, "", "", record.ended_uncertainty_ns))


def jobs_to_json(jobs: Iterable[JobRecord]) -> list[dict[str, Any]]:
    """The jobs as values of JSON; members that are empty or 0, and times that are not known, are absent."""
    return [{**job_details(record.job), **_times(record)} for record in jobs]


def _times(record: JobRecord) -> dict[str, int]:
    found = {
        f"{name}_{what}ns": getattr(record, f"{name}_{what}ns") for name in _TIMES for what in ("", "uncertainty_")
    }
    return {name: value for name, value in found.items() if value}


def jobs_from_json(members: object) -> tuple[JobRecord, ...]:
    """The jobs of `jobs_to_json`.

    Raises:
        ValueError: they are too many or not jobs; the message continues a sentence that begins with the file name.
    """
    if not isinstance(members, list):
        raise ValueError("has invalid metadata: jobs are not a list")  # noqa: TRY004 (a fault of the value)
    if len(members) > MOST_JOBS:
        raise ValueError(f"has {len(members)} jobs; at most {MOST_JOBS} are read")
    return tuple(_from_json(each) for each in members)


def _from_json(members: object) -> JobRecord:
    job = read_job(members) if isinstance(members, dict) else None
    if job is None:
        raise ValueError("has invalid metadata: jobs: a job is not an object with an id")
    assert isinstance(members, dict)
    numbers = {f"{name}_{what}ns": members.get(f"{name}_{what}ns") for name in _TIMES for what in ("", "uncertainty_")}
    for name, number in numbers.items():
        if not (number is None or (type(number) is int and 0 <= number <= MAX_INTEGER)):
            raise ValueError(f"has invalid metadata: jobs: {name} of job {job.claim.id} is not a time in nanoseconds")
    return JobRecord(
        job,
        numbers["began_ns"],
        numbers["began_uncertainty_ns"] or 0,
        numbers["ended_ns"],
        numbers["ended_uncertainty_ns"] or 0,
        (Holding(job.ports),),
    )


def limit_jobs(jobs: Iterable[JobRecord]) -> tuple[tuple[JobRecord, ...], int]:
    """The jobs that a recording can hold, by their begin, and the number of those left out: the first that ended."""
    every = list(jobs)
    going = sorted(every, key=lambda record: MAX_INTEGER if record.ended_ns is None else record.ended_ns)
    sizes = [len(orjson.dumps(jobs_to_json([record]))) for record in going]
    total, left_out = sum(sizes), 0
    while len(going) - left_out > MOST_JOBS or total > MOST_JOB_BYTES:
        total, left_out = total - sizes[left_out], left_out + 1
    gone = {id(record) for record in going[:left_out]}
    return tuple(record for record in every if id(record) not in gone), left_out


def ask_jobs(connection: DaemonConnection) -> tuple[JobRecord, ...]:
    """The jobs of a daemon's node: those that run and those that ended within its history; none of a 0.1 daemon.

    Raises:
        DaemonError: there is no answer, or it is not one of an ibpulse daemon.
    """
    try:
        body = connection.get("/api/v1/jobs").body
    except DaemonError as error:
        if error.status == NOT_FOUND:
            return ()
        raise
    with reading(connection):
        return tuple(_from_json(_in_ns(entry)) for entry in orjson.loads(body)["jobs"][:MOST_JOBS])


def _in_ns(entry: Mapping[str, Any]) -> dict[str, Any]:
    times = {f"{name}_{what}": entry[f"{name}_{what}ms"] for name in _TIMES for what in ("", "uncertainty_")}
    nanoseconds = {f"{name}ns": None if ms is None else ms * MILLISECOND_NS for name, ms in times.items()}
    return {**entry, **nanoseconds}
