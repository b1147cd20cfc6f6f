"""Judges single rates by the times of their reads: which are above the line rate, and how uncertain each one is.

A counter has its value at some moment of its read, so the time between two reads is uncertain by half the width of
each. A rate above the line rate by more than that means that the counter or the read was late: the sample is merged
with the fewest samples before it, at most `MAX_BEFORE`, whose mean is possible again. Merges are nested or apart from
each other, because a sum that fits does not begin within one that does not; the outermost counts. So the value of a
sample depends on `MAX_BEFORE` samples before and after it, and on nothing else.

A counter that increases by even more than the line carries in a second more has jumped: that is missing data.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Bools, Counts, Floats, Words

MAX_BEFORE = 4
LATE_NS = SECOND_NS
"""No counter is later than that, unless `MAX_BEFORE` samples take longer."""
FASTEST = 1e12
"""More than any port carries, for ports of unknown line rate."""
STEPS = 1000
"""Uncertainties are whole numbers of steps, rounded up: 0.1 % of the rate each."""
SURE_STEPS = 10
"""A rate that is at most this uncertain, 1 %, counts as it is in a peak."""
MAX_STEPS = 2**16 - 1

Steps = npt.NDArray[np.uint16]


def lower_bound(rates: npt.NDArray[np.floating[Any]], steps: Steps) -> Floats:
    """The part of rates that is certain, for peaks: the rate if it is certain to 1 %, otherwise its lower bound."""
    return np.where(steps > SURE_STEPS, rates / (1 + steps / STEPS), rates)


def uncertainty_steps(widths_ns: Counts, elapsed_ns: Counts, nominal_ns: int = 0) -> Steps:
    """The uncertainty of rates, from the widths of both reads together and the time between their midpoints.

    A sample that is shorter than `nominal_ns`, because the read before it was late, says nothing about the rest of
    that time: as the mean over `nominal_ns`, its rate is too high by up to what is missing ÷ what was measured.
    """
    short = np.maximum(nominal_ns - elapsed_ns, 0)
    steps: Counts = (widths_ns * (STEPS // 2) + short * STEPS) // np.maximum(elapsed_ns, 1) + 1
    return np.minimum(steps, MAX_STEPS).astype(np.uint16)


def limit_by_sample_before(
    steps: Steps, rates: npt.NDArray[np.floating[Any]], elapsed_ns: Counts, widths_ns: Counts, nominal_ns: int
) -> Steps:
    """The uncertainty `steps` (...) of samples, limited where the sample before each limits it.

    `rates`, NaN if missing, and `elapsed_ns` (..., 2) are those of the sample before and of each; `widths_ns` (...) is
    the duration of the first and the last of their three reads together. The mean over both samples is certain and
    lasts for at least `nominal_ns`, so the rate of the second one is too high by its distance from that mean at most.
    """
    moved = (rates * elapsed_ns).sum(axis=-1)
    certain = moved / np.maximum(elapsed_ns.sum(axis=-1) + widths_ns / 2, nominal_ns)
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = np.floor((rates[..., 1] / certain - 1) * STEPS) + 1
    # NaN without a sample before or without traffic
    limited: Floats = np.fmin(steps, np.maximum(distance, 1))
    return limited.astype(np.uint16)


@dataclass(frozen=True, slots=True)
class LineRate:
    """The line rate of a port: `rates[0]` before `ticks[0]`, then `rates[n]` from `ticks[n - 1]` on; inf if unknown."""

    rates: tuple[float, ...] = (math.inf,)
    ticks: tuple[int, ...] = ()

    @classmethod
    def of(cls, bytes_per_second: float | None) -> LineRate:
        """A line rate that does not change; None if it is unknown."""
        return cls((bytes_per_second or math.inf,))

    @property
    def lowest(self) -> float:
        """The lowest line rate of all time."""
        return min(*self.rates, FASTEST)

    def most(self, first_tick: int, last_tick: int, ns: int) -> float:
        """The most bytes that the highest line rate from `first_tick` to `last_tick` carries in this time."""
        low, high = (bisect.bisect_right(self.ticks, tick) for tick in (first_tick, last_tick))
        return min(max(self.rates[low : high + 1]), FASTEST) * ns / SECOND_NS

    def over(self, first_tick: int, count: int) -> Floats:
        """The line rate at `count` ticks from `first_tick` on."""
        which = np.searchsorted(self.ticks, np.arange(first_tick, first_tick + count), side="right")
        return np.array(self.rates)[which]


UNLIMITED = LineRate()


def lateness_ns(stride: int, interval_ns: int) -> int:
    """How late a counter may be that is sampled every `stride` ticks."""
    return max(LATE_NS, MAX_BEFORE * stride * interval_ns)


@dataclass(frozen=True, slots=True)
class Merges:
    """Merged samples of an array (ports, 2, ticks), and samples above the line rate that nothing explains.

    `places` (merges, 4) are port, direction, first and last tick of each; `counts` (merges,) the samples above the line
    rate in each. `unexplained` (samples, 3) are port, direction and tick.
    """

    places: Counts
    counts: Counts
    unexplained: Counts

    def __bool__(self) -> bool:
        return bool(len(self.places) or len(self.unexplained))

    def within(self, first: int, end: int) -> Merges:
        """Those of the ticks from `first` up to `end`, exclusive; ticks count from `first` on.

        A merge has all of its ticks, and counts where it ends.
        """
        if not self:
            return self
        begin, last, tick = self.places[:, 2], self.places[:, 3], self.unexplained[:, 2]
        kept = (last >= first) & (begin < end)
        places = self.places[kept] - np.array([0, 0, first, first], dtype=np.int64)
        unexplained = self.unexplained[(tick >= first) & (tick < end)] - np.array([0, 0, first], dtype=np.int64)
        return Merges(places, np.where(last < end, self.counts, 0)[kept], unexplained)

    def only(self, kept: Bools) -> Merges:
        """Those that end at one of the kept ticks (ports, ticks) or after the last tick."""
        if not self or not len(kept.T):
            return self
        ends = kept[self.places[:, 0], np.minimum(self.places[:, 3], len(kept.T) - 1)]
        return Merges(
            self.places[ends], self.counts[ends], self.unexplained[kept[self.unexplained[:, 0], self.unexplained[:, 2]]]
        )

    def marks(self, shape: tuple[int, ...]) -> Bools:
        """The merged ones of an array of this shape."""
        marks = np.zeros(shape, dtype=np.bool_)
        for row, way, first, last in self.places.tolist():
            marks[row, way, max(0, first) : last + 1] = True
        return marks

    def of_rows(self, rows: Counts) -> Merges:
        """The same with the ports renumbered: port n is `rows[n]`."""
        if not self:
            return self
        places, unexplained = self.places.copy(), self.unexplained.copy()
        places[:, 0], unexplained[:, 0] = rows[places[:, 0]], rows[unexplained[:, 0]]
        return Merges(places, self.counts, unexplained)


def join_merges(found: Sequence[Merges]) -> Merges:
    """All of them."""
    some = [each for each in found if each]
    if len(some) < 2:
        return some[0] if some else NO_MERGES
    return Merges(*(np.concatenate([getattr(each, name) for each in some]) for name in Merges.__slots__))


NO_MERGES = Merges(np.zeros((0, 4), dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros((0, 3), dtype=np.int64))


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples of ports with one stride: arrays (ports, 2, ticks), and `scale` (ports,), bytes per count.

    The sample of a tick, where `good`, is the difference to the read `stride` ticks before. Reads have a midpoint
    `time_ns`, a duration `width_ns` and a raw counter.
    """

    stride: int
    time_ns: Counts
    width_ns: Counts
    counters: Words
    scale: Counts
    good: Bools


@dataclass(frozen=True, slots=True)
class _Found:
    """Spans between two reads of one counter: indices of port and direction, first read and last read."""

    row: Counts
    way: Counts
    begin: Counts
    end: Counts

    def chosen(self, which: Bools | Counts) -> _Found:
        return _Found(self.row[which], self.way[which], self.begin[which], self.end[which])

    def keys(self, ticks: int) -> tuple[Counts, Counts]:
        """Numbers of both reads that increase from counter to counter and from tick to tick."""
        base = (self.row * 2 + self.way) * ticks
        return base + self.begin, base + self.end


def merge(samples: Samples, rates: Floats, steps: Steps, limits: Floats) -> Merges:
    """Merge the implausible ones of `rates`, and their uncertainties, both (ports, 2, ticks), in place.

    `limits` (ports, ticks) are the line rates, inf if unknown. A sample is only merged with samples under the same
    line rate.

    Law: the sum of rate x measured time of the samples does not change.
    """
    limits = _over_strides(limits, samples.stride)
    row, way, end = np.nonzero(rates > limits[:, None])
    found = _Found(row, way, end - samples.stride, end)
    found = found.chosen(np.flatnonzero(~_fits(samples, found, limits)))
    begin = _find_begins(samples, found, limits)
    merged, without = found.chosen(begin >= 0), found.chosen(begin < 0)
    merged = _Found(merged.row, merged.way, begin[begin >= 0], merged.end)
    ticks = rates.shape[2]
    outer = merged.chosen(_outermost(merged, ticks))
    _spread(samples, outer, rates, steps)
    begins, ends = outer.keys(ticks)
    # the merge that ends at or after each implausible sample explains it if it begins before
    _, alone = without.keys(ticks)
    place = np.searchsorted(ends, alone)
    inside = np.append(begins, np.iinfo(np.int64).max)[place] < alone
    counts = np.bincount(np.concatenate((np.searchsorted(ends, merged.keys(ticks)[1]), place[inside])), minlength=0)
    left = without.chosen(~inside)
    return Merges(
        np.stack((outer.row, outer.way, outer.begin + 1, outer.end), axis=1),
        counts.astype(np.int64),
        np.stack((left.row, left.way, left.end), axis=1),
    )


def _over_strides(limits: Floats, stride: int) -> Floats:
    """The highest line rate over the ticks of each sample."""
    highest = limits.copy()
    if (limits != limits[:, :1]).any():
        for back in range(1, min(stride, limits.shape[1])):
            np.maximum(highest[:, back:], limits[:, :-back], out=highest[:, back:])
    return highest


def _fits(samples: Samples, found: _Found, limits: Floats) -> Bools:
    """Whether the line rate explains the bytes of each span, given that the times of both reads are uncertain."""
    first, last = (found.row, found.way, found.begin), (found.row, found.way, found.end)
    # a counter may be about to show one more count at the first read
    moved = (samples.counters[last] - samples.counters[first]).astype(np.float64) - 1
    widths = samples.width_ns[first] + samples.width_ns[last]
    elapsed = (samples.time_ns[last] - samples.time_ns[first]) + widths / 2
    return np.asarray(moved * samples.scale[found.row] * SECOND_NS <= limits[found.row, found.end] * elapsed)


def _find_begins(samples: Samples, found: _Found, limits: Floats) -> Counts:
    """The read at which the merge of each implausible sample begins; -1 if there is none."""
    begin = np.full(len(found.end), -1, dtype=np.int64)
    left = np.arange(len(found.end))
    for before in range(1, MAX_BEFORE + 1):
        start = found.end[left] - (before + 1) * samples.stride
        left, start = left[start >= 0], start[start >= 0]
        row, way, end, sample = found.row[left], found.way[left], found.end[left], start + samples.stride
        whole = samples.good[row, way, sample] & (limits[row, sample] == limits[row, end])
        left, start = left[whole], start[whole]
        wider = _Found(found.row[left], found.way[left], start, found.end[left])
        fits = _fits(samples, wider, limits)
        begin[left[fits]] = start[fits]
        left = left[~fits]
    return begin


def _outermost(found: _Found, ticks: int) -> Bools:
    """The spans that are not within another one; they are in order of port, direction and end."""
    begins, ends = found.keys(ticks)
    later = np.minimum.accumulate(begins[::-1])[::-1]
    return np.append(later[1:] >= ends[:-1], np.ones(min(1, len(ends)), dtype=np.bool_))


def _spread(samples: Samples, found: _Found, rates: Floats, steps: Steps) -> None:
    """Set the mean rate and the uncertainty of each span at all of its samples."""
    first, last = (found.row, found.way, found.begin), (found.row, found.way, found.end)
    moved = (samples.counters[last] - samples.counters[first]).astype(np.float64) * samples.scale[found.row]
    elapsed = samples.time_ns[last] - samples.time_ns[first]
    mean = moved * float(SECOND_NS) / elapsed
    doubt = uncertainty_steps(samples.width_ns[first] + samples.width_ns[last], elapsed)
    for before in range(MAX_BEFORE + 1):
        at = found.end - before * samples.stride
        inside = at > found.begin
        where = found.row[inside], found.way[inside], at[inside]
        rates[where], steps[where] = mean[inside], doubt[inside]
