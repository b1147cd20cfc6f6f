"""Rates of one port over a long span, computed in float32 from records in their memory layout.

They differ from `rates` by less than 3e-6 of the rate, because of float32 rounding. Masks and uncertainties are only
computed where data is missing or a read took long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ibpulse.analysis.plausible import (
    NO_MERGES,
    STEPS,
    SURE_STEPS,
    UNLIMITED,
    LineRate,
    Merges,
    Pairs,
    Steps,
    limit_by_sample_before,
    lower_bound,
    uncertainty_steps,
)
from ibpulse.analysis.rates import Timing, rates
from ibpulse.arrays import Bools, Singles
from ibpulse.units import SECOND_NS

NOT_READ = -1
NO_GAPS = np.zeros(0, dtype=np.intp)
LONG_NS = 2**40
"""Stands for the time between two samples of which one is missing."""
CLEARLY = 1 - 1e-6
"""A float32 rate of at most this part of the line rate is not above it before rounding."""
HALF_SURE_STEPS = SURE_STEPS // 2
"""An uncertain sample is short by this much of its time, or has a long read by this much, or both."""


Detail = Literal["rates", "peaks", "uncertainty"]


@dataclass(frozen=True, slots=True)
class RateSeries:
    """The rates of one port: float32 (2, ticks), NaN where data is missing.

    `peaks` are those for maxima, as in `Rates`, unless only the rates were wanted. `steps` (2, ticks) are only there if
    they were wanted. In `merges` the port is 0.
    """

    bytes_per_second: Singles
    peaks: Singles
    merges: Merges = NO_MERGES
    steps: Steps | None = None

    def cut(self, span: slice, end: int) -> RateSeries:
        """The ticks of a span, missing from the tick `end` on."""
        found, same = self.bytes_per_second[:, span], self.peaks is self.bytes_per_second
        peaks = found if same else self.peaks[:, span]
        if end < span.stop:
            found[:, end - span.start :] = peaks[:, end - span.start :] = np.nan
        steps = None if self.steps is None else self.steps[:, span]
        return RateSeries(found, peaks, self.merges.within(span.start, min(span.stop, end)), steps)

    def only(self, kept: Bools) -> RateSeries:
        """The kept ticks (ticks,); the others are missing."""
        lost, same = np.float32(np.nan), self.peaks is self.bytes_per_second
        found = np.where(kept, self.bytes_per_second, lost)
        peaks = found if same else np.where(kept, self.peaks, lost)
        return RateSeries(found, peaks, self.merges.only(kept[None]), self.steps)


def rate_series(
    stamps: npt.NDArray[np.int64],
    counters: npt.NDArray[np.int64],
    present: Bools,
    scale: int,
    stride: int | npt.NDArray[np.int64],
    line: LineRate = UNLIMITED,
    first_tick: int = 0,
    detail: Detail = "peaks",
    interval_ns: int = 0,
) -> RateSeries:
    """Bytes per second at each tick; NaN in the first `stride` ticks.

    `stamps` is (ticks, 3), the monotonic ns before, between and after the two reads; `counters` is (ticks, 2), -1 if a
    counter was not read; `present` is (ticks,), as is `stride` if it changed. `line` is the line rate, `first_tick`
    the tick of the first of them. `detail` is the most that is needed: the rates, their peaks, or their uncertainties.
    Ticks are `interval_ns` apart, as in `Timing`.
    """
    found, exact = None, detail == "uncertainty"
    if not exact and isinstance(stride, int) and stride == 1 and len(present) > 1:
        nominal = interval_ns if detail == "peaks" else None
        found = _fast_series(stamps, counters, present, scale, line.lowest * CLEARLY, nominal)
    timing = Timing(stamps[None], [line], first_tick, exact, interval_ns)
    return found or _slow_series(stamps, counters, present, scale, np.array([stride]), timing)


def _fast_series(
    stamps: npt.NDArray[np.int64],
    counters: npt.NDArray[np.int64],
    present: Bools,
    scale: int,
    limit: float,
    nominal_ns: int | None,
) -> RateSeries | None:
    """The series of a port of stride 1, with peaks unless `nominal_ns` is None; None if a rate is above the limit."""
    out = np.empty((2, len(present)), dtype=np.float32)
    out[:, :1] = np.nan
    gaps = NO_GAPS
    if not present.all():
        lost = np.flatnonzero(~present)
        gaps = np.concatenate((lost[lost > 0] - 1, lost[lost < len(present) - 1]))
    # twice the midpoint of each read, to avoid rounding when halving
    instants = [stamps[:, 0] + stamps[:, 1], stamps[:, 1] + stamps[:, 2]]
    nearest, short = LONG_NS, [NO_GAPS]
    for direction in (0, 1):
        elapsed = instants[direction][1:] - instants[direction][:-1]
        moved = counters[1:, direction] - counters[:-1, direction]
        bad, least = _find_holes(moved, elapsed, counters[:, direction], gaps)
        nearest = min(nearest, least)
        # both in half nanoseconds
        shortest = (nominal_ns or 0) * 2 * STEPS // (STEPS + HALF_SURE_STEPS)
        if least <= shortest:
            short.append(np.flatnonzero(elapsed <= shortest) + 1)
        rate = np.divide(moved, elapsed, out=out[direction, 1:], dtype=np.float32, casting="unsafe")
        rate *= np.float32(2 * SECOND_NS * scale)
        if rate.max() > limit:
            return None
        if len(bad):
            rate[bad] = np.nan
    if nominal_ns is None:
        return RateSeries(out, out)
    ends = np.concatenate([*short, _ends_of_long_reads(instants[1] - instants[0], nearest // 2)])
    return RateSeries(out, _certain_part(out, stamps, ends, nominal_ns) if len(ends) else out)


def _find_holes(
    moved: npt.NDArray[np.int64],
    elapsed: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
    gaps: npt.NDArray[np.intp],
) -> tuple[npt.NDArray[np.intp], int]:
    """Indices of differences that are missing, which are neutralised in place, and the least time of the others."""
    unseen = counts[0] == NOT_READ
    if len(gaps):
        moved[gaps], elapsed[gaps] = 0, LONG_NS
        # an unread counter is -1 and thus appears as a decrease, unless it comes first or follows a gap
        unseen |= (counts[gaps + 1] == NOT_READ).any()
    least = int(elapsed.min())
    if not unseen and least > 0 and moved.min() >= 0:
        return gaps, least
    lost = counts == NOT_READ
    bad = np.flatnonzero(lost[1:] | lost[:-1] | (moved < 0) | (elapsed <= 0))
    elapsed[bad] = LONG_NS
    return np.concatenate((gaps, bad)), int(elapsed.min())


def _ends_of_long_reads(both_ns: npt.NDArray[np.int64], least: int) -> npt.NDArray[np.intp]:
    """The samples with a long read at either end.

    The reads of a tick take `both_ns` (ticks,) together; those of one direction are at least `least` ns apart.
    """
    long_ns = least * HALF_SURE_STEPS // STEPS
    if int(both_ns.max()) < long_ns:
        return NO_GAPS
    long = np.flatnonzero(both_ns >= long_ns)
    return np.concatenate((long[long > 0], long[long < len(both_ns) - 1] + 1))


def _certain_part(
    rates: Singles, stamps: npt.NDArray[np.int64], ends: npt.NDArray[np.intp], nominal_ns: int
) -> Singles:
    """The peaks of rates, which differ from them at `ends` only."""
    # both samples, of which the first may be missing: three reads of (2, ends)
    three = ends + np.array([[-2], [-1], [0]])
    reads = stamps[three].transpose(2, 0, 1)
    widths, middles = np.diff(reads, axis=0), (reads[1:] + reads[:-1]) >> 1
    elapsed = np.diff(middles, axis=1)
    steps = uncertainty_steps(widths[:, 1] + widths[:, 2], elapsed[:, 1], nominal_ns)
    pairs = Pairs(rates[:, three[1:]].swapaxes(1, 2), elapsed.swapaxes(1, 2), widths[:, 0] + widths[:, 2])
    short = elapsed[:, 1] < nominal_ns
    steps = np.where(short, limit_by_sample_before(steps, pairs, nominal_ns), steps)
    peaks = rates.copy()
    peaks[:, ends] = lower_bound(rates[:, ends], steps)
    return peaks


def _slow_series(
    stamps: npt.NDArray[np.int64],
    counters: npt.NDArray[np.int64],
    present: Bools,
    scale: int,
    stride: npt.NDArray[np.int64],
    timing: Timing,
) -> RateSeries:
    """The same from `rates`."""
    middles = (stamps[:, :-1] + stamps[:, 1:]) >> 1
    found = rates(
        middles.T[None],
        counters.view(np.uint64).T[None],
        ((counters != NOT_READ) & present[:, None]).T[None],
        np.array([scale]),
        stride,
        timing,
    )
    values = found.bytes_per_second[0].astype(np.float32)
    peaks = values if found.steps is None else found.peaks[0].astype(np.float32)
    return RateSeries(values, peaks, found.merges, found.steps[0] if timing.exact and found.steps is not None else None)
