"""Rolling values of the sum over the rails, second by second."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ibpulse.agent.aggregator.snapshot import AggregatorOptions
from ibpulse.base.units import format_duration
from ibpulse.core.answers.summary import NodeWindow
from ibpulse.core.arrays import Floats
from ibpulse.core.statistics import moments, signature
from ibpulse.core.statistics.signature import Features, describe_features
from ibpulse.core.statistics.sums import (
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


class RollingSeconds:
    """The last `length` seconds of an array of values, and `behind` seconds before them.

    A window of W seconds covers exactly the last W values pushed, or those before the last `ago` ones, of which there
    are at most `behind`. Seconds that were never pushed count as zeros.
    """

    def __init__(self, length: int, shape: tuple[int, ...], behind: int = 0) -> None:
        self.length = length
        self._values = np.zeros((length + behind, *shape))
        self._next = 0

    def push(self, seconds: Floats) -> None:
        """Add the values of further seconds, (seconds, *shape)."""
        kept = len(self._values)
        places = np.arange(self._next, self._next + len(seconds))[-kept:] % kept
        self._values[places] = seconds[-kept:]
        self._next = (self._next + len(seconds)) % kept

    def push_holes(self, seconds: int) -> None:
        """Add seconds without any data."""
        kept = len(self._values)
        self._values[np.arange(self._next, self._next + min(seconds, kept)) % kept] = 0.0
        self._next = (self._next + seconds) % kept

    def sum(self, seconds: int, ago: int = 0) -> Floats:
        """Sum over the last seconds."""
        return np.asarray(sum(part.sum(axis=0) for part in self._last(seconds, ago)))

    def sums(self, seconds: int, count: int) -> Floats:
        """Sums over the seconds that end with each of the last `count` ones, oldest first: (count, *shape)."""
        return np.stack([self.sum(seconds, ago) for ago in range(count - 1, -1, -1)])

    def max(self, seconds: int, ago: int = 0) -> Floats:
        """Maximum over the last seconds."""
        return np.asarray(np.maximum.reduce([part.max(axis=0) for part in self._last(seconds, ago)]))

    def values(self, seconds: int, ago: int = 0) -> Floats:
        """The values of the last seconds, oldest first: (seconds, *shape)."""
        return np.concatenate(self._last(seconds, ago))

    def _last(self, seconds: int, ago: int) -> list[Floats]:
        """Views of the last seconds: one, or two if they wrap around."""
        end = (self._next - ago) % len(self._values) or len(self._values)
        begin = end - seconds
        if begin >= 0:
            return [self._values[begin:end]]
        return [self._values[begin:], self._values[:end]]

    def add_row(self) -> None:
        """Make room for one more port."""
        length, _, *rest = self._values.shape
        self._values = np.concatenate([self._values, np.zeros((length, 1, *rest))], axis=1)

    def clear_row(self, row: int) -> None:
        """Clear the values of one port."""
        self._values[:, row] = 0.0


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
