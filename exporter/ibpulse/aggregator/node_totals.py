"""Rolling values of the sum over rails. It must not know single ports beyond which of them are rails."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ibpulse.aggregator.options import AggregatorOptions
from ibpulse.aggregator.seconds import NodeTicks, RollingSeconds
from ibpulse.aggregator.snapshot import NodeWindow
from ibpulse.analysis import moments
from ibpulse.arrays import Floats
from ibpulse.units import SECOND_NS

# fields of the rolling sums: those of the active ticks, then these
OBSERVED, TRANSMIT, RECEIVE = range(moments.FIELDS, moments.FIELDS + 3)
ROLLING_FIELDS = moments.FIELDS + 3
USUAL = 0.75
# kept at any settings, because the signature needs them
SIGNATURE_TIMESCALES_NS = (10_000_000, 50_000_000, 100_000_000)


class NodeTotals:
    """The last minutes of all rails together."""

    def __init__(self, options: AggregatorOptions, interval_ns: int) -> None:
        self._options = options
        self._interval_ns = interval_ns
        more = [scale for scale in SIGNATURE_TIMESCALES_NS if scale not in options.timescales_ns]
        self._timescales_ns = (*options.timescales_ns, *more)
        self._ticks_per_bin = [bin_ticks(timescale_ns, interval_ns) for timescale_ns in self._timescales_ns]
        longest = options.longest_seconds()
        self._sums = RollingSeconds(longest, (ROLLING_FIELDS,))
        self._peaks = RollingSeconds(longest, ())
        self._scales = RollingSeconds(longest, (len(self._ticks_per_bin), moments.FIELDS))

    def add_seconds(self, node: NodeTicks, coarsest_stride: int) -> None:
        """Take the sum over the rails, all of which are ACTIVE."""
        bandwidth, measured, good = node.bandwidth, node.measured, node.good
        threshold = self._options.active_bytes_per_second
        sums = np.empty((len(bandwidth), ROLLING_FIELDS))
        sums[:, : moments.FIELDS] = moments.weighted_sums(bandwidth, measured, good & (bandwidth > threshold))
        sums[:, OBSERVED] = measured.sum(axis=-1)
        sums[:, TRANSMIT : RECEIVE + 1] = (node.directions * measured).sum(axis=-1).T
        self._sums.push(sums)
        self._peaks.push(bandwidth.max(axis=-1))
        self._scales.push(self._sums_per_timescale(np.where(good, bandwidth, np.nan), measured, coarsest_stride))

    def _sums_per_timescale(self, bandwidth: Floats, measured: Floats, coarsest_stride: int) -> Floats:
        """Sums of the active bins of each time scale: (seconds, timescales, 4), 0 where the scale is too fine."""
        out = np.zeros((len(bandwidth), len(self._ticks_per_bin), moments.FIELDS))
        for index, ticks in enumerate(self._ticks_per_bin):
            if ticks >= coarsest_stride:
                values, seconds = moments.rebin(bandwidth, measured, ticks)
                active = values > self._options.active_bytes_per_second
                out[:, index] = moments.weighted_sums(values, seconds, active)
        return out

    def push_holes(self, seconds: int) -> None:
        """Let the windows move over seconds that were not read."""
        for rolling in (self._sums, self._peaks, self._scales):
            rolling.push_holes(seconds)

    def windows(self, resolution_ticks: int = 1) -> tuple[NodeWindow, ...]:
        """The rolling values of every window, as far as counters that change every `resolution_ticks` can tell them."""
        published = len(self._options.timescales_ns)
        return tuple(
            replace(window, burstiness_cv=window.burstiness_cv[:published])
            for window in self._windows(self._options.window_seconds(), resolution_ticks)
        )

    def window(self, seconds: int, resolution_ticks: int = 1) -> tuple[NodeWindow, dict[int, float | None]]:
        """The rolling values of a window, and the variation by time scale in ns."""
        window = self._windows((seconds,), resolution_ticks)[0]
        return window, dict(zip(self._timescales_ns, window.burstiness_cv, strict=True))

    def observed_seconds(self, seconds: int) -> float:
        """Time of the window that no hole covers."""
        return float(self._sums.sum(seconds)[OBSERVED])

    def usual_peak(self, seconds: int) -> float:
        """Upper quartile of the peaks of the seconds that were observed; NaN without any.

        One sample that came late, or a counter that was refreshed late, makes the highest sample of a window; it does
        not make this.
        """
        seen = self._sums.values(seconds)[:, OBSERVED] > 0
        return float(np.quantile(self._peaks.values(seconds)[seen], USUAL)) if seen.any() else math.nan

    def _windows(self, spans: tuple[int, ...], resolution_ticks: int) -> list[NodeWindow]:
        sums = np.stack([self._sums.sum(seconds) for seconds in spans])
        scales = np.stack([self._scales.sum(seconds) for seconds in spans])
        observed = sums[:, OBSERVED]
        # what rests on single ticks is not known where a counter stands still over several of them
        told = observed if resolution_ticks == 1 else np.zeros_like(observed)
        numbers = np.stack(
            [
                moments.quotient(sums[:, TRANSMIT], observed),
                moments.quotient(sums[:, RECEIVE], observed),
                np.where(told > 0, [self._peaks.max(seconds) for seconds in spans], np.nan),
                np.where(told > 0, moments.mean(sums), np.nan),
                moments.duty_cycle(sums[:, moments.SECONDS], told),
            ],
            axis=1,
        )
        fine = np.array(self._ticks_per_bin) < resolution_ticks
        enough = (scales[..., moments.COUNT] >= 2) & ~fine
        variations = np.where(enough, moments.variation(scales), np.nan)
        return [
            NodeWindow(transmit, receive, peak, active_mean, duty, tuple(_known(of_scales)))
            for (transmit, receive, peak, active_mean, duty), of_scales in zip(
                map(_known, numbers.tolist()), variations.tolist(), strict=True
            )
        ]


def bin_ticks(timescale_ns: int, interval_ns: int) -> int:
    """Ticks of one bin of a time scale; 0 when it is not a whole number of ticks or does not divide one second."""
    if timescale_ns % interval_ns or SECOND_NS % timescale_ns:
        return 0
    return timescale_ns // interval_ns


def _known(values: list[float]) -> list[float | None]:
    """The values, None for NaN."""
    return [None if math.isnan(value) else value for value in values]
