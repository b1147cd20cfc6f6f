"""Rolling values of the sum over rails. It must not know single ports beyond which of them are rails."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ibpulse.aggregator.options import SECOND_NS, AggregatorOptions
from ibpulse.aggregator.rolling import RollingSeconds
from ibpulse.aggregator.samples import Seconds
from ibpulse.aggregator.snapshot import NodeWindow
from ibpulse.analysis import moments

Floats = npt.NDArray[np.float64]

# fields of the rolling sums: those of the active ticks, then these
OBSERVED, TRANSMIT, RECEIVE = range(moments.FIELDS, moments.FIELDS + 3)
ROLLING_FIELDS = moments.FIELDS + 3


class Node:
    """The last minutes of all rails together."""

    def __init__(self, options: AggregatorOptions, interval_ns: int) -> None:
        self._options = options
        self._interval_ns = interval_ns
        self._ticks_per_bin = [bin_ticks(timescale_ns, interval_ns) for timescale_ns in options.timescales_ns]
        longest = max(options.window_seconds())
        self._sums = RollingSeconds(longest, (ROLLING_FIELDS,))
        self._peaks = RollingSeconds(longest, ())
        self._scales = RollingSeconds(longest, (len(self._ticks_per_bin), moments.FIELDS))

    def add_seconds(self, rails: Seconds, coarsest_stride: int) -> None:
        """Take the rates of the rails, all of which are ACTIVE."""
        directions, measured, good = sum_rails(rails)
        bandwidth = directions[0] + directions[1]
        threshold = self._options.active_bytes_per_second
        sums = np.empty((len(bandwidth), ROLLING_FIELDS))
        sums[:, : moments.FIELDS] = moments.weighted_sums(bandwidth, measured, good & (bandwidth > threshold))
        sums[:, OBSERVED] = measured.sum(axis=-1)
        sums[:, TRANSMIT : RECEIVE + 1] = (directions * measured).sum(axis=-1).T
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

    def windows(self) -> tuple[NodeWindow, ...]:
        """The rolling values of every window."""
        spans = self._options.window_seconds()
        sums = np.stack([self._sums.sum(seconds) for seconds in spans])
        scales = np.stack([self._scales.sum(seconds) for seconds in spans])
        observed = sums[:, OBSERVED]
        numbers = np.stack(
            [
                moments.quotient(sums[:, TRANSMIT], observed),
                moments.quotient(sums[:, RECEIVE], observed),
                np.where(observed > 0, [self._peaks.max(seconds) for seconds in spans], np.nan),
                moments.mean(sums),
                moments.duty_cycle(sums[:, moments.SECONDS], observed),
            ],
            axis=1,
        )
        variations = np.where(scales[..., moments.COUNT] >= 2, moments.variation(scales), np.nan)
        return tuple(
            NodeWindow(transmit, receive, peak, active_mean, duty, tuple(_known(of_scales)))
            for (transmit, receive, peak, active_mean, duty), of_scales in zip(
                map(_known, numbers.tolist()), variations.tolist(), strict=True
            )
        )


def bin_ticks(timescale_ns: int, interval_ns: int) -> int:
    """Ticks of one bin of a time scale; 0 when it is not a whole number of ticks or does not divide one second."""
    if timescale_ns % interval_ns or SECOND_NS % timescale_ns:
        return 0
    return timescale_ns // interval_ns


def _known(values: list[float]) -> list[float | None]:
    """The values, None for NaN."""
    return [None if math.isnan(value) else value for value in values]


def sum_rails(rails: Seconds) -> tuple[Floats, Floats, npt.NDArray[np.bool_]]:
    """Sum over the rails that were sampled in a second: rates (2, seconds, ticks), measured seconds and good ticks.

    A tick at which one of those rails is a hole is a hole of the node. A rail without any sample in a second does
    not hide the others.
    """
    sampled = np.asarray(rails.good.any(axis=-1))
    whole = np.all(rails.good | ~sampled[..., None], axis=0)
    good = np.asarray(whole & np.any(sampled, axis=0)[:, None])
    rate = np.where(good, rails.bytes_per_second.sum(axis=0), 0.0)
    # the reads of one tick are microseconds apart: the node's tick lasts as long as theirs on average
    reads = np.maximum(2 * np.count_nonzero(sampled, axis=0), 1)[:, None]
    measured = np.where(good, rails.seconds.sum(axis=(0, 1)) / reads, 0.0)
    return rate, measured, good
