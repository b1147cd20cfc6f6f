"""Follows the jobs of the node: reads the sources repeatedly, merges what they find, and records what changed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ibpulse.agent.jobs.cgroups import is_sluid, read_pod_cgroups, read_slurm_cgroups
from ibpulse.agent.jobs.files import boot_time_ns, read_job_documents, read_slurm_mapping
from ibpulse.agent.jobs.owners import place_jobs
from ibpulse.agent.sysfs.files import read_text
from ibpulse.base.clocks import Clock
from ibpulse.base.deadline import RepeatedRead, RepeatedReads
from ibpulse.base.internal_errors import InternalErrors, Occurrences
from ibpulse.base.text import first_names, natural_key
from ibpulse.base.units import SECOND_NS
from ibpulse.core import jobs
from ibpulse.core.events.event import Event
from ibpulse.core.events.log import EventLog
from ibpulse.core.events.watch import find_last_sign, place_in_ring
from ibpulse.core.jobs import BEGAN, CHANGED, ENDED, JobRecord, Key, PlacedJob, had_cgroup, job_details, trace_jobs
from ibpulse.core.model import Fabric, Port, Topology
from ibpulse.core.ring.reader import RingReader

log = logging.getLogger(__name__)
NAMED_PORTS = 4
# each may name a file, and directories can have hundreds that are wrong in different ways
MAX_NOTICES = 64
Source = Callable[[], jobs.Found]
BOOT_ID = "/proc/sys/kernel/random/boot_id"
# longer than reading any directory in memory or on a disk takes
HANGS_SECONDS = 5.0
# between two steps of a job without a step of its own for the allocation, its cgroup is gone as well
GONE_SECONDS = 60.0
HANGS = "{source}: reading it does not return; showing the jobs known before."
TWO_NAMES = (
    "Slurm names its cgroups by SLUID, and the numbers of their jobs could not be read from /proc, so a job that "
    "{source} names by its number is listed twice: set hostPID for ibpulse, or CgroupJobIdPaths=yes in cgroup.conf."
)
GONE = "job {job} has ended, because its cgroup is gone, but {source} names it: check the epilog, and remove its file."


def choose_sources(cgroup: Path | None, mapping: Path | None, owners: Path | None) -> Mapping[str, Source]:
    """The sources to read, by name: the root of the cgroups, the mapping directory and that of documents, if given."""
    sources: dict[str, Source] = {}
    boot_id, boot, numbers = read_text(BOOT_ID).text, BootTime(), dict[str, str]()
    if owners is not None:
        sources[jobs.FILE] = lambda: read_job_documents(owners, boot.earliest_ns(), boot_id)
    if mapping is not None:
        sources[jobs.SLURM_MAP] = lambda: read_slurm_mapping(mapping, boot.earliest_ns())
    if cgroup is not None:
        sources[jobs.SLURM_CGROUP] = lambda: read_slurm_cgroups(cgroup, numbers)
        sources[jobs.KUBERNETES_CGROUP] = lambda: read_pod_cgroups(cgroup)
    return sources


class BootTime:
    """The wall time of the last boot of this node in ns, by `read_ns`, which follows the wall clock when that is set.

    Files of jobs may have been written by the clock before.
    """

    def __init__(self, read_ns: Callable[[], int] = boot_time_ns) -> None:
        self._read_ns, self._earliest_ns = read_ns, read_ns()

    def earliest_ns(self) -> int:
        """The earliest of those times since this process started; any thread may call it."""
        self._earliest_ns = min(self._earliest_ns, self._read_ns())
        return self._earliest_ns


@dataclass(frozen=True, slots=True)
class Merged:
    """The findings of all sources together; `claims` is None if no source on this node can list its jobs.

    `present` are the sources that exist on this node, `silent` those whose jobs are unknown, because they have not
    answered yet, may not be read, or are `cut` short: a job that they do not list may run. `known` is whether the
    claims are all jobs of the node. `with_cgroup` are the jobs of Slurm that have a cgroup. `gone` are those that are
    left out because they have none any more, with the wall time at which the last reading that saw it began. `read_ns`
    are the wall times at which the readings of all sources that are not silent began.
    """

    claims: tuple[jobs.Claim, ...] | None = None
    known: bool = True
    present: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    with_cgroup: frozenset[jobs.Key] = frozenset()
    gone: Mapping[jobs.Key, int] = field(default_factory=dict)
    silent: tuple[str, ...] = ()
    cut: frozenset[str] = frozenset()
    read_ns: Mapping[str, int] = field(default_factory=dict)


class JobSources:
    """The sources by name; all methods belong to one thread and never wait. `errors` counts exceptions."""

    def __init__(
        self,
        sources: Mapping[str, Source],
        errors: InternalErrors | None = None,
        clock: Clock = time,
    ) -> None:
        self._names = tuple(sources)
        self._errors, self._clock = errors or InternalErrors(), clock
        self._reads = RepeatedReads(lambda name: _SourceRead(name, sources[name], self._errors, clock))
        self._started: dict[str, float] = {}
        self._rounds = 0
        self._absences = _Absences()

    def start(self) -> None:
        """Begin to read every source, except those that have not answered since the last time."""
        self._rounds += 1
        for thread in self._reads.start(self._names, self._rounds):
            self._started[thread.name] = self._clock.monotonic()

    def expect(self, keys: Iterable[jobs.Key], seen_ns: int) -> None:
        """Note jobs of Slurm that had a cgroup at a wall time before this process started."""
        self._absences.note(keys, self._clock.monotonic(), seen_ns)

    def collect(self) -> Merged | None:
        """The findings of the newest readings; None until each source has answered once, unless it failed or hangs."""
        answers: dict[str, jobs.Found] = {}
        begun_ns: dict[str, int] = {}
        remarks = []
        for name in self._names:
            read = self._reads[name]
            hangs = read.is_running() and self._clock.monotonic() - self._started[read.thread_name] > HANGS_SECONDS
            if hangs:
                remarks.append(HANGS.format(source=name))
            elif read.last is None and not read.ended:
                return None
            if read.last is not None:
                answers[name], begun_ns[name] = read.last
            else:
                remarks += read.remarks
        merged = self._absences.sift(merge(answers), self._clock.monotonic(), begun_ns.get(jobs.SLURM_CGROUP, 0))
        read_ns = {
            name: begun_ns[name]
            for name, found in answers.items()
            if name not in merged.cut and (found.knows or not found.present)
        }
        silent = tuple(name for name in self._names if name not in read_ns)
        known = merged.known and answers.keys() == set(self._names)
        return replace(merged, known=known, remarks=(*merged.remarks, *remarks), silent=silent, read_ns=read_ns)


class _SourceRead(RepeatedRead[jobs.Found]):
    """The readings of one source.

    `last` is the newest one that was not given up, even if it was cut short, with the newest remarks, and the wall time
    at which it began. Without any, `remarks` are those of the newest reading.
    """

    def __init__(self, name: str, source: Source, errors: InternalErrors, clock: Clock) -> None:
        self.thread_name = f"jobs-{name}"
        super().__init__(name, self.thread_name, lambda _: source())
        self._errors, self._clock = errors, clock
        self.last: tuple[jobs.Found, int] | None = None
        self.remarks: tuple[str, ...] = ()
        self.ended = False
        """Whether any reading has ended, with an exception perhaps."""

    def _run(self, scan: int) -> None:
        begun_ns = self._clock.time_ns()
        with self._errors.boundary("jobs", self.name):
            found = self._read(scan)
            self.remarks = found.remarks
            if found.whole or found.cut:
                self.last = found, begun_ns
            elif self.last is not None:
                self.last = replace(self.last[0], remarks=found.remarks), self.last[1]
            self.answered = True
        self.ended = True


@dataclass(slots=True)
class _Absences:
    """The last time at which jobs of Slurm had a cgroup: monotonic, and the wall time at which it was read."""

    _last: dict[jobs.Key, tuple[float, int]] = field(default_factory=dict)

    def note(self, keys: Iterable[jobs.Key], now: float, read_ns: int) -> None:
        self._last |= dict.fromkeys(keys, (now, read_ns))

    def sift(self, merged: Merged, now: float, read_ns: int) -> Merged:
        """The jobs without those whose cgroup is gone, and a remark about each that is left out."""
        if merged.claims is None or jobs.SLURM_CGROUP not in merged.present or jobs.SLURM_CGROUP in merged.cut:
            return merged
        named = {claim.key for claim in merged.claims}
        self._last = {key: last for key, last in self._last.items() if key in named}
        self.note(merged.with_cgroup, now, read_ns)
        gone = {key: seen_ns for key, (seen, seen_ns) in self._last.items() if now - seen > GONE_SECONDS}
        kept = tuple(claim for claim in merged.claims if claim.key not in gone)
        texts = [GONE.format(job=claim.id, source=claim.source) for claim in merged.claims if claim.key in gone]
        return replace(merged, claims=kept, remarks=(*merged.remarks, *texts), gone=gone)


def merge(answers: Mapping[str, jobs.Found]) -> Merged:
    """One claim per job; the first source in the order of `SOURCES` that says what it holds decides."""
    if any(answers[name].present for name in (jobs.FILE, jobs.SLURM_MAP) if name in answers):
        # they name the jobs of a Slurm without cgroups
        answers = {name: found for name, found in answers.items() if name != jobs.SLURM_CGROUP or found.present}
    claims: dict[jobs.Key, jobs.Claim] = {}
    for name in jobs.SOURCES:
        for claim in answers[name].claims if name in answers else ():
            known = claims.get(claim.key)
            if known is None:
                claims[claim.key] = claim
            elif not known.says_what and claim.says_what:
                claims[claim.key] = replace(claim, name=known.name, namespace=known.namespace)
    # the first sources keep their jobs, whatever the others hold
    first, others = list(claims.values())[: jobs.MAX_JOBS], list(claims.values())[jobs.MAX_JOBS :]
    chosen = sorted(first, key=lambda claim: (claim.scheduler, natural_key(claim.id)))
    cut = {name for name, found in answers.items() if found.cut} | {claim.source for claim in others}
    cgroups = answers.get(jobs.SLURM_CGROUP, jobs.Found())
    remarks = [remark for found in answers.values() for remark in found.remarks]
    in_cgroups = frozenset(claim.key for claim in cgroups.claims if claim.scheduler == jobs.SLURM)
    unnamed = [
        claim
        for claim in chosen
        if claim.scheduler == jobs.SLURM and claim.key not in in_cgroups and claim.id.isdigit()
    ]
    if unnamed and any(is_sluid(claim.id) for claim in cgroups.claims):
        remarks.append(TWO_NAMES.format(source=unnamed[0].source))
    if others:
        remarks.append(f"there are more than {jobs.MAX_JOBS} jobs on this node; the others are ignored.")
    can_list = any(found.knows for found in answers.values())
    return Merged(
        claims=tuple(chosen) if can_list else None,
        known=can_list and not others and not any(found.unread for found in answers.values()),
        present=tuple(name for name in jobs.SOURCES if name in answers and answers[name].present),
        pods=tuple(pod for found in answers.values() for pod in found.pods),
        remarks=tuple(remarks),
        with_cgroup=in_cgroups,
        cut=frozenset(cut),
    )


@dataclass(frozen=True, slots=True)
class JobsView:
    """The jobs now; `jobs` is None if no source on this node can list them, and not `whole` if there may be more.

    `sources` are those that exist on this node, `pods` the UIDs of its pods, `notices` sentences for the operator.
    `records` are the jobs of the event log, of the past and of now.
    """

    jobs: tuple[PlacedJob, ...] | None = None
    sources: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    records: tuple[JobRecord, ...] = ()
    whole: bool = True

    @property
    def known(self) -> bool:
        """Whether `jobs` are all jobs of the node."""
        return self.jobs is not None and self.whole


NOTHING = JobsView()


class JobWatch:
    """The jobs of the node, as of the last reading; all methods belong to one thread.

    The sources are read every `seconds`. Without `names`, the names and namespaces of jobs are dropped at once.
    """

    def __init__(
        self,
        sources: JobSources,
        events: EventLog,
        reader: RingReader,
        seconds: float,
        *,
        names: bool = False,
        clock: Clock = time,
    ) -> None:
        self._sources, self._log, self._reader = sources, events, reader
        self._seconds, self._names, self._clock = seconds, names, clock
        records = trace_jobs(events.events())
        self.view = JobsView(records=records)
        """The jobs now; replaced as a whole."""
        self._before = {record.job.claim.key: record.job for record in records if record.ended_ns is None}
        # an earlier daemon may have read the jobs last this long before its last sign
        seen_ns = max(1, find_last_sign(events, reader) - round((seconds + 1) * SECOND_NS))
        # wall times at which the last reading of each source began; an earlier daemon read those of which it saw jobs
        self._read_ns = {record.job.claim.source: seen_ns for record in records}
        self._placed_from: tuple[Merged, tuple[Port, ...], Topology] | None = None
        self._due = 0.0
        self._logged = Occurrences(clock.monotonic)
        sources.expect(had_cgroup(events.events()) & self._before.keys(), seen_ns)

    def update(self, fabric: Fabric) -> None:
        """Follow the newest readings; begins the next ones if they are due. Call it once a second; it never waits."""
        now = self._clock.monotonic()
        if now >= self._due:
            self._sources.start()
            self._due = now + self._seconds
        merged = self._sources.collect()
        if merged is None:
            return
        placed_from = (merged, fabric.ports, fabric.topology)
        if placed_from != self._placed_from:
            self._placed_from = placed_from
            self._place(merged, fabric)
            self._read_ns.update(merged.read_ns)

    def _place(self, merged: Merged, fabric: Fabric) -> None:
        claims = merged.claims or ()
        if not self._names:
            claims = tuple(replace(claim, name="", namespace="") for claim in claims)
        placement = place_jobs(claims, fabric.ports, fabric.topology, whole=merged.known)
        notices = _first_notices((*merged.remarks, *placement.remarks))
        for notice in filter(self._logged.is_news, notices):
            log.warning("%s", notice)
        jobs = placement.jobs if merged.claims is not None else None
        self.view = JobsView(jobs, merged.present, merged.pods, notices, self.view.records, merged.known)
        if jobs is not None:
            added = self._log.added
            self._record_changes({job.claim.key: job for job in jobs}, merged)
            if self._log.added > added:
                self.view = replace(self.view, records=trace_jobs(self._log.events()))

    def _record_changes(self, jobs: dict[Key, PlacedJob], merged: Merged) -> None:
        now_ns, unknown = self._clock.time_ns(), {}
        for key, job in self._before.items():
            if key not in jobs and job.claim.source in merged.silent:
                unknown[key] = job
            elif key not in jobs:
                seen_ns = merged.gone.get(key, self._read_ns.get(job.claim.source, 0))
                self._record(ENDED, f"{_name(job)} ended", job, now_ns, seen_ns)
        for key, job in jobs.items():
            if key not in self._before:
                # at the very first reading of a source, it is unknown when a job began
                seen_ns = self._read_ns.get(job.claim.source, 0)
                text = f"{_name(job)} {'began' if seen_ns else 'was running already'} on {_ports_text(job)}"
                self._record(BEGAN, text, job, now_ns, seen_ns, with_cgroup=key in merged.with_cgroup)
        for key, job in jobs.items():
            if key in self._before and self._before[key].ports != job.ports:
                seen_ns = self._find_change_ns(merged, self._before[key])
                self._record(CHANGED, f"{_name(job)} is on {_ports_text(job)}", job, now_ns, seen_ns)
        self._before = unknown | jobs

    def _find_change_ns(self, merged: Merged, before: PlacedJob) -> int:
        """The wall time since which the ports of a job may have changed, by any source that was read again."""
        again = {name for name, read_ns in merged.read_ns.items() if read_ns != self._read_ns.get(name, read_ns)}
        return min(self._read_ns.get(name, 0) for name in again or {before.claim.source})

    def _record(
        self, kind: str, text: str, job: PlacedJob, now_ns: int, seen_ns: int, *, with_cgroup: bool = False
    ) -> None:
        """Add an event that happened between two wall times, the first of which is 0 if it is unknown."""
        uncertainty_ns = max(0, now_ns - seen_ns) if seen_ns else 0
        details = job_details(job, known=seen_ns > 0, with_cgroup=with_cgroup)
        self._log.add(place_in_ring(Event(now_ns, kind, "", text, uncertainty_ns, details=details), self._reader))


def _first_notices(notices: tuple[str, ...]) -> tuple[str, ...]:
    more = len(notices) - MAX_NOTICES
    return notices if more <= 0 else (*notices[:MAX_NOTICES], f"there are {more} more notices about jobs.")


def _name(job: PlacedJob) -> str:
    return f"job {job.claim.id} ({job.claim.scheduler})"


def _ports_text(job: PlacedJob) -> str:
    """The ports of a job for people."""
    return first_names([str(port) for port in job.ports], NAMED_PORTS) or "ports that are not known"
