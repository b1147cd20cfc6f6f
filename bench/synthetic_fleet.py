"""Nodes of a job with known lateness, clock errors, jitter and faults, as samples of their counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ibpulse.base.units import MILLISECOND_NS, SECOND_NS
from ibpulse.core.arrays import Floats
from ibpulse.core.statistics.lateness import ClockOffset
from ibpulse.core.statistics.steps.edges import StepTimes, find_step_edges

START_NS = 1_763_683_200 * SECOND_NS
INTERVAL_MS, LINE = 10.0, 50e9
# what a node sends ahead into the buffers of its connections before its ring waits, at the plateau
AHEAD_MS = 0.4


@dataclass(frozen=True)
class FleetPlan:
    """A job whose nodes begin each step on time, or later by `late_ms`, and end it together.

    Every start has jitter with a standard deviation of `jitter_ms`, every end one of `ends_ms`, and the length of a
    step one of `step_sd` of it. Clocks are ahead by a normal error of `clock_ms`, or by those of `clocks_ms`. A node
    receives what the others of its stage send, on the average; in a `ring` only from the one before it, and a node that
    is on time sends a little ahead and waits for the latest one. `noise` is that of the rates at the plateau, `missing`
    the share of lost samples. The steps of node i are those from `first_step[i]` on; those of `stage_ms` end and begin
    later by so much. Nodes of `late_ms` are late from the part `late_from` of the steps on. The traffic of a step is
    one burst for a `duty` of it, or `bursts`: begin and length of each as parts of a step. Nodes stop sending at
    `stop_ms`, and go on at `resume_ms`; at `left_ms`, they stop receiving as well. Counters are read every `stride`
    samples. `seconds` is the length of the samples, 0 for all steps.
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
    resume_ms: float = np.inf
    left_ms: Mapping[int, float] = field(default_factory=dict)
    stride: Mapping[int, int] = field(default_factory=dict)
    bursts: tuple[tuple[float, float], ...] = ()
    step_sd: float = 0.0
    late_from: float = 0.0
    seconds: float = 0.0
    seed: int = 0

    @property
    def samples(self) -> int:
        """The number of samples of a node."""
        if self.seconds:
            return int(1e3 * self.seconds / INTERVAL_MS)
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
        lengths = np.full(plan.steps, plan.period_ms)
        if plan.step_sd:
            lengths *= 1 + plan.step_sd * np.clip(rng.normal(size=plan.steps), -3, 3)
        self.step_ms = float(np.median(lengths))
        starts = 53.0 + np.cumsum(lengths) - lengths
        late = np.array([plan.late_ms.get(node, 0.0) for node in range(plan.nodes)])[:, np.newaxis]
        late = late * (np.arange(plan.steps) >= plan.late_from * plan.steps)
        stage = np.array([plan.stage_ms.get(node, 0.0) for node in range(plan.nodes)])[:, np.newaxis]
        shape = (plan.nodes, plan.steps)
        (_, first), *others = plan.bursts or ((0.0, plan.duty),)
        self._starts = starts + late + stage + rng.normal(0.0, plan.jitter_ms, shape)
        self._ends = starts + first * plan.period_ms + stage + rng.normal(0.0, plan.ends_ms, shape)
        self._others = [
            starts + part * plan.period_ms + stage + rng.normal(0.0, plan.ends_ms, shape)
            for begin, length in others
            for part in (begin, begin + length)
        ]
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
        # a collective stays within a stage
        stage = [other for other in range(plan.nodes) if plan.stage_ms.get(other) == plan.stage_ms.get(node)]
        # a node whose clock is ahead takes its first sample earlier
        edges = INTERVAL_MS * np.arange(plan.samples + 1) - self.clock_errors_ms[node]
        edges = np.minimum(edges, plan.left_ms.get(node, np.inf))
        level = plan.level * plan.rails * LINE
        first = plan.first_step.get(node, 0)
        sent = self._busy([node], first, edges)
        if plan.ring:
            received = self._busy([node - 1], first, edges)
        else:
            received = (self._busy(stage, first, edges) - sent) / (len(stage) - 1) if len(stage) > 1 else sent
        rates = level * np.diff([sent, received]) / INTERVAL_MS * self._rng.normal(1.0, plan.noise, (2, plan.samples))
        rates[:, self._rng.random(plan.samples) < plan.missing] = np.nan
        if (stride := plan.stride.get(node, 1)) > 1:
            group = np.arange(plan.samples) // stride
            rates = np.array([(np.bincount(group, way) / np.bincount(group))[group] for way in rates])
        return np.asarray(np.clip(rates, 0.0, None))

    def _busy(self, nodes: Sequence[int], first: int, times: Floats) -> Floats:
        """For how long nodes had sent until each of the times, together, in their steps from one on."""
        begins, ends = (
            np.concatenate(each) for each in zip(*(self._bursts(node, first) for node in nodes), strict=True)
        )
        at = np.concatenate([begins, ends])
        order = np.argsort(at, kind="stable")
        active = np.cumsum(np.repeat([1, -1], len(begins))[order])
        total = np.concatenate([[0.0], np.cumsum(active[:-1] * np.diff(at[order]))])
        return np.asarray(np.interp(times, at[order], total))

    def _bursts(self, node: int, first: int) -> tuple[Floats, Floats]:
        """Begin and end of every burst of a node from a step on, in true time."""
        node %= self.plan.nodes
        begins, ends = self._starts[node], self._ends[node]
        every = [begins, ends]
        if self.plan.ring:
            together = self._starts.max(axis=0)
            every = [begins, np.minimum(begins + AHEAD_MS, together), together, ends]
        first = max(first, self.plan.first_step.get(node, 0))
        edges = np.stack([*every, *(other[node] for other in self._others)], axis=1)[first:].ravel()
        stop, resume = self.plan.stop_ms.get(node, np.inf), self.plan.resume_ms
        # what would be sent in between is not sent at all
        edges = np.concatenate([np.minimum(edges, stop), np.maximum(edges, resume)]) if np.isfinite(stop) else edges
        edges = edges[np.isfinite(edges)]
        return edges[::2], edges[1::2]
