"""All totals over a run of seconds, both for the running totals and for a requested window."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from ibpulse.agent.aggregator.job_totals import JobTotals
from ibpulse.agent.aggregator.node_totals import NodeTotals
from ibpulse.agent.aggregator.options import AggregatorOptions
from ibpulse.agent.aggregator.past_ports import ports_during, rail_rates
from ibpulse.agent.aggregator.phase_watch import PhaseWatch
from ibpulse.agent.aggregator.port_totals import PortTable
from ibpulse.agent.aggregator.rail_balance import RecentRates
from ibpulse.agent.aggregator.traffic import Conclusion, Traffic, coarsest_rail
from ibpulse.core.answers.summary import NodeRails
from ibpulse.core.arrays import Rows
from ibpulse.core.events import PortHistory
from ibpulse.core.jobs import JobPorts
from ibpulse.core.model import STORAGE, PortId
from ibpulse.core.ring.reader import RingReader
from ibpulse.core.ring.spans import (
    AHEAD_SECONDS,
    RingPort,
    common_stride,
    join_rates,
    read_groups,
    ticks_to_settle,
    widest_stride,
)
from ibpulse.core.statistics.node_statistics import are_assumed, line_rate, sum_rails, whole_seconds
from ibpulse.core.statistics.plausible import MAX_BEFORE, LineRate

# Samples read at a time: 20 s of eight ports at 10 ms. More would be no faster and need more memory.
SAMPLES_AT_ONCE = 16_000
# Seconds that are counted at a time, before each of them is concluded.
SECONDS_AT_ONCE = 5


class RunningTotals:
    """Totals of the ports, of their sum and of their traffic over the seconds added.

    `phases` and `jobs` follow the seconds that count. With `had`, only the samples count at which a job had the port.
    `assumed_rates` are the rails whose rate the node's line rate assumes at the last sample. `last_traffic` is the tick
    of the last active sample of the sum over the rails, 0 before the first.
    """

    def __init__(
        self,
        reader: RingReader,
        options: AggregatorOptions,
        history: PortHistory,
        phases: PhaseWatch | None = None,
        jobs: JobTotals | None = None,
        had: JobPorts | None = None,
    ) -> None:
        self._reader, self._history, self._phases, self._jobs, self._had = reader, history, phases, jobs, had
        self._ticks = 1_000_000_000 // reader.interval_ns
        longest = options.longest_seconds()
        self.table = PortTable(options.active_bytes_per_second, longest, SECONDS_AT_ONCE)
        self.node = NodeTotals(options, reader.interval_ns, SECONDS_AT_ONCE)
        self.traffic = Traffic(options)
        self.assumed_rates: tuple[PortId, ...] = ()
        self.last_traffic = 0
        self._threshold = options.active_bytes_per_second

    def seconds_at_once(self, ports: int) -> int:
        """The number of seconds of so many ports to add per call."""
        return max(1, SAMPLES_AT_ONCE // (self._ticks * max(1, ports)))

    def rows_of(self, ports: list[RingPort], remembered: Collection[str]) -> Rows:
        """The row of each port, including new ones; `remembered` are the port names in the ring."""
        rows = self.table.rows_of(ports, remembered)
        self.traffic.fit_rows(len(self.table.implausible), self.table.fresh_rows)
        return rows

    def add(
        self, first: int, end: int, ports: list[RingPort], rows: Rows, resolutions: Sequence[int], counting: bool
    ) -> None:
        """Add the seconds from `first` to `end` (exclusive); without `counting`, they only fill the windows."""
        first_tick, last_tick = first * self._ticks + 1, end * self._ticks
        slots, strides = [port.slot for port in ports], [port.stride for port in ports]
        groups = list(
            read_groups(self._reader, slots, strides, first_tick, last_tick, self._limits(ports), summed=True)
        )
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
        summed = sum_rails(seconds.chosen(chosen))
        active = np.flatnonzero(summed.bandwidth > self._threshold)
        if len(active):
            self.last_traffic = first_tick + int(active[-1])
        rates_of_rails = rail_rates(ports, self._history, first_tick, last_tick + 1)
        if kept is not None:
            # a rail belongs to the job in each second in which the job has it
            had = kept.reshape(len(ports), end - first, self._ticks).any(axis=2)
            rates_of_rails = np.where(np.repeat(had, self._ticks, axis=1), rates_of_rails, 0.0)
        self.assumed_rates = tuple(ports[index].port.id for index in np.flatnonzero(are_assumed(rates_of_rails[:, -1])))
        lines = line_rate(rates_of_rails)
        lines = lines.reshape(summed.good.shape if lines.size > 1 else (1, 1))
        self.node.add_seconds(summed, common_stride(ports[index].stride for index in rails), lines)
        self.traffic.add_seconds(summed, lines, ports, rows, seconds, resolutions, counting)
        if counting and self._phases:
            storage = [index for index, port in enumerate(ports) if port.port.role == STORAGE and port.port.active]
            ends = self.table.ends_of_seconds(rows, groups)[chosen]
            self._phases.add_seconds(first_tick, summed, seconds, rails, storage, ends)
        if counting and self._jobs:
            self._jobs.add_seconds(first_tick, ports, seconds)

    def _limits(self, ports: Sequence[RingPort]) -> list[LineRate]:
        return [self._history.line_rate(str(port.port.id), port.port.rate_bytes_per_second) for port in ports]

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
        slots, strides = [port.slot for port in ports], [port.stride for port in ports]
        groups = list(read_groups(self._reader, slots, strides, first_tick, last_tick, self._limits(ports)))
        ends = np.empty(len(ports), dtype=np.int64)
        for group in groups:
            ends[group.rows] = np.minimum(group.decided(now_tick), last_tick)
        samples = join_rates(groups, len(ports), last_tick - first_tick + 1)
        self.table.count(rows, ports, groups, whole_seconds(samples, last_tick - first_tick + 1), first_tick, ends)

    def conclude(
        self, ports: list[RingPort], rows: Rows, resolutions: Sequence[int], ends: range, counting: bool
    ) -> tuple[list[Conclusion], RecentRates]:
        """Judge balance, signature and MoE saturation of the newest seconds, which end at `ends`, one by one.

        Also returns the rates that the balance was found from, for the jobs. Without `counting`, no time passes.
        """
        rates = RecentRates(ports, rows, self.table, len(ends))
        coarsest = coarsest_rail(ports, resolutions)
        concluded = self.traffic.conclude(ports, self.table, rows, rates, self.node, coarsest, ends, counting)
        return concluded, rates

    def describe_rails(self, rails: int) -> NodeRails:
        """The rails of the node, of which it has so many."""
        return NodeRails.model_construct(
            rails=rails,
            active_rails=self.traffic.balance.active,
            line_rate_bytes_per_second=self.node.line_rate,
        )

    def push_holes(self, seconds: int) -> None:
        """Advance the windows over seconds that were not read."""
        self.table.push_holes(seconds)
        self.node.push_holes(seconds)
        self.traffic.push_holes(seconds)
        if self._phases:
            self._phases.push_holes()
        if self._jobs:
            self._jobs.push_holes(seconds)
