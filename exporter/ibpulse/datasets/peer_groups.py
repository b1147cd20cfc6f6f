"""Which groups of ports of different nodes are peers, and how late each is among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ibpulse.arrays import Bools, Counts, Floats
from ibpulse.datasets.report_source import FleetNode, GroupSteps
from ibpulse.fleet.lateness import FEWEST_STEPS, Lateness, compare_nodes, match_steps
from ibpulse.fleet.step_edges import EdgeTimes, StepTimes
from ibpulse.text import first_names
from ibpulse.units import MILLISECOND_NS

# groups of ports of two nodes are the same if they share this part of all their ports
SAME_PORTS = 0.5
# nodes whose usual steps differ by more than this factor do not make the same steps
SAME_RHYTHM = 1.25
NAMED_PORTS = 4
# samples at the ends of a part, and its share of missing data, at which a step may be cut off
MARGIN_SAMPLES, WHOLE_RATIO = 5, 0.999
# a node that lacks more of the steps of its peers makes other steps
MOST_LOST = 0.4


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
    """Steps of a node against those of its peers: `before` its first one, `after` its last one, and lost `within`."""

    node: str
    before: int
    within: int
    after: int
    peers: int


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


def compare_peers(peers: PeerGroup, nodes: Mapping[str, FleetNode]) -> dict[str, Lateness]:
    """The lateness of each node among its peers."""
    clocks = {name: clock for name in peers.groups if (clock := nodes[name].clock) is not None}
    return compare_nodes(peers.times(), clocks)


def count_steps(peers: PeerGroup, nodes: Mapping[str, FleetNode]) -> list[StepCount]:
    """Nodes that have fewer steps than their peers, within the samples that they have.

    Steps are matched by the time at which the traffic before them ended, on the clocks as they were measured.
    """
    names = [name for name, group in peers.groups.items() if len(group.columns["begin"]) >= FEWEST_STEPS]
    if len(names) < 2:
        return []
    ends = [peers.groups[name].columns["begin"] - nodes[name].offset_ns for name in names]
    places = match_steps(ends)
    reference = ends[max(range(len(ends)), key=lambda row: np.count_nonzero(~np.isnan(ends[row])))]
    usual = (places >= 0).mean(axis=0) > 0.5
    length = float(np.nanmedian(np.diff(reference)))
    found = []
    for row, name in enumerate(names):
        covered = _covered(nodes[name], reference, length, peers.groups[name].origin_ns)
        count = _count(nodes[name], (places[row] >= 0)[usual], covered[usual], len(names))
        if count is not None:
            found.append(count)
    return found


def _covered(node: FleetNode, times: Floats, length: float, origin_ns: int) -> Bools:
    """Whether the samples of a node certainly include the steps that begin at times after the origin."""
    margin = MARGIN_SAMPLES * node.interval_ns + (node.bound_ns or 0)
    found = np.zeros(len(times), dtype=np.bool_)
    for part in node.parts:
        begin, end = (each - node.offset_ns - origin_ns for each in (part.start_ns, part.end_ns))
        found |= (times >= begin + margin) & (times + length < end - margin)
    return found


def _count(node: FleetNode, has: Bools, covered: Bools, nodes: int) -> StepCount | None:
    mine = np.flatnonzero(has)
    if not len(mine):
        return None
    lost: Counts = np.flatnonzero(~has & covered)
    before, after = int(np.count_nonzero(lost < mine[0])), int(np.count_nonzero(lost > mine[-1]))
    within = len(lost) - before - after
    if len(lost) > MOST_LOST * len(has):
        # these are not the same steps
        return None
    # with missing data, the edges of single steps are lost
    if node.observed_ratio < WHOLE_RATIO:
        within = 0
        before, after = (count if count > 1 else 0 for count in (before, after))
    return StepCount(node.name, before, within, after, nodes - 1) if before or after or within else None


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
