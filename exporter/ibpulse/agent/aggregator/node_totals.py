"""Rolling values of the sum over the rails, second by second."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ibpulse.agent.aggregator.options import AggregatorOptions
from ibpulse.agent.aggregator.rolling import RollingSeconds
from ibpulse.base.units import format_duration
from ibpulse.core.answers.summary import NodeWindow
from ibpulse.core.arrays import Floats
from ibpulse.core.statistics import moments, signature
from ibpulse.core.statistics.node_statistics import (
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
from ibpulse.core.statistics.signature import Features, describe_features


class NodeTotals:
    """The last minutes of the sum over the rails."""

    def __init__(self, options: AggregatorOptions, interval_ns: int, behind_seconds: int = 0) -> None:
        self._options = options
        more = [scale for scale in signature.TIMESCALES_NS if scale not in options.timescales_ns]
        self._timescales_ns = (*options.timescales_ns, *more)
        self._scale_names = [*map(format_duration, options.timescales_ns)]
        self._ticks_per_bin = [bin_ticks(timescale_ns, interval_ns) for timescale_ns in self._timescales_ns]
        self._stride = 1
        longest = options.longest_seconds()
        self._sums = RollingSeconds(longest, (FIELDS,), behind_seconds)
        self._peaks = RollingSeconds(longest, (), behind_seconds)
        self._peak_utilizations = RollingSeconds(longest, ())
        self._line = math.nan
        self._scales = RollingSeconds(longest, (len(self._ticks_per_bin), moments.FIELDS), behind_seconds)

    def add_seconds(self, node: NodeTicks, stride: int, lines: Floats) -> None:
        """Add seconds of the sum over the ACTIVE rails; `lines` is the node's line rate, of the shape of `node.good`.

        It may be of shape (1, 1) instead. It is NaN while it is unknown. Bins of `stride` ticks divide no sample.
        """
        threshold = self._options.active_bytes_per_second
        self._sums.push(sum_seconds(node, threshold))
        highest = node.highest
        self._peaks.push(highest.max(axis=-1))
        self._peak_utilizations.push(np.where(node.good, highest / lines, 0.0).max(axis=-1))
        self._line = float(lines[-1, -1])
        self._stride = stride
        self._scales.push(sum_timescales(node, self._ticks_per_bin, stride, threshold))

    def push_holes(self, seconds: int) -> None:
        """Advance the windows over seconds that were not read."""
        for rolling in (self._sums, self._peaks, self._peak_utilizations, self._scales):
            rolling.push_holes(seconds)

    @property
    def line_rate(self) -> float | None:
        """The line rate of the node at the last sample, None if it is unknown."""
        return moments.or_none(self._line)

    def windows(self, resolution_ticks: int = 1) -> tuple[NodeWindow, ...]:
        """The rolling values of every window, as far as counters that change every `resolution_ticks` resolve them."""
        spans = self._options.window_seconds()
        found = self._describe([(seconds, 0) for seconds in spans], resolution_ticks)
        highest = np.array([self._peak_utilizations.max(seconds) for seconds in spans])
        columns = {
            "transmit_bytes_per_second": found.transmit,
            "receive_bytes_per_second": found.receive,
            "bandwidth_peak_bytes_per_second": found.peak,
            "bandwidth_active_mean_bytes_per_second": found.active_mean,
            "bandwidth_peak_utilization_ratio": np.where(np.isnan(found.peak), np.nan, highest),
            "peak_to_mean_ratio": found.peak_to_mean,
            "duty_cycle_ratio": found.duty_cycle,
            "observed_ratio": np.array([min(1.0, self.observed_seconds(seconds) / seconds) for seconds in spans]),
        }
        rows: list[dict[str, Any]] = [
            dict(zip(columns, map(moments.or_none, row), strict=True))
            for row in np.stack([*columns.values()], axis=1).tolist()
        ]
        variations = found.burstiness_cv[:, : len(self._scale_names)].tolist()
        return tuple(
            NodeWindow.model_construct(
                **row,
                burstiness_cv=dict(zip(self._scale_names, map(moments.or_none, scales), strict=True)),
            )
            for row, scales in zip(rows, variations, strict=True)
        )

    def features(self, seconds: int, resolution_ticks: int, lines: Floats) -> list[Features]:
        """The features of the `seconds` that end with each of the last ones, oldest first, which have these `lines`.

        They determine the signature; a line is as in `describe_features`.
        """
        agos = range(len(lines) - 1, -1, -1)
        found = self._describe([(seconds, ago) for ago in agos], resolution_ticks)
        return [
            describe_features(
                duty_cycle,
                active_mean,
                math.nan if math.isnan(peak) else self.usual_peak(seconds, ago),
                dict(zip(self._timescales_ns, variations, strict=True)),
                line,
            )
            for ago, duty_cycle, active_mean, peak, variations, line in zip(
                agos,
                found.duty_cycle.tolist(),
                found.active_mean.tolist(),
                found.peak.tolist(),
                found.burstiness_cv.tolist(),
                lines.tolist(),
                strict=True,
            )
        ]

    def usual_peak(self, seconds: int, ago: int = 0) -> float:
        """Upper quartile of the peaks of the observed seconds; NaN without any."""
        return usual_peak(self._peaks.values(seconds, ago), self._sums.values(seconds, ago)[:, OBSERVED])

    def observed_seconds(self, seconds: int) -> float:
        """Time in the window in which no sample is missing."""
        return float(self._sums.sum(seconds)[OBSERVED])

    def _describe(self, spans: Sequence[tuple[int, int]], resolution_ticks: int) -> NodeStatistics:
        """The statistics of spans of so many seconds, which end so many seconds before the newest."""
        # after an interval is lengthened, the samples before that do not stand for the window
        ticks = np.array(self._ticks_per_bin)
        return describe_node(
            np.stack([self._sums.sum(*span) for span in spans]),
            np.array([self._peaks.max(*span) for span in spans]),
            np.stack([self._scales.sum(*span) for span in spans]),
            resolution_ticks == 1,
            (ticks >= resolution_ticks) & (ticks % self._stride == 0),
        )
