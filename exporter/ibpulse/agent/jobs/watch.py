"""Follows the jobs of the node: compares each reading of the sources with the one before, and records what changed."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace

from ibpulse.agent.jobs.owners import place_jobs
from ibpulse.agent.jobs.sources import JobSources, Merged
from ibpulse.base.clocks import Clock
from ibpulse.base.internal_errors import Occurrences
from ibpulse.base.text import first_names
from ibpulse.base.units import SECOND_NS
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
