"""All totals over a run of seconds, with the ports as they were then, for the running totals and for a window."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from ibpulse.agent.aggregator import snapshot, traffic
from ibpulse.agent.aggregator.jobs import JobTotals
from ibpulse.agent.aggregator.node import NodeTotals
from ibpulse.agent.aggregator.ports import PortTable
from ibpulse.agent.aggregator.steps import PhaseWatch, Resolutions
from ibpulse.base.units import SECOND_NS
from ibpulse.core.answers.summary import NodeConclusions, NodeRails
from ibpulse.core.arrays import Floats, Rows
from ibpulse.core.events import PortHistory
from ibpulse.core.jobs import JobPorts
from ibpulse.core.metrics.row import Histogram
from ibpulse.core.model import STORAGE, Port, PortId, PortState
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.reader import RingReader
from ibpulse.core.ring.spans import (
    AHEAD_SECONDS,
    RingPort,
    StrideGroup,
    common_stride,
    join_rates,
    read_groups,
    ticks_to_settle,
    widest_stride,
)
from ibpulse.core.statistics import moments
from ibpulse.core.statistics.plausible import MAX_BEFORE
from ibpulse.core.statistics.signature import (
    MoeSaturationState,
    Saturation,
    Signature,
    advance_moe_saturation,
    find_signature,
    resembles_moe_saturation,
    seconds_above,
)
from ibpulse.core.statistics.steps.period import StepPeriod
from ibpulse.core.statistics.sums import NodeTicks, Seconds, are_assumed, line_rate, sum_rails, whole_seconds


def ports_during(ports: Sequence[RingPort], history: PortHistory, first_tick: int, end_tick: int) -> list[RingPort]:
    """The ports as they were from `first_tick` up to `end_tick`, exclusive.

    A port counts as active if it was ACTIVE at any of these ticks; its rate and its role are the last ones. A port that
    the history does not know stays as it is; one that did not exist is neither active nor a rail.
    """
    return [_port_during(port, history, first_tick, end_tick) for port in ports]


def _port_during(port: RingPort, history: PortHistory, first_tick: int, end_tick: int) -> RingPort:
    spans = history.spans(str(port.port.id), first_tick, end_tick)
    if not spans:
        return port
    states = [span.state for span in spans if span.state is not None]
    if not states:
        return _with(port, port.port.rate_bytes_per_second, port.stride, active=False, rail=False)
    last = states[-1]
    active, stride = any(state.active for state in states), max(state.stride for state in states)
    return _with(port, last.rate_bytes_per_second, stride, active=active, rail=last.rail)


def rail_rates(ports: Sequence[RingPort], history: PortHistory, first_tick: int, end_tick: int) -> Floats:
    """The data rates of the rails as in `line_rate`: (ports, ticks), or (ports, 1) if none of them changes.

    A port that the history does not know is as it is now.
    """
    parts = [
        [(span.first, _rate_as_rail(span.state)) for span in history.spans(str(port.port.id), first_tick, end_tick)]
        or [(first_tick, _rate_as_rail(port.port))]
        for port in ports
    ]
    if all(len(each) == 1 for each in parts):
        return np.array([each[0][1] for each in parts]).reshape(-1, 1)
    found = np.empty((len(parts), end_tick - first_tick))
    for row, each in zip(found, parts, strict=True):
        for begin, rate in each:
            row[begin - first_tick :] = rate
    return found


def _rate_as_rail(state: Port | PortState | None) -> float:
    """The data rate of a rail, 0 of anything else; NaN if it is unknown."""
    if state is None or not state.rail:
        return 0.0
    return state.rate_bytes_per_second or np.nan


def _with(port: RingPort, rate: float | None, stride: int, *, active: bool, rail: bool) -> RingPort:
    """The same object if nothing differs, which is nearly always so."""
    old = port.port
    if (old.active, old.rail, old.rate_bytes_per_second) != (active, rail, rate):
        port = replace(port, port=replace(old, active=active, rail=rail, rate_bytes_per_second=rate))
    return port if port.stride == stride else replace(port, stride=stride)


def split_seconds(
    ports: Sequence[RingPort], history: PortHistory, first: int, end: int, ticks_per_second: int, at_once: int
) -> Iterator[tuple[int, int, list[RingPort]]]:
    """Spans of the seconds `first` to `end`, exclusive, of at most `at_once`, with the ports as they were in each.

    The state of a port may only change within a span of one second.
    """
    names = [str(port.port.id) for port in ports]
    edges = history.edges(names, first * ticks_per_second + 1, end * ticks_per_second + 1)
    changing = {(tick - 1) // ticks_per_second for tick in edges}
    while first < end:
        stop = first + 1
        while stop < min(end, first + at_once) and first not in changing and stop not in changing:
            stop += 1
        yield first, stop, ports_during(ports, history, first * ticks_per_second + 1, stop * ticks_per_second + 1)
        first = stop


# Samples read at a time: 20 s of eight ports at 10 ms. More would be no faster and need more memory.
SAMPLES_AT_ONCE = 16_000
# Seconds that are counted at a time, before each of them is concluded.
SECONDS_AT_ONCE = 5
# of `Saturation`; two rows per port, transmit and receive, follow
NODE_ROW = 0


class RunningTotals:
    """Totals of the ports, of their sum and of their traffic over the seconds added.

    `phases` and `jobs` follow the seconds that count. With `had`, only the samples count at which a job had the port.
    `assumed_rates` are the rails whose rate the node's line rate assumes at the last sample. `last_traffic` is the tick
    of the last active sample of the sum over the rails, 0 before the first.
    """

    def __init__(
        self,
        reader: RingReader,
        options: snapshot.AggregatorOptions,
        history: PortHistory,
        phases: PhaseWatch | None = None,
        jobs: JobTotals | None = None,
        had: JobPorts | None = None,
    ) -> None:
        self._reader, self._history, self._phases, self._jobs, self._had = reader, history, phases, jobs, had
        self._options, self._ticks = options, SECOND_NS // reader.interval_ns
        self.table = PortTable(options.active_bytes_per_second, options.longest_seconds(), SECONDS_AT_ONCE)
        self.node = NodeTotals(options, reader.interval_ns, SECONDS_AT_ONCE)
        self.assumed_rates: tuple[PortId, ...] = ()
        self.last_traffic = 0
        self.bursts = traffic.Bursts(options.active_bytes_per_second)
        self._utilization = traffic.Distribution(snapshot.UTILIZATION_BUCKETS)
        self._saturation = Saturation(options.saturation)
        self._moe = MoeSaturationState()
        self._signature = Signature("unknown", 0.0)
        self.siblings = traffic.Siblings()
        self.balance = traffic.RailBalance(None, 0, {})

    def seconds_at_once(self, ports: int) -> int:
        """The number of seconds of so many ports to add per call."""
        return max(1, SAMPLES_AT_ONCE // (self._ticks * max(1, ports)))

    def rows_of(self, ports: list[RingPort], remembered: Collection[str]) -> Rows:
        """The row of each port, including new ones; `remembered` are the port names in the ring."""
        rows, fresh = self.table.rows_of(ports, remembered)
        count = len(self.table.counts.until)
        self.bursts.fit_rows(count, fresh)
        self._saturation.fit_rows(1 + 2 * count, [1 + 2 * row + way for row in fresh for way in range(2)])
        return rows

    def add(
        self, first: int, end: int, ports: list[RingPort], rows: Rows, resolutions: Sequence[int], counting: bool
    ) -> None:
        """Add the seconds from `first` to `end` (exclusive); without `counting`, they only fill the windows.

        `resolutions` is in ticks, one per port.
        """
        first_tick, last_tick = first * self._ticks + 1, end * self._ticks
        groups = self._read(ports, first_tick, last_tick, summed=True)
        rates = join_rates(groups, len(ports), (end - first) * self._ticks, summed=True)
        kept = None
        if self._had is not None:
            kept = self._had.mask([str(port.port.id) for port in ports], first_tick, (end - first) * self._ticks)
            rates = rates.only(kept)
        seconds = whole_seconds(rates, self._ticks)
        if rates.merges:
            self.table.add_merges(rows, rates.merges, first, self._ticks, counting)
        sums = self.table.add_seconds(rows, ports, seconds)
        if counting:
            self.table.count(rows, ports, groups, seconds, first_tick, np.full(len(ports), last_tick), sums)
        rails = [index for index, port in enumerate(ports) if port.port.rail and port.port.active]
        chosen = np.array(rails, dtype=np.intp)
        node = sum_rails(seconds.chosen(chosen))
        active = np.flatnonzero(node.bandwidth > self._options.active_bytes_per_second)
        if len(active):
            self.last_traffic = first_tick + int(active[-1])
        rates_of_rails = rail_rates(ports, self._history, first_tick, last_tick + 1)
        if kept is not None:
            # a rail belongs to the job in each second in which the job has it
            had = kept.reshape(len(ports), end - first, self._ticks).any(axis=2)
            rates_of_rails = np.where(np.repeat(had, self._ticks, axis=1), rates_of_rails, 0.0)
        self.assumed_rates = tuple(ports[index].port.id for index in np.flatnonzero(are_assumed(rates_of_rails[:, -1])))
        lines = line_rate(rates_of_rails)
        lines = lines.reshape(node.good.shape if lines.size > 1 else (1, 1))
        self.node.add_seconds(node, common_stride(ports[index].stride for index in rails), lines)
        self._add_bursts(node, lines, ports, rows, seconds, resolutions, counting)
        self._add_saturation(node, lines, ports, rows, seconds, counting)
        if counting and self._phases:
            storage = [index for index, port in enumerate(ports) if port.port.role == STORAGE and port.port.active]
            ends = self.table.ends_of_seconds(rows, groups)[chosen]
            self._phases.add_seconds(first_tick, node, seconds, rails, storage, ends)
        if counting and self._jobs:
            self._jobs.add_seconds(first_tick, ports, seconds)

    def _read(
        self, ports: Sequence[RingPort], first_tick: int, last_tick: int, summed: bool = False
    ) -> list[StrideGroup]:
        slots, strides = [port.slot for port in ports], [port.stride for port in ports]
        lines = [self._history.line_rate(str(port.port.id), port.port.rate_bytes_per_second) for port in ports]
        return list(read_groups(self._reader, slots, strides, first_tick, last_tick, lines, summed=summed))

    def _add_bursts(
        self,
        node: NodeTicks,
        lines: Floats,
        ports: Sequence[RingPort],
        rows: Rows,
        seconds: Seconds,
        resolutions: Sequence[int],
        counting: bool,
    ) -> None:
        """Add the bursts of whole seconds, and the utilisation of the node; `lines` is as in `NodeTotals`."""
        resolved = [ticks == 1 and port.port.active for port, ticks in zip(ports, resolutions, strict=True)]
        self.bursts.add_ports(rows, seconds, np.array(resolved, dtype=np.bool_), counting)
        if traffic.coarsest_rail(ports, resolutions) > 1:
            self.bursts.break_node()
            return
        self.bursts.add_node(node, counting)
        if counting:
            self._utilization.add((node.bandwidth / lines)[node.good & (lines > 0)])

    def _add_saturation(
        self, node: NodeTicks, lines: Floats, ports: Sequence[RingPort], rows: Rows, seconds: Seconds, counting: bool
    ) -> None:
        span, level = len(node.good), self._options.saturation.level
        above, observed = (np.zeros((span, len(self._saturation.saturated))) for _ in range(2))
        above[:, NODE_ROW] = seconds_above(node.bandwidth / lines, node.measured, level)
        observed[:, NODE_ROW] = np.where(lines > 0, node.measured, 0.0).sum(axis=-1)
        rates = np.array([port.port.rate_bytes_per_second or np.nan for port in ports])
        near = seconds_above(seconds.bytes_per_second / rates[:, None, None, None], seconds.seconds, level)
        seen = np.where(np.isnan(rates)[:, None, None], 0.0, seconds.seconds.sum(axis=-1))
        for way in range(2):
            above[:, 1 + 2 * rows + way] = near[:, way].T
            observed[:, 1 + 2 * rows + way] = seen[:, way].T
        for second in range(span):
            self._saturation.advance(above[second], observed[second], counting)

    def count_until(self, now_tick: int, first_tick: int, placed: list[RingPort], rows: Rows) -> None:
        """Count the samples of each port from `first_tick` up to the newest one that no later one can revise."""
        if not placed:
            return
        to_settle = ticks_to_settle(self._reader.interval_ns, widest_stride(port.stride for port in placed))
        newest = min(now_tick, self._reader.ring.latest_tick())
        # whole seconds are at most this far behind, except while the wall clock is behind the ring
        furthest = first_tick + AHEAD_SECONDS * self._ticks + to_settle
        last_tick = min(max(newest - MAX_BEFORE, min(newest, now_tick - to_settle)), furthest)
        first_tick = max(first_tick, int(self.table.counts.until[rows].min()) + 1)
        if last_tick < first_tick:
            return
        ports = ports_during(placed, self._history, first_tick, last_tick + 1)
        groups = self._read(ports, first_tick, last_tick)
        ends = np.empty(len(ports), dtype=np.int64)
        for group in groups:
            ends[group.rows] = np.minimum(group.decided(now_tick), last_tick)
        samples = join_rates(groups, len(ports), last_tick - first_tick + 1)
        self.table.count(rows, ports, groups, whole_seconds(samples, last_tick - first_tick + 1), first_tick, ends)

    def conclude(
        self, ports: list[RingPort], rows: Rows, resolutions: Sequence[int], ends: range, counting: bool
    ) -> tuple[list[traffic.Conclusion], traffic.RecentRates]:
        """Find balance, signature and MoE saturation of the newest seconds, which end at `ends`, one by one.

        Also returns the rates that the balance was found from, for the jobs. Without `counting`, no time passes.
        """
        options, window_seconds = self._options, self._options.traffic_window_ns // SECOND_NS
        rates = traffic.RecentRates(ports, rows, self.table, len(ends))
        lines = traffic.carriers_lines(ports, rows, self.table, window_seconds, len(ends))
        every = self.node.features(window_seconds, traffic.coarsest_rail(ports, resolutions), lines)
        concluded = []
        for end, features in zip(ends, every, strict=True):
            self.balance = traffic.weigh_ports(ports, rates, options, self.siblings, end, ends[-1] - end)
            self._signature = find_signature(features, options.signature)
            alike = resembles_moe_saturation(
                self._signature, features.duty_cycle, features.peak_utilization, options.moe_saturation
            )
            self._moe = advance_moe_saturation(self._moe, alike, options.moe_saturation, float(counting))
            concluded.append(traffic.Conclusion(self.balance.rails, self._signature.label, self._moe.saturated))
        return concluded, rates

    def push_holes(self, seconds: int) -> None:
        """Advance the windows over seconds that were not read."""
        self.table.push_holes(seconds)
        self.node.push_holes(seconds)
        self.bursts.break_node()
        self.bursts.break_ports()
        nothing = np.zeros(len(self._saturation.saturated))
        for _ in range(min(seconds, self._options.saturation.window_seconds)):
            self._saturation.advance(nothing, nothing, counting=False)
        if self._phases:
            self._phases.push_holes()
        if self._jobs:
            self._jobs.push_holes(seconds)

    def describe_rails(self, rails: int) -> NodeRails:
        """The rails of the node, of which it has so many."""
        return NodeRails.model_construct(
            rails=rails, active_rails=self.balance.active, line_rate_bytes_per_second=self.node.line_rate
        )

    def describe_traffic(self, step: StepPeriod | None) -> snapshot.NodeTraffic:
        """The traffic of the sum over the rails."""
        utilization = self._utilization.histogram()
        return snapshot.NodeTraffic(
            utilization=utilization if utilization.cumulative[-1] else None,
            burst_durations=self.bursts.durations.histogram(),
            gap_durations=self.bursts.gaps.histogram(),
            bursts=self.bursts.began,
            burst_watched_seconds=self.bursts.watched_seconds,
            burst_bytes=self.bursts.moved_bytes,
            concluded=NodeConclusions.model_construct(
                rail_fairness_ratio=self.balance.fairness,
                step_period_seconds=None if step is None else moments.or_none(step.seconds),
                step_period_score=None if step is None else step.score,
                workload_signature=self._signature.label,
                workload_signature_confidence=self._signature.confidence,
            ),
            saturated=bool(self._saturation.saturated[NODE_ROW]),
            saturated_seconds=float(self._saturation.saturated_seconds[NODE_ROW]),
            moe_saturated=self._moe.saturated,
            moe_saturated_seconds=self._moe.saturated_seconds,
        )

    def describe_ports(
        self, ports: Sequence[Port], placed: Sequence[RingPort], rows: Rows, resolutions: Resolutions
    ) -> tuple[snapshot.PortSnapshot, ...]:
        """A snapshot of every port of the fabric, in order; ports without a slot in the ring have no values."""
        table, counts, ring = self.table, self.table.counts, self._reader.ring
        resolved = [resolutions.ticks_of(port) == 1 for port in placed]
        values = table.describe(rows, placed, resolved, self._options.window_seconds())
        cumulative = np.cumsum(counts.histogram[rows], axis=2).tolist()
        sums = counts.moments[rows].tolist()
        found = {}
        for index, port in enumerate(placed):
            row = int(rows[index])
            ways = slice(1 + 2 * row, 3 + 2 * row)
            rated = port.port.rate_bytes_per_second is not None
            found[port.port.id] = snapshot.PortSnapshot(
                port=port.port,
                directions=tuple(
                    snapshot.DirectionSnapshot(
                        bytes_total=int(counts.bytes_total[row, way]) if counts.counted[row, way] else None,
                        active_seconds=float(counts.active_seconds[row, way]),
                        moments=_moments(port.port, sums[index][way], cumulative[index][way]),
                        windows=tuple(window[index][way] for window in values),
                    )
                    for way in range(2)
                ),
                observed_seconds=float(counts.observed[row]),
                resets=int(counts.resets[row] + counts.replacements[row]),
                replacements=int(counts.replacements[row]),
                jumps=int(counts.jumps[row]),
                read_errors=ring.slot_word(port.slot, at.S_ERRORS),
                uncertain_reads=ring.slot_word(port.slot, at.S_UNCERTAIN),
                implausible_samples=int(counts.implausible[row]),
                left_alone=ring.slot_word(port.slot, at.S_STATUS) != at.OK,
                sampling_interval_seconds=port.stride * ring.interval_ns / 1e9,
                effective_resolution_seconds=resolutions.seconds_of(port),
                bursts=int(self.bursts.port_began[row]),
                burst_seconds=float(self.bursts.port_seconds[row]),
                balance=self.balance.rails.get(str(port.port.id)),
                saturated=tuple(self._saturation.saturated[ways].tolist()) if rated else (None, None),
                saturated_seconds=tuple(self._saturation.saturated_seconds[ways].tolist()),
            )
        return tuple(found.get(port.id) or snapshot.PortSnapshot(port) for port in ports)


def _moments(port: Port, sums: list[float], cumulative: list[int]) -> snapshot.UtilizationMoments | None:
    """Sums of utilisation, None until the port's rate is known."""
    if port.rate_bytes_per_second is None and not cumulative[-1]:
        return None
    mean, squared, active, active_squared, sampled = sums
    histogram = Histogram(snapshot.UTILIZATION_BUCKETS, tuple(cumulative), sampled)
    return snapshot.UtilizationMoments(mean, squared, active, active_squared, histogram)


def read_sampler(ring: RingFile) -> snapshot.SamplerSnapshot:
    """Counts of the main sampler."""
    begin = at.lane_at(0)
    words = ring.words[begin : begin + at.LANE_WORDS].tolist()
    return snapshot.SamplerSnapshot(
        interval_seconds=ring.interval_ns / SECOND_NS,
        ticks=words[at.L_TICKS],
        missed_ticks=words[at.L_MISSED],
        clock_steps=words[at.L_CLOCK_STEPS],
        cpu_seconds=words[at.L_CPU_NS] / SECOND_NS,
        lateness=_histogram(words, at.L_LATENESS, words[at.L_LATENESS_SUM_NS], snapshot.LATENESS_BUCKETS),
        tick_duration=_histogram(words, at.L_DURATION, words[at.L_DURATION_SUM_NS], snapshot.TICK_DURATION_BUCKETS),
    )


def _histogram(words: list[int], first: int, sum_ns: int, bounds: tuple[float, ...]) -> Histogram:
    return Histogram(bounds, tuple(accumulate(words[first : first + at.BUCKET_COUNT])), sum_ns / SECOND_NS)
