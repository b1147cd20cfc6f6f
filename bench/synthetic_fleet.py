"""Nodes of a job with known lateness, clock errors, jitter and faults, as samples of their counters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ibpulse.arrays import Counts, Floats
from ibpulse.fleet.clock_offsets import ClockOffset
from ibpulse.fleet.step_edges import StepTimes, find_step_edges
from ibpulse.units import MILLISECOND_NS, SECOND_NS

START_NS = 1_763_683_200 * SECOND_NS
INTERVAL_MS, LINE = 10.0, 50e9
# what a node sends ahead into the buffers of its connections before its ring waits, at the plateau
AHEAD_MS = 0.4


@dataclass(frozen=True)
class FleetPlan:
    """A job whose nodes begin each step on time, or later by `late_ms`, and end it together.

    Every start has jitter with a standard deviation of `jitter_ms`, every end one of `ends_ms`; clocks are ahead by a
    normal error of `clock_ms`, or by those of `clocks_ms`. In a `ring`, a node that is on time sends a little ahead and
    waits for the latest one. `noise` is that of the rates at the plateau, `missing` the share of lost samples. The
    steps of node i are those from `first_step[i]` on; those of `stage_ms` end and begin later by so much.
    """

    nodes: int = 8
    steps: int = 40
    late_ms: Mapping[int, float] = field(default_factory=dict)
    clock_ms: float = 0.1
    clocks_ms: Mapping[int, float] = field(default_factory=dict)
    jitter_ms: float = 1.0
    ends_ms: float = 0.2
    period_ms: float = 315.0
    duty: float = 0.6
    rails: int = 8
    level: float = 0.8
    noise: float = 0.02
    missing: float = 0.0
    ring: bool = False
    first_step: Mapping[int, int] = field(default_factory=dict)
    stage_ms: Mapping[int, float] = field(default_factory=dict)
    stop_ms: Mapping[int, float] = field(default_factory=dict)
    seed: int = 0

    @property
    def samples(self) -> int:
        """The number of samples of a node."""
        return int((self.steps + 1) * self.period_ms / INTERVAL_MS) + 10


class SyntheticFleet:
    """The nodes of a plan: rates (2, samples) of their sums, their clocks, and what is true of them."""

    def __init__(self, plan: FleetPlan) -> None:
        self.plan = plan
        self.names = [f"node{number + 1}" for number in range(plan.nodes)]
        rng = np.random.default_rng(plan.seed)
        self.clock_errors_ms = rng.normal(0.0, plan.clock_ms, plan.nodes)
        for node, error in plan.clocks_ms.items():
            self.clock_errors_ms[node] = error
        self._rng = rng
        starts = 53.0 + plan.period_ms * np.arange(plan.steps)
        late = np.array([plan.late_ms.get(node, 0.0) for node in range(plan.nodes)])
        stage = np.array([plan.stage_ms.get(node, 0.0) for node in range(plan.nodes)])[:, np.newaxis]
        shape = (plan.nodes, plan.steps)
        self._starts = starts + late[:, np.newaxis] + stage + rng.normal(0.0, plan.jitter_ms, shape)
        self._ends = starts + plan.duty * plan.period_ms + stage + rng.normal(0.0, plan.ends_ms, shape)
        self.rates = {name: self._make_rates(node) for node, name in enumerate(self.names)}

    def clocks(self, bound_ms: float = 0.1, claimed_ms: Mapping[int, float] | None = None) -> dict[str, ClockOffset]:
        """The offsets as they would be measured: the truth with an error of half the bound; `claimed_ms` has wrong
        ones, with the same bound."""
        rng, claimed = np.random.default_rng(self.plan.seed + 1), claimed_ms or {}
        errors = rng.uniform(-0.5, 0.5, self.plan.nodes) * bound_ms
        return {
            name: ClockOffset(
                round((claimed.get(node, self.clock_errors_ms[node]) + errors[node]) * MILLISECOND_NS),
                round(bound_ms * MILLISECOND_NS),
            )
            for node, name in enumerate(self.names)
        }

    def step_times(self) -> dict[str, StepTimes]:
        """The edges of all nodes, found in their samples."""
        line = self.plan.rails * LINE
        found = {}
        for name, rates in self.rates.items():
            found[name] = find_step_edges(rates, round(INTERVAL_MS * MILLISECOND_NS), line).times
        return found

    def _make_rates(self, node: int) -> Floats:
        plan = self.plan
        sent = self._bursts(node)
        received = self._bursts(node - 1) if plan.ring else sent
        error, stop = self.clock_errors_ms[node], plan.stop_ms.get(node, np.inf)
        # a node whose clock is ahead takes its first sample earlier
        edges = INTERVAL_MS * np.arange(plan.samples + 1) - error
        level = plan.level * plan.rails * LINE
        busy = [np.diff(_busy_ms(begin, end, np.minimum(edges, stop))) / INTERVAL_MS for begin, end in (sent, received)]
        rates = level * np.array(busy) * self._rng.normal(1.0, plan.noise, (2, plan.samples))
        rates[:, self._rng.random(plan.samples) < plan.missing] = np.nan
        return np.asarray(np.clip(rates, 0.0, None))

    def _bursts(self, node: int) -> tuple[Floats, Floats]:
        """Begin and end of every burst of a node in true time, in order."""
        node %= self.plan.nodes
        begins, ends = self._starts[node], self._ends[node]
        if self.plan.ring:
            together = self._starts.max(axis=0)
            ahead = np.minimum(begins + AHEAD_MS, together)
            begins, ends = np.stack([begins, together], axis=1), np.stack([ahead, ends], axis=1)
        first = self.plan.first_step.get(node, 0)
        return begins[first:].ravel(), ends[first:].ravel()


def _busy_ms(begins: Floats, ends: Floats, times: Floats) -> Floats:
    """For how long a node was busy until each of the times."""
    places = np.stack([begins, ends], axis=1).ravel()
    total = np.repeat(np.cumsum(np.concatenate([[0.0], ends - begins])), 2)[1:-1]
    return np.asarray(np.interp(times, places, total))


def steps_between(times: StepTimes) -> Counts:
    """The lengths of the steps in ms, rounded."""
    return np.rint(np.diff(times.transmit.at) / MILLISECOND_NS).astype(np.int64)
