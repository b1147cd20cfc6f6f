"""Statistics of the rails of each job, for at most `MAX_JOBS` jobs that share no port."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ibpulse.agent.aggregator.node import RollingSeconds
from ibpulse.agent.aggregator.snapshot import AggregatorOptions, JobSnapshot
from ibpulse.agent.aggregator.steps import StepSearch, StepWatch, plan_search
from ibpulse.agent.aggregator.traffic import RecentRates, coarsest_rail, find_fairness
from ibpulse.agent.jobs.owners import count_owners
from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Bools
from ibpulse.core.jobs import Key, PlacedJob
from ibpulse.core.model import PortId
from ibpulse.core.ring.reader import RingReader
from ibpulse.core.ring.spans import RingPort
from ibpulse.core.statistics import moments
from ibpulse.core.statistics.sums import FIELDS, Seconds, describe_node, sum_groups, sum_seconds

MAX_JOBS = 8
SPAN_SECONDS = 60


@dataclass(slots=True)
class _Job:
    """What is known of one job since the second in which it was `first` seen; its sums are in a `row` of them.

    `known` is the last tick with a sample, `moved` the last one with traffic, 0 before there is one.
    """

    id: str
    ports: frozenset[PortId]
    first: int
    row: int
    known: int = 0
    moved: int = 0
    fairness: float | None = None
    finest_known: bool = True
    step: StepWatch = field(default_factory=StepWatch)

    def age(self, end_second: int) -> int:
        """Seconds of the job up to this one."""
        return end_second - self.first


class JobTotals:
    """The last minute of the rails of each job.

    A job that shares a port has no statistics, because the traffic of a port cannot be divided. If there are too many
    jobs, the first ones keep theirs.
    """

    def __init__(self, reader: RingReader, options: AggregatorOptions) -> None:
        self._reader, self._options = reader, options
        self._jobs: dict[Key, _Job] = {}
        self._sums = RollingSeconds(SPAN_SECONDS, (MAX_JOBS, FIELDS))

    def follow(self, jobs: Sequence[PlacedJob], second: int) -> None:
        """Count for these jobs from the second on."""
        owners = count_owners(jobs)
        alone = {job.claim.key: job for job in jobs if job.ports and all(owners[port] == 1 for port in job.ports)}
        # what was counted on other ports is not the job's any more
        kept = {key: job for key, job in self._jobs.items() if key in alone and job.ports == {*alone[key].ports}}
        ids, rows = {job.id for job in kept.values()}, {job.row for job in kept.values()}
        for key, job in alone.items():
            # the ids of two schedulers may be the same, and the label is only the id
            if len(kept) < MAX_JOBS and key not in kept and job.claim.id not in ids:
                row = next(row for row in range(MAX_JOBS) if row not in rows)
                self._sums.clear_row(row)
                kept[key] = _Job(job.claim.id, frozenset(job.ports), second, row)
                ids.add(job.claim.id)
                rows.add(row)
        self._jobs = kept

    def add_seconds(self, first_tick: int, ports: Sequence[RingPort], seconds: Seconds) -> None:
        """Add whole seconds of the node's ports, which begin at a tick; a job has none before it was first seen."""
        if not self._jobs:
            return
        jobs, threshold = self._jobs.values(), self._options.active_bytes_per_second
        rails = [[index for index in _rails_of(job, ports) if ports[index].port.active] for job in jobs]
        chosen = np.array([index for each in rails for index in each], dtype=np.intp)
        nodes = sum_groups(seconds.chosen(chosen), [len(each) for each in rails])
        count, ticks = nodes.good.shape[1:]
        found, active = sum_seconds(nodes, threshold), nodes.bandwidth > threshold
        sums = np.zeros((count, MAX_JOBS, FIELDS))
        for index, job in enumerate(jobs):
            earlier = max(0, job.first - (first_tick - 1) // ticks)
            sums[earlier:, job.row] = found[index, earlier:]
            begin = first_tick + earlier * ticks
            job.moved = _last_tick(active[index, earlier:], begin) or job.moved
            job.known = _last_tick(nodes.good[index, earlier:], begin) or job.known
        self._sums.push(sums)

    def conclude(
        self,
        ports: Sequence[RingPort],
        rates: RecentRates,
        resolutions: Sequence[int],
        end_second: int,
        quiet_ns: int,
    ) -> list[tuple[StepWatch, StepSearch]]:
        """Update fairness after the second `end_second`; returns the search for the step of each job.

        That is in the part of the window in which the job ran. There has been no traffic on the node for `quiet_ns`.
        """
        active, searches = self._options.active_bytes_per_second, []
        for job in self._jobs.values():
            rails, age = _rails_of(job, ports), job.age(end_second)
            mine, ticks = [ports[index] for index in rails], [resolutions[index] for index in rails]
            # what was before the job was another one's traffic
            spans = [each for each in self._options.balance_spans_seconds if each <= age]
            job.fairness = find_fairness(rates, np.array(rails), spans, active) if rails and spans else None
            job.finest_known = coarsest_rail(mine, ticks) == 1
            # the step is that of the steps, of which the silence after them says nothing
            if not _is_between_steps(job, self._reader.interval_ns):
                continue
            window_ns = min(self._options.traffic_window_ns, age * SECOND_NS)
            searches.append((job.step, plan_search(mine, ticks, window_ns, quiet_ns)))
        return searches

    def push_holes(self, seconds: int) -> None:
        """Account for seconds that were not read."""
        self._sums.push_holes(seconds)

    def snapshots(self) -> tuple[JobSnapshot, ...]:
        """The statistics of the last minute of every job."""
        if not self._jobs:
            return ()
        jobs = list(self._jobs.values())
        sums, none = self._sums.sum(SPAN_SECONDS)[[job.row for job in jobs]], np.zeros(len(jobs))
        finest_known = np.array([job.finest_known for job in jobs])
        found = describe_node(sums, none, np.zeros((len(jobs), 0, moments.FIELDS)), finest_known)
        return tuple(
            JobSnapshot(
                job_id=job.id,
                duty_cycle_ratio=moments.or_none(duty),
                active_bytes_per_second=moments.or_none(mean),
                fairness=job.fairness,
                step_seconds=None if job.step.found is None else job.step.found.seconds,
                last_traffic_ns=self._reader.wall_of(job.moved) if job.moved else None,
            )
            for job, duty, mean in zip(jobs, found.duty_cycle.tolist(), found.active_mean.tolist(), strict=True)
        )


def _last_tick(marked: Bools, first_tick: int) -> int:
    """The last marked tick of some from one on; 0 without any."""
    places = np.flatnonzero(marked)
    return first_tick + int(places[-1]) if len(places) else 0


def _is_between_steps(job: _Job, interval_ns: int) -> bool:
    """Whether a job is silent for less than a step, or for a second if that is unknown."""
    step = job.step.found.seconds if job.step.found else math.nan
    silent_ns = (job.known - job.moved) * interval_ns if job.moved else 0
    return silent_ns <= SECOND_NS * (1.0 if math.isnan(step) else step)


def _rails_of(job: _Job, ports: Sequence[RingPort]) -> list[int]:
    return [index for index, port in enumerate(ports) if port.port.rail and port.port.id in job.ports]
