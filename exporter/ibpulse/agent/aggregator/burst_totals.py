"""Bursts, gaps and saturation of the node and of every port since the process started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ibpulse.agent.aggregator.snapshot import DURATION_BUCKETS
from ibpulse.core.arrays import Bools, Floats, Rows
from ibpulse.core.metrics.row import Histogram
from ibpulse.core.ring.spans import RingPort
from ibpulse.core.statistics.signature import (
    SaturationOptions,
    SaturationState,
    advance_saturation,
    seconds_above,
    start_saturation,
)
from ibpulse.core.statistics.steps.runs import HOLE, MAX_BRIDGED, Thresholds, join_states, split_runs, start_runs
from ibpulse.core.statistics.sums import NodeTicks, Seconds

BOUNDS = np.array(DURATION_BUCKETS)
# row 0 is the node, followed by two rows per port: transmit, receive
NODE = 0


class Durations:
    """A histogram of durations."""

    def __init__(self) -> None:
        self._counts = np.zeros(len(BOUNDS) + 1, dtype=np.int64)
        self._total = 0.0

    def add(self, seconds: Floats) -> None:
        """Add durations."""
        self._counts += np.bincount(np.searchsorted(BOUNDS, seconds, side="left"), minlength=len(self._counts))
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
