"""The pauses of a series, and its regular steps: those of about the same length, each from its first traffic on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ibpulse.analysis.steps import Steps
from ibpulse.arrays import Bools, Counts, Floats

# a step of this fraction of the usual length, more or less, is regular; measured jobs vary by 2 to 10 %
TOLERANCE = 0.2
# so many steps of one length in a row are no accident
LEAST_STEPS = 3
# a silence of at least this fraction of the usual one can precede a step
LEAST_GAP = 0.5
# the silence between steps is this many times as long as the next longest in a step
DISTINCT = 2
# a silence separates steps if it does so in this fraction of them
LEAST_SEPARATED = 0.8


@dataclass(frozen=True, slots=True)
class Pauses:
    """Runs of samples that are not active, in order: sample `first` to before `end`, each (pauses,).

    `missing` is the number of their samples that are missing, `tail` the number of silent ones directly before `end`.
    """

    first: Counts
    end: Counts
    missing: Counts
    tail: Counts

    @property
    def samples(self) -> Counts:
        """Their lengths: (pauses,)."""
        return self.end - self.first


def find_pauses(rates: Floats, active_bytes_per_second: float) -> Pauses:
    """The pauses of rates (samples,), NaN where data is missing."""
    first, end = find_runs(~(rates > active_bytes_per_second))
    missing = np.isnan(rates)
    count = np.concatenate(([0], np.cumsum(missing)))
    newest = np.maximum.accumulate(np.where(missing, np.arange(len(rates)), -1)) if len(rates) else count
    tail = np.minimum(end - first, end - 1 - newest[end - 1])
    return Pauses(first, end, count[end] - count[first], tail)


def find_runs(mask: Bools) -> tuple[Counts, Counts]:
    """The first sample and the end of each run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False]))))
    return edges[::2], edges[1::2]


@dataclass(frozen=True, slots=True)
class RegularSteps:
    """Steps of about the same length: from sample `begin` to before `end`, each (steps,), in order.

    `length` is the usual length in samples, `gap` the usual length of the longest silence in a step. If steps begin
    after that silence, `visible` is true; otherwise each begins at some edge within its traffic.
    """

    begin: Floats
    end: Floats
    length: float
    gap: float
    visible: bool

    def in_a_row(self) -> int | None:
        """Index of the first of `LEAST_STEPS` steps of which each begins where the one before it ends; None without."""
        joined = np.concatenate(([False], self.begin[1:] == self.end[:-1]))
        run = 0
        for index, follows in enumerate(joined.tolist()):
            run = run + 1 if follows else 1
            if run == LEAST_STEPS:
                return index - LEAST_STEPS + 1
        return None

    def join(self, others: RegularSteps) -> RegularSteps:
        """These steps and others, which do not overlap them."""
        order = np.argsort(np.concatenate((self.begin, others.begin)))
        begin, end = (np.concatenate(pair)[order] for pair in ((self.begin, others.begin), (self.end, others.end)))
        return replace(self, begin=begin, end=end, visible=self.visible and others.visible)

    def between(self, first: float, end: float) -> int:
        """The number of steps that begin and end in a part of the series."""
        return int(np.count_nonzero((self.begin >= first) & (self.end <= end)))


NO_STEPS = RegularSteps(np.zeros(0), np.zeros(0), np.nan, 0.0, False)


def find_regular_steps(found: Steps, pauses: Pauses, first: int) -> RegularSteps:
    """The steps of about the same length in traffic that begins at sample `first`.

    `found` bounds a step by its sharpest edge, which can lie anywhere in it. Here a step begins with its first active
    sample after the longest silence of each step, and the first steps, which have no edge on both sides, are added.
    """
    lengths = np.diff(found.bounds)
    if np.count_nonzero(found.whole) < LEAST_STEPS:
        return NO_STEPS
    length = float(np.median(lengths[found.whole]))
    regular = np.flatnonzero(found.whole & _alike(lengths, length))
    if len(regular) < LEAST_STEPS:
        return NO_STEPS
    bounds = np.stack((found.bounds[regular], found.bounds[regular + 1]))
    longest = [_longest_pauses(pauses, begin, end) for begin, end in bounds.T.tolist()]
    gap, next_gap = (
        float(np.median([pauses.samples[found[place]] if place < len(found) else 0 for found in longest]))
        for place in range(2)
    )
    anchors = np.unique([pauses.end[found[0]] for found in longest if found]).astype(np.float64)
    followed = np.count_nonzero(np.diff(regular) == 1)
    # a silence that is now here, now there in a step does not separate steps
    separated = np.count_nonzero(_alike(np.diff(anchors), length)) >= LEAST_SEPARATED * followed
    if not (gap >= DISTINCT * next_gap and gap and separated):
        return RegularSteps(bounds[0], bounds[1], length, gap, False)
    anchors = np.concatenate((_earlier(anchors[0], length, gap, pauses, first), anchors))
    kept = _alike(np.diff(anchors), length)
    return RegularSteps(anchors[:-1][kept], anchors[1:][kept], length, gap, True)


def _alike(lengths: Floats, length: float) -> Bools:
    return np.asarray(np.abs(lengths / length - 1) <= TOLERANCE)


def _longest_pauses(pauses: Pauses, begin: float, end: float) -> list[int]:
    """The two longest pauses without missing data whose middle lies between two bounds, which can be their edges."""
    low, high = np.searchsorted(pauses.first + pauses.end, (2 * begin, 2 * end)).tolist()
    whole = [index for index in range(low, high) if not pauses.missing[index]]
    return sorted(whole, key=lambda index: -int(pauses.samples[index]))[:2]


def _earlier(begin: float, length: float, gap: float, pauses: Pauses, first: int) -> list[float]:
    """Steps before the one at `begin`: one length before it ends a similar silence, or the traffic begins."""
    found: list[float] = []
    while True:
        low, high = np.searchsorted(pauses.end, (begin - (1 + TOLERANCE) * length, begin - (1 - TOLERANCE) * length))
        fits = [n for n in range(low, high) if pauses.end[n] >= first and pauses.samples[n] >= LEAST_GAP * gap]
        if not fits:
            return found[::-1]
        begin = float(pauses.end[max(fits, key=lambda n: int(pauses.samples[n]))])
        found.append(begin)
