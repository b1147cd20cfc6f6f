"""Bursts and gaps, and the rails compared with those that carry the traffic of the same jobs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ibpulse.agent.aggregator.ports import PortTable
from ibpulse.agent.aggregator.snapshot import (
    DURATION_BUCKETS,
    AggregatorOptions,
)
from ibpulse.agent.jobs.owners import find_owners
from ibpulse.core.answers.summary import RailStatistics
from ibpulse.core.arrays import Bools, Floats, Rows
from ibpulse.core.jobs import Key, PlacedJob
from ibpulse.core.metrics.row import Histogram
from ibpulse.core.model import PortId
from ibpulse.core.ring.spans import RingPort
from ibpulse.core.statistics.balance import (
    Balance,
    RailRates,
    RailSums,
    find_carriers,
    first_active_span,
    group_rails,
    jain_index,
    join_groups,
    weigh_rails,
)
from ibpulse.core.statistics.moments import or_none
from ibpulse.core.statistics.rates import coarsest_ticks
from ibpulse.core.statistics.steps.runs import HOLE, MAX_BRIDGED, join_states, split_runs, start_runs
from ibpulse.core.statistics.sums import COVERED, MOVED, NodeTicks, Seconds, line_rate


class Distribution:
    """A histogram of values."""

    def __init__(self, buckets: tuple[float, ...]) -> None:
        self._buckets, self._bounds = buckets, np.array(buckets)
        self._counts = np.zeros(len(buckets) + 1, dtype=np.int64)
        self._total = 0.0

    def add(self, values: Floats) -> None:
        """Add values."""
        self._counts += np.bincount(np.searchsorted(self._bounds, values, side="left"), minlength=len(self._counts))
        self._total += float(values.sum())

    def histogram(self) -> Histogram:
        """The values so far."""
        return Histogram(self._buckets, tuple(np.cumsum(self._counts).tolist()), self._total)


class Bursts:
    """Bursts and gaps of the node's bandwidth, with their lengths, and burst counts and time of each port."""

    def __init__(self, active_bytes_per_second: float) -> None:
        self._active = active_bytes_per_second
        self._node = start_runs(1)
        self._ports = start_runs(0)
        self.durations, self.gaps = Distribution(DURATION_BUCKETS), Distribution(DURATION_BUCKETS)
        self.began = 0
        self.watched_seconds = 0.0
        # samples since the last one of the node that is not missing; none at the start
        self._missed: int | None = None
        self.moved_bytes = 0.0
        self.port_began = np.zeros(0, dtype=np.int64)
        self.port_seconds = np.zeros(0)

    def fit_rows(self, rows: int, fresh: Sequence[int]) -> None:
        """Make room for this number of port rows; the `fresh` rows are reset."""
        more = rows - len(self.port_seconds)
        if more > 0:
            self._ports = join_states(self._ports, start_runs(more))
            self.port_began = np.concatenate([self.port_began, np.zeros(more, dtype=np.int64)])
            self.port_seconds = np.concatenate([self.port_seconds, np.zeros(more)])
        # a short hole between two ports of one row must not join their runs
        self._ports.label[list(fresh)] = HOLE
        self.port_began[list(fresh)], self.port_seconds[list(fresh)] = 0, 0.0

    def add_node(self, node: NodeTicks, counting: bool) -> None:
        """Add the ticks of the sum over the rails."""
        rates = np.where(node.good, node.bandwidth, np.nan).reshape(1, -1)
        self._node, runs = split_runs(self._node, rates, node.measured.reshape(1, -1), self._active)
        watched = self._watch(node.good.ravel(), node.measured.ravel())
        if counting:
            self.watched_seconds += watched
            bursts = runs.complete(burst=True)
            self.durations.add(runs.seconds[bursts])
            self.gaps.add(runs.seconds[runs.complete(burst=False)])
            self.moved_bytes += float(runs.moved_bytes[bursts].sum())
            self.began += int(runs.began[0])

    def _watch(self, good: Bools, measured: Floats) -> float:
        """The time in which a beginning of a burst is counted: up to each sample, from the one before it."""
        places = np.flatnonzero(good)
        if not len(places):
            self._missed = None if self._missed is None else self._missed + len(good)
            return 0.0
        steps = np.diff(places, prepend=places[0] + 1 if self._missed is None else -1 - self._missed)
        self._missed = len(good) - 1 - int(places[-1])
        return float((steps * measured[places])[(steps > 0) & (steps <= MAX_BRIDGED + 1)].sum())

    def add_ports(self, rows: Rows, seconds: Seconds, resolved: Bools, counting: bool) -> None:
        """Add the ticks of all ports; ports that are not `resolved` (ports,) count as missing data."""
        ticks = seconds.good.shape[1] * seconds.good.shape[2]
        good = (seconds.good & resolved[:, None, None]).reshape(len(rows), ticks)
        rates = np.full((len(self.port_seconds), ticks), np.nan)
        measured = np.zeros(rates.shape)
        both = seconds.bytes_per_second.sum(axis=1).reshape(good.shape)
        rates[rows] = np.where(good, both, np.nan)
        measured[rows] = seconds.seconds.mean(axis=1).reshape(good.shape)
        self._ports, runs = split_runs(self._ports, rates, measured, self._active)
        if counting:
            self.port_began += runs.began
            self.port_seconds += runs.busy_seconds

    def break_node(self) -> None:
        """End the node's current run at missing data."""
        self._node, self._missed = start_runs(1), None

    def break_ports(self) -> None:
        """End the current run of every port at missing data."""
        self._ports = start_runs(len(self.port_seconds))


NOBODY: frozenset[Key] = frozenset()


@dataclass(frozen=True, slots=True)
class RailBalance:
    """The balance of the rails, by port name; `fairness` is None without traffic."""

    fairness: float | None
    active: int
    rails: Mapping[str, RailStatistics]


class Siblings:
    """Which rails are compared with each other: those with the same jobs, and those without any.

    Rails that come from different jobs are compared by the time since then, because what they carried before says
    nothing about either.
    """

    def __init__(self) -> None:
        self._jobs: Sequence[PlacedJob] = ()
        self._rails: Sequence[PortId] | None = None
        self._owners: dict[PortId, frozenset[Key]] = {}
        # by owners: the positions of their rails, and the second since which they have had them
        self._groups: dict[frozenset[Key], tuple[Rows, float]] = {}

    def follow(self, jobs: Sequence[PlacedJob]) -> None:
        """Group the rails by these jobs from the next second on."""
        if jobs is not self._jobs:
            self._jobs, self._rails = jobs, None

    def group(self, rails: Sequence[PortId], second: int) -> list[tuple[Rows, float]]:
        """The groups of all rails of the node, one at least, after a second.

        Each has the positions of its rails, and the seconds since they have had the same jobs.
        """
        if rails != self._rails:
            self._regroup(rails, second)
            self._rails = rails
        found = [(places, second - since) for places, since in self._groups.values()]
        return found or [(np.zeros(0, dtype=np.intp), math.inf)]

    def _regroup(self, rails: Sequence[PortId], second: int) -> None:
        owned = find_owners(self._jobs)
        owners = {rail: owned.get(rail, NOBODY) for rail in rails}
        groups = {}
        for owner, group in group_rails([owners[rail] for rail in rails]).items():
            before = {self._owners[rails[place]] for place in group if rails[place] in self._owners}
            since = second if len(before) > 1 else self._groups[before.pop()][1] if before else -math.inf
            groups[owner] = group, since
        self._owners, self._groups = owners, groups


class RecentRates:
    """The rates of the node's ports over spans that end with each of the last `count` seconds.

    Each span is computed once for all these seconds, the node and all jobs.
    """

    def __init__(self, ports: Sequence[RingPort], rows: Rows, table: PortTable, count: int = 1) -> None:
        self.longest_seconds = table.sums.length
        self._rows, self._sums, self._count = rows, table.sums, count
        self._up = np.array([port.port.active for port in ports], dtype=np.bool_)
        self._found: dict[int, RailRates] = {}

    def of_rails(self, rails: Rows, ago: int = 0) -> Callable[[int], RailRates]:
        """The rates of some of the ports over the last n seconds, up to `ago` seconds before the newest."""
        return lambda seconds: self._of_all(seconds).over(self._count - 1 - ago).chosen(rails)

    def _of_all(self, seconds: int) -> RailRates:
        if seconds not in self._found:
            sums = self._sums.sums(seconds, self._count)[:, self._rows]
            self._found[seconds] = RailSums(sums, sums[..., MOVED], sums[..., 0, COVERED], self._up).rates()
        return self._found[seconds]


def weigh_ports(
    ports: Sequence[RingPort],
    rates: RecentRates,
    options: AggregatorOptions,
    siblings: Siblings,
    second: int,
    ago: int,
) -> RailBalance:
    """The balance of the rails after a second, each group over the first of the spans in which its rails were active.

    It is `ago` seconds before the newest second of the rates.
    """
    chosen = np.array([index for index, port in enumerate(ports) if port.port.rail], dtype=np.intp)
    names = [ports[index].port.id for index in chosen]
    active, spans, longest = options.active_bytes_per_second, options.balance_spans_seconds, rates.longest_seconds
    groups = siblings.group(names, second)

    def weigh(rails: Rows, seconds: float) -> Balance:
        rates_of = rates.of_rails(chosen[rails], ago)
        fitting = tuple(span for span in spans if span <= seconds)
        if not fitting:
            return weigh_rails(rates_of, spans[:1], longest, active).unjudged()
        return weigh_rails(rates_of, fitting, int(min(longest, seconds)), active)

    balance = join_groups([rails for rails, _ in groups], [weigh(*group) for group in groups])
    standings = {
        str(name): RailStatistics.model_construct(
            rail_share_ratio=or_none(share), rail_idle=bool(idle), rail_slow=bool(slow)
        )
        for name, share, idle, slow in zip(names, balance.share.tolist(), balance.idle, balance.slow, strict=True)
    }
    return RailBalance(or_none(balance.fairness), balance.active, standings)


def find_fairness(rates: RecentRates, rails: Rows, spans: Sequence[int], active: float) -> float | None:
    """Fairness of rails in the first of the spans in which they were active; None without traffic.

    `active` is the threshold in bytes per second.
    """
    spans = [min(span, rates.longest_seconds) for span in spans]
    _, found = first_active_span(rates.of_rails(rails), spans, active)
    return or_none(float(jain_index(found)))


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What is known of the rails, by port name, and of the traffic after one second."""

    rails: Mapping[str, RailStatistics]
    signature: str
    moe_saturated: bool


def coarsest_rail(ports: Sequence[RingPort], resolutions: Sequence[int]) -> int:
    """Ticks between changes of the slowest counter in the node's sum; 1 if all change at every sample."""
    rails = (ticks for port, ticks in zip(ports, resolutions, strict=True) if port.port.rail and port.port.active)
    return coarsest_ticks(rails)


def carriers_lines(ports: Sequence[RingPort], rows: Rows, table: PortTable, seconds: int, count: int) -> Floats:
    """The line rates of the rails that carried traffic, both directions, (count,); NaN if unknown.

    That is in the `seconds` that end with each of the last `count` ones, oldest first.
    """
    chosen = [index for index, port in enumerate(ports) if port.port.rail]
    rates = np.array([ports[index].port.rate_bytes_per_second or math.nan for index in chosen])
    sums = table.sums.sums(seconds, count)[:, rows[chosen]]
    moved = np.where(sums[..., 0, COVERED] > 0, sums[..., MOVED].sum(axis=-1), math.nan)
    return line_rate(np.where(find_carriers(moved), rates, 0.0).T)
