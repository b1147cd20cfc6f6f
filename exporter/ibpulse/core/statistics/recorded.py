"""The rails of a recorded time range, its units (steps or blocks of time), and confidence intervals from these.

Every statistic is a quotient of sums over units, so a resampled run is a weighted sum of units (block bootstrap).
Because neighbouring units are correlated, units are resampled in groups of consecutive units whose size is the cube
root of the number of units (Carlstein, 1986), or larger where the units are strongly correlated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Bools, Counts, Floats, Rows, running_sum
from ibpulse.core.statistics import moments, signature
from ibpulse.core.statistics.balance import measure_fairness
from ibpulse.core.statistics.rates import coarsest_ticks
from ibpulse.core.statistics.steps.edges import Steps
from ibpulse.core.statistics.steps.runs import MAX_BRIDGED, mark_long_runs
from ibpulse.core.statistics.sums import (
    COVERED,
    FIELDS,
    OBSERVED,
    RECEIVE,
    TRANSMIT,
    NodeStatistics,
    Seconds,
    describe_node,
    sum_rails,
)


@dataclass(frozen=True, slots=True)
class RailGroup:
    """Rails that are compared with each other: their positions, and at which samples they are: (samples,)."""

    rails: Rows
    together: Bools


@dataclass(frozen=True, slots=True)
class RailTraits:
    """Properties of the rails other than their rates.

    `up` and `line_rates` are (rails, samples): whether the link is ACTIVE, and the line rate of one direction as in
    `sums.line_rate`. The others are (rails,): a rail is sampled every `strides`
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
    split = (len(rates), 2, blocks, per_second)
    certain = None
    if peaks is not None:
        certain = np.zeros(shape)
        certain[..., span] = np.where(good[:, None, span] & known, peaks, 0.0)
        certain = certain.reshape(split)
    by_second = Seconds(rates.reshape(split), measured.reshape(split), good.reshape(len(rates), blocks, -1), certain)
    summed = sum_rails(by_second)
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


def _place(first_tick_ns: int, interval_ns: int) -> tuple[int, int]:
    """Samples per second, and the number of samples of the first second that precede the first one."""
    if SECOND_NS % interval_ns:
        return max(1, SECOND_NS // interval_ns), 0
    per_second = SECOND_NS // interval_ns
    return per_second, (first_tick_ns // interval_ns - 1) % per_second


MIN_UNITS = 20
"""Minimum number of units: with fewer, a 95 % interval covers the true value in less than 90 % of runs."""

STRONG_CORRELATION = 0.5
"""Correlation of neighbouring units above which groups of the cube root of their number give too narrow intervals."""

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Resampling:
    """`sums` is (resamples, fields); `groups` is the number of groups of units drawn for each resample."""

    sums: Floats
    groups: int


def lag_correlation(values: Floats) -> float:
    """Correlation of neighbouring values (n,), without the bias of short series; 0 if all are equal to within 1e-9.

    The usual estimate r is too low by about (1 + 4 r) / n (Kendall, 1954; Marriott and Pope, 1954).
    """
    around = values - values.mean()
    spread = float(np.square(around).sum())
    if len(values) < 2 or spread <= len(values) * (1e-9 * float(np.abs(values).max())) ** 2:
        return 0.0
    found = float((around[1:] * around[:-1]).sum()) / spread
    return min(1.0, found + (1 + 4 * found) / len(values))


def group_size(units: int, correlation: float = 0.0) -> int:
    """Number of consecutive units to draw together: their number's cube root, above a correlation of 0.5 its root."""
    return math.ceil(math.sqrt(units)) if correlation > STRONG_CORRELATION else max(1, round(units ** (1 / 3)))


def resample(
    sums: Floats, resamples: int, rng: np.random.Generator, begun: Floats | None = None, size: int | None = None
) -> Resampling | None:
    """Sums over units drawn with replacement, from the sums (units, fields) of each unit; None if there are too few.

    A window that starts and ends at arbitrary times has a partial unit at either end. For such a window, `begun` holds
    the sums (units, fields) of a first part of each unit, uniformly distributed in length; each resample then includes
    the first part of one unit and the remainder of another. `size` units are drawn together, by default as many as
    `group_size` says.

    Law: without `begun`, the mean over all resamples converges to the sums of the run itself.
    """
    units = len(sums)
    if units < MIN_UNITS:
        return None
    groups = units // (size or group_size(units))
    firsts = np.arange(groups) * units // groups
    grouped = np.add.reduceat(sums, firsts, axis=0)
    weights = rng.multinomial(groups, np.full(groups, 1 / groups), size=resamples)
    drawn = weights.astype(np.float64) @ grouped
    if begun is not None:
        first, last = rng.integers(0, units, (2, resamples))
        drawn += (sums - begun)[first] + begun[last]
    return Resampling(drawn, groups)


def find_interval(replicates: Floats, groups: int, level: float) -> tuple[float, float]:
    """The expanded percentile interval of the replicates of a statistic; NaN if no replicate is finite.

    With few groups, plain percentiles give intervals that are too narrow. They are widened by the factors of Student's
    t distribution and of the sample standard deviation. Source: Hesterberg, 2015, section 5.
    """
    known = replicates[np.isfinite(replicates)]
    if not len(known):
        return math.nan, math.nan
    tail = (1 - level) / 2
    moved = _NORMAL.cdf(math.sqrt(groups / (groups - 1)) * student_quantile(tail, groups - 1))
    low, high = np.quantile(known, [moved, 1 - moved])
    return float(low), float(high)


def student_quantile(probability: float, freedom: int) -> float:
    """The quantile of Student's t distribution, within 1 % for 5 or more degrees of freedom and up to 99.5 %.

    Source: the Cornish-Fisher expansion, Abramowitz and Stegun 26.7.5.
    """
    z = _NORMAL.inv_cdf(probability)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / freedom**power for power, term in enumerate(terms, 1))


# fields of the last axis of sums: node sums, these two, moments of each time scale, bytes of each rail while it is
# compared
DURATION, COUNT = range(FIELDS, FIELDS + 2)
FIRST_SCALE = FIELDS + 2
# steps represent the window if they cover at least this fraction of it; the second if some have a long hole
MOST, MOST_BROKEN = 0.8, 0.95
BLOCK_SECONDS = 1.0
# blocks of time span several steps, to make their phase within a step irrelevant
BLOCK_PERIODS = 3.0
GOLDEN = 0.6180339887498949
# steps with a smaller observed fraction are ignored
MIN_OBSERVED = 0.5


@dataclass(frozen=True, slots=True)
class Units:
    """The units of a window: `sums` is (units, fields), for steps or for blocks of time.

    `begun` holds the sums of a first part of each step, because a window usually begins and ends within a step.
    """

    steps: bool
    sums: Floats
    begun: Floats | None = None


class Sums:
    """Running sums of a window, for computing the sums of any part of it, with bounds between samples if needed."""

    def __init__(self, series: RailSeries, active_bytes_per_second: float, timescales_ns: Sequence[int]) -> None:
        self._series = series
        self._threshold = active_bytes_per_second
        scales = dict.fromkeys((*timescales_ns, *signature.TIMESCALES_NS))
        self.timescales_ns = tuple(scale for scale in scales if not scale % series.interval_ns)
        self._together = {
            int(rail): series.padded(group.together)
            for group in series.rails.groups
            if not group.together.all()
            for rail in group.rails
        }
        self.fields = FIRST_SCALE + moments.FIELDS * len(self.timescales_ns) + len(series.rails.names)

    def between(self, bounds: Floats) -> Floats:
        """Sums between consecutive bounds, which are positions in the series: (bounds - 1, fields)."""
        series, measured = self._series, self._series.measured
        out = np.empty((len(bounds) - 1, self.fields))
        out[:, DURATION] = np.diff(bounds) * series.interval_seconds
        out[:, COUNT] = 1.0
        out[:, : moments.FIELDS] = self._of_scale(1, bounds)
        out[:, OBSERVED] = out[:, COVERED] = _cut(measured, bounds)
        for way, field in enumerate((TRANSMIT, RECEIVE)):
            out[:, field] = _cut(series.directions[way] * measured, bounds)
        for index, scale_ns in enumerate(self.timescales_ns):
            ticks = scale_ns // series.interval_ns
            field = FIRST_SCALE + moments.FIELDS * index
            out[:, field : field + moments.FIELDS] = self._of_scale(ticks, bounds)
        for port, (rates, seconds) in enumerate(zip(series.rates, series.seconds, strict=True)):
            moved = (rates * seconds).sum(axis=0) * self._together.get(port, 1.0)
            out[:, port - len(series.rails.names)] = _cut(moved, bounds)
        return out

    def whole(self) -> Floats:
        """Sums of the whole window: (fields,)."""
        return np.asarray(self.between(np.array([0.0, len(self._series.whole)]))[0])

    def _of_scale(self, ticks: int, bounds: Floats) -> Floats:
        """Moments of the active bins of `ticks` samples: (bounds - 1, 4), 0 if the counters do not resolve them."""
        series = self._series
        # single samples are valid at any stride, unlike bins that divide samples; the daemon excludes both
        divides = ticks > 1 and (ticks % series.rails.strides[series.rails.ever_up]).any()
        if ticks < series.resolution_ticks or divides:
            return np.zeros((len(bounds) - 1, moments.FIELDS))
        values, seconds = series.bandwidth, series.measured
        if ticks > 1:
            missing = -len(values) % ticks
            values, seconds = moments.rebin(
                np.pad(values, (0, missing), constant_values=np.nan), np.pad(seconds, (0, missing)), ticks
            )
        active = values > self._threshold
        weight = np.where(active, seconds, 0.0)
        first = np.where(active, values, 0.0) * weight
        fields = {
            moments.COUNT: active.astype(np.float64),
            moments.SECONDS: weight,
            moments.FIRST: first,
            moments.SECOND: first * np.where(active, values, 0.0),
        }
        return np.stack([_cut(fields[field], bounds / ticks) for field in range(moments.FIELDS)], axis=1)


def _cut(values: Floats | Bools, bounds: Floats) -> Floats:
    running = running_sum(values)
    return np.diff(np.interp(bounds, np.arange(len(running)), running))


def split(sums: Sums, series: RailSeries, steps: Steps, period_seconds: float) -> tuple[Units, Floats]:
    """The units of the window (its steps if they fill it), and the sums (steps, fields) of its steps."""
    every, begun, unbroken = _sum_steps(sums, series, steps)
    # a long hole on the edge of a step hides the step, and one inside it does not: in the steps that are found, silence
    # would be missing less often than traffic
    whole_steps = every[unbroken] if np.count_nonzero(unbroken) >= MIN_UNITS else every
    seconds = series.ticks * series.interval_seconds
    if every[:, DURATION].sum() >= (MOST if unbroken.all() else MOST_BROKEN) * seconds:
        return Units(True, every, begun), whole_steps
    longest = BLOCK_SECONDS if np.isnan(period_seconds) else max(BLOCK_SECONDS, BLOCK_PERIODS * period_seconds)
    width = max(1, round(longest / series.interval_seconds))
    bounds = np.arange(series.lead, series.lead + series.ticks + 1, width, dtype=np.float64)
    blocks = sums.between(bounds) if len(bounds) > 1 else np.zeros((0, sums.fields))
    return Units(False, blocks[blocks[:, OBSERVED] > 0]), whole_steps


def _sum_steps(sums: Sums, series: RailSeries, steps: Steps) -> tuple[Floats, Floats, Bools]:
    """Sums of the sufficiently observed whole steps, and of a first part of each; and those without a long hole."""
    if len(steps.bounds) < 2:
        return np.zeros((0, sums.fields)), np.zeros((0, sums.fields)), np.zeros(0, dtype=np.bool_)
    # multiples of the golden ratio give evenly distributed lengths in no particular order
    part = np.arange(1, len(steps.bounds)) * GOLDEN % 1.0
    within = steps.bounds[:-1] + part * np.diff(steps.bounds)
    halves = sums.between(np.append(np.stack([steps.bounds[:-1], within], axis=1).ravel(), steps.bounds[-1]))
    whole, begun = halves[::2] + halves[1::2], halves[::2]
    whole[:, COUNT] = 1.0
    enough = steps.whole & (whole[:, OBSERVED] >= MIN_OBSERVED * whole[:, DURATION])
    broken = mark_long_runs(~series.whole, MAX_BRIDGED)
    return whole[enough], begun[enough], _cut(broken, steps.bounds)[enough] == 0


@dataclass(frozen=True, slots=True)
class UnitStatistics:
    """Statistics derived from the sums of units, for one span or many resampled spans: arrays (...).

    `fairness` is Jain's index of the rails' bytes, as in `join_fairness`. `node.burstiness_cv` is (..., timescales).
    """

    node: NodeStatistics
    fairness: Floats
    timescales_ns: tuple[int, ...]

    def variation(self, timescale_ns: int) -> Floats:
        """Coefficient of variation at a time scale; NaN if it is not a multiple of the interval."""
        if timescale_ns not in self.timescales_ns:
            return np.full_like(self.fairness, np.nan)
        return np.asarray(self.node.burstiness_cv[..., self.timescales_ns.index(timescale_ns)])


def describe_units(sums: Floats, series: RailSeries, timescales_ns: tuple[int, ...]) -> UnitStatistics:
    """The statistics of sums (..., fields), except the peak, which cannot be derived from sums."""
    count = len(series.rails.names)
    scales = sums[..., FIRST_SCALE : sums.shape[-1] - count].reshape(*sums.shape[:-1], -1, moments.FIELDS)
    nothing = np.full(sums.shape[:-1], np.nan)
    node = describe_node(sums[..., :FIELDS], nothing, scales, series.resolution_ticks == 1)
    transmit, receive = (
        way if there else nothing for way, there in zip((node.transmit, node.receive), series.recorded, strict=True)
    )
    fairness = measure_fairness(sums[..., sums.shape[-1] - count :], [group.rails for group in series.rails.groups])
    return UnitStatistics(replace(node, transmit=transmit, receive=receive), fairness, timescales_ns)


@dataclass(frozen=True, slots=True)
class StepStatistics:
    """Mean length, idle time and bytes of steps: arrays (...)."""

    seconds: Floats
    gap_seconds: Floats
    moved_bytes: Floats


def describe_steps(sums: Floats) -> StepStatistics:
    """The statistics of steps from their sums (..., fields)."""
    duration = moments.quotient(sums[..., DURATION], sums[..., COUNT])
    silent = 1.0 - moments.duty_cycle(sums[..., moments.SECONDS], sums[..., OBSERVED])
    mean = moments.quotient(sums[..., TRANSMIT] + sums[..., RECEIVE], sums[..., OBSERVED])
    return StepStatistics(duration, silent * duration, mean * duration)
