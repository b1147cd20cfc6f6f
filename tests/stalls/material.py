"""The bytes, link events, counters and clocks of the nodes of one job, and the truth about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Instants = NDArray[np.float64]
NEVER = float("inf")


@dataclass(frozen=True)
class Flow:
    """Bytes of one direction of one port: a constant rate in each of some disjoint spans, in order.

    `begins`, `ends` and `volumes` have one entry per span; times are seconds, volumes bytes.
    """

    begins: Instants
    ends: Instants
    volumes: Instants

    @classmethod
    def of(cls, spans: Sequence[tuple[float, float, float]] | NDArray[np.float64]) -> Flow:
        """A flow of (begin, end, bytes), in any order; where spans overlap, the later one waits for the earlier."""
        table = np.array(spans, dtype=np.float64).reshape(-1, 3)
        table = table[np.argsort(table[:, 0], kind="stable")]
        begins, ends = table[:, 0].copy(), table[:, 1].copy()
        np.maximum.accumulate(ends, out=ends)
        begins[1:] = np.maximum(begins[1:], ends[:-1])
        return cls(begins, np.maximum(begins, ends), table[:, 2])

    def together(self, other: Flow) -> Flow:
        """Both flows on one port, one after the other."""
        if not len(other.begins):
            return self
        rows = [np.column_stack((flow.begins, flow.ends, flow.volumes)) for flow in (self, other)]
        return Flow.of(np.concatenate(rows))

    def counter(self, instants: Instants) -> NDArray[np.int64]:
        """Whole bytes that the port has counted at each instant."""
        if not len(self.begins):
            return np.zeros(len(instants), np.int64)
        return np.floor(np.interp(instants, *self._levels)).astype(np.int64)

    @cached_property
    def _levels(self) -> tuple[Instants, Instants]:
        """The instants at which the rate changes, and the bytes counted by then."""
        total = np.cumsum(self.volumes)
        knots = np.column_stack((self.begins, self.ends)).ravel()
        return knots, np.column_stack((total - self.volumes, total)).ravel()

    def last(self, before: float = NEVER) -> float:
        """Instant of the last byte before an instant; minus infinity without one."""
        earlier = self.begins < before
        return min(float(self.ends[earlier][-1]), before) if earlier.any() else -NEVER


NOTHING = Flow.of([])


@dataclass(frozen=True)
class Clock:
    """A node's clock shows the true time plus `offset`; its daemon states that it is within `bound` (None: unknown)."""

    offset: float = 0.0
    bound: float | None = 0.0


@dataclass(frozen=True)
class LinkEvent:
    """A port's link changed: noticed at `noticed`, seen in its former state at `seen_before`; times of the node."""

    port: str
    up: bool
    seen_before: float
    noticed: float


@dataclass
class Node:
    """One node: its ports, what they carry, what its daemon notices, and when it runs.

    `job` has the flows of the job by port and direction ("sent", "received"), `other` those of storage, management
    and repeated packets. `timeouts` has the instants of acknowledgement timeouts of each port, or is None where
    the adapter does not count them. `connected` are the spans in which the job has queue pairs, None where the kernel
    does not count them. `present` are the spans in which the job holds the devices, `answers` those
    in which the daemon runs, `lost` those without samples; `lost_share` of the other samples are lost one by one.
    """

    name: str
    rails: tuple[str, ...]
    storage: tuple[str, ...] = ("storage",)
    job: dict[tuple[str, str], Flow] = field(default_factory=dict)
    other: dict[tuple[str, str], Flow] = field(default_factory=dict)
    links: list[LinkEvent] = field(default_factory=list)
    timeouts: dict[str, Instants] | None = field(default_factory=dict)
    connected: list[tuple[float, float]] | None = None
    clock: Clock = Clock()
    present: list[tuple[float, float]] = field(default_factory=list)
    answers: list[tuple[float, float]] = field(default_factory=lambda: [(-NEVER, NEVER)])
    lost: list[tuple[float, float]] = field(default_factory=list)
    lost_share: float = 0.0

    @property
    def ports(self) -> tuple[str, ...]:
        return self.rails + self.storage

    def counter(self, port: str, direction: str, instants: Instants) -> NDArray[np.int64]:
        """Whole bytes that one direction of one port has counted at each instant: the job's and all other ones."""
        key = port, direction
        return self.job.get(key, NOTHING).counter(instants) + self.other.get(key, NOTHING).counter(instants)

    def add(self, port: str, direction: str, spans: Sequence[tuple[float, float, float]]) -> None:
        """More bytes that are not the job's."""
        key = port, direction
        self.other[key] = self.other.get(key, NOTHING).together(Flow.of(spans))

    def last_byte(self, before: float = NEVER, ways: tuple[str, ...] = ("sent", "received")) -> float:
        """True instant of the job's last byte on any rail, in any of the directions."""
        return max((flow.last(before) for (_, way), flow in self.job.items() if way in ways), default=-NEVER)


@dataclass(frozen=True)
class Pause:
    """A span in which a healthy job is silent."""

    begin: float
    end: float
    reason: str


@dataclass
class Truth:
    """The truth about a job.

    `kind` is link, loss, node, together or healthy; `variant` says more. `nodes` and `rails` are where the cause
    is; `affected` are the nodes on which its signs may be seen. `stopped` is the instant of the cause, `resumes`
    and `ends` those at which traffic returns and the job ends.
    """

    kind: str
    variant: str = ""
    nodes: tuple[str, ...] = ()
    rails: tuple[str, ...] = ()
    affected: tuple[str, ...] = ()
    stopped: float = NEVER
    resumes: float = NEVER
    ends: float = NEVER
    pauses: list[Pause] = field(default_factory=list)


@dataclass
class Case:
    """One job: its nodes, the span that was recorded, and the truth."""

    name: str
    nodes: list[Node]
    begin: float
    end: float
    truth: Truth

    def lead(self) -> float:
        """Seconds by which the named node stopped before every other; negative if it did not.

        A node that never begins a collective sends nothing in it, but may receive what fits into buffers that it has
        offered; without these its neighbour cannot send either. So the larger lead of the two counts: that of the
        last sent byte, and that of the last byte of either direction.
        """
        stop = min(self.truth.resumes, self.truth.ends, self.end)
        leads = []
        for ways in (("sent",), ("sent", "received")):
            last = {node.name: node.last_byte(stop, ways) for node in self.nodes}
            named = max(last.pop(name) for name in self.truth.nodes)
            leads.append(min(last.values(), default=named) - named)
        return max(leads)


@dataclass(frozen=True)
class Samples:
    """What the daemon of one node recorded; `times` in seconds of its own clock, counters by port (samples, ports)."""

    times: Instants
    sent: NDArray[np.int64]
    received: NDArray[np.int64]


def observe(
    node: Node, begin: float, end: float, rng: np.random.Generator, *, interval: float = 0.01, late: float = 60e-6
) -> Samples:
    """Samples of all ports of a node between two true instants.

    Readings begin late by an exponential wake-up delay of mean `late` seconds; one in a thousand is late by up to
    3 intervals and keeps its measured time.
    """
    ticks = np.arange(np.ceil(begin / interval), np.floor(end / interval) + 1) * interval
    delays = rng.exponential(late, len(ticks)) + 3 * interval * rng.random(len(ticks)) * (rng.random(len(ticks)) < 1e-3)
    times = np.maximum.accumulate(ticks + delays)
    kept = rng.random(len(ticks)) >= node.lost_share
    for first, last in node.lost:
        kept &= (times < first) | (times > last)
    times = times[kept & np.any([(times >= first) & (times <= last) for first, last in node.answers], axis=0)]
    counted = [
        np.stack([node.counter(port, way, times) for port in node.ports], axis=1) for way in ("sent", "received")
    ]
    return Samples(times + node.clock.offset, *counted)


def timeout_counts(node: Node, port: str, instants: Instants) -> NDArray[np.int64] | None:
    """The counter of acknowledgement timeouts of a port at true instants; None where it does not exist."""
    if node.timeouts is None:
        return None
    return np.searchsorted(np.sort(node.timeouts.get(port, np.zeros(0))), instants, side="right")
