"""The report of a dataset: numbers of its nodes, lateness, rails, stalls, and medians by leaf and rack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ibpulse.base.text import natural_key
from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Counts, Floats
from ibpulse.core.defaults import MIN_PEERS
from ibpulse.core.statistics.lateness import MIN_STEPS, Lateness, match_steps
from ibpulse.core.statistics.nodes import (
    SILENT_PERIODS,
    Failover,
    FleetStall,
    RailSplit,
    SampleTimes,
    Silence,
    find_failovers,
    find_silences,
    find_stalls,
    shortest_stall,
    split_rates,
)
from ibpulse.core.statistics.steps.edges import MAX_MISSING
from ibpulse.core.statistics.steps.runs import (
    SILENT_BYTES_PER_SECOND,
    find_runs,
    join_runs,
    mark_long_runs,
    silence_level,
)
from ibpulse.workbench.fleet.peers import (
    FleetChanges,
    Halves,
    PeerGroup,
    compare_peers,
    compare_spans,
    find_peers,
    median_of,
    step_numbers,
    step_sums,
)
from ibpulse.workbench.fleet.source import DatasetChoice, FleetNode, NodeSums, ReportSource

Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class NodeNumbers:
    """Numbers of a node, transmit and receive together; None if unknown.

    `active_bandwidth` is the mean of the samples with traffic, in bytes per second, `variation` their standard
    deviation over it. `silent_ratio` is the share of known samples without traffic, `missing_ratio` that of all
    samples that are missing, `partial_ratio` that of sums without all rails. Between the times of `quiet`, in seconds
    after the origin, it certainly moves nothing, for a step or longer; `traffic` is from its first to its last traffic.
    """

    node: str
    active_bandwidth: float | None
    variation: float | None
    silent_ratio: float | None
    missing_ratio: float
    partial_ratio: float
    silences: tuple[Silence, ...]
    observed: tuple[Span, ...]
    quiet: tuple[Span, ...]
    traffic: Span | None


@dataclass(frozen=True, slots=True)
class NodeRails:
    """The mean rates (2, rails) of the rails of a node over the seconds that all of them have, and its failovers.

    `minutes` (minutes, rails) are the bytes of both directions; failovers count seconds from `begin_ns` on.
    """

    node: str
    rails: tuple[str, ...]
    means: Floats
    minutes: Floats
    begin_ns: int
    failovers: tuple[Failover, ...]


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
    def late(self) -> Lateness | None:
        """Its lateness if it is late: in all steps, or in one half of them."""
        if self.lateness is not None and self.lateness.late:
            return self.lateness
        return self.halves.late if self.halves else None


@dataclass(frozen=True, slots=True)
class StepCount:
    """Steps of its peers during which a node was silent: `before` its first traffic, and `after` its last."""

    node: str
    before: int
    after: int
    peers: int


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
    """The report about the chosen part of a dataset. Times are in seconds after `origin_ns`."""

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
    with closing(ReportSource(path, choice)) as source:
        nodes = source.nodes
        peers = find_peers(source.steps())
        rows = [row for each in peers for row in _step_rows(each, nodes)]
        if against is not None:
            with closing(ReportSource(path, against)) as other:
                sums = step_sums(find_peers(other.steps()), other.nodes)
            changes = compare_spans(sums, step_sums(peers, nodes))
        period = median_of([row.step_ms for row in rows if row.step_ms is not None])
        shortest = shortest_stall(None if period is None else period / 1e3)
        numbers = {
            name: describe_node(node, samples, source.origin_ns, shortest)
            for name, node in nodes.items()
            if (samples := source.samples(name)) is not None
        }
        rails = [_describe_rails(name, *source.rail_seconds(name)) for name in nodes]
        missing = tuple(source.missing())
    # those whose ends are apart may belong to another stage, which begins and ends at other times
    apart = {row.node for row in rows if row.lateness is not None and row.lateness.ends_apart}
    silences = {name: each.silences for name, each in numbers.items()}
    stalls = find_stalls(silences, {name: each.observed for name, each in numbers.items()}, shortest)
    return FleetReport(
        *(path, choice, source.origin_ns, source.end_ns, nodes, numbers),
        tuple(sorted(rows, key=lambda row: (natural_key(row.node), row.ports))),
        tuple(count for each in peers for count in _count_steps(each, nodes, numbers) if count.node not in apart),
        tuple(rails),
        _split(rails),
        tuple(stalls),
        tuple(_group_places(nodes, numbers, rows)),
        missing,
        changes,
    )


def describe_node(node: FleetNode, samples: NodeSums, origin_ns: int, shortest: float) -> NodeNumbers:
    """The numbers of a node; silences of at least `shortest` seconds are on the collector's clock after the origin."""
    total = samples.rates.sum(axis=0, dtype=np.float64)
    missing = np.isnan(total)
    known = total[~missing]
    threshold = float(silence_level(known.max(initial=0.0), SILENT_BYTES_PER_SECOND))
    active = known[known > threshold]
    mean = float(active.mean()) if active.size else None
    interval = node.interval_ns / SECOND_NS
    start = (samples.start_ns - node.interval_ns - origin_ns - node.offset_ns) / SECOND_NS
    bound = None if node.bound_ns is None else node.bound_ns / SECOND_NS
    times = SampleTimes(start, interval, bound, node.resolution_ns / SECOND_NS)

    def spans(first: Counts, end: Counts) -> tuple[Span, ...]:
        return tuple(zip((start + first * interval).tolist(), (start + end * interval).tolist(), strict=True))

    # data missing for less than a second does not divide the observed spans
    observed = join_runs(*find_runs(~missing), max(0, SECOND_NS // node.interval_ns - 1))
    # between these, less is missing than a step needs
    first, end = find_runs(~(total > threshold) & ~mark_long_runs(missing, MAX_MISSING))
    long = (end - first) * interval >= shortest / SILENT_PERIODS
    places = np.flatnonzero(total > threshold)
    traffic = spans(places[:1], places[-1:] + 1)
    return NodeNumbers(
        node.name,
        mean,
        float(active.std() / mean) if mean else None,
        1 - active.size / known.size if known.size else None,
        1 - known.size / len(total),
        float(samples.partial.mean()),
        tuple(find_silences(samples.rates, times, threshold, shortest)),
        spans(*observed),
        spans(first[long], end[long]),
        traffic[0] if traffic else None,
    )


def _describe_rails(name: str, rails: Sequence[str], seconds_ns: Counts, rates: Floats) -> NodeRails:
    """The rails of a node from their seconds, (2, seconds, rails)."""
    complete = ~np.isnan(rates).any(axis=(0, 2))
    means = rates[:, complete].mean(axis=1) if complete.any() else np.full((2, len(rails)), np.nan)
    moved = rates.sum(axis=0)
    begin_ns = int(seconds_ns[0]) if len(seconds_ns) else 0
    minute = (seconds_ns - begin_ns) // (60 * SECOND_NS)
    minutes = np.zeros((int(minute[-1]) + 1 if len(minute) else 0, len(rails)))
    np.add.at(minutes, minute[complete], moved[complete])
    return NodeRails(name, tuple(rails), means, minutes, begin_ns, tuple(find_failovers(rails, moved)))


def _step_rows(peers: PeerGroup, nodes: Mapping[str, FleetNode]) -> list[StepRow]:
    late, halves = compare_peers(peers, nodes)
    return [
        StepRow(
            *(name, group.ports, peers.text, peers.step_ms, len(group)),
            *step_numbers(group),
            late.get(name),
            halves.get(name),
        )
        for name, group in peers.groups.items()
    ]


def _count_steps(
    peers: PeerGroup, nodes: Mapping[str, FleetNode], numbers: Mapping[str, NodeNumbers]
) -> list[StepCount]:
    """Nodes that were certainly silent while their peers made their first or last steps.

    A step whose edges were not found is not lost, so only silence counts, by clocks that are known.
    """
    names = [
        name
        for name, group in peers.groups.items()
        if len(group) >= MIN_STEPS and nodes[name].bound_ns is not None and name in numbers
    ]
    if len(names) <= MIN_PEERS:
        return []
    begins = {name: peers.groups[name].columns["begin"] - nodes[name].offset_ns for name in names}
    found = np.count_nonzero(match_steps(list(begins.values())) >= 0, axis=0)
    most = max(names, key=lambda name: np.count_nonzero(~np.isnan(begins[name])))
    columns = peers.groups[most].columns
    usual = (2 * found > len(names)) & (found >= MIN_PEERS)
    first = np.fmin(columns["transmit_first"], columns["receive_first"]) - nodes[most].offset_ns
    first, end = np.stack([first, begins[most] + columns["length"]])[:, usual] / SECOND_NS
    counts = []
    for name in names:
        margin = sum(nodes[one].resolution_ns + (nodes[one].bound_ns or 0) for one in (name, most)) / SECOND_NS
        traffic, before, after = numbers[name].traffic, 0, 0
        if traffic is None:
            continue
        for quiet, until in numbers[name].quiet:
            lost = int(np.count_nonzero((first >= quiet + margin) & (end <= until - margin)))
            before += lost if until <= traffic[0] else 0
            after += lost if quiet >= traffic[1] else 0
        counts.append(StepCount(name, before, after, len(names) - 1))
    return [count for count in counts if count.before or count.after]


def _split(rails: Sequence[NodeRails]) -> tuple[RailSplit, ...]:
    """The split of both directions; empty if no two rails can be compared."""
    names = sorted({name for node in rails for name in node.rails}, key=natural_key)
    if len(names) < 2:
        return ()
    means = np.full((2, len(rails), len(names)), np.nan)
    for row, node in enumerate(rails):
        means[:, row, [names.index(name) for name in node.rails]] = node.means
    return tuple(split_rates([node.node for node in rails], names, way) for way in means)


def _group_places(
    nodes: Mapping[str, FleetNode], numbers: Mapping[str, NodeNumbers], rows: Sequence[StepRow]
) -> list[PlaceRow]:
    late = {row.node for row in rows if row.late}
    found = []
    for kind in ("leaf", "rack"):
        for place in sorted({node.labels[kind] for node in nodes.values() if kind in node.labels}, key=natural_key):
            mine = [name for name, node in nodes.items() if node.labels.get(kind) == place]
            rates = [numbers[name].active_bandwidth for name in mine if name in numbers]
            delays = [row.lateness.lateness_ms for row in rows if row.node in mine and row.lateness]
            jobs = dict.fromkeys(job for name in mine for job in nodes[name].jobs)
            found.append(
                PlaceRow(
                    *(kind, place, tuple(mine), tuple(jobs)),
                    median_of([rate for rate in rates if rate is not None]),
                    median_of(delays),
                    tuple(name for name in mine if name in late),
                )
            )
    return found
