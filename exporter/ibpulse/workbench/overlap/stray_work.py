"""Finds GPU work whose times are far from all other work of a trace, because the profiler wrote wrong times."""

from __future__ import annotations

import numpy as np

from ibpulse.workbench.overlap.intervals import IntervalSet

FAR_NS = 10**9
FAR_FROM_STEPS, FAR_FROM_WORK = 1, 10
"""Stray work is farther away than so many times the length of the rest, with steps and without."""
MOST_STRAY = 0.01
"""Without steps, more work than this share of the rest is no error."""


def find_core(work: IntervalSet, steps: IntervalSet) -> tuple[int, int]:
    """The begin and the end of the work without stray work; `work` is not empty."""
    every = work | steps
    cuts = np.flatnonzero(every.starts[1:] - every.ends[:-1] > FAR_NS)
    begins = every.starts[np.concatenate(([0], cuts + 1))]
    ends = every.ends[np.concatenate((cuts, [every.ends.size - 1]))]
    busy = work.lengths_ns(begins, ends)
    in_steps = steps.lengths_ns(begins, ends) > 0
    first = last = int(busy.argmax())
    while True:
        length = int(ends[last] - begins[first])
        reach = max(FAR_NS, length * (FAR_FROM_STEPS if in_steps[first : last + 1].any() else FAR_FROM_WORK))
        before = int(begins[first] - ends[first - 1]) if first else reach + 1
        after = int(begins[last + 1] - ends[last]) if last + 1 < begins.size else reach + 1
        if min(before, after) > reach:
            break
        first, last = (first - 1, last) if before <= after else (first, last + 1)
    inside = int(busy[first : last + 1].sum())
    # if the steps are elsewhere, or the rest is much, all of it is work of the program
    if not in_steps[first : last + 1].any() and (in_steps.any() or int(busy.sum()) - inside > MOST_STRAY * inside):
        return int(work.starts[0]), int(work.ends[-1])
    return int(begins[first]), int(ends[last])
