"""Which groups of ports of different nodes are peers, and how late each is among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ibpulse.base.text import first_names
from ibpulse.base.units import MILLISECOND_NS, SECOND_NS
from ibpulse.core.arrays import Floats
from ibpulse.core.defaults import FEWEST_PEERS
from ibpulse.core.statistics.lateness import ENOUGH_MS, FEWEST_STEPS, Lateness, compare_nodes, match_steps
from ibpulse.core.statistics.steps.edges import EdgeTimes, StepTimes
from ibpulse.workbench.fleet.node_numbers import NodeNumbers
from ibpulse.workbench.fleet.report_source import FleetNode, GroupSteps

# groups of ports of two nodes are the same if they share this part of all their ports
SAME_PORTS = 0.5
# nodes whose usual steps differ by more than this factor do not make the same steps
SAME_RHYTHM = 1.25
NAMED_PORTS = 4
# a lateness that changes is told only from so many steps on either side
FEWEST_OF_HALF = 8


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

    def times(self) -> dict[str, StepTimes]:
        """The edges of the steps of each node, by its own clock."""
        return {node: read_times(group) for node, group in self.groups.items()}


@dataclass(frozen=True, slots=True)
class StepCount:
    """Steps of its peers during which a node was silent: `before` its first traffic, and `after` its last."""

    node: str
    before: int
    after: int
    peers: int


@dataclass(frozen=True, slots=True)
class Halves:
    """The lateness of a node in the steps up to `at` and in those after it, in seconds after the origin."""

    at: float
    first: Lateness
    second: Lateness

    @property
    def changed(self) -> bool:
        """Whether it is certainly later in one half than in the other."""
        unsure = self.first.uncertainty_ms + self.second.uncertainty_ms
        return abs(self.second.lateness_ms - self.first.lateness_ms) > max(ENOUGH_MS, unsure)

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
                clusters.append({group.node: group})
            else:
                cluster[group.node] = group
        for cluster in clusters:
            found += _split_by_rhythm(PeerGroup(owner, stage, cluster, len(clusters) > 1))
    return found


def _split_by_rhythm(peers: PeerGroup) -> list[PeerGroup]:
    """The peers in groups whose usual steps are equally long, the largest first; those without steps stay with it."""
    lengths = {node: step_numbers(group)[0] for node, group in peers.groups.items()}
    order = sorted((length, node) for node, length in lengths.items() if length is not None)
    clusters: list[list[tuple[float, str]]] = []
    for length, node in order:
        if clusters and length <= SAME_RHYTHM * clusters[-1][0][0]:
            clusters[-1].append((length, node))
        else:
            clusters.append([(length, node)])
    if len(clusters) < 2:
        return [peers]
    clusters.sort(key=len, reverse=True)
    return [
        replace(
            peers,
            groups={node: peers.groups[node] for _, node in cluster},
            step_ms=float(np.median([length for length, _ in cluster])),
        )
        for cluster in clusters
    ]


def _alike(one: GroupSteps, other: GroupSteps) -> bool:
    mine, theirs = set(one.ports), set(other.ports)
    return len(mine & theirs) >= SAME_PORTS * len(mine | theirs)


def read_times(group: GroupSteps) -> StepTimes:
    """The edges of steps as they are compared."""
    ends, transmit, receive = (_edge(group.columns, name) for name in ("begin", "transmit_first", "receive_first"))
    return StepTimes(ends, transmit, receive, group.interval_ns)


def _edge(columns: Mapping[str, Floats], name: str) -> EdgeTimes:
    at, bound = columns[name], columns[f"{name}_bound"]
    return EdgeTimes(at - bound, at, at + bound, columns[f"{name}_resolved"] == 1.0)


def compare_peers(peers: PeerGroup, nodes: Mapping[str, FleetNode]) -> tuple[dict[str, Lateness], dict[str, Halves]]:
    """The lateness of each node among its peers, in all steps and in each half of the time.

    Nodes whose counters change rarely are left out: an edge of theirs lies anywhere in that time.
    """
    times = {name: each for name, each in peers.times().items() if not nodes[name].coarse and len(each)}
    clocks = {name: clock for name in times if (clock := nodes[name].clock) is not None}
    begins = {name: each.end_before.at - nodes[name].offset_ns for name, each in times.items()}
    if not begins:
        return {}, {}
    ends = [each.min() for each in begins.values()], [each.max() for each in begins.values()]
    middle = (min(ends[0]) + max(ends[1])) / 2
    first, second = (
        compare_nodes({name: each.chosen((begins[name] >= middle) == later) for name, each in times.items()}, clocks)
        for later in (False, True)
    )
    halves = {
        name: Halves(middle / SECOND_NS, first[name], second[name])
        for name in first.keys() & second.keys()
        if min(first[name].steps, second[name].steps) >= FEWEST_OF_HALF
    }
    return compare_nodes(times, clocks), halves


def count_steps(
    peers: PeerGroup, nodes: Mapping[str, FleetNode], numbers: Mapping[str, NodeNumbers]
) -> list[StepCount]:
    """Nodes that were certainly silent while their peers made their first or last steps.

    A step whose edges were not found is not lost, so only silence counts, by clocks that are known.
    """
    names = [
        name
        for name, group in peers.groups.items()
        if len(group.columns["begin"]) >= FEWEST_STEPS and nodes[name].bound_ns is not None and name in numbers
    ]
    if len(names) <= FEWEST_PEERS:
        return []
    begins = [peers.groups[name].columns["begin"] - nodes[name].offset_ns for name in names]
    found = np.count_nonzero(match_steps(begins) >= 0, axis=0)
    row = max(range(len(names)), key=lambda row: np.count_nonzero(~np.isnan(begins[row])))
    columns = peers.groups[names[row]].columns
    usual = (2 * found > len(names)) & (found >= FEWEST_PEERS)
    first = np.fmin(columns["transmit_first"], columns["receive_first"]) - nodes[names[row]].offset_ns
    spans = np.stack([first, begins[row] + columns["length"]])[:, usual] / SECOND_NS
    counts = []
    for name in names:
        margin = sum(nodes[one].resolution_ns + (nodes[one].bound_ns or 0) for one in (name, names[row])) / SECOND_NS
        counts.append(_count(name, numbers[name], spans, margin, len(names) - 1))
    return [count for count in counts if count.before or count.after]


def _count(name: str, numbers: NodeNumbers, spans: Floats, margin: float, peers: int) -> StepCount:
    before = after = 0
    if numbers.traffic is not None:
        begins, ends = numbers.traffic
        for begin, end in numbers.quiet:
            lost = int(np.count_nonzero((spans[0] >= begin + margin) & (spans[1] <= end - margin)))
            before += lost if end <= begins else 0
            after += lost if begin >= ends else 0
    return StepCount(name, before, after, peers)


def step_numbers(group: GroupSteps) -> tuple[float | None, float | None, float | None]:
    """The usual length of a step in ms, its bytes in both directions, and its silent share; None if unknown."""
    columns = group.columns
    moved = columns["transmit_bytes"] + columns["receive_bytes"]
    whole = ~(columns["missing_ratio"] > 0)
    numbers = (columns["length"] / MILLISECOND_NS, np.where(whole, moved, np.nan), columns["silent_ratio"])
    length, size, silent = map(_median, numbers)
    return length, size, silent


def _median(values: Floats) -> float | None:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if known.size else None
