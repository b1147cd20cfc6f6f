"""The report of a dataset: numbers of its nodes, lateness, rails, stalls, and medians by leaf and rack."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ibpulse.base.text import first_names, natural_key
from ibpulse.base.units import MILLISECOND_NS, SECOND_NS
from ibpulse.core.arrays import Counts, Floats
from ibpulse.core.defaults import MIN_PEERS
from ibpulse.core.statistics.lateness import MIN_LATE_MS, MIN_STEPS, Lateness, compare_nodes, match_steps
from ibpulse.core.statistics.nodes import (
    Failover,
    FleetStall,
    RailSplit,
    Span,
    find_failovers,
    find_stalls,
    split_rates,
)
from ibpulse.core.statistics.recorded import find_interval, resample
from ibpulse.core.statistics.silences import SampleTimes, describe_rates, find_silences
from ibpulse.core.statistics.steps.edges import MAX_MISSING, EdgeTimes, StepTimes
from ibpulse.core.statistics.steps.runs import (
    SILENT_BYTES_PER_SECOND,
    find_runs,
    join_runs,
    mark_long_runs,
    silence_level,
)
from ibpulse.core.statistics.verdict import NodeSilence, Verdict, judge
from ibpulse.workbench.fleet.source import DatasetChoice, FleetNode, GroupSteps, NodeSums, ReportSource

# groups of ports of two nodes are the same if they share this part of all their ports
SAME_PORTS = 0.5
# nodes whose usual steps differ by more than this factor do not make the same steps
SAME_RHYTHM = 1.25
NAMED_PORTS = 4
# a shorter silence is none of a whole step, if the step is not known
MIN_QUIET_SECONDS = 1 / 3
# steps of either half without which a change of the lateness is not reported
MIN_STEPS_OF_HALF = 8
MAX_JUDGED = 3
"""Stalls with a verdict, the longest ones."""
ALL_RAILS = "all rails"
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


@dataclass(frozen=True, slots=True)
class NodeNumbers:
    """Numbers of a node, transmit and receive together; None if unknown.

    `active_bytes_per_second` is the mean of the samples with traffic, `variation` their standard
    deviation over it. `silent_ratio` is the share of known samples without traffic, `missing_ratio` that of all
    samples that are missing, `partial_ratio` that of sums without all rails. Between the times of `quiet`, in seconds
    after the origin, it certainly moves nothing, for a step or longer; `traffic` is from its first to its last traffic.
    """

    node: str
    active_bytes_per_second: float | None
    variation: float | None
    silent_ratio: float | None
    missing_ratio: float
    partial_ratio: float
    silences: tuple[Span, ...]
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
    verdicts: tuple[Verdict | None, ...]
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
    """The report of the chosen part, compared with another one if that is given."""
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
        least = max(MIN_QUIET_SECONDS, (period or 0.0) / 1e3)
        numbers = {
            name: describe_node(node, samples, source.origin_ns, least)
            for name, node in nodes.items()
            if (samples := source.samples(name)) is not None
        }
        rails = [_describe_rails(name, *source.rail_seconds(name)) for name in nodes]
        missing = tuple(source.missing())
        silences = {name: each.silences for name, each in numbers.items()}
        stalls = find_stalls(silences, {name: each.observed for name, each in numbers.items()})
        verdicts = _judge_stalls(source, stalls[:MAX_JUDGED])
    # those whose ends are apart may belong to another stage, which begins and ends at other times
    apart = {row.node for row in rows if row.lateness is not None and row.lateness.ends_apart}
    return FleetReport(
        *(path, choice, source.origin_ns, source.end_ns, nodes, numbers),
        tuple(sorted(rows, key=lambda row: (natural_key(row.node), row.ports))),
        tuple(count for each in peers for count in _count_steps(each, nodes, numbers) if count.node not in apart),
        tuple(rails),
        _split(rails),
        tuple(stalls),
        verdicts,
        tuple(_group_places(nodes, numbers, rows)),
        missing,
        changes,
    )


def _judge_stalls(source: ReportSource, stalls: Sequence[FleetStall]) -> tuple[Verdict | None, ...]:
    """The verdicts on stalls, as a gateway judges them at their ends; None where it would not yet."""
    told: list[dict[str, NodeSilence]] = [{} for _ in stalls]
    for name in dict.fromkeys(name for stall in stalls for name in stall.silent):
        node, samples = source.nodes[name], source.samples(name)
        if samples is None:
            continue
        times = _times_of(node, samples, source.origin_ns)
        for stall, found in zip(stalls, told, strict=True):
            if name not in stall.silent:
                continue
            # up to the last sample before any node goes on
            count = (
                len(samples.partial) if math.isinf(stall.until) else int((stall.until - times.start) / times.interval)
            )
            if count > 1:
                rates = samples.rates[np.newaxis, :, : count - 1]
                found[name] = describe_rates((ALL_RAILS,), rates, times, SILENT_BYTES_PER_SECOND)
    return tuple(map(judge, told))


def _times_of(node: FleetNode, samples: NodeSums, origin_ns: int) -> SampleTimes:
    start = (samples.start_ns - node.interval_ns - origin_ns - node.offset_ns) / SECOND_NS
    bound = None if node.bound_ns is None else node.bound_ns / SECOND_NS
    return SampleTimes(start, node.interval_ns / SECOND_NS, bound, node.resolution_ns / SECOND_NS)


def describe_node(node: FleetNode, samples: NodeSums, origin_ns: int, least: float) -> NodeNumbers:
    """The numbers of a node; `quiet` are silences of at least so many seconds. Times are after the origin."""
    total = samples.rates.sum(axis=0, dtype=np.float64)
    missing = np.isnan(total)
    known = total[~missing]
    threshold = float(silence_level(known.max(initial=0.0), SILENT_BYTES_PER_SECOND))
    active = known[known > threshold]
    mean = float(active.mean()) if active.size else None
    times = _times_of(node, samples, origin_ns)
    start, interval = times.start, times.interval

    def spans(first: Counts, end: Counts) -> tuple[Span, ...]:
        return tuple(zip((start + first * interval).tolist(), (start + end * interval).tolist(), strict=True))

    # data missing for less than a second does not divide the observed spans
    observed = join_runs(*find_runs(~missing), max(0, SECOND_NS // node.interval_ns - 1))
    # between these, less is missing than a step needs
    first, end = find_runs(~(total > threshold) & ~mark_long_runs(missing, MAX_MISSING))
    long = (end - first) * interval >= least
    places = np.flatnonzero(total > threshold)
    traffic = spans(places[:1], places[-1:] + 1)
    return NodeNumbers(
        node.name,
        mean,
        float(active.std() / mean) if mean else None,
        1 - active.size / known.size if known.size else None,
        1 - known.size / len(total),
        float(samples.partial.mean()),
        tuple(find_silences(samples.rates, times, SILENT_BYTES_PER_SECOND)),
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
            rates = [numbers[name].active_bytes_per_second for name in mine if name in numbers]
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
