"""Which links, and whether the node, stay near their line rate. It must not read the ring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ibpulse.aggregator.samples import RingPort, Seconds
from ibpulse.aggregator.ticks import NodeTicks
from ibpulse.analysis.saturation import (
    SaturationOptions,
    SaturationState,
    advance_saturation,
    seconds_above,
    start_saturation,
)

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]

# the first row is the node, then come two per port: transmit, receive
NODE = 0


class Saturation:
    """The saturated state of the node and of both directions of every port."""

    def __init__(self, options: SaturationOptions) -> None:
        self._options = options
        self._state = start_saturation(1, options)

    def fit_rows(self, ports: int, fresh: Sequence[int]) -> None:
        """Make room for so many ports; the fresh ones begin anew."""
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
        self, node: NodeTicks, line: float, ports: Sequence[RingPort], rows: Rows, seconds: Seconds, counting: bool
    ) -> None:
        """Take whole seconds; `line` is the node's line rate, NaN while it is not known."""
        span = len(node.good)
        above, observed = (np.zeros((span, len(self._state.saturated))) for _ in range(2))
        if line > 0:
            above[:, NODE] = seconds_above(node.bandwidth / line, node.measured, self._options.level)
            observed[:, NODE] = node.measured.sum(axis=-1)
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
        """Take so many seconds in which nothing was seen."""
        nothing = np.zeros(len(self._state.saturated))
        for _ in range(min(seconds, self._options.window_seconds)):
            self._advance(nothing, nothing, False)

    def _advance(self, above: Floats, observed: Floats, counting: bool) -> None:
        before = self._state.saturated_seconds
        self._state = advance_saturation(self._state, above, observed, self._options)
        if not counting:
            self._state = replace(self._state, saturated_seconds=before)

    def of_node(self) -> tuple[bool, float]:
        """Whether the node is saturated, and for how long it was."""
        return bool(self._state.saturated[NODE]), float(self._state.saturated_seconds[NODE])

    def of_port(self, row: int) -> tuple[tuple[bool, ...], tuple[float, ...]]:
        """Whether each direction of a port is saturated, and for how long it was."""
        mine = slice(1 + 2 * row, 3 + 2 * row)
        saturated, seconds = self._state.saturated[mine].tolist(), self._state.saturated_seconds[mine].tolist()
        return tuple(saturated), tuple(seconds)
