"""Statistics of the rails of each job, for at most `MAX_JOBS` jobs that share no port."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from ibpulse.agent.aggregator.node import RollingSeconds
from ibpulse.agent.aggregator.snapshot import AggregatorOptions, JobSnapshot, LastTraffic
from ibpulse.agent.aggregator.steps import StepSearch, StepWatch, plan_search
from ibpulse.agent.aggregator.traffic import RecentRates, coarsest_rail, find_fairness
from ibpulse.agent.jobs.owners import count_owners
from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Bools, Counts
from ibpulse.core.jobs import Key, PlacedJob
from ibpulse.core.model import PortId
from ibpulse.core.ring.reader import RingReader
from ibpulse.core.ring.spans import RingPort, widest_stride
from ibpulse.core.statistics import moments
from ibpulse.core.statistics.sums import FIELDS, Seconds, describe_node, sum_groups, sum_seconds

MAX_JOBS = 8
SPAN_SECONDS = 60


@dataclass(slots=True)
class _Silence:
    """The last tick with traffic, and the first known one after it without; 0 before there is one."""

    active: int = 0
    idle: int = 0

    def add(self, first_tick: int, active: Bools, known: Bools) -> None:
        """Add the ticks from `first_tick` on."""
        places = np.flatnonzero(active)
        begin = 0
        if len(places):
            begin = int(places[-1]) + 1
            self.active, self.idle = first_tick + begin - 1, 0
        if self.active and not self.idle and known[begin:].any():
            self.idle = first_tick + begin + int(known[begin:].argmax())


@dataclass(slots=True)
class _Job:
    """What is known of one job since the second in which it was `first` seen; its sums are in a `row` of them.

    `known` is the last tick with a sample, and `counters` has those of its ports then, by slot, if it is silent.
    Counters change every `coarsest` ticks. Of its `silences`, the first is that of both directions together, then those
    of transmit and receive.
    """

    id: str
    ports: frozenset[PortId]
    first: int
    row: int
    known: int = 0
    counters: dict[int, Counts] = field(default_factory=dict)
    coarsest: int = 1
    silences: tuple[_Silence, _Silence, _Silence] = field(default_factory=lambda: (_Silence(), _Silence(), _Silence()))
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
            ways = active[index, earlier:] & (nodes.directions[:, index, earlier:] > threshold / 2)
            moving = np.stack([active[index, earlier:], *ways]).reshape(3, -1)
            slots = [ports[each].slot for each in rails[index]]
            self._follow_silences(job, slots, first_tick + earlier * ticks, moving, nodes.good[index, earlier:].ravel())
        self._sums.push(sums)

    def _follow_silences(self, job: _Job, slots: Sequence[int], first_tick: int, moving: Bools, known: Bools) -> None:
        """Add the ticks from `first_tick` on to the silences of a job; `moving` is (3, ticks), as the silences are."""
        places = np.flatnonzero(known)
        if not len(places):
            return
        before = np.append(job.known - first_tick if job.known else places[0], places[:-1])
        # a second without samples ends a silence, unless the counters say that nothing moved in it
        ended = places - before > SECOND_NS // self._reader.interval_ns
        edges = [0, *places[ended].tolist(), len(known)]
        for last, (begin, end) in zip((None, *before[ended].tolist()), pairwise(edges), strict=True):
            broken = last is not None and self._have_moved(job, slots, first_tick + last, first_tick + begin)
            for silence, way in zip(job.silences, moving, strict=True):
                silence.idle = 0 if broken else silence.idle
                silence.add(first_tick + begin, way[begin:end], known[begin:end])
        job.known = first_tick + int(places[-1])
        # the ring may be too short to read them after a long time without samples
        silent = any(silence.idle for silence in job.silences)
        job.counters = self._counters(slots, job.known) if silent else {}

    def _have_moved(self, job: _Job, slots: Sequence[int], first_tick: int, last_tick: int) -> bool:
        """Whether some ports may have moved more bytes between two samples than are counted as silence."""
        old = job.counters if first_tick == job.known else self._counters(slots, first_tick)
        new = self._counters(slots, last_tick)
        if not slots or any(slot not in old or slot not in new or min(new[slot] - old[slot]) < 0 for slot in slots):
            return True
        moved = sum(int((new[slot] - old[slot]).sum()) for slot in slots)
        return moved * SECOND_NS > self._options.active_bytes_per_second * self._reader.interval_ns

    def _counters(self, slots: Sequence[int], tick: int) -> dict[int, Counts]:
        """Bytes by the counters of each port at a tick: (2,); without those that are not known."""
        block = self._reader.read(slots, tick, tick)
        counters, valid = block.counters(), block.valid()
        counted = counters.astype(np.int64)[..., 0] * block.scale[:, None]
        return {slot: counted[row] for row, slot in enumerate(slots) if valid[row].all()}

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
            coarsest = coarsest_rail(mine, ticks)
            job.finest_known = coarsest == 1
            job.coarsest = max(coarsest, widest_stride(port.stride for port in mine))
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
        jobs, ticks = list(self._jobs.values()), SECOND_NS // self._reader.interval_ns
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
                last_traffic_ns=self._wall_ns(job.silences[0].active),
                since_ns=self._reader.wall_of(job.first * ticks),
                known_until_ns=self._wall_ns(job.known),
                silences=tuple(self._describe(job, silence) for silence in job.silences),
            )
            for job, duty, mean in zip(jobs, found.duty_cycle.tolist(), found.active_mean.tolist(), strict=True)
        )

    def _describe(self, job: _Job, silence: _Silence) -> LastTraffic | None:
        """When traffic ended. If it has not, that is up to the newest sample."""
        if not silence.active:
            return None
        times = np.array([silence.active - job.coarsest, (silence.idle - 1) if silence.idle else job.known])
        return LastTraffic(*self._reader.wall_ns(times).tolist())

    def _wall_ns(self, tick: int) -> int | None:
        return self._reader.wall_of(tick) if tick else None


def _is_between_steps(job: _Job, interval_ns: int) -> bool:
    """Whether a job is silent for less than a step, or for a second if that is unknown."""
    silence = job.silences[0]
    if not silence.idle:
        return True
    step = job.step.found.seconds if job.step.found else math.nan
    return (job.known - silence.idle) * interval_ns <= SECOND_NS * (1.0 if math.isnan(step) else step)


def _rails_of(job: _Job, ports: Sequence[RingPort]) -> list[int]:
    return [index for index, port in enumerate(ports) if port.port.rail and port.port.id in job.ports]
