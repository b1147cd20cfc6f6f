"""What a dataset says about its nodes: numbers, who is late, which rails are hot, stalls, and by leaf and rack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ibpulse.base.text import natural_key
from ibpulse.core.arrays import Floats
from ibpulse.core.statistics.lateness import Lateness
from ibpulse.core.statistics.rail_split import RailSplit, split_rates
from ibpulse.core.statistics.stalls import FleetStall, find_stalls, shortest_stall
from ibpulse.workbench.fleet.node_numbers import NodeNumbers, NodeRails, describe_node, describe_rails
from ibpulse.workbench.fleet.peer_groups import (
    Halves,
    PeerGroup,
    StepCount,
    compare_peers,
    count_steps,
    find_peers,
    step_numbers,
)
from ibpulse.workbench.fleet.report_source import DatasetChoice, FleetNode, ReportSource
from ibpulse.workbench.fleet.span_comparison import FleetChanges, compare_spans, step_sums


@dataclass(frozen=True, slots=True)
class StepRow:
    """The steps of a group of ports of a node: their number, usual length in ms, bytes and silent share, and lateness;
    None where a value is unknown. `rhythm_ms` is the usual step of its peers if other nodes have another one. `halves`
    is the lateness in each half of the time."""

    node: str
    ports: tuple[str, ...]
    peers: str
    rhythm_ms: float | None
    steps: int
    step_ms: float | None
    step_bytes: float | None
    silent_ratio: float | None
    lateness: Lateness | None
    halves: Halves | None

    @property
    def compared_with(self) -> int:
        """The number of its peers."""
        return self.lateness.peers if self.lateness else 0

    @property
    def late(self) -> Lateness | None:
        """Its lateness if it is late: in all steps, or in one half of them."""
        if self.lateness is not None and self.lateness.late:
            return self.lateness
        return self.halves.late if self.halves else None


@dataclass(frozen=True, slots=True)
class PlaceRow:
    """Nodes below one leaf switch or in one rack: medians over them, None if unknown, and the jobs that they run."""

    kind: str
    name: str
    nodes: tuple[str, ...]
    jobs: tuple[str, ...]
    active_bandwidth: float | None
    lateness_ms: float | None
    late: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FleetReport:
    """Everything that is reported about the chosen part of a dataset. Times are in seconds after `origin_ns`."""

    path: Path
    choice: DatasetChoice
    origin_ns: int
    end_ns: int
    nodes: Mapping[str, FleetNode]
    numbers: Mapping[str, NodeNumbers]
    steps: tuple[StepRow, ...]
    counts: tuple[StepCount, ...]
    rails: tuple[NodeRails, ...]
    splits: tuple[RailSplit, ...]
    stalls: tuple[FleetStall, ...]
    places: tuple[PlaceRow, ...]
    missing: tuple[tuple[str, int, int, str], ...]
    changes: FleetChanges | None

    @property
    def simulated(self) -> bool:
        """Whether any of it is simulated."""
        return any(node.simulated for node in self.nodes.values())

    @property
    def seconds(self) -> float:
        """The length of the chosen part."""
        return (self.end_ns - self.origin_ns) / 1e9


def describe_dataset(path: Path, choice: DatasetChoice, against: DatasetChoice | None = None) -> FleetReport:
    """The report of the chosen part, compared with another one if that is given.

    Raises:
        DatasetError: the dataset cannot be read, or has nothing of a choice.
    """
    changes = None
    source = ReportSource(path, choice)
    try:
        peers = find_peers(source.steps())
        rows = [row for each in peers for row in _step_rows(each, source.nodes)]
        if against is not None:
            changes = compare_spans(_sums(path, against), step_sums(peers, source.nodes))
        periods = [row.step_ms for row in rows if row.step_ms is not None]
        shortest = shortest_stall(float(np.median(periods)) / 1e3 if periods else None)
        numbers = _number_nodes(source, shortest)
        rails = [describe_rails(name, *source.rail_seconds(name)) for name in source.nodes]
        missing = tuple(source.missing())
    finally:
        source.close()
    # those whose ends are apart may belong to another stage, which begins and ends at other times
    apart = {row.node for row in rows if row.lateness is not None and row.lateness.ends_apart}
    silences = {name: each.silences for name, each in numbers.items()}
    stalls = find_stalls(silences, {name: each.observed for name, each in numbers.items()}, shortest)
    return FleetReport(
        *(path, choice, source.origin_ns, source.end_ns, source.nodes, numbers),
        tuple(sorted(rows, key=lambda row: (natural_key(row.node), row.ports))),
        tuple(count for each in peers for count in count_steps(each, source.nodes, numbers) if count.node not in apart),
        tuple(rails),
        _split(rails),
        tuple(stalls),
        tuple(_group_places(source.nodes, numbers, rows)),
        missing,
        changes,
    )


def _sums(path: Path, choice: DatasetChoice) -> Floats:
    source = ReportSource(path, choice)
    try:
        return step_sums(find_peers(source.steps()), source.nodes)
    finally:
        source.close()


def _number_nodes(source: ReportSource, shortest: float) -> dict[str, NodeNumbers]:
    found = {}
    for name, node in source.nodes.items():
        samples = source.samples(name)
        if samples is not None:
            found[name] = describe_node(node, samples, source.origin_ns, shortest)
    return found


def _step_rows(peers: PeerGroup, nodes: Mapping[str, FleetNode]) -> list[StepRow]:
    late, halves = compare_peers(peers, nodes)
    return [
        StepRow(
            *(name, group.ports, peers.text, peers.step_ms, len(group.columns["step"])),
            *step_numbers(group),
            late.get(name),
            halves.get(name),
        )
        for name, group in peers.groups.items()
    ]


def _split(rails: Sequence[NodeRails]) -> tuple[RailSplit, ...]:
    """The split of both directions; empty if no two nodes or rails can be compared."""
    names = sorted({name for node in rails for name in node.rails}, key=natural_key)
    if len(names) < 2 or not rails:
        return ()
    means = np.full((2, len(rails), len(names)), np.nan)
    for row, node in enumerate(rails):
        means[:, row, [names.index(name) for name in node.rails]] = node.means
    nodes = [node.node for node in rails]
    return tuple(split_rates(nodes, names, way) for way in means)


def _group_places(
    nodes: Mapping[str, FleetNode], numbers: Mapping[str, NodeNumbers], rows: Sequence[StepRow]
) -> list[PlaceRow]:
    late = {row.node for row in rows if row.late}
    found = []
    for kind in ("leaf", "rack"):
        members: dict[str, list[str]] = {}
        for name, node in nodes.items():
            if kind in node.labels:
                members.setdefault(node.labels[kind], []).append(name)
        for place in sorted(members, key=natural_key):
            mine = members[place]
            rates = [numbers[name].active_bandwidth for name in mine if name in numbers]
            delays = [row.lateness.lateness_ms for row in rows if row.node in mine and row.lateness]
            found.append(
                PlaceRow(
                    *(kind, place, tuple(mine)),
                    tuple(dict.fromkeys(job for name in mine for job in nodes[name].jobs)),
                    _median([rate for rate in rates if rate is not None]),
                    _median(delays),
                    tuple(name for name in mine if name in late),
                )
            )
    return found


def _median(values: Sequence[float]) -> float | None:
    return float(np.median(values)) if values else None
