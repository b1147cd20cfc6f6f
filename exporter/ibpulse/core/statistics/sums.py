"""Sums and statistics of any time range: of the sum over a node's rails, sample by sample, and of single ports.

The metrics, the summary, the stream and the reports all use these definitions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Bools, Counts, Floats, Rows
from ibpulse.core.statistics import moments
from ibpulse.core.statistics.moments import quantile
from ibpulse.core.statistics.rates import Rates

# fields of the last axis of the sums: the moments of the active samples, then these
OBSERVED, COVERED, TRANSMIT, RECEIVE = range(moments.FIELDS, moments.FIELDS + 4)
FIELDS = moments.FIELDS + 4
# the quantile of the per-second peaks that is the usual peak
USUAL = 0.75


@dataclass(frozen=True, slots=True)
class Seconds:
    """Rates over whole seconds.

    `bytes_per_second`, `seconds` and `peaks` are (ports, 2, seconds, samples), 0 where `good` is false. `good` is
    (ports, seconds, samples), true where both directions have a rate. `peaks` is the certain part of each rate, None if
    that is all of it. `common` are the rates between common instants of the ports, None if those are not known.
    `bridged` are the rates that also cover missing samples between two reads, None if no sample is missing.
    """

    bytes_per_second: Floats
    seconds: Floats
    good: Bools
    peaks: Floats | None = None
    common: Floats | None = None
    bridged: Seconds | None = None

    def chosen(self, rows: Rows) -> Seconds:
        """Those of some ports."""
        return Seconds(
            self.bytes_per_second[rows],
            self.seconds[rows],
            self.good[rows],
            None if self.peaks is None else self.peaks[rows],
            None if self.common is None else self.common[rows],
            self.bridged and self.bridged.chosen(rows),
        )

    def only(self, ports: Bools) -> Seconds:
        """The same without any sample of the other ports (ports,)."""
        at = ports[:, None, None, None]
        return Seconds(self.bytes_per_second * at, self.seconds * at, self.good & ports[:, None, None])


def whole_seconds(rates: Rates, ticks_per_second: int) -> Seconds:
    """Rates split into whole seconds; a sample counts only if both directions have a rate."""
    known = ~np.isnan(rates.bytes_per_second)
    good = known[:, 0] & known[:, 1]
    both, complete = good[:, None], bool(good.all())
    ports, ticks = good.shape
    shape = (ports, 2, ticks // ticks_per_second, ticks_per_second)

    def split(values: Floats) -> Floats:
        return (values if complete else np.where(both, values, 0.0)).reshape(shape)

    return Seconds(
        split(rates.bytes_per_second),
        split(rates.seconds),
        good.reshape(ports, *shape[2:]),
        None if rates.steps is None else split(rates.peaks),
        None if rates.common is None else split(rates.common),
        None if rates.bridged is None else whole_seconds(rates.bridged, ticks_per_second),
    )


@dataclass(frozen=True, slots=True)
class NodeTicks:
    """Rates of all rails together over whole seconds.

    `directions` (2, seconds, samples) is 0 where data is missing, as is `measured` (seconds, samples), the time that
    each sample covers. `good` (seconds, samples) is false where data is missing. `peaks` (seconds, samples) is the
    certain part of the bandwidth, None if that is all of it. Of groups of rails, there is one more axis before the
    seconds. `common` (seconds, samples) is the bandwidth between common instants of the rails, None if those are not
    known. `bridged` also covers missing samples between two reads; it is None if no sample is missing.
    """

    directions: Floats
    measured: Floats
    good: Bools
    peaks: Floats | None = None
    common: Floats | None = None
    bridged: NodeTicks | None = None

    @property
    def bandwidth(self) -> Floats:
        """Transmit + receive: (seconds, samples), 0 where data is missing."""
        return np.asarray(self.directions[0] + self.directions[1])

    @property
    def highest(self) -> Floats:
        """The certain part of the bandwidth, for every statistic that is a maximum: (seconds, samples)."""
        return self.bandwidth if self.peaks is None else self.peaks

    @property
    def simultaneous(self) -> Floats:
        """The bandwidth for duty cycle, mean while active and variation: of all rails at one time if known."""
        return self.bandwidth if self.common is None else self.common

    def group(self, place: int) -> NodeTicks:
        """One of several groups of rails."""
        return NodeTicks(
            self.directions[:, place],
            self.measured[place],
            self.good[place],
            None if self.peaks is None else self.peaks[place],
            None if self.common is None else self.common[place],
            self.bridged and self.bridged.group(place),
        )


def sum_rails(rails: Seconds) -> NodeTicks:
    """Sum over the rails that were sampled in each second.

    A sample is missing for the node if it is missing for one of those rails. A rail without any sample in a second is
    ignored in that second.
    """
    return sum_groups(rails, [len(rails.good)]).group(0)


def sum_groups(rails: Seconds, sizes: Sequence[int]) -> NodeTicks:
    """The same sum for each group of consecutive rails, all at once; `sizes` are the numbers of rails.

    The arrays have an axis of groups before that of seconds.
    """
    spans = [slice(end - size, end) for size, end in zip(sizes, accumulate(sizes), strict=True)]
    sampled = np.asarray(rails.good.any(axis=-1))
    whole = rails.good | ~sampled[..., None]
    counts = np.stack([np.count_nonzero(sampled[span], axis=0) for span in spans])
    good = np.stack([whole[span].all(axis=0) for span in spans]) & (counts > 0)[..., None]
    rate = np.where(good, np.stack([rails.bytes_per_second[span].sum(axis=0) for span in spans], axis=1), 0.0)
    # the mean is the time between the mean read times
    reads = np.maximum(2 * counts, 1)[..., None]
    measured = np.where(good, np.stack([rails.seconds[span].sum(axis=(0, 1)) for span in spans]) / reads, 0.0)

    def add_up(values: Floats | None) -> Floats | None:
        if values is None:
            return None
        return np.where(good, np.stack([values[span].sum(axis=(0, 1)) for span in spans]), 0.0)

    bridged = None if rails.bridged is None else sum_groups(rails.bridged, sizes)
    return NodeTicks(rate, measured, good, add_up(rails.peaks), add_up(rails.common), bridged)


def sum_seconds(node: NodeTicks, active_bytes_per_second: float) -> Floats:
    """Sums of each second: (..., seconds, FIELDS). A sample is active if it is above the threshold.

    Law: the sums of a span are the sum of the sums of its seconds.
    """
    bandwidth, measured, whole = node.simultaneous, node.measured, node.bridged or node
    sums = np.empty((*bandwidth.shape[:-1], FIELDS))
    active = node.good & (bandwidth > active_bytes_per_second)
    sums[..., : moments.FIELDS] = moments.weighted_sums(bandwidth, measured, active)
    sums[..., OBSERVED] = measured.sum(axis=-1)
    sums[..., COVERED] = whole.measured.sum(axis=-1)
    sums[..., TRANSMIT : RECEIVE + 1] = np.moveaxis((whole.directions * whole.measured).sum(axis=-1), 0, -1)
    return sums


def sum_timescales(
    node: NodeTicks, ticks_per_bin: Sequence[int], stride: int, active_bytes_per_second: float
) -> Floats:
    """Sums of the active bins of each time scale: (seconds, timescales, 4).

    They are 0 for time scales that are not a multiple of the `stride` of every rail: their bins divide samples.
    """
    bandwidth = np.where(node.good, node.simultaneous, np.nan)
    out = np.zeros((len(bandwidth), len(ticks_per_bin), moments.FIELDS))
    for index, ticks in enumerate(ticks_per_bin):
        if ticks and ticks % stride == 0:
            values, seconds = moments.rebin(bandwidth, node.measured, ticks)
            out[:, index] = moments.weighted_sums(values, seconds, values > active_bytes_per_second)
    return out


def bin_ticks(timescale_ns: int, interval_ns: int) -> int:
    """Samples per bin of a time scale; 0 if it is not a multiple of the interval or does not divide one second."""
    if timescale_ns % interval_ns or SECOND_NS % timescale_ns:
        return 0
    return timescale_ns // interval_ns


@dataclass(frozen=True, slots=True)
class NodeStatistics:
    """Statistics of one or more spans of the sum over the rails; NaN if unknown.

    All arrays are (spans, ...); `burstiness_cv` has one more axis for the time scales. Rates are in bytes per second;
    peak, active mean and mean refer to the bandwidth, transmit + receive.
    """

    transmit: Floats
    receive: Floats
    mean: Floats
    peak: Floats
    active_mean: Floats
    peak_to_mean: Floats
    duty_cycle: Floats
    burstiness_cv: Floats


def describe_node(
    sums: Floats, peaks: Floats, scales: Floats, finest_known: bool | Bools = True, scales_known: Bools | None = None
) -> NodeStatistics:
    """The statistics of spans from their sums (..., FIELDS), peaks (...) and time scales (..., timescales, 4).

    If counters do not change at every sample (`finest_known` is false, of all spans or of each (...)), statistics of
    single samples are unknown, as are time scales shorter than the counters' resolution (`scales_known`,
    (timescales,)). A coefficient of variation needs at least two active bins.
    """
    # the bytes across missing samples are known, and the time that they took
    covered = sums[..., COVERED]
    told = np.where(finest_known, sums[..., OBSERVED], 0.0)
    peak = np.where(told > 0, peaks, np.nan)
    mean = moments.quotient(sums[..., TRANSMIT] + sums[..., RECEIVE], covered)
    enough = scales[..., moments.COUNT] >= 2
    if scales_known is not None:
        enough &= scales_known
    return NodeStatistics(
        transmit=moments.quotient(sums[..., TRANSMIT], covered),
        receive=moments.quotient(sums[..., RECEIVE], covered),
        mean=mean,
        peak=peak,
        active_mean=np.where(told > 0, moments.mean(sums), np.nan),
        peak_to_mean=moments.quotient(peak, mean),
        duty_cycle=moments.duty_cycle(sums[..., moments.SECONDS], told),
        burstiness_cv=np.where(enough, moments.variation(scales), np.nan),
    )


def line_rate(rail_rates: Floats, directions: int = 2) -> Floats:
    """The line rate of a node: the sum of the rates of its rails, in `directions` directions.

    `rail_rates` (rails, ...) are the data rates of one direction, whether a rail carries traffic, is idle or is down;
    of a link that is down, it is the last one while it was ACTIVE. They are 0 where a port does not exist or is not a
    rail, and NaN where a rate was never known: that rail is assumed to be as fast as the fastest other one. The result
    (...) is NaN where no rate is known, and where there is no rail.
    """
    unknown = np.isnan(rail_rates)
    if unknown.any():
        rail_rates = np.where(unknown, _highest_known(rail_rates), rail_rates)
    total = directions * rail_rates.sum(axis=0)
    return np.asarray(np.where(total > 0, total, np.nan))


def are_assumed(rail_rates: Floats) -> Bools:
    """Whether the `line_rate` assumes the rate of each rail: (rails, ...), like `rail_rates`."""
    return np.asarray(np.isnan(rail_rates) & (_highest_known(rail_rates) > 0))


def _highest_known(rail_rates: Floats) -> Floats:
    """The highest known rate of a rail, 0 if there is none: (...)."""
    return np.asarray(np.nan_to_num(rail_rates).max(axis=0, initial=0.0))


def usual_peak(peaks: Floats, observed_seconds: Floats) -> float:
    """Upper quartile of the peaks (seconds,) of the observed seconds; NaN without any.

    Unlike the peak of a span, it is robust against a single late sample or a late refresh of a counter.
    """
    seen = observed_seconds > 0
    return quantile(peaks[seen], USUAL) if seen.any() else math.nan


# fields of the last axis of the sums: moments of the active samples, their observed time, all bytes with their time
MOVED = COVERED + 1
PORT_FIELDS = COVERED + 2


def sum_directions(
    rates: Floats, seconds: Floats, good: Bools, active_bytes_per_second: float, bridged: Seconds | None = None
) -> Floats:
    """Sums of spans: (ports, 2, spans, PORT_FIELDS) from (ports, 2, spans, samples).

    Samples count where `good` (ports, spans, samples) is true. `bridged` are the rates that also cover missing samples,
    None if no sample is missing.

    Law: the sums of a span are the sum of the sums of its parts.
    """
    chosen = np.broadcast_to(good[:, None], rates.shape)
    sums = np.empty((*rates.shape[:-1], PORT_FIELDS))
    sums[..., : moments.FIELDS] = moments.weighted_sums(rates, seconds, chosen & (rates > active_bytes_per_second))
    # both directions of a port are read at nearly the same instant
    sums[..., OBSERVED] = np.where(good, (seconds[:, 0] + seconds[:, 1]) / 2, 0.0).sum(axis=-1)[:, None]
    if bridged is None:
        sums[..., COVERED] = sums[..., OBSERVED]
        sums[..., MOVED] = np.einsum("...i,...i->...", np.where(chosen, rates, 0.0), seconds)
    else:
        sums[..., COVERED] = bridged.seconds.mean(axis=1).sum(axis=-1)[:, None]
        sums[..., MOVED] = np.einsum("...i,...i->...", bridged.bytes_per_second, bridged.seconds)
    return sums


@dataclass(frozen=True, slots=True)
class DirectionStatistics:
    """Statistics of both directions of ports: arrays (..., ports, 2), NaN if unknown.

    Mean and peak are in bytes per second.
    """

    mean: Floats
    peak: Floats
    duty_cycle: Floats
    burstiness_cv: Floats


def describe_directions(sums: Floats, peaks: Floats, strides: Counts, finest_known: Bools) -> DirectionStatistics:
    """The statistics from sums (..., ports, 2, PORT_FIELDS) and peaks (..., ports, 2).

    Statistics of single samples are unknown for ports whose counters do not change at every sample (`finest_known`
    (ports,) is false). `strides` (ports,) are the ticks between two samples: a coefficient of variation needs two
    samples, and each sample covers one stride of ticks.
    """
    told = np.where(finest_known[:, None], sums[..., OBSERVED], 0.0)
    enough = (sums[..., moments.COUNT] >= 2 * strides[:, None]) & (told > 0)
    return DirectionStatistics(
        mean=moments.quotient(sums[..., MOVED], sums[..., COVERED]),
        peak=np.where(told > 0, peaks, np.nan),
        duty_cycle=moments.duty_cycle(sums[..., moments.SECONDS], told),
        burstiness_cv=np.where(enough, moments.variation(sums), np.nan),
    )
