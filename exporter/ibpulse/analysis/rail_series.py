"""The rails of a recorded time range and their sum, sample by sample."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ibpulse.analysis.node_statistics import NodeTicks, Seconds, sum_rails
from ibpulse.analysis.resolution import coarsest_ticks
from ibpulse.arrays import Bools, Counts, Floats, Rows
from ibpulse.units import SECOND_NS


@dataclass(frozen=True, slots=True)
class RailGroup:
    """Rails that are compared with each other: their positions, and at which samples they are: (samples,)."""

    rails: Rows
    together: Bools


@dataclass(frozen=True, slots=True)
class RailTraits:
    """Properties of the rails other than their rates.

    `up` and `line_rates` are (rails, samples): whether the link is ACTIVE, and the line rate of one direction as in
    `node_statistics.line_rate`. The others are (rails,): a rail is sampled every `strides`
    ticks, and its counters resolve nothing shorter than `finest_ticks`; see `resolution.finest_ticks`. Each rail is in
    one of the `groups`.
    """

    names: tuple[str, ...]
    up: Bools
    line_rates: Floats
    strides: Counts
    finest_ticks: Counts
    groups: tuple[RailGroup, ...]

    @property
    def ever_up(self) -> Bools:
        """Whether the link is ACTIVE at any sample: (rails,)."""
        return np.asarray(self.up.any(axis=1))


@dataclass(frozen=True, slots=True)
class RailSeries:
    """The rails of a time range.

    `rates` and `seconds` are (rails, 2, samples), 0 where `good` (rails, samples) is false: where data is missing, and
    in seconds in which the link is not ACTIVE at any sample. `up` (rails, samples) is false in those seconds.
    `directions` (2, samples), `peaks` (samples,), `measured` (samples,) and `whole` (samples,) describe the sum
    over the rails that are up, with 0 and false for missing data; `peaks` is the certain part of both directions.
    The arrays are padded to whole seconds: up to `ticks_per_second - 1` samples are missing at each end. `lead` is
    the index of the first recorded sample. `recorded` is true for each direction that has any value.
    """

    rails: RailTraits
    interval_ns: int
    lead: int
    ticks: int
    ticks_per_second: int
    recorded: tuple[bool, bool]
    rates: Floats
    seconds: Floats
    good: Bools
    up: Bools
    directions: Floats
    peaks: Floats
    measured: Floats
    whole: Bools

    @property
    def bandwidth(self) -> Floats:
        """Transmit + receive of all rails: (samples,), NaN where data is missing."""
        return np.where(self.whole, self.directions.sum(axis=0), np.nan)

    @property
    def certain_bandwidth(self) -> Floats:
        """The certain part of the bandwidth, for statistics that are a maximum: (samples,), NaN for missing data."""
        return np.where(self.whole, self.peaks, np.nan)

    def padded(self, chosen: Bools) -> Bools:
        """Which samples are `chosen`, of the recorded ones, as one of all: (samples,)."""
        return np.pad(chosen, (self.lead, len(self.whole) - self.lead - self.ticks))

    @property
    def interval_seconds(self) -> float:
        """Time between two samples."""
        return self.interval_ns / SECOND_NS

    @property
    def coarsest_stride(self) -> int:
        """Ticks between two samples of the rail that is sampled least often."""
        return int(self.rails.strides[self.rails.ever_up].max(initial=1))

    @property
    def common_stride(self) -> int:
        """Ticks of the shortest bins into which the samples of all rails fit."""
        return int(np.lcm.reduce(self.rails.strides[self.rails.ever_up], initial=1))

    @property
    def resolution_ticks(self) -> int:
        """Ticks of the finest statistic that the counters resolve; 1 unless some do not change at every sample."""
        return coarsest_ticks(self.rails.finest_ticks[self.rails.ever_up].tolist())


def add_up(
    bytes_per_second: Floats,
    seconds: Floats,
    rails: RailTraits,
    first_tick_ns: int,
    interval_ns: int,
    peaks: Floats | None = None,
) -> RailSeries:
    """The rails and their sum, from rates and measured times (rails, 2, samples), NaN and 0 where data is missing.

    `peaks` are the certain parts of the rates, by default the rates.

    A direction that was not recorded for any rail counts as 0 in the sum, and is not `recorded`. The sum is formed
    second by second, as in the daemon: see `sum_rails`.
    """
    ticks = bytes_per_second.shape[2]
    per_second, lead = _place(first_tick_ns, interval_ns)
    blocks = -(-(lead + ticks) // per_second)
    span = slice(lead, lead + ticks)
    shape = (len(bytes_per_second), 2, blocks * per_second)
    rates, measured, good = np.zeros(shape), np.zeros(shape), np.zeros((shape[0], shape[2]), dtype=np.bool_)
    known, up = ~np.isnan(bytes_per_second), _up_by_second(rails.up, lead, per_second)
    recorded = [bool(known[:, way].any()) for way in range(2)]
    good[:, span] = known[:, recorded].all(axis=1) & up[:, span] if any(recorded) else False
    for way, there in enumerate(recorded):
        if there:
            rates[:, way, span] = np.where(good[:, span], bytes_per_second[:, way], 0.0)
        measured[:, way, span] = np.where(good[:, span], seconds[:, way if there else 1 - way], 0.0)
    certain = None
    if peaks is not None:
        certain = np.zeros(shape)
        certain[..., span] = np.where(good[:, None, span] & known, peaks, 0.0)
    summed = _sum_up(rates, measured, good, per_second, certain)
    return RailSeries(
        rails=rails,
        interval_ns=interval_ns,
        lead=lead,
        ticks=ticks,
        ticks_per_second=per_second,
        recorded=(recorded[0], recorded[1]),
        rates=rates,
        seconds=measured,
        good=good,
        up=up,
        directions=summed.directions.reshape(2, -1),
        peaks=summed.highest.ravel(),
        measured=summed.measured.ravel(),
        whole=summed.good.ravel(),
    )


def _up_by_second(up: Bools, lead: int, ticks_per_second: int) -> Bools:
    """Whether each rail is up at any sample of the same second, padded to whole seconds: (rails, samples)."""
    count, ticks = up.shape
    padded = np.pad(up, ((0, 0), (lead, -(lead + ticks) % ticks_per_second)))
    seconds = padded.reshape(count, -1, ticks_per_second).any(axis=2)
    return np.asarray(np.repeat(seconds, ticks_per_second, axis=1))


def _sum_up(rates: Floats, seconds: Floats, good: Bools, ticks_per_second: int, peaks: Floats | None) -> NodeTicks:
    count, blocks = len(rates), rates.shape[2] // ticks_per_second
    split = (count, 2, blocks, ticks_per_second)
    certain = None if peaks is None else peaks.reshape(split)
    return sum_rails(Seconds(rates.reshape(split), seconds.reshape(split), good.reshape(count, blocks, -1), certain))


def _place(first_tick_ns: int, interval_ns: int) -> tuple[int, int]:
    """Samples per second, and the number of samples of the first second that precede the first one."""
    if SECOND_NS % interval_ns:
        return max(1, SECOND_NS // interval_ns), 0
    per_second = SECOND_NS // interval_ns
    return per_second, (first_tick_ns // interval_ns - 1) % per_second
