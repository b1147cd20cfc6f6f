"""The node of a daemon: everything that samples it and knows its state."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ibpulse.agent.aggregator import Aggregator
from ibpulse.agent.flightrecorder.captures import Captures
from ibpulse.agent.jobs.watch import JobWatch
from ibpulse.agent.sampler.supervisor import Supervisor, heartbeat_bound_seconds
from ibpulse.agent.sysfs.expected_rails import ExpectedRails
from ibpulse.base.clocks import Clock
from ibpulse.base.internal_errors import InternalErrors
from ibpulse.base.text import sentence_list
from ibpulse.core.answers.summary import Summary
from ibpulse.core.events import EventLog
from ibpulse.core.jobs import JobPorts
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
