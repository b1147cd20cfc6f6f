"""The node of a daemon: everything that samples it and knows its state, and its current statistics."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ibpulse.agent.aggregator import Aggregator, Snapshot
from ibpulse.agent.flightrecorder.recorder import Captures
from ibpulse.agent.jobs.watch import JobWatch
from ibpulse.agent.node.silence import JobSilences
from ibpulse.agent.sampler.supervisor import Supervisor, heartbeat_bound_seconds
from ibpulse.agent.sysfs.expected_rails import ExpectedRails
from ibpulse.base.clocks import Clock
from ibpulse.base.deadline import BEAT_SECONDS, seconds_until_beat
from ibpulse.base.internal_errors import InternalErrors
from ibpulse.base.text import sentence_list
from ibpulse.base.units import SECOND_NS
from ibpulse.core.answers.silence import SilenceAnswer
from ibpulse.core.answers.summary import Summary
from ibpulse.core.events import EventLog
from ibpulse.core.events.watch import CounterResets, note_phases
from ibpulse.core.jobs import JobPorts, PlacedJob
from ibpulse.core.model import Fabric
from ibpulse.core.ring.reader import RingReader

MAX_NAMED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The parts that sample one node into one ring, and what several of them say together."""

    name: str
    clock: Clock
    errors: InternalErrors
    reader: RingReader
    events: EventLog
    supervisor: Supervisor
    aggregator: Aggregator
    expected_rails: ExpectedRails
    jobs: JobWatch
    silences: JobSilences
    captures: Captures

    def fabric(self) -> Fabric:
        """The fabric with the notices of all parts."""
        return self.aggregator.with_notices(self.sampled_fabric())

    def sampled_fabric(self) -> Fabric:
        """The fabric with the notices about jobs, and one for each internal error; the aggregator adds its own."""
        fabric, notices = self.supervisor.fabric, (*self.jobs.view.notices, *self.errors.notices())
        return replace(fabric, notices=(*fabric.notices, *notices)) if notices else fabric

    def readiness(self) -> tuple[bool, str]:
        """Whether samples are taken, and a sentence."""
        ready, text = self._find_readiness()
        # the notices have paths, and a probe needs no password
        parts = self.errors.failing_parts()
        return ready, f"{text} Internal errors in {sentence_list(parts)}; see the log." if parts else text

    def _find_readiness(self) -> tuple[bool, str]:
        if not any(port.source is not None for port in self.supervisor.fabric.ports):
            return True, "Ready: no port can be sampled; checking for one every few seconds."
        age = self.supervisor.heartbeat_age_seconds()
        if age is None:
            return False, "Not ready: waiting for the first sample."
        if age > heartbeat_bound_seconds(self.reader.interval_ns):
            return False, f"Not ready: no sample was taken for {age:.0f} s; see the log."
        troubled = [known for known in self.supervisor.known_ports() if known.problem]
        missing = "".join(f" {known.port.id}: {known.problem}." for known in troubled[:MAX_NAMED])
        return True, f"Ready: sampling {len(self.supervisor.slots)} ports.{missing}"

    def summarize(self, seconds: int, end_ns: int | None, had: JobPorts | None = None) -> Summary:
        """The summary of a number of whole seconds that end at a wall time, or now; of a job if its ports are given."""
        ports = [known.port for known in self.supervisor.known_ports()]
        return self.aggregator.summarize(ports, seconds, end_ns, jobs=self.jobs.view.records, had=had)


# Several seconds at a time cost less than half as much. The rules of captures see them this much later.
BATCH_SECONDS = 5
# Statistics that could not be brought up to date for this long are not exported: they would pass for current ones.
STALE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _InForce:
    """The ports and the jobs with which seconds are aggregated."""

    fabric: Fabric
    jobs: Sequence[PlacedJob] | None

    def is_alike(self, other: _InForce) -> bool:
        """Whether the other one has the same ports and jobs; states of ports are in the event log."""
        if self.jobs is not other.jobs:
            return False
        ours, theirs = self.fabric.ports, other.fabric.ports
        return ours is theirs or [(port.id, port.source) for port in ours] == [
            (port.id, port.source) for port in theirs
        ]


class CurrentSnapshot:
    """The newest snapshot. All that ask within a second get the same one; all methods belong to one thread.

    Events and captures follow each snapshot once. Nothing that fails ends sampling; statistics that grow old are
    withdrawn.
    """

    def __init__(self, node: Node) -> None:
        self._node, self._reader = node, node.reader
        self._errors, self._clock = node.errors, node.clock
        self._resets = CounterResets(node.events, node.reader, node.clock)
        self._ticks_per_second = SECOND_NS // node.reader.interval_ns
        self._snapshot: Snapshot | None = None
        self._in_force: _InForce | None = None
        self._jobs: Sequence[PlacedJob] | None = None
        # the wall second that was the newest at the last update
        self._second = 0
        self._failing_since: float | None = None

    def get(self, counters_now: bool = False) -> Snapshot | None:
        """The snapshot up to the newest whole second; None if the statistics cannot be brought up to date."""
        second = self._newest_second()
        if second != self._second:
            self._bring_up(second, counters_now)
        return self._snapshot

    def get_now(self) -> Snapshot | None:
        """The newest snapshot, with the counters of its ports up to now."""
        before, snapshot = self._snapshot, self.get(counters_now=True)
        if snapshot is None or snapshot is not before or self._failing_since is not None:
            return snapshot
        with self._errors.boundary("aggregation"):
            return self._node.aggregator.with_counters_now(snapshot, self._reader.newest_tick())
        return snapshot

    def silences(self) -> list[SilenceAnswer] | None:
        """The silences of the jobs, up to now; None after an internal error."""
        with self._errors.boundary("jobs", "silences"):
            self._node.silences.update(self._node.jobs.view, self._node.supervisor.fabric)
            return self._node.silences.describe()
        return None

    def _judge_silences(self) -> None:
        with self._errors.boundary("jobs", "silences"):
            self._node.silences.update(self._node.jobs.view, self._node.supervisor.fabric)
        with self._errors.boundary("jobs", "verdicts"):
            self._node.silences.judge(self._node.name)
            if self._node.silences.wants_counters():
                self._node.supervisor.rescan()

    def begin(self) -> None:
        """Aggregate what the ring has, for the first time."""
        self._read_jobs()
        self.get()

    async def run(self) -> None:
        """Follow the jobs every second, and aggregate at least every `BATCH_SECONDS`."""
        while True:
            await asyncio.sleep(seconds_until_beat(1.0, self._clock))
            self._read_jobs()
            self._judge_silences()
            second = self._newest_second()
            # the wall clock may have been stepped back
            if not self._second < second < self._second + BATCH_SECONDS or self._changed():
                self.get()

    def _newest_second(self) -> int:
        """The number of the newest second that is whole, since the epoch."""
        return int(self._clock.time() - BEAT_SECONDS)

    def _read_jobs(self) -> None:
        with self._errors.boundary("jobs"):
            self._node.jobs.update(self._node.supervisor.fabric)
            self._jobs = self._node.jobs.view.jobs

    def _changed(self) -> bool:
        return self._in_force is None or not self._in_force.is_alike(_InForce(self._node.sampled_fabric(), self._jobs))

    def _bring_up(self, second: int, counters_now: bool) -> None:
        self._second = second
        newest, now = self._reader.newest_tick(), _InForce(self._node.sampled_fabric(), self._jobs)
        with self._errors.boundary("aggregation"):
            if self._in_force is not None and not self._in_force.is_alike(now):
                # the seconds before the last one had the ports and the jobs of then
                self._take(self._in_force, newest - self._ticks_per_second, False)
            self._in_force = now
            self._take(now, newest, counters_now)
            self._failing_since = None
            return
        self._failing_since = self._failing_since or self._clock.monotonic()
        if self._clock.monotonic() - self._failing_since >= STALE_SECONDS:
            self._snapshot = None

    def _take(self, given: _InForce, tick: int, counters_now: bool) -> None:
        node = self._node
        expected_rails = node.expected_rails.update(given.fabric)
        self._snapshot = replace(
            node.aggregator.update(given.fabric, tick, given.jobs, counters_now),
            health=node.supervisor.health(),
            captures=node.captures.recorder.counts(),
            known_ports=tuple(node.supervisor.known_ports()),
            event_counts=dict(node.events.counts()),
            expected_rails=expected_rails,
            jobs_known=node.jobs.view.whole,
            job_stalls=node.silences.stalls(),
        )
        self._note(self._snapshot)

    def _note(self, snapshot: Snapshot) -> None:
        with self._errors.boundary("events", "of statistics"):
            note_phases(self._node.events, self._reader, snapshot.phases)
            # another device has an event of its own
            resets = {str(port.port.id): port.resets - port.replacements for port in snapshot.ports}
            self._resets.note(resets, {str(port.port.id): port.jumps for port in snapshot.ports})
        with self._errors.boundary("captures", "rules"):
            self._node.captures.note(snapshot)
