"""The jobs of a recording: those of its span, each with the ports that it had first in it.

Later changes of their ports are events of the recording, as those of the states of ports are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from ibpulse.core.events import Event, PortHistory
from ibpulse.core.events.event import MAX_INTEGER
from ibpulse.core.jobs import BEGAN, CHANGED, ENDED, Holding, JobRecord, Key, PlacedJob, job_details, read_job
from ibpulse.core.model import PortId

MAX_JOBS = 1000
MAX_JOB_BYTES = 500_000
TIMES = ("began", "ended")


def jobs_at_begin(records: Iterable[JobRecord], begin_ns: int, end_ns: int) -> tuple[JobRecord, ...]:
    """The jobs that ran between two wall times, by their begin, each with the ports that it had first in between.

    A job whose ports became known only later has none.
    """
    found = []
    for record in records:
        late = record.began_ns is not None and record.began_ns >= end_ns
        if late or (record.ended_ns is not None and record.ended_ns <= begin_ns):
            continue
        had = next((each.ports for each in record.holdings if each.overlaps(begin_ns, end_ns)), ())
        found.append(_with_ports(record, had))
    return tuple(sorted(found, key=lambda record: record.began_ns or 0))


def _with_ports(record: JobRecord, ports: tuple[PortId, ...]) -> JobRecord:
    claim = replace(record.job.claim, gpus=(), gpu_indexes=(), devices=())
    job = PlacedJob(claim, ports, record.job.basis if ports else "")
    return replace(record, job=job, holdings=(Holding(ports),))


def trace_holdings(jobs: Iterable[JobRecord], events: Iterable[Event]) -> tuple[JobRecord, ...]:
    """The jobs of a recording with all ports that they had in it, by its events."""
    found = list(jobs)
    # an event belongs to the last job of its id that had begun by then
    places: dict[Key, list[int]] = {}
    for place in sorted(range(len(found)), key=lambda place: found[place].began_ns or 0):
        places.setdefault(found[place].job.claim.key, []).append(place)
    for event in events:
        job = read_job(event.details) if event.kind in (BEGAN, CHANGED) else None
        mine = [] if job is None else places.get(job.claim.key, [])
        at = bisect_right(mine, event.time_ns, key=lambda place: found[place].began_ns or 0)
        if job is None or not at:
            continue
        record = found[mine[at - 1]]
        if record.ended_ns is None or event.time_ns <= record.ended_ns:
            begun = replace(record, holdings=(Holding(job.ports, event),))
            found[mine[at - 1]] = begun if event.kind == BEGAN else record.changed(job, event)
    return tuple(
        record if record.ended_ns is None else record.ended(_end_of(record.ended_ns, record.ended_uncertainty_ns))
        for record in found
    )


def _end_of(time_ns: int, uncertainty_ns: int) -> Event:
    return Event(time_ns, ENDED, "", "", uncertainty_ns)


@dataclass(frozen=True, slots=True)
class SampleTimes:
    """The samples of a part of a recording: `count` of them from wall time `start_ns` on."""

    start_ns: int
    interval_ns: int
    count: int

    def at(self, event: Event | None, otherwise: int) -> int:
        """The sample at which an event was noticed; `otherwise` without an event, both within 0 to `count`."""
        sample = otherwise if event is None else (event.time_ns - self.start_ns) // self.interval_ns
        return min(max(0, sample), self.count)


def trace_owners(
    records: Iterable[JobRecord], names: Collection[str], states: PortHistory, samples: SampleTimes
) -> Mapping[str, Mapping[Key, list[tuple[int, int]]]]:
    """The jobs of each of the ports that had any, with the spans of samples, up to the end, exclusive, of each.

    A job that lost a port only because it disappeared keeps it meanwhile. `records` have their holdings; the ticks of
    `states` are samples.
    """
    found: dict[str, dict[Key, list[tuple[int, int]]]] = {}
    wanted = {*names}
    for record in records:
        held: set[str] = set()
        for holding in record.holdings:
            first, end = samples.at(holding.since, 0), samples.at(holding.until, samples.count)
            gone = {name for name in held if states.at(name, first) is None}
            held = gone | {str(port) for port in holding.ports} & wanted
            for name in held if first < end else ():
                found.setdefault(name, {}).setdefault(record.job.claim.key, []).append((first, end))
    return found


def jobs_to_json(jobs: Iterable[JobRecord]) -> list[dict[str, Any]]:
    """The jobs as values of JSON; members that are empty or 0, and times that are not known, are absent."""
    return [{**job_details(record.job), **_times(record)} for record in jobs]


def _times(record: JobRecord) -> dict[str, int]:
    found = {f"{name}_{what}ns": getattr(record, f"{name}_{what}ns") for name in TIMES for what in ("", "uncertainty_")}
    return {name: value for name, value in found.items() if value}


def jobs_from_json(members: object) -> tuple[JobRecord, ...]:
    """The jobs of `jobs_to_json`.

    Raises:
        ValueError: they are too many or not jobs; the message continues a sentence that begins with the file name.
    """
    if not isinstance(members, list):
        raise ValueError("has invalid metadata: jobs are not a list")  # noqa: TRY004 (a fault of the value)
    if len(members) > MAX_JOBS:
        raise ValueError(f"has {len(members)} jobs; at most {MAX_JOBS} are read")
    return tuple(job_from_json(each) for each in members)


def job_from_json(members: object) -> JobRecord:
    """One of the jobs of `jobs_to_json`.

    Raises:
        ValueError: it is not a job; the message continues as in `jobs_from_json`.
    """
    job = read_job(members) if isinstance(members, dict) else None
    if job is None:
        raise ValueError("has invalid metadata: jobs: a job is not an object with an id")
    assert isinstance(members, dict)
    numbers = {f"{name}_{what}ns": members.get(f"{name}_{what}ns") for name in TIMES for what in ("", "uncertainty_")}
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
    while len(going) - left_out > MAX_JOBS or total > MAX_JOB_BYTES:
        total, left_out = total - sizes[left_out], left_out + 1
    gone = {id(record) for record in going[:left_out]}
    return tuple(record for record in every if id(record) not in gone), left_out
