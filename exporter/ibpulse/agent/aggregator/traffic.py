"""Describes the traffic, second by second: bursts, rail balance, saturation, signature."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ibpulse.agent.aggregator.burst_totals import Bursts, Saturation
from ibpulse.agent.aggregator.node_totals import NodeTotals
from ibpulse.agent.aggregator.options import AggregatorOptions
from ibpulse.agent.aggregator.port_totals import PortTable
from ibpulse.agent.aggregator.rail_balance import RailBalance, RecentRates, Siblings, weigh_ports
from ibpulse.agent.aggregator.snapshot import UTILIZATION_BUCKETS, NodeTraffic, PortTraffic
from ibpulse.base.units import SECOND_NS
from ibpulse.core.answers.summary import NodeConclusions, RailStatistics
from ibpulse.core.arrays import Floats, Rows
from ibpulse.core.metrics.row import Histogram
from ibpulse.core.ring.spans import RingPort
from ibpulse.core.statistics import moments
from ibpulse.core.statistics.balance import find_carriers
from ibpulse.core.statistics.node_statistics import NodeTicks, Seconds, line_rate
from ibpulse.core.statistics.port_statistics import COVERED, MOVED
from ibpulse.core.statistics.resolution import coarsest_ticks
from ibpulse.core.statistics.saturation import MoeSaturationState, advance_moe_saturation, resembles_moe_saturation
from ibpulse.core.statistics.signature import Signature, find_signature
from ibpulse.core.statistics.steps.period import StepPeriod

BOUNDS = np.array(UTILIZATION_BUCKETS)
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
        self._counts = np.zeros(len(BOUNDS) + 1, dtype=np.int64)
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
        self._counts += moments.count_into_buckets(utilization, good, BOUNDS)[0]
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
