"""Statistics of the rails of each job, for at most `MOST_JOBS` jobs that share no port."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np

from ibpulse.aggregator.last_minute import StepSearch, StepWatch, plan_search
from ibpulse.aggregator.options import AggregatorOptions
from ibpulse.aggregator.port_totals import PortTable
from ibpulse.aggregator.rail_balance import find_fairness
from ibpulse.aggregator.rolling import RollingSeconds
from ibpulse.aggregator.snapshot import JobSnapshot
from ibpulse.aggregator.traffic import coarsest_rail
from ibpulse.analysis import moments
from ibpulse.analysis.node_statistics import FIELDS, NodeTicks, Seconds, describe_node, sum_rails, sum_seconds
from ibpulse.arrays import Rows
from ibpulse.jobs.claims import Key, PlacedJob
from ibpulse.jobs.owners import count_owners
from ibpulse.ring.reader import RingReader
from ibpulse.ring.window import RingPort
from ibpulse.units import SECOND_NS

MOST_JOBS = 8
SPAN_SECONDS = 60
NO_PEAK, NO_SCALES = np.zeros(1), np.zeros((1, 0, moments.FIELDS))


class _Job:
    """What is counted for one job since the second in which it was first seen."""

    def __init__(self, job: PlacedJob, second: int) -> None:
        self.id = job.claim.id
        self.ports = frozenset(job.ports)
        self.sums = RollingSeconds(SPAN_SECONDS, (FIELDS,))
        self.last_traffic = 0
        self.fairness: float | None = None
        self.finest_known = True
        self.step = StepWatch()
        self._first = second

    def age(self, end_second: int) -> int:
        """Seconds of the job up to this one."""
        return end_second - self._first

    def add_seconds(self, first_tick: int, node: NodeTicks, threshold: float) -> None:
        """Add whole seconds of the sum over its rails from a tick on, without those before it was first seen."""
        ticks = node.good.shape[1]
        earlier = max(0, self._first - (first_tick - 1) // ticks)
        self.sums.push(sum_seconds(node, threshold)[earlier:])
        active = np.flatnonzero(node.bandwidth[earlier:] > threshold)
        if len(active):
            self.last_traffic = first_tick + earlier * ticks + int(active[-1])

    def snapshot(self, last_traffic_ns: int | None) -> JobSnapshot:
        """The statistics of its last minute."""
        found = describe_node(self.sums.sum(SPAN_SECONDS)[None], NO_PEAK, NO_SCALES, self.finest_known)
        step = self.step.found
        return JobSnapshot(
            job_id=self.id,
            duty_cycle_ratio=_known(float(found.duty_cycle[0])),
            active_bytes_per_second=_known(float(found.active_mean[0])),
            fairness=self.fairness,
            step_seconds=None if step is None else step.seconds,
            last_traffic_ns=last_traffic_ns,
        )


class JobTotals:
    """The last minute of the rails of each job.

    A job that shares a port has no statistics, because the traffic of a port cannot be divided. If there are too many
    jobs, the first ones keep theirs.
    """

    def __init__(self, reader: RingReader, options: AggregatorOptions) -> None:
        self._reader, self._options = reader, options
        self._jobs: dict[Key, _Job] = {}

    def follow(self, jobs: Sequence[PlacedJob], second: int) -> None:
        """Count for these jobs from the second on."""
        owners = count_owners(jobs)
        alone = {job.claim.key: job for job in jobs if job.ports and all(owners[port] == 1 for port in job.ports)}
        # what was counted on other ports is not the job's any more
        kept = {key: job for key, job in self._jobs.items() if key in alone and job.ports == {*alone[key].ports}}
        ids = {job.id for job in kept.values()}
        for key, job in alone.items():
            # the ids of two schedulers may be the same, and the label is only the id
            if len(kept) < MOST_JOBS and key not in kept and job.claim.id not in ids:
                kept[key] = _Job(job, second)
                ids.add(job.claim.id)
        self._jobs = kept

    def add_seconds(self, first_tick: int, ports: Sequence[RingPort], seconds: Seconds) -> None:
        """Add whole seconds of the node's ports, which begin at a tick."""
        for job in self._jobs.values():
            rails = [index for index in _rails_of(job, ports) if ports[index].port.active]
            node = sum_rails(seconds.chosen(np.array(rails, dtype=np.intp)))
            job.add_seconds(first_tick, node, self._options.active_bytes_per_second)

    def conclude(
        self, ports: Sequence[RingPort], rows: Rows, table: PortTable, resolutions: Sequence[int], end_second: int
    ) -> None:
        """Update fairness after the second `end_second`."""
        active, longest, sums_of = self._options.active_bytes_per_second, table.sums.length, cache(table.sums.sum)
        for job in self._jobs.values():
            rails = _rails_of(job, ports)
            mine, ticks = [ports[index] for index in rails], [resolutions[index] for index in rails]
            # what was before the job was another one's traffic
            spans = [min(each, longest) for each in self._options.balance_spans_seconds if each <= job.age(end_second)]
            job.fairness = find_fairness(mine, rows[rails], sums_of, spans, active) if rails and spans else None
            job.finest_known = coarsest_rail(mine, ticks) == 1

    def step_searches(
        self, ports: Sequence[RingPort], resolutions: Sequence[int], end_second: int
    ) -> list[tuple[StepWatch, StepSearch]]:
        """The search for the step of each job, in the part of the window in which it ran."""
        found = []
        for job in self._jobs.values():
            rails = _rails_of(job, ports)
            window_ns = min(self._options.traffic_window_ns, job.age(end_second) * SECOND_NS)
            search = plan_search([ports[index] for index in rails], [resolutions[index] for index in rails], window_ns)
            found.append((job.step, search))
        return found

    def push_holes(self, seconds: int) -> None:
        """Account for seconds that were not read."""
        for job in self._jobs.values():
            job.sums.push_holes(seconds)

    def snapshots(self) -> tuple[JobSnapshot, ...]:
        """The statistics of every job."""
        return tuple(job.snapshot(self._wall_ns(job.last_traffic)) for job in self._jobs.values())

    def _wall_ns(self, tick: int) -> int | None:
        return int(self._reader.wall_ns(np.array([tick]))[0]) if tick else None


def _rails_of(job: _Job, ports: Sequence[RingPort]) -> list[int]:
    return [index for index, port in enumerate(ports) if port.port.rail and port.port.id in job.ports]


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
