"""What is known of a node of a job: its rails, samples and statistics, and how late it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ibpulse.base.units import MILLISECOND_NS
from ibpulse.core.answers.jobs import JobAnswer
from ibpulse.core.answers.node import PortAnswer
from ibpulse.core.answers.summary import PortSummary, SummaryAnswer
from ibpulse.core.arrays import Singles
from ibpulse.core.statistics.lateness import Lateness, compare_nodes
from ibpulse.core.statistics.rates import stands_still
from ibpulse.core.statistics.steps.edges import find_step_edges
from ibpulse.gateway.job_rails import rails_of
from ibpulse.gateway.node_samples import NodeSamples
from ibpulse.gateway.nodes.node_table import NodeState


@dataclass(slots=True)
class JobNode:
    """What is known of a node of a job: its rails, its samples, and the statistics of its own daemon.

    `problem` is the word and the sentence of why it does not answer, both empty if it does. `history_ms` is how far
    back its daemon remembers.
    """

    job: JobAnswer
    state: NodeState | None
    problem: tuple[str, str] = ("", "")
    samples: NodeSamples | None = None
    summary: SummaryAnswer | None = None
    history_ms: int = 0
    rails: Mapping[str, PortAnswer | None] = field(init=False)

    def __post_init__(self) -> None:
        self.rails = rails_of(self.job, self.state)

    @property
    def answering(self) -> bool:
        """Whether it answers."""
        return not self.problem[0]

    @property
    def line_rate(self) -> float | None:
        """The sum of the rates of its rails; None if one is unknown."""
        rates = [port.rate_bytes_per_second if port else None for port in self.rails.values()]
        known = [rate for rate in rates if rate is not None]
        return sum(known) if known and len(known) == len(rates) else None

    @property
    def resolution_seconds(self) -> float:
        """The longest time between two changes of the counters of a rail, as far as it is known."""
        return max(
            (port.source.resolution_seconds for port in self.rails.values() if port and port.source), default=0.0
        )

    def traffic(self) -> Mapping[str, PortSummary]:
        """The statistics of its ports by name."""
        return {port.port: port for port in self.summary.ports} if self.summary else {}

    def rates(self, rails: Sequence[str], length_ms: int) -> Singles | None:
        """The sum of the newest samples of rails: (2, samples); None if there are none, or the node does not answer."""
        if self.samples is None or not self.answering or not self.samples.end_ms:
            return None
        begin = (self.samples.end_ms - length_ms) // self.samples.interval_ms * self.samples.interval_ms
        return self.samples.sum(rails, begin, self.samples.end_ms, live=True)[0]


def find_lateness(nodes: Mapping[str, JobNode], length_ms: int) -> dict[str, Lateness]:
    """The lateness of the nodes whose newest samples say something about it."""
    steps, clocks = {}, {}
    for name, node in nodes.items():
        rates = node.rates(tuple(node.rails), length_ms)
        samples = node.samples
        # an edge lies anywhere in the time between two changes of a counter
        if rates is not None and samples and not stands_still(node.resolution_seconds, samples.interval_ms / 1000):
            begin_ms = samples.end_ms - rates.shape[1] * samples.interval_ms
            edges = find_step_edges(rates, samples.interval_ms * MILLISECOND_NS, node.line_rate)
            steps[name] = edges.times.shifted(float(begin_ms * MILLISECOND_NS))
        if node.state and node.state.offset:
            clocks[name] = node.state.offset
    return compare_nodes(steps, clocks)
