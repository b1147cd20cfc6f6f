"""Finds the steps of a node in its samples: when the traffic before a step ended, and when the step first moves bytes.

A step begins after a long silence. Its edges lie somewhere in their samples, but at the line rate their bytes need a
part of it: `low` and `high` are certain. `at` is an estimate between them: where the neighbouring samples are at a
plateau, the bytes of the sample at the edge say how long of it was busy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ibpulse.arrays import Bools, Counts, Floats

# of the highest rate of the node; below it, a sample is idle. What a node sends ahead into buffers is more than that:
# 16 MiB are 4 % of a sample at 40 GB/s
IDLE_PART = 0.01
# a silence of a step is at least half as long as the long ones, and so many samples
LONG_QUANTILE, LONG_PART, FEWEST_IDLE = 0.9, 0.5, 3
# missing samples in a row that are bridged
MOST_MISSING = 5
# the sample next to an edge is at the plateau if it has this part of the highest of the next two
PLATEAU_PART = 0.8
IDLE, ACTIVE, MISSING = 0, 1, 2


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
        ends, transmit, receive = (
            EdgeTimes(each.low[which], each.at[which], each.high[which], each.resolved[which])
            for each in (self.end_before, self.transmit, self.receive)
        )
        return StepTimes(ends, transmit, receive, self.interval_ns)

    def shifted(self, by_ns: float) -> StepTimes:
        """The same times after another origin."""
        ends, transmit, receive = (
            EdgeTimes(each.low + by_ns, each.at + by_ns, each.high + by_ns, each.resolved)
            for each in (self.end_before, self.transmit, self.receive)
        )
        return StepTimes(ends, transmit, receive, self.interval_ns)


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
    idle_below = IDLE_PART * highest
    first_idle, first_active = _find_silences(_find_states(rates, idle_below), least_idle)
    until = np.append(first_idle[1:], rates.shape[1])[: len(first_idle)]
    line = math.inf if line_rate is None else max(line_rate, highest)
    ways = [_Way(way, idle_below, interval_ns, line) for way in rates.astype(np.float64, copy=False)]
    transmit, receive = (way.begins(first_active, until) for way in ways)
    sent, received = (way.ends(first_idle) for way in ways)
    times = StepTimes(_join_ends(sent, received), transmit, receive, interval_ns)
    return StepEdges(first_idle, first_active, times, sent, received)


def _find_states(rates: npt.NDArray[np.floating], idle_below: float) -> Counts:
    both = np.max(rates, axis=0, initial=0.0)
    return np.where(np.isnan(rates).any(axis=0), MISSING, np.where(both > idle_below, ACTIVE, IDLE))


def _find_silences(states: Counts, least_idle: int | None) -> tuple[Counts, Counts]:
    """The long silences between active samples: the first idle sample, and the first active one after it.

    Missing samples at their edges are included. Silences with many missing samples in a row, and those at the beginning
    or the end of all samples, are left out.
    """
    active = np.flatnonzero(states == ACTIVE)
    apart = np.flatnonzero(np.diff(active) > FEWEST_IDLE)
    first, end = active[apart] + 1, active[apart + 1]
    if not len(first):
        return first, end
    missing = states == MISSING
    if missing.any():
        known = _longest_runs(missing, first, end) <= MOST_MISSING
        known &= np.add.reduceat((~missing).astype(np.int64), _pairs(first, end))[::2] > 0
        first, end = first[known], end[known]
    if not len(first):
        return first, end
    lengths = end - first
    least = LONG_PART * float(np.quantile(lengths, LONG_QUANTILE)) if least_idle is None else least_idle
    long = lengths >= max(FEWEST_IDLE, least)
    return first[long], end[long]


def _pairs(first: Counts, end: Counts) -> Counts:
    """Bounds for `reduceat`; every second result belongs to a silence."""
    return np.stack([first, end], axis=1).ravel()


def _longest_runs(flags: Bools, first: Counts, end: Counts) -> Counts:
    """The length of the longest run of flags within each span."""
    places = np.arange(len(flags))
    last_clear = np.maximum.accumulate(np.where(flags, -1, places))
    return np.maximum.reduceat(places - last_clear, _pairs(first, end))[::2]


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
        found &= at - known - 1 <= MOST_MISSING
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
        found &= known - last - 1 <= MOST_MISSING
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
