"""Rates over spans of ticks, faster or more exact than `rates`.

`draft_series` and `finish_series`: ports over a long span, in float32 from records in their memory layout. They differ
from `rates` by less than 3e-6 of the rate, because of float32 rounding. Masks and uncertainties are only computed where
data is missing or a read took long.

`plain_peaks`: the peaks of short spans that are read several times a second, where each operation on arrays costs more
than its arithmetic.

`common_rates`: the rates of all ports between common instants, from those between the reads of each port. The reads of
one tick follow each other, so a burst that begins on all ports at once begins within one sample of the first port and
another one of the last. In the sum over the ports, every edge is then spread over the time from the first to the last
read, and the duty cycle and the variation of the sum are too high. Here, each counter is taken to the mean read time of
its tick. Linear interpolation would spread each edge over two samples; instead, a sample that lies between its
neighbours holds the rate of the one up to an edge and that of the other after it, where its own bytes place the edge.
This is exact for traffic that is constant for at least two samples at a time. Bytes only change samples: their sum
stays the same.

A counter has its value at any moment of its read, so its edge may be placed too early or too late. A burst that begins
on all ports just after a common instant would seem to begin before it on some of them, and make a silent sample an
active one. Where edges are too near to the instant to tell, all of them together decide on which side they are; if
even these cannot tell, at the instant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Bools, Counts, Floats, Rows, Singles
from ibpulse.core.statistics import plausible
from ibpulse.core.statistics.rates import Timing, rates

NOT_READ = -1
NO_GAPS = np.zeros(0, dtype=np.intp)
LONG_NS = 2**40
"""Stands for the time between two samples of which one is missing."""
CLEARLY = 1 - 1e-6
"""A float32 rate of at most this part of the line rate is not above it before rounding."""


Detail = Literal["rates", "peaks", "uncertainty"]


@dataclass(frozen=True, slots=True)
class RateSeries:
    """The rates of one port: float32 (2, ticks), NaN where data is missing.

    `peaks` are those for maxima, as in `Rates`, unless only the rates were wanted. `steps` (2, ticks) are only there if
    they were wanted. In `merges` the port is 0.
    """

    bytes_per_second: Singles
    peaks: Singles
    merges: plausible.Merges = plausible.NO_MERGES
    steps: plausible.Steps | None = None

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


@dataclass(frozen=True, slots=True)
class UnsureSamples:
    """Samples that may be uncertain by more than 1 %: the ticks at which they end, (samples,), and the stamps of reads.

    `reads` (3, 3, samples) are those of the two samples before each and of itself: stamp by sample.
    """

    ends: Rows
    reads: Counts


@dataclass(frozen=True, slots=True)
class SeriesDraft:
    """The series of one port before the peaks of its unsure samples, if any, are lowered to the certain part."""

    series: RateSeries
    unsure: UnsureSamples | None = None


def draft_series(
    stamps: Counts,
    counters: Counts,
    present: Bools,
    scale: int,
    stride: int | Counts,
    line: plausible.LineRate,
    first_tick: int,
    detail: Detail,
    interval_ns: int,
) -> SeriesDraft:
    """The draft of bytes per second at each tick, for `finish_series`; NaN in the first `stride` ticks.

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
    return found or SeriesDraft(_slow_series(stamps, counters, present, scale, np.array([stride]), timing))


def finish_series(drafts: Sequence[SeriesDraft], nominal_ns: int) -> list[RateSeries]:
    """The series of drafts whose ticks are `nominal_ns` apart. All of them together cost little more than one."""
    unsure = [(draft.series.bytes_per_second, draft.unsure) for draft in drafts if draft.unsure is not None]
    if not unsure:
        return [draft.series for draft in drafts]
    pairs = np.concatenate([rates.take(some.ends + np.array([[-1], [0]]), axis=1) for rates, some in unsure], axis=2)
    certain = _certain_part(pairs, np.concatenate([some.reads for _, some in unsure], axis=2), nominal_ns)
    found, begin = [], 0
    for draft in drafts:
        series = draft.series
        if draft.unsure is not None:
            peaks, end = series.bytes_per_second.copy(), begin + len(draft.unsure.ends)
            peaks[:, draft.unsure.ends] = certain[:, begin:end]
            series, begin = replace(series, peaks=peaks), end
        found.append(series)
    return found


def _fast_series(
    stamps: Counts, counters: Counts, present: Bools, scale: int, limit: float, nominal_ns: int | None
) -> SeriesDraft | None:
    """The draft of a port of stride 1, with peaks unless `nominal_ns` is None; None if a rate is above the limit."""
    out = np.empty((2, len(present)), dtype=np.float32)
    out[:, :1] = np.nan
    gaps = NO_GAPS
    if not present.all():
        lost = np.flatnonzero(~present)
        gaps = np.concatenate((lost[lost > 0] - 1, lost[lost < len(present) - 1]))
    times, counts = stamps.T, counters.T
    # twice the midpoint of each read, to avoid rounding when halving
    instants = times[:-1] + times[1:]
    elapsed, moved = instants[:, 1:] - instants[:, :-1], counts[:, 1:] - counts[:, :-1]
    bad, least = _find_holes(moved, elapsed, counts, gaps)
    rate = np.divide(moved, elapsed, out=out[:, 1:], dtype=np.float32, casting="unsafe")
    rate *= np.float32(2 * SECOND_NS * scale)
    if rate.max() > limit:
        return None
    if len(gaps):
        rate[:, gaps] = np.nan
    if bad is not None:
        rate[bad] = np.nan
    if nominal_ns is None:
        return SeriesDraft(RateSeries(out, out))
    ends = _find_uncertain(elapsed, np.maximum(times[1], times[2]) - times[0], least, nominal_ns)
    return _with_reads(RateSeries(out, out), times, ends, nominal_ns)


def _find_holes(moved: Counts, elapsed: Counts, counts: Counts, gaps: Rows) -> tuple[Bools | None, int]:
    """Marks of differences (2, ticks - 1) that are missing besides the gaps, None without any; and the least time.

    Differences that are missing are neutralised in place.
    """
    unseen = bool((counts[:, 0] == NOT_READ).any())
    if len(gaps):
        moved[:, gaps], elapsed[:, gaps] = 0, LONG_NS
        # an unread counter is -1 and thus appears as a decrease, unless it comes first or follows a gap
        unseen |= bool((counts[:, gaps + 1] == NOT_READ).any())
    least = int(elapsed.min())
    if not unseen and least > 0 and moved.min() >= 0:
        return None, least
    lost = counts == NOT_READ
    bad = lost[:, 1:] | lost[:, :-1] | (moved < 0) | (elapsed <= 0)
    elapsed[bad] = LONG_NS
    return bad, int(elapsed.min())


def _find_uncertain(elapsed: Counts, both_ns: Counts, least: int, nominal_ns: int) -> Rows:
    """The samples that may be uncertain by more than 1 %, because they are short or have a long read at either end.

    Some may be named more than once. `elapsed` (2, ticks - 1) is in half ns, `least` its minimum. The reads of a tick
    take `both_ns` (ticks,) together.
    """
    longest = int(both_ns.max())
    # the longest of a sample whose reads take no time; rounding may add a nanosecond
    shortest = 2 * nominal_ns * plausible.STEPS // (plausible.STEPS + plausible.SURE_STEPS) + 2
    short = NO_GAPS
    if least - 2 * longest <= shortest:
        sooner = np.minimum(elapsed[0], elapsed[1]) - both_ns[1:]
        short = np.flatnonzero(sooner - both_ns[:-1] <= shortest) + 1
    long_ns = least // 2 * plausible.SURE_STEPS // plausible.STEPS
    if longest < long_ns:
        return short
    long = np.flatnonzero(both_ns >= long_ns)
    return np.concatenate((short, long[long > 0], long[long < len(both_ns) - 1] + 1))


def _with_reads(series: RateSeries, times: Counts, ends: Rows, nominal_ns: int) -> SeriesDraft:
    """The draft of a series with the samples at `ends` that are uncertain by more than 1 %; `times` is (3, ticks)."""
    if len(ends):
        last, before = times.take(ends, axis=1), times.take(ends - 1, axis=1)
        widths = np.abs(last[1:] - last[:-1]) + np.abs(before[1:] - before[:-1])
        elapsed = ((last[1:] + last[:-1]) >> 1) - ((before[1:] + before[:-1]) >> 1)
        doubts = widths * (plausible.STEPS // 2) + np.maximum(nominal_ns - elapsed, 0) * plausible.STEPS
        ends = ends[(doubts >= plausible.SURE_STEPS * elapsed).any(axis=0)]
    if not len(ends):
        return SeriesDraft(series)
    # the first of three may be missing
    return SeriesDraft(series, UnsureSamples(ends, times.take(ends + np.array([[-2], [-1], [0]]), axis=1, mode="wrap")))


def _certain_part(rates: Singles, reads: Counts, nominal_ns: int) -> Singles:
    """The certain part of the rates of samples, for peaks: (2, samples).

    `rates` (2, 2, samples) are, for each direction, those of the samples before and of the samples themselves; `reads`
    is as in `UnsureSamples`.
    """
    widths, middles = np.abs(reads[1:] - reads[:-1]), (reads[1:] + reads[:-1]) >> 1
    elapsed = middles[:, 1:] - middles[:, :-1]
    steps = plausible.uncertainty_steps(widths[:, 1] + widths[:, 2], elapsed[:, 1], nominal_ns)
    limited = plausible.limit_by_sample_before(
        steps, rates.swapaxes(1, 2), elapsed.swapaxes(1, 2), widths[:, 0] + widths[:, 2], nominal_ns
    )
    steps = np.where(elapsed[:, 1] < nominal_ns, limited, steps)
    return plausible.lower_bound(rates[:, 1], steps).astype(np.float32)


def _slow_series(
    stamps: Counts, counters: Counts, present: Bools, scale: int, stride: Counts, timing: Timing
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


EVEN = 1.2
"""Two rates are about the same if none is higher than this multiple of the other one."""
CROSSES = 0.01
"""A burst goes on in the next sample if that has more than this fraction of its rate."""
AROUND = 3
"""Samples before and after a read that its edge is placed with."""


def common_rates(time_ns: Counts, stamps: Counts, valid: Bools, rates: Floats, seconds: Floats) -> Floats:
    """The rates between the mean read times of the ticks: (ports, 2, ticks).

    All arguments have this shape: the midpoints of the reads, whether there is one, and the rates of the samples that
    end with them, NaN if missing, with their measured times; except for `stamps`, which are as in `Timing`. Rates stay
    as they are where no edge is near, next to missing samples, and at the first four and the last three ticks.
    """
    out, ticks = rates.copy(), rates.shape[2]
    if not rates.size or ticks < 2 * AROUND + 2:
        return out
    edges = _find_edges(rates[..., AROUND : ticks - AROUND], rates[..., AROUND + 1 : ticks - AROUND + 1])
    # only the samples on both sides of an edge change
    counter, tick = np.divmod(np.flatnonzero(edges[..., 1:] | edges[..., :-1]), edges.shape[2] - 1)
    tick += AROUND + 1
    ends = counter * ticks + tick
    times = time_ns.mean(axis=(0, 1))
    if not valid.all():
        times = np.where(valid, time_ns, 0).sum(axis=(0, 1)) / np.maximum(np.count_nonzero(valid, axis=(0, 1)), 1)
    span = (times[tick] - times[tick - 1]) / SECOND_NS
    # the reads at their ends and at their beginnings
    touched = np.zeros(rates.size, dtype=np.bool_)
    touched[ends] = touched[ends - 1] = True
    places = np.flatnonzero(touched)
    tick = places % ticks
    offset = (times[tick] - time_ns.ravel()[places]) / SECOND_NS
    widths = (np.abs(np.diff(stamps, axis=2)) / SECOND_NS).swapaxes(1, 2).ravel()
    moved = np.zeros(rates.size)
    moved[places] = _moved_bytes(offset, places, tick, rates.ravel(), seconds.ravel(), widths)
    old = rates.ravel()[ends]
    with np.errstate(divide="ignore", invalid="ignore"):
        new = (old * seconds.ravel()[ends] + moved[ends] - moved[ends - 1]) / span
    out.ravel()[ends] = np.where(np.isfinite(new) & (span > 0), new, old)
    return out


def _find_edges(before: Floats, after: Floats) -> Bools:
    """Whether the rates before and after each read differ."""
    # few arrays at a time, because new memory costs more than arithmetic
    limit = before * EVEN
    edges = after > limit
    edges |= before > np.multiply(after, EVEN, out=limit)
    return np.asarray(edges)


def _moved_bytes(offset: Floats, place: Counts, tick: Counts, rates: Floats, seconds: Floats, widths: Floats) -> Floats:
    """Bytes between reads and the times `offset` after them, negative before them; NaN where samples are missing.

    The reads are of these ticks, have these places in `widths`, which are their durations, and end the samples at the
    same places of `rates` and `seconds`.
    """
    later = offset > 0
    step, distance = np.where(later, 1, -1), np.abs(offset)
    # the sample in which the instant lies, the one on the other side of the read, and the one beyond
    inside = place + later
    own, near, far, length = rates[inside], rates[inside - step], rates[inside + step], seconds[inside]
    # the burst beside an edge in the sample, which has a rate for two samples, or else one
    fell = near > far
    towards = np.where(fell, -step, step)
    burst, further = rates[inside + towards], rates[inside + 2 * towards]
    even = (burst <= EVEN * further) & (further <= EVEN * burst)
    level = np.where(even, (burst + further) / 2, burst)
    near, far = np.where(fell, level, near), np.where(fell, far, level)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = (own - far) / (near - far)
    split = (share >= 0) & (share <= 1) & (further > CROSSES * burst)
    share = np.where(split, share, 0.0)
    edge = share * length
    # the edge follows from the read between it and the burst, and from the rate up to a read in the burst
    busy, read, count = np.where(fell, share, 1 - share), inside - (towards < 0), np.where(even, 2, 1)
    doubt = ((1 + busy / count) * widths[read] + busy / count * widths[read + count * towards]) / 2
    doubtful = split & (np.abs(distance - edge) < doubt)
    # the bursts have something on the other side of the instant only if it is more than what errors add up to, as far
    # as the two samples of each tell
    beyond = np.where(doubtful, np.where(fell, edge - distance, distance - edge) * burst, 0.0)
    error = np.where(doubtful & even, np.minimum(doubt * burst, length * np.abs(burst - further)), 0.0)
    none = doubtful & (np.bincount(tick, beyond) <= np.sqrt(np.bincount(tick, error**2)))[tick]
    distance = np.where(none, edge, distance)
    parts = near * np.minimum(distance, edge) + far * np.maximum(distance - edge, 0.0)
    # otherwise a burst either goes on across the read, or ends near it at an unknown time
    rest = np.where((own > near) & (near > CROSSES * own), own, near) * distance
    found = np.minimum(np.where(split, parts, rest), own * length)
    return np.where(np.abs(offset) < length, np.where(later, found, -found), np.nan)


def plain_peaks(
    stamps: Counts, counters: Counts, scale: Counts, lines: Sequence[plausible.LineRate], interval_ns: int
) -> Floats | None:
    """The certain part of the rates of consecutive samples: (ports, 2, ticks - 1); None if `rates` is needed.

    `stamps` (ports, 3, ticks) are the monotonic ns before, between and after the two reads, `counters` (ports, 2,
    ticks) the values; all are present, ticks are `interval_ns` apart and samples one tick.
    """
    moved = counters[..., 1:] - counters[..., :-1]
    middles = (stamps[:, :-1] + stamps[:, 1:]) >> 1
    elapsed = middles[..., 1:] - middles[..., :-1]
    least = int(elapsed.min())
    # a counter that was not read is negative, and so is what moved to it
    if least <= 0 or moved.min() < 0 or counters[..., 0].min() < 0:
        return None
    rates: Floats = moved.astype(np.float64) * scale[:, None, None] * float(SECOND_NS) / elapsed
    if (rates.max(axis=(1, 2)) > [line.lowest for line in lines]).any():
        return None
    longest = int((np.maximum(stamps[:, 1], stamps[:, 2]) - stamps[:, 0]).max())
    if (longest + max(0, interval_ns - least)) * plausible.STEPS < plausible.SURE_STEPS * least:
        return rates
    widths = np.abs(stamps[:, 1:] - stamps[:, :-1])
    steps = plausible.uncertainty_steps(widths[..., 1:] + widths[..., :-1], elapsed, interval_ns)
    row, way, place = np.nonzero(steps > plausible.SURE_STEPS)
    if not len(row):
        return rates
    unsure, doubts = (row, way, place), steps[row, way, place]
    followed = place > 0
    last = row[followed], way[followed], place[followed]
    both = last[0][:, None], last[1][:, None], last[2][:, None] + np.array([-1, 0])
    around = widths[last[0], last[1], last[2] - 1] + widths[last[0], last[1], last[2] + 1]
    limited = plausible.limit_by_sample_before(doubts[followed], rates[both], elapsed[both], around, interval_ns)
    doubts[followed] = np.where(elapsed[last] < interval_ns, limited, doubts[followed])
    rates[unsure] = plausible.lower_bound(rates[unsure], doubts)
    return rates
