"""Bytes and rates from raw counters, across missing data and counter resets; the effective resolution of a counter.

`rates` defines a rate; `series` has fast versions for long and for short spans.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Bools, Counts, Floats, Rows, Words
from ibpulse.core.statistics import plausible
from ibpulse.core.statistics.moments import lower_quantile

MIN_CHANGES = 20
QUARTER = 0.25
SAME = 1.5
"""A counter whose changes are at most this many samples apart is considered to change at every sample."""


def effective_resolution(
    time_ns: Counts, counters: Words, sampled: Bools, scale: int, threshold_bytes_per_second: float
) -> float:
    """Lower quartile of the seconds between changes of a busy counter; NaN with fewer than 20 such gaps.

    `time_ns` and `counters` are (2, samples) for transmit and receive at consecutive planned samples; `sampled` (2,
    samples) is false where the read failed or was missed. A gap counts if it has no missing sample, the counter did not
    decrease, and its mean rate is above the threshold, because an idle counter does not change. The quartile is used
    instead of the median because pauses between bursts make gaps longer, while nothing makes them shorter.

    Law: for a counter that changes at every sample, the result is the sampling interval; for a counter that the device
    refreshes every R seconds, R a multiple of the interval, it is R. A port that is active only in regular single
    samples cannot be distinguished from a slow counter.
    """
    gaps = np.concatenate(
        [
            _busy_gaps(time_ns[direction], counters[direction], sampled[direction], scale, threshold_bytes_per_second)
            for direction in range(len(counters))
        ]
    )
    return lower_quantile(gaps, QUARTER) if len(gaps) >= MIN_CHANGES else float("nan")


def stands_still(resolution_seconds: float, sampled_every_seconds: float) -> bool:
    """Whether a counter with this effective resolution stays constant over several samples; false for NaN."""
    return resolution_seconds > SAME * sampled_every_seconds


def finest_ticks(resolution_seconds: float | None, interval_ns: int, stride: int) -> int:
    """Ticks of the finest statistic that a counter sampled every `stride` ticks resolves.

    The result is 1 unless the counter stays constant over several samples; None is an unknown resolution.
    """
    ticks = (resolution_seconds or 0.0) * SECOND_NS / interval_ns
    return math.ceil(ticks) if stands_still(ticks, stride) else 1


def coarsest_ticks(ticks: Iterable[int]) -> int:
    """Ticks of the finest statistic of a sum: those of the coarsest counter, 1 without any counter."""
    return max(ticks, default=1)


def _busy_gaps(
    time_ns: Counts, counter: Words, sampled: Bools, scale: int, threshold_bytes_per_second: float
) -> Floats:
    """Seconds between consecutive changes of one counter, if the traffic between them was active."""
    both = sampled[1:] & sampled[:-1]
    breaks = np.cumsum(~both | (counter[1:] < counter[:-1]))
    changes = np.flatnonzero(both & (counter[1:] > counter[:-1]))
    begin, end = changes[:-1] + 1, changes[1:] + 1
    unbroken = breaks[begin - 1] == breaks[end - 1]
    begin, end = begin[unbroken], end[unbroken]
    seconds = (time_ns[end] - time_ns[begin]) / 1e9
    moved_bytes = (counter[end] - counter[begin]).astype(np.float64) * scale
    return np.asarray(seconds[moved_bytes > threshold_bytes_per_second * seconds])


@dataclass(frozen=True, slots=True)
class Increase:
    """The increase of counters over a span.

    `moved_bytes` is int64 (ports, 2). `resets` is int64 (ports,), the number of samples at which a counter decreased,
    and `jumps` (ports,) those at which one increased by more than is possible. `last` is uint64 (ports, 2), the last
    value read, and `end` (ports, 2) the instant of that; `known`, bool (ports, 2), is false if there was none.
    """

    moved_bytes: Counts
    resets: Counts
    jumps: Counts
    last: Words
    end: Counts
    known: Bools


@dataclass(frozen=True, slots=True)
class Bound:
    """The most by which counters can increase: what the line rates of their ports carry in the time, and are late.

    The first instant of each counter is at the tick `since` (ports, 2), the others from `first_tick` on. They are
    sampled every `stride` ticks of `interval_ns`.
    """

    lines: Sequence[plausible.LineRate]
    since: Counts
    first_tick: int
    interval_ns: int
    stride: int

    def jumps(self, moved: Words, before: Counts, scale: Counts) -> list[tuple[int, int, int]]:
        """The places of increases (ports, 2, instants - 1), since the instants `before`, that are impossible."""
        late_ns = plausible.lateness_ns(self.stride, self.interval_ns)
        least = np.array([line.lowest for line in self.lines]) * late_ns / SECOND_NS / scale
        found = []
        for row, way, place in np.argwhere(moved > least[:, None, None]).tolist():
            start, last = int(before[row, way, place]), self.first_tick + place
            first = self.first_tick + start - 1 if start else int(self.since[row, way])
            most = self.lines[row].most(first, last, (last - first) * self.interval_ns + late_ns)
            if int(moved[row, way, place]) * int(scale[row]) > most:
                found.append((row, way, place))
        return found


def increase(counters: Words, valid: Bools, scale: Counts, bound: Bound | None = None) -> Increase:
    """Bytes between consecutive valid values of counters (ports, 2, instants), across missing data.

    A counter that decreased was reset, and one that increased by more than the bound, if there is one, has jumped:
    that is counted, and because the bytes since the previous value are unknown, it adds nothing. `scale` (ports,) is
    bytes per count.

    Law: without a reset or a jump, the sum is `scale * (last valid - first valid)`. Splitting a span at a valid instant
    that is part of both halves does not change the sums.
    """
    instants, current = np.arange(counters.shape[2]), counters[:, :, 1:]
    if valid.all():
        newest, previous, pair = np.broadcast_to(instants, counters.shape), counters[:, :, :-1], valid[:, :, 1:]
        before = newest[:, :, :-1]
    else:
        newest = np.maximum.accumulate(np.where(valid, instants, -1), axis=2)
        before = newest[:, :, :-1]
        pair = valid[:, :, 1:] & (before >= 0)
        previous = np.take_along_axis(counters, np.maximum(before, 0), axis=2)
    fell = pair & (current < previous)
    with np.errstate(over="ignore"):
        difference = np.where(pair & ~fell, current - previous, np.uint64(0))
    jumped = np.zeros_like(fell)
    if bound is not None:
        for place in bound.jumps(difference, before, scale):
            difference[place], jumped[place] = 0, True
    end = newest[:, :, -1]
    return Increase(
        moved_bytes=difference.sum(axis=2).astype(np.int64) * scale[:, None],
        resets=np.count_nonzero(fell.any(axis=1), axis=1),
        jumps=np.count_nonzero(jumped.any(axis=1), axis=1),
        last=np.take_along_axis(counters, np.maximum(end, 0)[:, :, None], axis=2)[:, :, 0],
        end=end,
        known=end >= 0,
    )


@dataclass(frozen=True, slots=True)
class Timing:
    """What `rates` needs to judge them.

    `stamps` (ports, ticks, 3) are the monotonic ns before, between and after the two reads, the third equal to the
    first if both counters were read at once; `lines` are the line rates of the ports, and `first_tick` the tick of the
    first column. Unless `exact`, uncertainties are only computed where some are above 1 %. Ticks are `interval_ns`
    apart; with 0, no sample is short.
    """

    stamps: Counts
    lines: Sequence[plausible.LineRate]
    first_tick: int = 0
    exact: bool = False
    interval_ns: int = 0

    def chosen(self, rows: Rows) -> Timing:
        """That of some ports, in order."""
        if len(rows) == len(self.lines):
            return self
        return replace(self, stamps=self.stamps[rows], lines=[self.lines[row] for row in rows])

    def widths_ns(self) -> Counts:
        """Duration of each read: (ports, 2, ticks)."""
        return np.ascontiguousarray(np.abs(np.diff(self.stamps, axis=2)).transpose(0, 2, 1))

    def certain(self, elapsed_ns: Counts, nominal_ns: int) -> bool:
        """Whether every rate over these times, which should be `nominal_ns`, is clearly certain to 1 %."""
        longest = int((self.stamps[:, :, 1:].max(axis=2) - self.stamps[:, :, 0]).max(initial=0))
        least = int(elapsed_ns.min(initial=2**62))
        return (
            not self.exact and (longest + max(0, nominal_ns - least)) * plausible.STEPS < plausible.SURE_STEPS * least
        )

    def possible(self, rates: Floats) -> bool:
        """Whether no rate (ports, 2, ticks) is above the lowest line rate of its port."""
        lowest = np.array([line.lowest for line in self.lines])
        return not bool((rates > lowest[:, None, None]).any())


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates between consecutive samples, per port and direction, at every tick.

    All arrays are (ports, 2, ticks). `bytes_per_second` is float64, NaN if the sample or the one before it is missing
    or the counter was reset. `seconds` is the measured time that the tick covers, 0 where data is missing. `reset` is
    true if the counter decreased since the previous sample. `steps` is the uncertainty of each rate in steps of 0.1 %,
    None if all are at most 1 %. `common` are the rates between common instants of the ports, None if those are not
    known. `bridged` are the rates that also cover missing samples between two reads, None if no sample is missing.
    """

    bytes_per_second: Floats
    seconds: Floats
    reset: Bools
    steps: plausible.Steps | None = None
    merges: plausible.Merges = plausible.NO_MERGES
    common: Floats | None = None
    bridged: Rates | None = None

    @property
    def peaks(self) -> Floats:
        """The certain part of the rates, for every statistic that is a maximum."""
        return self.bytes_per_second if self.steps is None else plausible.lower_bound(self.bytes_per_second, self.steps)

    @property
    def merged(self) -> Bools:
        """Marks of the rates that are the mean of a merge."""
        return self.merges.marks(self.seconds.shape)

    def cut(self, span: slice) -> Rates:
        """The ticks of a span."""
        at = np.s_[:, :, span]
        steps, merges = None if self.steps is None else self.steps[at], self.merges.within(span.start, span.stop)
        common, bridged = None if self.common is None else self.common[at], self.bridged and self.bridged.cut(span)
        return Rates(self.bytes_per_second[at], self.seconds[at], self.reset[at], steps, merges, common, bridged)

    def only(self, kept: Bools) -> Rates:
        """The kept ticks (ports, ticks); the others are missing."""
        both = kept[:, None]
        return Rates(
            np.where(both, self.bytes_per_second, np.nan),
            np.where(both, self.seconds, 0.0),
            self.reset & both,
            self.steps,
            self.merges.only(kept),
            self.common,
            self.bridged and self.bridged.only(kept),
        )


def rates(
    time_ns: Counts, counters: Words, valid: Bools, scale: Counts, stride: Counts, timing: Timing | None = None
) -> Rates:
    """Rates at each tick from counters (ports, 2, ticks); the first `stride` ticks of a port have no rate.

    A port sampled every `stride` ticks has one difference per stride; its mean rate is used for each tick it covers, so
    that sums over time do not depend on the stride. `stride` is (ports,), or (ports, ticks) if it changed: no rate is
    computed between two samples with different strides, so a change loses at most one stride of data. With `timing`,
    implausible samples are merged; without, every rate counts as certain.

    Law: without missing data, the sum of `bytes_per_second * seconds` is `scale * (last - first)`.
    """
    shape = counters.shape
    out = Rates(np.full(shape, np.nan), np.zeros(shape), np.zeros(shape, dtype=np.bool_))
    # most often all ports have one stride, and views are faster than copies
    strides = sorted(set(stride.ravel().tolist()))
    for step in strides:
        if step >= shape[2]:
            continue
        taken = stride == step
        rows = np.flatnonzero(taken if stride.ndim == 1 else taken.any(axis=1))
        some = slice(None) if len(strides) == 1 else rows
        mine = valid[some] if stride.ndim == 1 else valid[some] & taken[some, None]
        found = _subtract(step, time_ns[some], counters[some], mine, scale[some])
        out.reset[some, :, step:] |= found.fell
        steps = None
        if timing is not None:
            steps, merges = _judge(found, timing.chosen(rows))
            out = replace(out, merges=plausible.join_merges((out.merges, merges.of_rows(rows)))) if merges else out
        if steps is not None and out.steps is None:
            out = replace(out, steps=np.zeros(shape, dtype=np.uint16))
        _fill(out, some, found, steps)
    return out


def bridge(time_ns: Counts, counters: Words, valid: Bools, scale: Counts, timing: Timing, found: Rates) -> Rates:
    """The rates of the same reads, also across missing samples: means over a time are then those of all its bytes.

    Where a second or less is missing between two reads, the samples up to the later one have the mean rate between
    them. Those of its own second cover all of that time, so that no second depends on a later one. Samples stay missing
    if the counter decreased, or increased by more than the line rate allows.
    """
    values, seconds = found.bytes_per_second.copy(), found.seconds.copy()
    places, per_second = np.arange(values.shape[2]), SECOND_NS // timing.interval_ns
    newest = np.maximum.accumulate(np.where(valid, places, -1), axis=2)
    oldest = np.minimum.accumulate(np.where(valid, places, len(places))[..., ::-1], axis=2)[..., ::-1]
    row, way, place = np.nonzero(np.isnan(values[..., 1:]) & (newest[..., :-1] >= 0) & (oldest[..., 1:] < len(places)))
    begin, end = newest[row, way, place], oldest[row, way, place + 1]
    # the newest sample before the second of the later read
    before = (timing.first_tick + end - 1) // per_second * per_second - timing.first_tick
    first, last = (row, way, begin), (row, way, end)
    elapsed = time_ns[last] - time_ns[first]
    with np.errstate(over="ignore"):
        moved = (counters[last] - counters[first]).astype(np.float64) * scale[row]
    # a counter has its value at some moment of its read
    widths = timing.widths_ns()
    possible = np.array([max(line.rates) for line in timing.lines])[row] * (elapsed + widths[first] + widths[last])
    sound = (counters[last] >= counters[first]) & (elapsed > 0) & (moved * SECOND_NS <= possible)
    chosen = sound & (end - begin <= per_second) & (place + 1 > before)
    filled, elapsed = (row[chosen], way[chosen], place[chosen] + 1), elapsed[chosen]
    values[filled] = moved[chosen] * SECOND_NS / elapsed
    seconds[filled] = elapsed / ((end - np.maximum(begin, before))[chosen] * SECOND_NS)
    return Rates(values, seconds, found.reset)


@dataclass(frozen=True, slots=True)
class _Differences:
    """Reads (ports, 2, ticks) and their differences `stride` ticks apart, (ports, 2, ticks - stride).

    `rate` is NaN unless `good`; `fell` marks resets.
    """

    stride: int
    time_ns: Counts
    counters: Words
    scale: Counts
    good: Bools
    fell: Bools
    elapsed_ns: Counts
    rate: Floats


def _subtract(stride: int, time_ns: Counts, counters: Words, valid: Bools, scale: Counts) -> _Differences:
    later, earlier = slice(stride, None), slice(None, -stride)
    both = valid[..., later] & valid[..., earlier]
    fell = both & (counters[..., later] < counters[..., earlier])
    elapsed = time_ns[..., later] - time_ns[..., earlier]
    good = both & ~fell & (elapsed > 0)
    with np.errstate(over="ignore"):
        moved = (counters[..., later] - counters[..., earlier]).astype(np.float64) * scale[:, None, None]
    rate = np.full(moved.shape, np.nan)
    np.divide(moved * float(SECOND_NS), elapsed, out=rate, where=good)
    return _Differences(stride, time_ns, counters, scale, good, fell, elapsed, rate)


def _judge(found: _Differences, timing: Timing) -> tuple[plausible.Steps | None, plausible.Merges]:
    """Merge implausible samples in place; returns the uncertainty of each rate, None if all are at most 1 %."""
    stride, possible = found.stride, timing.possible(found.rate)
    nominal_ns = stride * timing.interval_ns
    if not possible:
        _drop_jumps(found, timing)
        possible = timing.possible(found.rate)
    if possible and timing.certain(found.elapsed_ns, nominal_ns):
        return None, plausible.NO_MERGES
    widths = timing.widths_ns()
    steps = plausible.uncertainty_steps(widths[..., stride:] + widths[..., :-stride], found.elapsed_ns, nominal_ns)
    if possible:
        _limit_short(steps, found, widths, nominal_ns, plausible.NO_MERGES)
        needed = timing.exact or bool((found.good & (steps > plausible.SURE_STEPS)).any())
        return (steps if needed else None), plausible.NO_MERGES
    good = np.pad(found.good, ((0, 0), (0, 0), (stride, 0)))
    rate, doubt = np.full(good.shape, np.nan), np.zeros(good.shape, dtype=np.uint16)
    rate[..., stride:], doubt[..., stride:] = found.rate, steps
    limits = np.stack([line.over(timing.first_tick, good.shape[2]) for line in timing.lines])
    samples = plausible.Samples(stride, found.time_ns, widths, found.counters, found.scale, good)
    merges = plausible.merge(samples, rate, doubt, limits)
    found.rate[:], steps = rate[..., stride:], doubt[..., stride:]
    _limit_short(steps, found, widths, nominal_ns, merges)
    return steps, merges


def _drop_jumps(found: _Differences, timing: Timing) -> None:
    """Mark differences as missing, in place, that are more than a line carries in the time and is late."""
    late_ns = plausible.lateness_ns(found.stride, timing.interval_ns)
    least = np.array([line.lowest for line in timing.lines]) * late_ns
    moved = found.rate * found.elapsed_ns
    for row, way, place in np.argwhere(moved > least[:, None, None]).tolist():
        first, elapsed = timing.first_tick + place, int(found.elapsed_ns[row, way, place])
        most = timing.lines[row].most(first, first + found.stride, elapsed + late_ns)
        if moved[row, way, place] > most * SECOND_NS:
            found.rate[row, way, place], found.good[row, way, place] = np.nan, False


def _limit_short(
    steps: plausible.Steps, found: _Differences, widths_ns: Counts, nominal_ns: int, merges: plausible.Merges
) -> None:
    """Limit the uncertainty of samples shorter than `nominal_ns` by the sample before, in place; not of merged ones."""
    stride = found.stride
    short = found.good & (steps > plausible.SURE_STEPS) & (found.elapsed_ns < nominal_ns)
    if merges:
        merged = merges.marks(widths_ns.shape)
        # a merged sample before does not have its own bytes
        short &= ~merged[..., stride:] & ~merged[..., :-stride]
    row, way, place = np.nonzero(short[..., stride:])
    if not len(row):
        return
    # the difference at a place ends with the read `stride` places later
    both = row[:, None], way[:, None], place[:, None] + np.array([0, stride])
    widths = widths_ns[row, way, place] + widths_ns[row, way, place + 2 * stride]
    last = row, way, place + stride
    rate, elapsed_ns = found.rate[both], found.elapsed_ns[both]
    steps[last] = plausible.limit_by_sample_before(steps[last], rate, elapsed_ns, widths, nominal_ns)


def _fill(out: Rates, rows: Rows | slice, found: _Differences, steps: plausible.Steps | None) -> None:
    """Put each difference at the ticks that it covers, where no newer one is."""
    stride, ticks = found.stride, out.seconds.shape[2]
    share = np.where(found.good, found.elapsed_ns / (SECOND_NS * stride), 0.0)
    if stride == 1 and isinstance(rows, slice):
        # each tick has its own difference, of these ports only
        out.bytes_per_second[..., 1:], out.seconds[..., 1:] = found.rate, share
        if steps is not None and out.steps is not None:
            np.copyto(out.steps[..., 1:], steps, where=found.good)
        return
    for back in range(stride):
        # the difference at tick k covers the ticks k-stride+1 .. k
        target = slice(stride - back, ticks - back)
        hit = found.good if back == 0 else found.good & np.isnan(out.bytes_per_second[rows, :, target])
        _put(out.bytes_per_second, rows, target, found.rate, hit)
        _put(out.seconds, rows, target, share, hit)
        if steps is not None and out.steps is not None:
            _put(out.steps, rows, target, steps, hit)


Number = TypeVar("Number", bound=np.generic)


def _put(
    array: npt.NDArray[Number], rows: Rows | slice, target: slice, values: npt.NDArray[Number], hit: Bools
) -> None:
    part = array[rows, :, target]
    part[hit] = values[hit]
    array[rows, :, target] = part
