"""Describes the traffic, second by second: bursts, rail balance, saturation, signature."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ibpulse.agent.aggregator.node import NodeTotals
from ibpulse.agent.aggregator.ports import PortTable
from ibpulse.agent.aggregator.snapshot import (
    DURATION_BUCKETS,
    UTILIZATION_BUCKETS,
    AggregatorOptions,
    NodeTraffic,
    PortTraffic,
)
from ibpulse.agent.jobs.owners import find_owners
from ibpulse.base.units import SECOND_NS
from ibpulse.core.answers.statistics import NodeConclusions, RailStatistics
from ibpulse.core.arrays import Bools, Floats, Rows
from ibpulse.core.jobs.claims import Key, PlacedJob
from ibpulse.core.metrics.row import Histogram
from ibpulse.core.model import PortId
from ibpulse.core.ring.spans import RingPort
from ibpulse.core.statistics import moments
from ibpulse.core.statistics.balance import (
    Balance,
    BalanceOptions,
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
from ibpulse.core.statistics.signature import (
    MoeSaturationState,
    SaturationOptions,
    SaturationState,
    Signature,
    advance_moe_saturation,
    advance_saturation,
    find_signature,
    resembles_moe_saturation,
    seconds_above,
    start_saturation,
)
from ibpulse.core.statistics.steps.period import StepPeriod
from ibpulse.core.statistics.steps.runs import HOLE, MAX_BRIDGED, Thresholds, join_states, split_runs, start_runs
from ibpulse.core.statistics.sums import COVERED, MOVED, NodeTicks, Seconds, line_rate

DURATION_BOUNDS = np.array(DURATION_BUCKETS)
# row 0 is the node, followed by two rows per port: transmit, receive
NODE = 0


class Durations:
    """A histogram of durations."""

    def __init__(self) -> None:
        self._counts = np.zeros(len(DURATION_BOUNDS) + 1, dtype=np.int64)
        self._total = 0.0

    def add(self, seconds: Floats) -> None:
        """Add durations."""
        self._counts += np.bincount(np.searchsorted(DURATION_BOUNDS, seconds, side="left"), minlength=len(self._counts))
        self._total += float(seconds.sum())

    def histogram(self) -> Histogram:
        """The durations so far."""
        return Histogram(DURATION_BUCKETS, tuple(np.cumsum(self._counts).tolist()), self._total)


class Bursts:
    """Bursts and gaps of the node's bandwidth, with their lengths, and burst counts and time of each port."""

    def __init__(self, thresholds: Thresholds) -> None:
        self._thresholds = thresholds
        self._node = start_runs(1)
        self._ports = start_runs(0)
        self.durations, self.gaps = Durations(), Durations()
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
        self._node, runs = split_runs(self._node, rates, node.measured.reshape(1, -1), self._thresholds)
        watched = self._watch(node.good.ravel(), node.measured.ravel())
        if counting:
            self.watched_seconds += watched
            bursts = runs.bursts()
            self.durations.add(runs.seconds[bursts])
            self.gaps.add(runs.seconds[runs.gaps()])
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

    def add_ports(self, rows: Rows, seconds: Seconds, told: npt.NDArray[np.bool_], counting: bool) -> None:
        """Add the ticks of all ports; ports that are not `told` (ports,) count as missing data."""
        ticks = seconds.good.shape[1] * seconds.good.shape[2]
        good = (seconds.good & told[:, None, None]).reshape(len(rows), ticks)
        rates = np.full((len(self.port_seconds), ticks), np.nan)
        measured = np.zeros(rates.shape)
        both = seconds.bytes_per_second.sum(axis=1).reshape(good.shape)
        rates[rows] = np.where(good, both, np.nan)
        measured[rows] = seconds.seconds.mean(axis=1).reshape(good.shape)
        self._ports, runs = split_runs(self._ports, rates, measured, self._thresholds)
        if counting:
            self.port_began += runs.began
            self.port_seconds += runs.busy_seconds

    def break_node(self) -> None:
        """End the node's current run at missing data."""
        self._node, self._missed = start_runs(1), None

    def break_ports(self) -> None:
        """End the current run of every port at missing data."""
        self._ports = start_runs(len(self.port_seconds))


class Saturation:
    """The saturated state of the node and of both directions of every port."""

    def __init__(self, options: SaturationOptions) -> None:
        self._options = options
        self._state = start_saturation(1, options)

    def fit_rows(self, ports: int, fresh: Sequence[int]) -> None:
        """Make room for this number of ports; the `fresh` ports are reset."""
        state = self._state
        more = 1 + 2 * ports - len(state.saturated)
        if more > 0:
            new = start_saturation(more, self._options)
            self._state = state = SaturationState(
                np.concatenate([state.above, new.above], axis=1),
                np.concatenate([state.observed, new.observed], axis=1),
                np.concatenate([state.saturated, new.saturated]),
                np.concatenate([state.saturated_seconds, new.saturated_seconds]),
            )
        if fresh:
            known = np.ones(len(state.saturated), dtype=np.bool_)
            known[[1 + 2 * row + way for row in fresh for way in range(2)]] = False
            self._state = SaturationState(
                state.above * known, state.observed * known, state.saturated & known, state.saturated_seconds * known
            )

    def add(
        self, node: NodeTicks, lines: Floats, ports: Sequence[RingPort], rows: Rows, seconds: Seconds, counting: bool
    ) -> None:
        """Add whole seconds; `lines` is the node's line rate as in `NodeTotals`."""
        span = len(node.good)
        above, observed = (np.zeros((span, len(self._state.saturated))) for _ in range(2))
        above[:, NODE] = seconds_above(node.bandwidth / lines, node.measured, self._options.level)
        observed[:, NODE] = np.where(lines > 0, node.measured, 0.0).sum(axis=-1)
        rates = np.array([port.port.rate_bytes_per_second or np.nan for port in ports])
        utilization = seconds.bytes_per_second / rates[:, None, None, None]
        near = seconds_above(utilization, seconds.seconds, self._options.level)
        seen = np.where(np.isnan(rates)[:, None, None], 0.0, seconds.seconds.sum(axis=-1))
        for way in range(2):
            above[:, 1 + 2 * rows + way] = near[:, way].T
            observed[:, 1 + 2 * rows + way] = seen[:, way].T
        for second in range(span):
            self._advance(above[second], observed[second], counting)

    def push_holes(self, seconds: int) -> None:
        """Add seconds without any data."""
        nothing = np.zeros(len(self._state.saturated))
        for _ in range(min(seconds, self._options.window_seconds)):
            self._advance(nothing, nothing, False)

    def _advance(self, above: Floats, observed: Floats, counting: bool) -> None:
        before = self._state.saturated_seconds
        self._state = advance_saturation(self._state, above, observed, self._options)
        if not counting:
            self._state = replace(self._state, saturated_seconds=before)

    def of_node(self) -> tuple[bool, float]:
        """Whether the node is saturated, and its total saturated seconds."""
        return bool(self._state.saturated[NODE]), float(self._state.saturated_seconds[NODE])

    def of_port(self, row: int) -> tuple[tuple[bool, ...], tuple[float, ...]]:
        """Whether each direction of a port is saturated, and its total saturated seconds."""
        mine = slice(1 + 2 * row, 3 + 2 * row)
        saturated, seconds = self._state.saturated[mine].tolist(), self._state.saturated_seconds[mine].tolist()
        return tuple(saturated), tuple(seconds)


NOBODY: frozenset[Key] = frozenset()


@dataclass(frozen=True, slots=True)
class RailBalance:
    """The balance of the rails, by port name; `fairness` is None without traffic."""

    fairness: float | None
    active: int
    rails: Mapping[str, RailStatistics]


@dataclass(frozen=True, slots=True)
class Group:
    """Rails with the same jobs: their positions, and the seconds since they have had the same ones."""

    rails: Rows
    seconds: float = math.inf


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

    def group(self, rails: Sequence[PortId], second: int) -> list[Group]:
        """The groups of all rails of the node, one at least, after a second."""
        if rails != self._rails:
            self._regroup(rails, second)
            self._rails = rails
        found = [Group(places, second - since) for places, since in self._groups.values()]
        return found or [Group(np.zeros(0, dtype=np.intp))]

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
    limits = BalanceOptions(active_bytes_per_second=options.active_bytes_per_second)
    spans, longest = options.balance_spans_seconds, rates.longest_seconds
    groups = siblings.group(names, second)

    def weigh(group: Group) -> Balance:
        rates_of = rates.of_rails(chosen[group.rails], ago)
        fitting = tuple(span for span in spans if span <= group.seconds)
        if not fitting:
            return weigh_rails(rates_of, spans[:1], longest, limits).unjudged()
        return weigh_rails(rates_of, fitting, int(min(longest, group.seconds)), limits)

    balance = join_groups([group.rails for group in groups], [weigh(group) for group in groups])
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


UTILIZATION_BOUNDS = np.array(UTILIZATION_BUCKETS)
UNKNOWN = Signature("unknown", 0.0)


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What is known of the rails, by port name, and of the traffic after one second."""

    rails: Mapping[str, RailStatistics]
    signature: str
    moe_saturated: bool


class Traffic:
    """All descriptions of the traffic beyond moments and peaks."""

    def __init__(self, options: AggregatorOptions) -> None:
        self._options = options
        self._window_seconds = options.traffic_window_ns // SECOND_NS
        self.bursts = Bursts(options.thresholds())
        self._saturation = Saturation(options.saturation)
        self._moe = MoeSaturationState()
        self.signature = UNKNOWN
        self.siblings = Siblings()
        self.balance = RailBalance(None, 0, {})
        self._counts = np.zeros(len(UTILIZATION_BOUNDS) + 1, dtype=np.int64)
        self._utilization_sum = 0.0

    def fit_rows(self, ports: int, fresh: Sequence[int]) -> None:
        """Make room for this number of port rows; the `fresh` rows are reset."""
        self.bursts.fit_rows(ports, fresh)
        self._saturation.fit_rows(ports, fresh)

    def add_seconds(
        self,
        node: NodeTicks,
        lines: Floats,
        ports: Sequence[RingPort],
        rows: Rows,
        seconds: Seconds,
        resolutions: Sequence[int],
        counting: bool,
    ) -> None:
        """Add whole seconds; `lines` is as in `NodeTotals`, `resolutions` is in ticks, one per port."""
        told = np.array([ticks == 1 and port.port.active for port, ticks in zip(ports, resolutions, strict=True)])
        self.bursts.add_ports(rows, seconds, told.astype(np.bool_), counting)
        self._saturation.add(node, lines, ports, rows, seconds, counting)
        if coarsest_rail(ports, resolutions) == 1:
            self.bursts.add_node(node, counting)
            if counting:
                self._add_utilization(node, lines)
        else:
            self.bursts.break_node()

    def _add_utilization(self, node: NodeTicks, lines: Floats) -> None:
        good = (node.good & (lines > 0)).reshape(1, -1)
        utilization = np.where(good, (node.bandwidth / lines).reshape(1, -1), 0.0)
        self._counts += moments.count_into_buckets(utilization, good, UTILIZATION_BOUNDS)[0]
        self._utilization_sum += float(utilization[good].sum())

    def conclude(
        self,
        ports: Sequence[RingPort],
        table: PortTable,
        rows: Rows,
        rates: RecentRates,
        node: NodeTotals,
        resolution_ticks: int,
        ends: range,
        counting: bool,
    ) -> list[Conclusion]:
        """Judge rail balance, signature and MoE saturation of the newest seconds, which end at `ends`, one by one."""
        lines = carriers_lines(ports, rows, table, self._window_seconds, len(ends))
        concluded = []
        for end, features in zip(ends, node.features(self._window_seconds, resolution_ticks, lines), strict=True):
            self.balance = weigh_ports(ports, rates, self._options, self.siblings, end, ends[-1] - end)
            self.signature = find_signature(features, self._options.signature)
            alike = resembles_moe_saturation(
                self.signature, features.duty_cycle, features.peak_utilization, self._options.moe_saturation
            )
            self._moe = advance_moe_saturation(self._moe, alike, self._options.moe_saturation, float(counting))
            concluded.append(Conclusion(self.balance.rails, self.signature.label, self._moe.saturated))
        return concluded

    def push_holes(self, seconds: int) -> None:
        """Account for seconds that were not read."""
        self.bursts.break_node()
        self.bursts.break_ports()
        self._saturation.push_holes(seconds)

    def of_port(self, port: RingPort, row: int) -> PortTraffic:
        """The traffic of a port."""
        saturated, saturated_seconds = self._saturation.of_port(row)
        rated = port.port.rate_bytes_per_second is not None
        return PortTraffic(
            bursts=int(self.bursts.port_began[row]),
            burst_seconds=float(self.bursts.port_seconds[row]),
            rail=self.balance.rails.get(str(port.port.id)),
            saturated=saturated if rated else (None, None),
            saturated_seconds=saturated_seconds,
        )

    def of_node(self, step: StepPeriod | None) -> NodeTraffic:
        """The traffic of the sum over the rails."""
        saturated, saturated_seconds = self._saturation.of_node()
        cumulative = tuple(np.cumsum(self._counts).tolist())
        return NodeTraffic(
            utilization=Histogram(UTILIZATION_BUCKETS, cumulative, self._utilization_sum) if cumulative[-1] else None,
            burst_durations=self.bursts.durations.histogram(),
            gap_durations=self.bursts.gaps.histogram(),
            bursts=self.bursts.began,
            burst_watched_seconds=self.bursts.watched_seconds,
            burst_bytes=self.bursts.moved_bytes,
            concluded=NodeConclusions.model_construct(
                rail_fairness_ratio=self.balance.fairness,
                step_period_seconds=None if step is None or math.isnan(step.seconds) else step.seconds,
                step_period_score=None if step is None else step.score,
                workload_signature=self.signature.label,
                workload_signature_confidence=self.signature.confidence,
            ),
            saturated=saturated,
            saturated_seconds=saturated_seconds,
            moe_saturated=self._moe.saturated,
            moe_saturated_seconds=self._moe.saturated_seconds,
        )


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
