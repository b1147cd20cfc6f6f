"""Groups of ports of different nodes that are peers: their lateness, and the steps of two spans or jobs compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ibpulse.base.text import first_names
from ibpulse.base.units import MILLISECOND_NS, SECOND_NS
from ibpulse.core.arrays import Floats
from ibpulse.core.statistics.lateness import MIN_LATE_MS, Lateness, compare_nodes, match_steps
from ibpulse.core.statistics.recorded import find_interval, resample
from ibpulse.core.statistics.steps.edges import EdgeTimes, StepTimes
from ibpulse.workbench.fleet.source import FleetNode, GroupSteps

# groups of ports of two nodes are the same if they share this part of all their ports
SAME_PORTS = 0.5
# nodes whose usual steps differ by more than this factor do not make the same steps
SAME_RHYTHM = 1.25
NAMED_PORTS = 4
# steps of either half without which a change of the lateness is not reported
MIN_STEPS_OF_HALF = 8
RESAMPLES, LEVEL, SEED = 2000, 0.95, 0
# the sums of a step: nodes, seconds of them, bytes, silent seconds
NODES, SECONDS, BYTES, SILENT = range(4)


@dataclass(frozen=True, slots=True)
class PeerGroup:
    """Groups of ports with one job, stage and length of step, at most one per node; empty texts where unknown.

    `several`: the nodes have other groups of ports as well. `step_ms` is the length if others have another one.
    """

    owner: str
    stage: str
    groups: Mapping[str, GroupSteps]
    several: bool
    step_ms: float | None = None

    @property
    def text(self) -> str:
        """The peers in words."""
        parts = [f"job {self.owner}" if self.owner else "", f"stage {self.stage}" if self.stage else ""]
        if self.several:
            ports = max(self.groups.values(), key=lambda one: len(one.ports)).ports
            parts.append(f"ports {first_names(ports, NAMED_PORTS)}")
        parts.append(f"steps of {self.step_ms:.0f} ms" if self.step_ms else "")
        return ", ".join(filter(None, parts))


@dataclass(frozen=True, slots=True)
class Halves:
    """The lateness of a node in the steps up to `at` and in those after it, in seconds after the origin."""

    at: float
    first: Lateness
    second: Lateness

    @property
    def changed(self) -> bool:
        """Whether it is certainly later in one half than in the other."""
        uncertainty = self.first.uncertainty_ms + self.second.uncertainty_ms
        return abs(self.second.lateness_ms - self.first.lateness_ms) > max(MIN_LATE_MS, uncertainty)

    @property
    def late(self) -> Lateness | None:
        """That of the half in which it is late, if it is not late in both."""
        if not self.changed or self.first.late == self.second.late:
            return None
        return self.second if self.second.late else self.first


def find_peers(groups: Sequence[GroupSteps]) -> list[PeerGroup]:
    """The groups of ports that are compared with each other."""
    by_owner: dict[tuple[str, str], list[GroupSteps]] = {}
    for group in groups:
        by_owner.setdefault((group.owner, group.stage), []).append(group)
    found = []
    for (owner, stage), mine in by_owner.items():
        clusters: list[dict[str, GroupSteps]] = []
        for group in sorted(mine, key=lambda one: (-len(one.ports), one.node)):
            fitting = (each for each in clusters if group.node not in each and _alike(group, next(iter(each.values()))))
            cluster = next(fitting, None)
            if cluster is None:
                clusters.append(cluster := {})
            cluster[group.node] = group
        for cluster in clusters:
            found += _split_by_rhythm(PeerGroup(owner, stage, cluster, len(clusters) > 1))
    return found


def _alike(one: GroupSteps, other: GroupSteps) -> bool:
    mine, theirs = set(one.ports), set(other.ports)
    return len(mine & theirs) >= SAME_PORTS * len(mine | theirs)


def _split_by_rhythm(peers: PeerGroup) -> list[PeerGroup]:
    """The peers in groups whose usual steps are equally long, the largest first; those without steps stay with it."""
    lengths = {node: step_numbers(group)[0] for node, group in peers.groups.items()}
    order = sorted((length, node) for node, length in lengths.items() if length is not None)
    clusters: list[list[tuple[float, str]]] = []
    for length, node in order:
        if not clusters or length > SAME_RHYTHM * clusters[-1][0][0]:
            clusters.append([])
        clusters[-1].append((length, node))
    if len(clusters) < 2:
        return [peers]
    return [
        replace(
            peers,
            groups={node: peers.groups[node] for _, node in cluster},
            step_ms=float(np.median([length for length, _ in cluster])),
        )
        for cluster in sorted(clusters, key=len, reverse=True)
    ]


def _read_times(group: GroupSteps, interval_ns: int) -> StepTimes:
    """The edges of steps as they are compared."""

    def edge(name: str) -> EdgeTimes:
        at, bound = group.columns[name], group.columns[f"{name}_bound"]
        return EdgeTimes(at - bound, at, at + bound, group.columns[f"{name}_resolved"] == 1.0)

    return StepTimes(edge("begin"), edge("transmit_first"), edge("receive_first"), interval_ns)


def compare_peers(peers: PeerGroup, nodes: Mapping[str, FleetNode]) -> tuple[dict[str, Lateness], dict[str, Halves]]:
    """The lateness of each node among its peers, in all steps and in each half of the time.

    Nodes whose counters change rarely are left out: an edge of theirs lies anywhere in that time.
    """
    chosen = {name: group for name, group in peers.groups.items() if not nodes[name].coarse and len(group)}
    if not chosen:
        return {}, {}
    times = {name: _read_times(group, nodes[name].interval_ns) for name, group in chosen.items()}
    clocks = {name: clock for name in times if (clock := nodes[name].clock) is not None}
    begins = {name: each.end_before.at - nodes[name].offset_ns for name, each in times.items()}
    middle = (min(each.min() for each in begins.values()) + max(each.max() for each in begins.values())) / 2
    first, second = (
        compare_nodes({name: each.chosen((begins[name] >= middle) == later) for name, each in times.items()}, clocks)
        for later in (False, True)
    )
    halves = {
        name: Halves(middle / SECOND_NS, first[name], second[name])
        for name in first.keys() & second.keys()
        if min(first[name].steps, second[name].steps) >= MIN_STEPS_OF_HALF
    }
    return compare_nodes(times, clocks), halves


def step_numbers(group: GroupSteps) -> tuple[float | None, float | None, float | None]:
    """The usual length of a step in ms, its bytes in both directions, and its silent share; None if unknown."""
    columns = group.columns
    moved = columns["transmit_bytes"] + columns["receive_bytes"]
    whole = ~(columns["missing_ratio"] > 0)
    numbers = (columns["length"] / MILLISECOND_NS, np.where(whole, moved, np.nan), columns["silent_ratio"])
    length, size, silent = (median_of(values[~np.isnan(values)]) for values in numbers)
    return length, size, silent


def median_of(values: Sequence[float] | Floats) -> float | None:
    """The median, None of no values."""
    return float(np.median(values)) if len(values) else None


@dataclass(frozen=True, slots=True)
class FleetChange:
    """A number before and after, in SI units, and after over before with its interval; NaN if unknown."""

    key: str
    label: str
    unit: str
    before: float
    after: float
    ratio: float
    low: float
    high: float

    @property
    def significant(self) -> bool:
        """Whether the interval excludes no change."""
        return not math.isnan(self.low) and not self.low <= 1 <= self.high


@dataclass(frozen=True, slots=True)
class FleetChanges:
    """The changes, and the numbers of steps before and after."""

    changes: tuple[FleetChange, ...]
    before_steps: int
    after_steps: int


def step_sums(peers: Sequence[PeerGroup], nodes: Mapping[str, FleetNode]) -> Floats:
    """Sums over the nodes for each step of the largest group of peers: (steps, 4), those of `NODES` to `SILENT`.

    Steps that lost data are left out on that node.
    """
    largest = max(peers, key=lambda each: sum(map(len, each.groups.values())), default=None)
    several = {
        name: group
        for name, group in (largest.groups if largest else {}).items()
        if np.count_nonzero(~np.isnan(group.columns["begin"])) > 1
    }
    if not several:
        return np.zeros((0, 4))
    places = match_steps([group.columns["begin"] - nodes[name].offset_ns for name, group in several.items()])
    sums = np.zeros((places.shape[1], 4))
    for own, group in zip(places, several.values(), strict=True):
        columns = group.columns
        lengths = columns["length"] / SECOND_NS
        moved = columns["transmit_bytes"] + columns["receive_bytes"]
        values = np.stack([np.ones(len(lengths)), lengths, moved, columns["silent_ratio"] * lengths], axis=1)
        usable = (own >= 0) & ~np.isnan(values[own]).any(axis=1) & ~(columns["missing_ratio"][own] > 0)
        sums[usable] += values[own[usable]]
    return np.asarray(sums[sums[:, NODES] > 0])


def compare_spans(before: Floats, after: Floats) -> FleetChanges:
    """The changes from the steps of one span to those of another, with intervals from resampled steps."""
    rng = np.random.default_rng(SEED)
    drawn = [resample(each, RESAMPLES, rng) for each in (before, after)]
    level = 1 - (1 - LEVEL) / len(_STATISTICS)
    found = []
    for key, label, unit, statistic in _STATISTICS:
        values = [float(statistic(each.sum(axis=0))) if len(each) else math.nan for each in (before, after)]
        low = high = math.nan
        if drawn[0] is not None and drawn[1] is not None:
            ratios = np.asarray(statistic(drawn[1].sums) / statistic(drawn[0].sums))
            low, high = find_interval(ratios, min(drawn[0].groups, drawn[1].groups), level)
        ratio = values[1] / values[0] if values[0] > 0 else math.nan
        found.append(FleetChange(key, label, unit, values[0], values[1], ratio, low, high))
    return FleetChanges(tuple(found), len(before), len(after))


def _quotient(over: int, under: int, less: int | None = None) -> Callable[[Floats], Floats]:
    def statistic(sums: Floats) -> Floats:
        below = sums[..., under] - (0.0 if less is None else sums[..., less])
        return np.asarray(np.divide(sums[..., over], below, out=np.full(below.shape, np.nan), where=below > 0))

    return statistic


_STATISTICS = (
    ("step_seconds", "step", "seconds", _quotient(SECONDS, NODES)),
    ("step_bytes", "bytes of a step and node", "bytes", _quotient(BYTES, NODES)),
    ("active_bytes_per_second", "bandwidth of a node while active", "rate", _quotient(BYTES, SECONDS, SILENT)),
    ("silent_ratio", "silent share of a step", "ratio", _quotient(SILENT, SECONDS)),
)
