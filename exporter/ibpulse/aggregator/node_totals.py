"""Rolling values of the sum over the rails, second by second."""

from __future__ import annotations

import math

import numpy as np

from ibpulse.aggregator.options import AggregatorOptions
from ibpulse.aggregator.rolling import RollingSeconds
from ibpulse.aggregator.snapshot import NodeWindow
from ibpulse.analysis import moments, signature
from ibpulse.analysis.node_statistics import (
    FIELDS,
    OBSERVED,
    NodeStatistics,
    NodeTicks,
    bin_ticks,
    describe_node,
    sum_seconds,
    sum_timescales,
    usual_peak,
)
from ibpulse.analysis.signature import Features, describe_features
from ibpulse.arrays import Floats


class NodeTotals:
    """The last minutes of the sum over the rails."""

    def __init__(self, options: AggregatorOptions, interval_ns: int, behind_seconds: int = 0) -> None:
        self._options = options
        more = [scale for scale in signature.TIMESCALES_NS if scale not in options.timescales_ns]
        self._timescales_ns = (*options.timescales_ns, *more)
        self._ticks_per_bin = [bin_ticks(timescale_ns, interval_ns) for timescale_ns in self._timescales_ns]
        longest = options.longest_seconds()
        self._sums = RollingSeconds(longest, (FIELDS,), behind_seconds)
        self._peaks = RollingSeconds(longest, (), behind_seconds)
        self._peak_utilizations = RollingSeconds(longest, ())
        self._line = math.nan
        self._scales = RollingSeconds(longest, (len(self._ticks_per_bin), moments.FIELDS), behind_seconds)

    def add_seconds(self, node: NodeTicks, coarsest_stride: int, lines: Floats) -> None:
        """Add seconds of the sum over the ACTIVE rails; `lines` is the node's line rate, of the shape of `node.good`.

        It may be of shape (1, 1) instead. It is NaN while it is unknown.
        """
        threshold = self._options.active_bytes_per_second
        self._sums.push(sum_seconds(node, threshold))
        highest = node.highest
        self._peaks.push(highest.max(axis=-1))
        self._peak_utilizations.push(np.where(node.good, highest / lines, 0.0).max(axis=-1))
        self._line = float(lines[-1, -1])
        self._scales.push(sum_timescales(node, self._ticks_per_bin, coarsest_stride, threshold))

    def push_holes(self, seconds: int) -> None:
        """Advance the windows over seconds that were not read."""
        for rolling in (self._sums, self._peaks, self._peak_utilizations, self._scales):
            rolling.push_holes(seconds)

    @property
    def line_rate(self) -> float | None:
        """The line rate of the node at the last sample, None if it is unknown."""
        return _known(self._line)

    def windows(self, resolution_ticks: int = 1) -> tuple[NodeWindow, ...]:
        """The rolling values of every window, as far as counters that change every `resolution_ticks` resolve them."""
        spans = self._options.window_seconds()
        found = self._describe(spans, resolution_ticks)
        highest = np.array([self._peak_utilizations.max(seconds) for seconds in spans])
        columns = (
            found.transmit,
            found.receive,
            found.peak,
            found.active_mean,
            found.duty_cycle,
            found.peak_to_mean,
            np.where(np.isnan(found.peak), np.nan, highest),
        )
        variations = found.burstiness_cv[:, : len(self._options.timescales_ns)].tolist()
        return tuple(
            NodeWindow(transmit, receive, peak, active, duty, tuple(map(_known, scales)), ratio, utilization)
            for (transmit, receive, peak, active, duty, ratio, utilization), scales in zip(
                (map(_known, row) for row in np.stack(columns, axis=1).tolist()), variations, strict=True
            )
        )

    def features(self, seconds: int, resolution_ticks: int, carriers_line: float, ago: int = 0) -> Features:
        """The features that determine the signature of the last seconds; `carriers_line` as in `describe_features`."""
        found = self._describe((seconds,), resolution_ticks, ago)
        told = not math.isnan(found.peak[0])
        return describe_features(
            float(found.duty_cycle[0]),
            float(found.active_mean[0]),
            self.usual_peak(seconds, ago) if told else math.nan,
            dict(zip(self._timescales_ns, found.burstiness_cv[0].tolist(), strict=True)),
            carriers_line,
        )

    def usual_peak(self, seconds: int, ago: int = 0) -> float:
        """Upper quartile of the peaks of the observed seconds; NaN without any."""
        return usual_peak(self._peaks.values(seconds, ago), self._sums.values(seconds, ago)[:, OBSERVED])

    def observed_seconds(self, seconds: int) -> float:
        """Time in the window for which there is data."""
        return float(self._sums.sum(seconds)[OBSERVED])

    def _describe(self, spans: tuple[int, ...], resolution_ticks: int, ago: int = 0) -> NodeStatistics:
        return describe_node(
            np.stack([self._sums.sum(seconds, ago) for seconds in spans]),
            np.array([self._peaks.max(seconds, ago) for seconds in spans]),
            np.stack([self._scales.sum(seconds, ago) for seconds in spans]),
            resolution_ticks == 1,
            np.array(self._ticks_per_bin) >= resolution_ticks,
        )


def _known(value: float) -> float | None:
    """The value, None for NaN."""
    return None if math.isnan(value) else value
