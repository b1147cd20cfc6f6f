"""Splits a time range into units for resampling, steps or blocks of time, whose sums yield its statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ibpulse.core.arrays import Bools, Floats
from ibpulse.core.statistics import moments, signature
from ibpulse.core.statistics.balance import measure_fairness
from ibpulse.core.statistics.bootstrap import MIN_UNITS
from ibpulse.core.statistics.node_statistics import (
    COVERED,
    FIELDS,
    OBSERVED,
    RECEIVE,
    TRANSMIT,
    NodeStatistics,
    describe_node,
)
from ibpulse.core.statistics.rail_series import RailSeries
from ibpulse.core.statistics.steps.edges import Steps
from ibpulse.core.statistics.steps.runs import MAX_BRIDGED, mark_long_runs

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
        if ticks < series.resolution_ticks or (ticks > 1 and ticks % series.common_stride):
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
    running = np.concatenate(([0.0], np.cumsum(values)))
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
