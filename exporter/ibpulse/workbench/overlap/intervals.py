"""Exact arithmetic of intervals of time: sets of half-open intervals in whole nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ibpulse.core.arrays import Counts, running_sum

EARLIEST_NS, LATEST_NS = -(2**62), 2**62


@dataclass(frozen=True, slots=True, eq=False)
class IntervalSet:
    """Disjoint intervals [start, end) in order, neither empty nor touching: int64 (count,), nanoseconds."""

    starts: Counts
    ends: Counts

    @property
    def total_ns(self) -> int:
        """Length of all intervals."""
        return int((self.ends - self.starts).sum())

    def lengths_ns(self, begins: Counts, ends: Counts) -> Counts:
        """Length of the part of the set in each window [begin, end): int64, the shape of `begins`."""
        before = running_sum(self.ends - self.starts)

        def until(times: Counts) -> Counts:
            place = np.searchsorted(self.starts, times, side="right")
            last_end = np.concatenate(([EARLIEST_NS], self.ends))[place]
            found: Counts = before[place] - np.maximum(0, last_end - times)
            return found

        return until(ends) - until(begins)

    def shift(self, by_ns: int) -> IntervalSet:
        """The set, later by that much."""
        return IntervalSet(self.starts + by_ns, self.ends + by_ns)

    def __and__(self, other: IntervalSet) -> IntervalSet:
        first = np.searchsorted(other.ends, self.starts, side="right")
        count = np.maximum(0, np.searchsorted(other.starts, self.ends, side="left") - first)
        mine = np.repeat(np.arange(self.starts.size), count)
        theirs = np.arange(mine.size) - np.repeat(np.cumsum(count) - count - first, count)
        starts = np.maximum(self.starts[mine], other.starts[theirs])
        return IntervalSet(starts, np.minimum(self.ends[mine], other.ends[theirs]))

    def __sub__(self, other: IntervalSet) -> IntervalSet:
        gaps = IntervalSet(np.concatenate(([EARLIEST_NS], other.ends)), np.concatenate((other.starts, [LATEST_NS])))
        return self & gaps

    def __or__(self, other: IntervalSet) -> IntervalSet:
        return union(np.concatenate((self.starts, other.starts)), np.concatenate((self.ends, other.ends)))


def union(starts: Counts, ends: Counts) -> IntervalSet:
    """The set of times in at least one interval [start, end); intervals may overlap and be in any order."""
    kept = ends > starts
    return merge(starts[kept], ends[kept])[0]


def merge(starts: Counts, ends: Counts, counts: Counts | None = None) -> tuple[IntervalSet, Counts]:
    """The union of intervals of which none is empty, and for each interval of it the sum of `counts` (1 by default)."""
    order = np.argsort(starts, kind="stable")
    first, last = starts[order], np.maximum.accumulate(ends[order])
    places = np.flatnonzero(np.concatenate(([True], first[1:] > last[:-1]))) if first.size else np.zeros(0, np.int64)
    after = np.concatenate((places[1:], [first.size])) if first.size else places
    sums = after - places if counts is None else np.add.reduceat(counts[order], places) if first.size else places
    return IntervalSet(first[places].astype(np.int64), last[after - 1].astype(np.int64)), sums.astype(np.int64)


EMPTY = IntervalSet(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
