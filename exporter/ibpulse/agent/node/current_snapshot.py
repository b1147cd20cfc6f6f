"""The statistics of the running daemon: brought up to date when they are asked for, and otherwise every few seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ibpulse.agent.aggregator import Snapshot
from ibpulse.agent.node.node import Node
from ibpulse.base.deadline import BEAT_SECONDS, seconds_until_beat
from ibpulse.base.units import SECOND_NS
from ibpulse.core.events.watch import CounterResets, PhaseEvents
from ibpulse.core.jobs import PlacedJob
from ibpulse.core.model import Fabric

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
        self._phases = PhaseEvents(node.events, node.reader)
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
        """The same, with the counters of its ports up to now."""
        before, snapshot = self._snapshot, self.get(counters_now=True)
        if snapshot is None or snapshot is not before or self._failing_since is not None:
            return snapshot
        with self._errors.boundary("aggregation"):
            return self._node.aggregator.with_counters_now(snapshot, self._reader.newest_tick())
        return snapshot

    def begin(self) -> None:
        """Aggregate what the ring has, for the first time."""
        self._read_jobs()
        self.get()

    async def run(self) -> None:
        """Follow the jobs every second, and aggregate at least every `BATCH_SECONDS`."""
        while True:
            await asyncio.sleep(seconds_until_beat(1.0, self._clock))
            self._read_jobs()
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
        )
        self._note(self._snapshot)

    def _note(self, snapshot: Snapshot) -> None:
        with self._errors.boundary("events", "of statistics"):
            self._phases.note(snapshot.phases)
            # another device has an event of its own
            resets = {str(port.port.id): port.resets - port.replacements for port in snapshot.ports}
            self._resets.note(resets, {str(port.port.id): port.jumps for port in snapshot.ports})
        with self._errors.boundary("captures", "rules"):
            self._node.captures.note(snapshot)
