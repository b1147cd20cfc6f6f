"""Jobs as their sources name them, as they are placed on ports, and as the event log remembers them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from ibpulse.core.arrays import Bools
from ibpulse.core.events.event import JOB_KINDS, SURROGATE, Event, is_port_name
from ibpulse.core.model import JOB_BASES, JOB_SOURCES, PortId

SLURM, KUBERNETES = "slurm", "kubernetes"
FILE, SLURM_MAP, SLURM_CGROUP, KUBERNETES_CGROUP = SOURCES = JOB_SOURCES
MAX_JOBS = 256
MAX_TEXT = 128
Key = tuple[str, str]
_ID = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_TEXT - 1}}}", re.ASCII)
ALL_GPUS, SOME_GPUS, DEVICES, ALONE = BASES = JOB_BASES
BEGAN, CHANGED, ENDED = JOB_KINDS
# longer lists would make events longer than their readers accept
MAX_PORTS = 256
# a tick after every other one
FOREVER = 2**62


def is_job_id(text: str) -> bool:
    """Whether a text can be the id of a job: letters, digits, dots, dashes and underscores, at most 128."""
    return _ID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Claim:
    """A job that a source names, and what it holds of the node.

    `gpus` are PCI addresses, `gpu_indexes` numbers in the order of PCI addresses, `devices` RDMA devices. All are empty
    if the source does not say what the job holds.
    """

    id: str
    scheduler: str
    source: str
    name: str = ""
    namespace: str = ""
    gpus: tuple[str, ...] = ()
    gpu_indexes: tuple[int, ...] = ()
    devices: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """The identity of a job: an id belongs to a scheduler."""
        return self.scheduler, self.id

    @property
    def members(self) -> dict[str, str]:
        """Its texts, as events, `/api/v1/jobs` and reports have them."""
        return {
            "job_id": self.id,
            "scheduler": self.scheduler,
            "source": self.source,
            "name": self.name,
            "namespace": self.namespace,
        }

    @property
    def says_what(self) -> bool:
        """Whether the source says what the job holds."""
        return bool(self.gpus or self.gpu_indexes or self.devices)


@dataclass(frozen=True, slots=True)
class Found:
    """One reading of a source.

    `present` says whether the source exists on this node, `knows` whether it can list jobs there: the cgroups of pods
    do not always show them. Jobs may be missing from a reading that is not `whole`: it was given up, or it was `cut`
    short and has the first. One with something `unread` met entries of a form that it does not know, and one of them
    may be a job. `pods` are the UIDs of all pods. `remarks` are sentences for the operator.
    """

    claims: tuple[Claim, ...] = ()
    remarks: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    present: bool = True
    knows: bool = True
    whole: bool = True
    cut: bool = False
    unread: bool = False


ABSENT = Found(present=False, knows=False)
"""The reading of a source that does not exist on this node."""


@dataclass(frozen=True, slots=True)
class PlacedJob:
    """A running job and the ports whose traffic is its own, in the order of the node's ports.

    `basis` says how they are known: one of `BASES`, empty if no port is known to be the job's.
    """

    claim: Claim
    ports: tuple[PortId, ...] = ()
    basis: str = ""


def limit_claims(place: str, claims: Sequence[Claim]) -> Found:
    """The first `MAX_JOBS` jobs of those that were found."""
    more = len(claims) > MAX_JOBS
    remarks = (f"{place}: there are more than {MAX_JOBS} jobs; the others are ignored.",) if more else ()
    return Found(tuple(claims[:MAX_JOBS]), remarks, whole=not more, cut=more, unread=more)


@dataclass(frozen=True, slots=True)
class Holding:
    """The ports that a job had from one event up to another; None: since before the events go back, or until now."""

    ports: tuple[PortId, ...]
    since: Event | None = None
    until: Event | None = None

    def overlaps(self, from_ns: int, to_ns: int) -> bool:
        """Whether any of it is between two wall times."""
        begins = self.since is None or self.since.time_ns < to_ns
        return begins and (self.until is None or self.until.time_ns > from_ns)


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job with the ports that it had last; it is running if `ended_ns` is None.

    It began or ended at most the uncertainty before the wall times, when that was noticed. `began_ns` is None if it was
    running already when it was first seen. `holdings` are all ports that it had, oldest first.
    """

    job: PlacedJob
    began_ns: int | None
    began_uncertainty_ns: int = 0
    ended_ns: int | None = None
    ended_uncertainty_ns: int = 0
    holdings: tuple[Holding, ...] = ()

    def changed(self, job: PlacedJob, event: Event) -> JobRecord:
        """The record with other ports from an event on."""
        return replace(self, job=job, holdings=(*self._closed(event), Holding(job.ports, event)))

    def ended(self, event: Event) -> JobRecord:
        """The record of the job that ended with an event."""
        return replace(
            self, ended_ns=event.time_ns, ended_uncertainty_ns=event.uncertainty_ns, holdings=self._closed(event)
        )

    def _closed(self, event: Event) -> tuple[Holding, ...]:
        return (*self.holdings[:-1], *(replace(last, until=event) for last in self.holdings[-1:]))


def job_details(job: PlacedJob, *, known: bool = True, with_cgroup: bool = False) -> dict[str, Any]:
    """The details of an event about a job; `known` says whether it is known when it began."""
    details: dict[str, Any] = {
        **job.claim.members,
        "ports": [str(port) for port in job.ports[:MAX_PORTS]],
        "basis": job.basis,
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
    if any(len(word) > MAX_TEXT or SURROGATE.search(word) for word in words.values()):
        return None
    claim = Claim(words["job_id"], words["scheduler"], words["source"], words["name"], words["namespace"])
    names = [name for name in ports if isinstance(name, str) and is_port_name(name) and not SURROGATE.search(name)]
    split = (name.rpartition(":") for name in names[:MAX_PORTS])
    return PlacedJob(claim, tuple(PortId(device, int(number)) for device, _, number in split), words["basis"])


def trace_jobs(events: Iterable[Event], known: Sequence[JobRecord] = ()) -> tuple[JobRecord, ...]:
    """The jobs in events, which are in the order in which they were noticed; jobs in the order in which they ended.

    Those that are running come last. A job that came back under its id is two records. `known` are jobs of before.
    """
    ended = [record for record in known if record.ended_ns is not None]
    # with the holdings as lists, because a file may have very many changes of a job
    running = {record.job.claim.key: (record, [*record.holdings]) for record in known if record.ended_ns is None}
    for event in events:
        if event.kind not in JOB_KINDS or (job := read_job(event.details)) is None:
            continue
        key = job.claim.key
        record, held = running.pop(key, (JobRecord(job, None), []))
        if event.kind == ENDED:
            ended.append(replace(record, holdings=tuple(held) or (Holding(job.ports),)).ended(event))
        elif event.kind == CHANGED:
            held[-1:] = [replace(last, until=event) for last in held[-1:]]
            held.append(Holding(job.ports, event))
            running[key] = replace(record, job=job), held
        else:
            times = (None, 0) if event.details.get("running_before") else (event.time_ns, event.uncertainty_ns)
            running[key] = JobRecord(job, *times), [Holding(job.ports, event)]
    return (*ended, *(replace(record, holdings=tuple(held)) for record, held in running.values()))


def list_jobs(records: Sequence[JobRecord], running: Sequence[PlacedJob], since_ns: int) -> tuple[JobRecord, ...]:
    """The jobs that are running now, as their sources describe them, then those that ended since a wall time.

    Of the latter, the last one comes first. `records` are in the order of `trace_jobs`.
    """
    begun = {record.job.claim.key: record for record in records if record.ended_ns is None}
    # a begin is forgotten after very many others
    current = [
        replace(begun.get(job.claim.key) or JobRecord(job, None, holdings=(Holding(job.ports),)), job=job)
        for job in running
    ]
    past = [record for record in records if record.ended_ns is not None and record.ended_ns >= since_ns]
    return (*current, *reversed(past))


@dataclass(frozen=True, slots=True)
class JobPorts:
    """The times at which a job had each port: spans of ticks of one ring, up to the end, exclusive, by port name."""

    spans: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)

    @classmethod
    def of(cls, records: Iterable[JobRecord], ring: int) -> JobPorts:
        """The ports of the records of one job. What happened in another ring than this one is before its first tick."""

        def tick(event: Event) -> int:
            return event.tick if event.ring == ring else 0

        spans: dict[str, list[tuple[int, int]]] = {}
        for holding in (holding for record in records for holding in record.holdings):
            first = 0 if holding.since is None else tick(holding.since)
            end = FOREVER if holding.until is None else tick(holding.until)
            for port in holding.ports if first < end else ():
                mine = spans.setdefault(str(port), [])
                adjoins = bool(mine) and mine[-1][1] == first
                mine.append((mine.pop()[0] if adjoins else first, end))
        return cls(spans)

    def within(self, first: int, end: int) -> JobPorts:
        """The parts from tick `first` up to `end`, exclusive; without the ports that the job did not have then."""
        cut = {
            name: [(max(a, first), min(b, end)) for a, b in spans if max(a, first) < min(b, end)]
            for name, spans in self.spans.items()
        }
        return JobPorts({name: spans for name, spans in cut.items() if spans})

    def mask(self, names: Sequence[str], first: int, count: int) -> Bools:
        """Whether the job had each port at the ticks from `first` on: (ports, ticks)."""
        found = np.zeros((len(names), count), dtype=np.bool_)
        for row, name in zip(found, names, strict=True):
            for begin, end in self.spans.get(name, ()):
                row[max(0, begin - first) : max(0, end - first)] = True
        return found

    def steady(self, first: int, end: int) -> tuple[int, int]:
        """The longest span of ticks, from `first` up to `end`, in which it had some ports, and the same throughout.

        It is empty if the job had none.
        """
        inside = self.within(first, end)
        edges = sorted({edge for spans in inside.spans.values() for span in spans for edge in span})
        best = (first, first)
        for begin, stop in pairwise(edges):
            if stop - begin > best[1] - best[0] and inside.within(begin, stop).spans:
                best = (begin, stop)
        return best


def had_cgroup(events: Iterable[Event]) -> set[Key]:
    """The jobs that had a cgroup when they began."""
    noted = (event for event in events if event.kind == BEGAN and event.details.get("cgroup"))
    return {job.claim.key for event in noted if (job := read_job(event.details)) is not None}


def jobs_between(records: Iterable[JobRecord], begin_ns: int, end_ns: int) -> tuple[PlacedJob, ...]:
    """The jobs that may have run at some time between two wall times, each with all ports that it had then."""
    return tuple(
        replace(record.job, ports=_ports_between(record, begin_ns, end_ns))
        for record in records
        if (record.began_ns is None or record.began_ns - record.began_uncertainty_ns < end_ns)
        and (record.ended_ns is None or record.ended_ns > begin_ns)
    )


def _ports_between(record: JobRecord, begin_ns: int, end_ns: int) -> tuple[PortId, ...]:
    # it may have had its first ports already before its begin was noticed
    had = [each for each in record.holdings if each.overlaps(begin_ns, end_ns)] or record.holdings[:1]
    return tuple(dict.fromkeys(port for each in had for port in each.ports)) if had else record.job.ports


def find_running_jobs(events: Iterable[Event]) -> tuple[PlacedJob, ...]:
    """The jobs that run, as far as events show."""
    return tuple(record.job for record in trace_jobs(events) if record.ended_ns is None)


@dataclass(frozen=True, slots=True)
class ChosenJob:
    """A job of a scheduler with its records, of which it has several if it came back, and when it had each port."""

    key: Key
    records: tuple[JobRecord, ...]
    ports: JobPorts

    @property
    def id(self) -> str:
        """Its id."""
        return self.key[1]
