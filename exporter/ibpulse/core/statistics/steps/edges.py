"""Finds where steps begin: by their shape in a periodic series, or after silences, with bounds of each edge.

`find_steps` follows the shape of a typical step through a series whose period is known, one step after the other. The
mean period gives the mean step length; the beginnings give the spread, which confidence intervals need. Its places are
in samples of the series.

`find_step_edges` finds when the traffic before a step ended, and when the step first moves bytes. A step begins after
a long silence. Its edges lie somewhere in their samples, but at the line rate their bytes need a part of it: `low` and
`high` are certain. `at` is an estimate between them: where the neighbouring samples are at a plateau, the bytes of the
sample at the edge say how long of it was busy. Samples are idle here if they are silent by `silence_level`, and active
if not. The level is relative to the highest rate alone: with a fixed least level, edges of slow traffic would lie
outside their bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Bools, Counts, Floats, running_sum
from ibpulse.core.statistics.steps.period import find_sampled_period
from ibpulse.core.statistics.steps.runs import find_runs, mark_long_runs, silence_level

# points per step for comparing shapes, each smoothed over a 24th of the step to average out layers and collectives
MAX_POINTS = 128
SMOOTHED = 24
# number of candidates for the typical step
TRIED = 5
# maximum number of steps averaged into the shape
SHAPE_STEPS = 400
# how far a step may deviate from the period, normally and after a lost step
REACH, LOST_REACH = 0.3, 0.5
# minimum fraction of the shape's variance that a step must share
MIN_LIKENESS = 0.2
# width of the edge on either side, as a fraction of a step
EDGE = 1 / 8
# a silence of a step is at least half as long as the long ones, and so many samples
LONG_QUANTILE, LONG_PART, MIN_IDLE = 0.9, 0.5, 3
# missing samples in a row that are bridged
MAX_MISSING = 5
# the sample next to an edge is at the plateau if it has this part of the highest of the next two
PLATEAU_PART = 0.8
IDLE, ACTIVE, MISSING = 0, 1, 2
# a silence that separates steps has at least this part of the usual length of the longest one of a step
MIN_GAP = 0.5
# of the periods, the longest silences of this part are at most as long as the usual one: some may hold none
USUAL_QUANTILE = 0.6


@dataclass(frozen=True, slots=True)
class Steps:
    """`bounds` (n,) are the places, in samples, at which steps begin; `whole` (n - 1,) is true where the span between
    two bounds is exactly one step. Elsewhere data is missing or the series does not resemble a step.
    """

    bounds: Floats
    whole: Bools


NONE = Steps(np.zeros(0), np.zeros(0, dtype=np.bool_))


def find_steps(values: Floats, period: float) -> Steps:
    """The steps of `values`, rates at equal intervals, NaN where data is missing, with a period of `period` samples.

    A typical step is matched against the whole series, then the mean of all matches is matched again. Its sharpest
    edge, the steepest rise or fall, is then located near each match. The edge is the bound of the step, interpolated
    between samples and accurate to about a tenth of a sample if it is sharp.

    Law: invariant under scaling of the values. The mean length of consecutive whole steps depends only on the first and
    the last bound, so errors of single bounds do not add up.
    """
    fold = max(1, int(period // MAX_POINTS))
    length = round(period / fold)
    signal, known = _fold(values, fold)
    if length < 2 or len(signal) < 4 * length or not known.any():
        return NONE
    width = max(1, round(length / SMOOTHED))
    signal = np.convolve(signal, np.full(width, 1 / width), "same")
    first = _most_alike(signal, length)
    shape = signal[first : first + length]
    for _ in range(2):
        places = _follow(_likeness(signal, shape), period / fold, float(first))
        shape = _mean_shape(signal, places, length, 0)
        first = round(places[len(places) // 2])
    return _sharpen(signal, known, places, period / fold, fold)


def _fold(values: Floats, fold: int) -> tuple[Floats, Bools]:
    """Means of `fold` samples each, with missing values interpolated linearly, and a mask of the known ones."""
    cut = values[: len(values) // fold * fold].reshape(-1, fold)
    hole = np.isnan(cut)
    known = np.asarray(~hole.any(axis=1))
    if not known.any():
        return np.zeros(len(cut)), known
    means = np.where(hole, 0.0, cut).mean(axis=1)
    at = np.arange(len(cut))
    return np.interp(at, at[known], means[known]), known


def _most_alike(signal: Floats, length: int) -> int:
    """Among a few places spread over the series, the one whose step matches the others best."""
    places = (len(signal) - length) * np.arange(1, 2 * TRIED, 2) // (2 * TRIED)
    blocks = (len(signal) - length + 1) // length
    found = []
    for place in places:
        likeness = _likeness(signal, signal[place : place + length])
        found.append(np.median(likeness[: blocks * length].reshape(blocks, length).max(axis=1)))
    return int(places[np.argmax(found)])


def _mean_shape(signal: Floats, places: Floats, length: int, margin: int) -> Floats:
    """The mean of the series from `margin` before some of the places to `margin` after their steps."""
    at = places[:: -(-len(places) // SHAPE_STEPS), None] + np.arange(-margin, length + margin)
    return np.asarray(np.interp(at, np.arange(len(signal)), signal).mean(axis=0))


def _likeness(signal: Floats, shape: Floats) -> Floats:
    """Fraction of the shape's variance that the series shares with it at each place: 1 for an exact match."""
    squares = running_sum(np.square(signal))
    energy = squares[len(shape) :] - squares[: -len(shape)]
    distance = energy - 2 * np.correlate(signal, shape, "valid") + np.square(shape).sum()
    spread = np.square(shape - shape.mean()).sum()
    return np.asarray(1.0 - distance / spread) if spread > 0 else np.zeros(len(energy))


def _follow(likeness: Floats, period: float, first: float) -> Floats:
    """The best matches of the shape, about a period apart, from `first` to both ends of the series."""
    before = _walk(likeness, -period, first)
    return np.array([*reversed(before), first, *_walk(likeness, period, first)])


def _walk(likeness: Floats, period: float, place: float) -> list[float]:
    found: list[float] = []
    sure = True
    while True:
        reach = abs(period) * (REACH if sure else LOST_REACH)
        place += period
        first, last = round(place - reach), round(place + reach)
        if first < 1 or last > len(likeness) - 2:
            return found
        peak, sure = _peak(likeness, first, last)
        place = peak if sure else place
        if sure:
            found.append(place)


def _peak(likeness: Floats, first: int, last: int) -> tuple[float, bool]:
    """The interpolated place of the highest likeness from `first` to `last`, and whether it is a peak."""
    top = first + int(likeness[first : last + 1].argmax())
    before, here, after = likeness[top - 1 : top + 2].tolist()
    bend = before - 2 * here + after
    if bend >= 0 or not first < top < last:
        return float(top), False
    return top + min(0.5, max(-0.5, (before - after) / (2 * bend))), here >= MIN_LIKENESS


def _sharpen(signal: Floats, known: Bools, places: Floats, period: float, fold: int) -> Steps:
    """Steps bounded by the sharpest edge of the mean step near each place."""
    length = round(period)
    width = max(1, int(length * EDGE))
    # half a step more on either side, to include an edge at the end of the shape completely
    margin = length // 2 + 2 * width
    inside = places[(places > margin) & (places < len(signal) - length - margin)]
    if not len(inside):
        return NONE
    wide = _mean_shape(signal, inside, length, margin)
    edge = _steepest(wide, width, margin, margin + length)
    likeness = _likeness(signal, wide[edge - 2 * width : edge + 2 * width])
    found = [_peak(likeness, first, first + 2 * width) for first in _firsts(places + edge - margin, width, likeness)]
    bounds = np.array([place for place, _ in found]) + 2 * width
    near = bounds.astype(np.intp)[:, None] + np.arange(-1, 2)
    sure = np.array([peak for _, peak in found], dtype=np.bool_) & known[np.clip(near, 0, len(known) - 1)].all(axis=1)
    one_step = np.abs(np.diff(bounds) / period - 1) < LOST_REACH
    return Steps(bounds * fold, sure[1:] & sure[:-1] & one_step)


def _firsts(edges: Floats, width: int, likeness: Floats) -> list[int]:
    """Start of the search for the edge's shape, four widths long, near each edge."""
    firsts = np.round(edges).astype(np.intp) - 3 * width
    inside = (firsts >= 1) & (firsts + 2 * width <= len(likeness) - 2)
    return [int(first) for first in firsts[inside]]


def _steepest(shape: Floats, width: int, first: int, end: int) -> int:
    """The place from `first` to before `end` where the means over `width` before and after it differ most."""
    sums = running_sum(shape)
    at = np.arange(first, end)
    contrast = sums[at + width] - 2 * sums[at] + sums[at - width]
    return int(at[np.abs(contrast).argmax()])


@dataclass(frozen=True, slots=True)
class EdgeTimes:
    """Times of edges, each (steps,), in ns after the beginning of the first sample; NaN if unknown.

    The edge lies between `low` and `high`, most likely at `at`. `resolved` is false where `at` is only the middle.
    """

    low: Floats
    at: Floats
    high: Floats
    resolved: Bools

    def __len__(self) -> int:
        return len(self.at)

    def chosen(self, which: Bools | slice) -> EdgeTimes:
        """Those of some steps."""
        return EdgeTimes(self.low[which], self.at[which], self.high[which], self.resolved[which])


@dataclass(frozen=True, slots=True)
class StepTimes:
    """The steps of a node in order of time, by its own clock.

    `end_before` is the end of the traffic before the silence that a step follows, in either direction; `transmit` and
    `receive` are the first edges after it. Samples are `interval_ns` long.
    """

    end_before: EdgeTimes
    transmit: EdgeTimes
    receive: EdgeTimes
    interval_ns: int

    def __len__(self) -> int:
        return len(self.end_before)

    def chosen(self, which: Bools) -> StepTimes:
        """Some of the steps."""
        return self._with(lambda edge: edge.chosen(which))

    def shifted(self, by_ns: float) -> StepTimes:
        """The same times after another origin."""
        return self._with(lambda edge: EdgeTimes(edge.low + by_ns, edge.at + by_ns, edge.high + by_ns, edge.resolved))

    def _with(self, change: Callable[[EdgeTimes], EdgeTimes]) -> StepTimes:
        return StepTimes(change(self.end_before), change(self.transmit), change(self.receive), self.interval_ns)


@dataclass(frozen=True, slots=True)
class StepEdges:
    """The steps of a node with their place in its samples.

    Step i follows the silence from sample `first_idle` to before `first_active`, each (steps,). `transmit_end` and
    `receive_end` are the ends of both directions before that silence, of which `times.end_before` is the later one.
    """

    first_idle: Counts
    first_active: Counts
    times: StepTimes
    transmit_end: EdgeTimes
    receive_end: EdgeTimes

    def __len__(self) -> int:
        return len(self.times)


def find_step_edges(
    rates: npt.NDArray[np.floating], interval_ns: int, line_rate: float | None = None, least_idle: int | None = None
) -> StepEdges:
    """The steps in the rates of a node: (2, samples), transmit and receive in bytes per second, NaN for missing data.

    `line_rate` is that of one direction; without it, an edge may lie anywhere in its sample. Steps are apart by
    silences of at least `least_idle` samples, by default half as many as the long ones have.
    """
    highest = float(np.nanmax(rates, initial=0.0))
    idle_below = float(silence_level(highest))
    both = np.max(rates, axis=0, initial=0.0)
    states = np.where(np.isnan(rates).any(axis=0), MISSING, np.where(both > idle_below, ACTIVE, IDLE))
    first_idle, first_active = _find_silences(states, least_idle)
    until = np.append(first_idle[1:], rates.shape[1])[: len(first_idle)]
    line = math.inf if line_rate is None else max(line_rate, highest)
    ways = [_Way(way, idle_below, interval_ns, line) for way in rates.astype(np.float64, copy=False)]
    transmit, receive = (way.begins(first_active, until) for way in ways)
    sent, received = (way.ends(first_idle) for way in ways)
    times = StepTimes(_join_ends(sent, received), transmit, receive, interval_ns)
    return StepEdges(first_idle, first_active, times, sent, received)


def _find_silences(states: Counts, least_idle: int | None) -> tuple[Counts, Counts]:
    """The long silences between active samples: the first idle sample, and the first active one after it.

    Missing samples at their edges are included. Silences with many missing samples in a row, and those at the beginning
    or the end of all samples, are left out.
    """
    first, end = find_runs(states != ACTIVE)
    inner = (first > 0) & (end < len(states)) & (end - first >= MIN_IDLE)
    missing = states == MISSING
    if missing.any():
        inner &= _count(mark_long_runs(missing, MAX_MISSING), first, end) == 0
        inner &= _count(missing, first, end) < end - first
    first, end = first[inner], end[inner]
    if not len(first):
        return first, end
    lengths = end - first
    least = LONG_PART * float(np.quantile(lengths, LONG_QUANTILE)) if least_idle is None else least_idle
    long = lengths >= max(MIN_IDLE, least)
    return first[long], end[long]


def _count(flags: Bools, first: Counts, end: Counts) -> Counts:
    """The number of flags within each span."""
    before: Counts = running_sum(flags)
    return before[end] - before[first]


def _join_ends(one: EdgeTimes, other: EdgeTimes) -> EdgeTimes:
    """The later of the ends of both directions."""
    later = np.isnan(one.at) | (other.at > one.at)
    known = np.where(np.isnan(other.at), one.at, np.where(later, other.at, one.at))
    return EdgeTimes(
        np.fmax(one.low, other.low), known, np.fmax(one.high, other.high), np.where(later, other.resolved, one.resolved)
    )


class _Way:
    """One direction of a node; samples end one interval after they begin."""

    def __init__(self, rates: Floats, idle_below: float, interval_ns: int, line_rate: float) -> None:
        self._rates, self._interval, self._line = rates, interval_ns, line_rate
        self._active = np.flatnonzero(rates > idle_below)
        self._known = np.flatnonzero(~np.isnan(rates))

    def begins(self, first: Counts, until: Counts) -> EdgeTimes:
        """When it begins in samples from `first` to before `until`: after its last idle sample."""
        places = np.searchsorted(self._active, first)
        at = np.append(self._active, np.iinfo(np.int64).max)[places]
        found = at < until
        at = np.where(found, at, first)
        # the last known sample before, -1 if there is none
        known = np.append(self._known, -1)[np.searchsorted(self._known, at) - 1]
        found &= at - known - 1 <= MAX_MISSING
        low, high = (known + 1.0) * self._interval, (at + 1.0 - self._busy(at, self._line)) * self._interval
        plateau = self._plateau(at, 1)
        estimate = (at + 1.0 - self._busy(at, plateau)) * self._interval
        return self._bound(low, high, estimate, found, np.isfinite(plateau) & (known == at - 1))

    def ends(self, first_idle: Counts) -> EdgeTimes:
        """When the traffic before a silence ended: in or after its last active sample, before the first idle one."""
        places = np.searchsorted(self._active, first_idle) - 1
        found = places >= 0
        last = np.append(self._active, 0)[places]
        known = np.append(self._known, len(self._rates))[np.searchsorted(self._known, last + 1)]
        found &= known - last - 1 <= MAX_MISSING
        low, high = (last + self._busy(last, self._line)) * self._interval, known * float(self._interval)
        plateau = self._plateau(last, -1)
        estimate = (last + self._busy(last, plateau)) * self._interval
        return self._bound(low, high, estimate, found, np.isfinite(plateau) & (known == last + 1))

    def _busy(self, at: Counts, rate: Floats | float) -> Floats:
        """The part of a sample in which its bytes pass at a rate."""
        return np.minimum(1.0, np.nan_to_num(self._rates[at] / rate))

    def _plateau(self, at: Counts, way: int) -> Floats:
        """The rate on the busy side of an edge; infinite if the next sample on that side is not at a plateau."""
        beyond = [self._rate_at(at + way * steps) for steps in (1, 2)]
        highest = np.fmax(*beyond)
        steady = (beyond[0] >= PLATEAU_PART * highest) & (beyond[0] >= PLATEAU_PART * self._rates[at])
        return np.where(steady & (highest > 0), np.fmax(highest, self._rates[at]), np.inf)

    def _rate_at(self, at: Counts) -> Floats:
        inside = (at >= 0) & (at < len(self._rates))
        return np.where(inside, self._rates[np.clip(at, 0, len(self._rates) - 1)], np.nan)

    @staticmethod
    def _bound(low: Floats, high: Floats, estimate: Floats, found: Bools, resolved: Bools) -> EdgeTimes:
        at = np.where(resolved, np.clip(estimate, low, high), (low + high) / 2)
        low, at, high = (np.where(found, each, np.nan) for each in (low, at, high))
        return EdgeTimes(low, at, high, resolved & found)


def find_least_idle(rates: Floats, idle_below: float, interval_ns: int) -> int | None:
    """The shortest silence, in samples, that separates the steps of a group, by their period; None without one.

    `rates` (samples,) is the sum over the group in the direction that carries more, NaN for missing data. Most steps
    have many short pauses and one long one. What is before the first traffic and after the last says nothing about
    steps.
    """
    active = rates > idle_below
    places = np.flatnonzero(active)
    if not len(places):
        return None
    inside = slice(places[0], places[-1] + 1)
    rates, active = rates[inside], active[inside]
    known = ~np.isnan(rates)
    found = find_sampled_period([(np.where(active, rates, 0.0), known)], interval_ns / SECOND_NS)
    first, end = find_runs(~active)
    if not np.isfinite(found.seconds) or not len(first):
        return None
    period = found.seconds * SECOND_NS / interval_ns
    # the longest silence that ends in each period
    longest = np.zeros(int(len(rates) // period) + 1)
    np.maximum.at(longest, (end // period).astype(np.int64), end - first)
    # a period without any traffic is part of a stall
    moving = np.bincount((np.flatnonzero(active) // period).astype(np.int64), minlength=len(longest)) > 0
    longest, moving = (longest[:-1], moving[:-1]) if len(longest) > 1 else (longest, moving)
    usual = float(np.quantile(longest[moving], USUAL_QUANTILE)) if moving.any() else 0.0
    return max(MIN_IDLE, round(MIN_GAP * usual)) if usual else None
