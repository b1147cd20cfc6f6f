"""Reads windows of the ring as rates: finds complete ticks, groups ports by stride, computes rates.

A port with a stride of N is sampled every N ticks, and each sample also covers the N - 1 ticks before it. A sample
above the line rate is merged with samples before it. Therefore all functions here read some samples before and after
the span, and cut them off again; a tick is complete once the samples that may be merged with its own are there too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Bools, Counts, Floats, Rows, Words
from ibpulse.core.model import Port
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.reader import Block, RingReader
from ibpulse.core.statistics.plausible import MAX_BEFORE, NO_MERGES, UNLIMITED, LineRate, Merges, join_merges
from ibpulse.core.statistics.rates import Rates, Timing, bridge, rates
from ibpulse.core.statistics.series import (
    Detail,
    RateSeries,
    SeriesDraft,
    common_rates,
    draft_series,
    finish_series,
    plain_peaks,
)

SETTLE_NS = 200_000_000
"""A sampler has written each tick at most this long after it."""
AHEAD_SECONDS = 2
"""How far past the newest sample readers continue with missing data while no sampler runs.

A larger distance between the clock and the newest sample means that the wall clock was set.
"""
CACHED_RECORDS = 16_384
"""Number of 48-byte records that fit into the L2 cache while rates are computed from them."""


def widest_stride(strides: Iterable[int]) -> int:
    """Ticks between two samples of the least frequently sampled port; 1 without ports."""
    return max(strides, default=1)


def common_stride(strides: Iterable[int]) -> int:
    """Ticks of the shortest bins into which the samples of all ports fit; 1 without ports."""
    return math.lcm(*strides)


def complete_tick(reader: RingReader, widest: int, wall_ns: int | None = None) -> int:
    """The newest tick for which all ports have a rate at this wall time (default: now), if the sampler is on time.

    `widest` is the widest stride of the ports.
    """
    return reader.newest_tick(wall_ns) - ticks_to_complete(widest)


def ticks_to_complete(widest: int) -> int:
    """The number of ticks from the newest complete tick to the newest tick."""
    return (MAX_BEFORE + 1) * widest - 1


def settled_tick(reader: RingReader, widest: int, wall_ns: int | None = None) -> int:
    """The newest tick that is final: each port either has a rate for it by now, or never will."""
    return reader.newest_tick(wall_ns) - ticks_to_settle(reader.interval_ns, widest)


def ticks_to_settle(interval_ns: int, widest: int) -> int:
    """The number of ticks from the newest settled tick to the newest tick."""
    return -(-SETTLE_NS // interval_ns) + ticks_to_complete(widest)


@dataclass(frozen=True, slots=True)
class RingPort:
    """A port with its slot in the ring."""

    port: Port
    slot: int
    stride: int


def place_ports(reader: RingReader, ports: Iterable[Port], slots: Mapping[str, int]) -> list[RingPort]:
    """The ports that have a slot in the ring, in the given order; `slots` maps port names to slots."""
    placed = []
    for port in ports:
        slot = slots.get(str(port.id))
        if port.source is not None and slot is not None:
            placed.append(RingPort(port, slot, reader.stride(slot)))
    return placed


def rows_by_stride(strides: Sequence[int]) -> list[tuple[int, list[int]]]:
    """Each stride that occurs, shortest first, with its positions."""
    return [(stride, [row for row, one in enumerate(strides) if one == stride]) for stride in sorted(set(strides))]


@dataclass(frozen=True, slots=True)
class StrideGroup:
    """Records of the ports with one stride, padded before and after `span`.

    `rows` are the indices of the ports in all ports, `lines` their line rates. `counters` and `valid` are those of the
    block.
    """

    rows: Rows
    block: Block
    span: slice
    lines: Sequence[LineRate]
    counters: Words
    valid: Bools

    def rates(self, exact: bool = False, summed: bool = False) -> Rates:
        """Rates of these ports at the ticks of the span; with `exact`, the uncertainty of each.

        If they are to be `summed` over ports and time, also those between common instants and across missing samples.
        """
        block, time_ns = self.block, self.block.time_ns()
        timing = Timing(block.stamps(), self.lines, block.first_tick, exact, block.interval_ns)
        stride = block.stride if block.strides is None else block.strides
        found = rates(time_ns, self.counters, self.valid, block.scale, stride, timing)
        if summed and block.strides is None and len(self.rows):
            found = replace(found, common=self._common_rates(time_ns, timing.stamps, found))
        if summed and np.isnan(found.bytes_per_second[..., self.span]).any():
            bridged = bridge(time_ns, self.counters, self.valid, block.scale, timing, found)
            found = replace(found, bridged=bridged)
        return found.cut(self.span)

    def _common_rates(self, time_ns: Counts, stamps: Counts, found: Rates) -> Floats:
        """The rates between common instants, those of the ticks that are multiples of the stride."""
        stride = int(self.block.stride[0])
        if stride == 1:
            return common_rates(time_ns, stamps, self.valid, found.bytes_per_second, found.seconds)
        first = -self.block.first_tick % stride
        taken = np.s_[..., first::stride]
        values = found.bytes_per_second[taken], found.seconds[taken] * stride
        common = common_rates(time_ns[taken], stamps[:, first::stride], self.valid[taken], *values)
        out = found.bytes_per_second.copy()
        covered = (common.shape[2] - 1) * stride
        out[..., first + 1 : first + 1 + covered] = np.repeat(common[..., 1:], stride, axis=2)
        return out

    def decided(self, now_tick: int) -> Counts:
        """The newest tick of each port whose sample no later one can revise at `now_tick`.

        It is `MAX_BEFORE` samples before the newest one, or that one itself if it has settled; 0 if there is none.
        """
        block, stride = self.block, int(self.block.stride[0])
        ticks = block.first_tick + np.arange(block.present.shape[1])
        newest = np.where(block.present & (ticks <= now_tick), ticks, 0).max(axis=1)
        settled = now_tick - ticks_to_settle(block.interval_ns, stride)
        return np.asarray(np.maximum(newest - MAX_BEFORE * stride, np.minimum(newest, settled - settled % stride)))


def read_groups(
    reader: RingReader,
    slots: Sequence[int],
    strides: Sequence[int],
    first_tick: int,
    last_tick: int,
    lines: Sequence[LineRate] | None = None,
    summed: bool = False,
) -> Iterator[StrideGroup]:
    """Yield records of slots at the ticks from `first_tick` to `last_tick`, stride by stride.

    If their rates are to be `summed`, they reach back to the last read of each port if that was less than 1 s before.
    """
    for stride, rows in rows_by_stride(strides):
        before, after = (MAX_BEFORE + 1) * stride, ticks_to_complete(stride)
        chosen = [slots[row] for row in rows]
        block = reader.read(chosen, first_tick - before, last_tick + after)
        if summed and (block.present.any(axis=1) & ~block.present[:, :before].any(axis=1)).any():
            # a port was not read for some time before the first tick
            before = max(before, SECOND_NS // reader.interval_ns)
            block = reader.read(chosen, first_tick - before, last_tick + after)
        span, counters = slice(before, before + max(0, last_tick - first_tick + 1)), block.counters()
        mine = [UNLIMITED if lines is None else lines[row] for row in rows]
        yield StrideGroup(np.array(rows, dtype=np.intp), block, span, mine, counters, block.valid(counters))


def join_rates(
    groups: Sequence[StrideGroup], rows: int, ticks: int, exact: bool = False, summed: bool = False
) -> Rates:
    """The rates of all groups as arrays (rows, 2, ticks); ports with different strides have no common instants."""
    if len(groups) == 1:
        return groups[0].rates(exact, summed)
    shape = (rows, 2, ticks)
    out = Rates(np.full(shape, np.nan), np.zeros(shape), np.zeros(shape, dtype=np.bool_))
    parts = [(group.rows, group.rates(exact, summed)) for group in groups]
    if any(found.steps is not None for _, found in parts):
        out = replace(out, steps=np.zeros(shape, dtype=np.uint16))
    if any(found.bridged is not None for _, found in parts):
        out = replace(out, bridged=Rates(np.full(shape, np.nan), np.zeros(shape), out.reset))
    for chosen, found in parts:
        out.bytes_per_second[chosen] = found.bytes_per_second
        out.seconds[chosen] = found.seconds
        out.reset[chosen] = found.reset
        if out.steps is not None and found.steps is not None:
            out.steps[chosen] = found.steps
        if out.bridged is not None:
            bridged = found.bridged or found
            out.bridged.bytes_per_second[chosen] = bridged.bytes_per_second
            out.bridged.seconds[chosen] = bridged.seconds
    return replace(out, merges=join_merges([found.merges.of_rows(chosen) for chosen, found in parts]))


def read_rates(
    reader: RingReader,
    slots: Sequence[int],
    strides: Sequence[int],
    first_tick: int,
    last_tick: int,
    lines: Sequence[LineRate] | None = None,
    exact: bool = False,
) -> Rates:
    """Rates at the ticks from `first_tick` to `last_tick`, inclusive: arrays (slots, 2, ticks), NaN if missing.

    `strides` are those of the slots, or wider if a port was sampled less often in the span than now. A tick has a rate
    only once the ring holds the sample at the end of its stride. Samples above the line rate of their slot (`lines`)
    are merged. With `exact`, the uncertainty of each rate is computed.
    """
    groups = list(read_groups(reader, slots, strides, first_tick, last_tick, lines))
    return join_rates(groups, len(slots), max(0, last_tick - first_tick + 1), exact)


def read_peaks(
    reader: RingReader,
    slots: Sequence[int],
    strides: Sequence[int],
    first_tick: int,
    last_tick: int,
    lines: Sequence[LineRate],
) -> tuple[Floats, Merges]:
    """The peaks and the merges of `read_rates`, faster where nothing is missing, reset or above the line rate."""
    if slots and max(strides) == 1:
        before, after = MAX_BEFORE + 1, ticks_to_complete(1)
        block = reader.read(slots, first_tick - before, last_tick + after)
        if block.strides is None and block.present.all() and (block.stride == 1).all():
            words = block.records.view(np.int64).transpose(0, 2, 1)
            stamps, counters = words[:, at.R_BEFORE : at.R_AFTER + 1], words[:, at.R_TRANSMIT : at.R_RECEIVE + 1]
            peaks = plain_peaks(stamps, counters, block.scale, lines, reader.interval_ns)
            if peaks is not None:
                # the first rate is that of the second record
                return peaks[..., before - 1 : -after], NO_MERGES
    found = read_rates(reader, slots, strides, first_tick, last_tick, lines)
    return found.peaks, found.merges


def read_planned(reader: RingReader, slots: Sequence[int], stride: int, count: int, last_tick: int) -> Block:
    """The last `count` records, up to a tick, at which ports with one stride were scheduled to be sampled.

    Those ticks are the multiples of the stride.
    """
    last_tick -= last_tick % stride
    return reader.read(slots, last_tick - (count - 1) * stride, last_tick).every(stride)


@dataclass(frozen=True, slots=True)
class TickRun:
    """`count` ticks starting at `tick`; `wall_tick` is the wall time of the first, in intervals since the epoch."""

    tick: int
    wall_tick: int
    count: int


def read_series(
    reader: RingReader,
    slots: Sequence[int],
    run: TickRun,
    newest_tick: int,
    lines: Sequence[LineRate] | None = None,
    detail: Detail = "peaks",
) -> Iterator[tuple[int, RateSeries]]:
    """Yield the position of each slot and its rates over a run, NaN where data is missing or not complete yet.

    Nothing after `newest_tick` is read. For speed with long windows, only as many ports are read at a time as fit into
    the cache.
    """
    last = run.tick + run.count - 1
    for stride, rows in rows_by_stride(reader.strides(slots)):
        before = (MAX_BEFORE + 1) * stride
        padded = max(last, min(last + ticks_to_complete(stride), newest_tick))
        together = max(1, CACHED_RECORDS // (padded - run.tick + before + 1))
        drafts, ends = [], []
        for begin in range(0, len(rows), together):
            chosen = rows[begin : begin + together]
            block = reader.read([slots[row] for row in chosen], run.tick - before, padded)
            for index, row in enumerate(chosen):
                drafts.append(_draft(block, index, UNLIMITED if lines is None else lines[row], detail))
                ends.append(_find_end(block, index, newest_tick))
        span = slice(before, before + run.count)
        for row, series, end in zip(rows, finish_series(drafts, reader.interval_ns), ends, strict=True):
            yield row, series.cut(span, min(max(span.start, end), span.stop))


def _draft(block: Block, index: int, line: LineRate, detail: Detail) -> SeriesDraft:
    """The draft of the rates of one port of a block."""
    # a counter that was not read, at.ABSENT, is -1 as a signed number
    records = block.records[index].view(np.int64)
    return draft_series(
        records[:, at.R_BEFORE : at.R_AFTER + 1],
        records[:, at.R_TRANSMIT : at.R_RECEIVE + 1],
        block.present[index],
        int(block.scale[index]),
        int(block.stride[index]) if block.strides is None else block.strides[index],
        line,
        block.first_tick,
        detail,
        block.interval_ns,
    )


def _find_end(block: Block, index: int, newest_tick: int) -> int:
    """The first tick of a block, counted from its first, that is not complete for a port."""
    stride = int(block.stride[index])
    if block.strides is not None:
        widest = int(block.strides[index].max())
        stride = int(block.strides[index, -(MAX_BEFORE + 1) * widest :].max())
    # up to the last sample that has all samples after it which may be merged with it
    return newest_tick - newest_tick % stride - MAX_BEFORE * stride + 1 - block.first_tick


def runs_of_ticks(reader: RingReader, first_tick: int, end_tick: int) -> list[TickRun]:
    """The ticks from `first_tick` to `end_tick` (exclusive), split where the wall clock was set."""
    segments = reader.ring.segments() or [(0, 0)]
    ends = [*(begin for begin, _ in segments[1:]), end_tick]
    found: list[TickRun] = []
    tick = first_tick
    for (_, shift), end in zip(segments, ends, strict=True):
        count = min(end, end_tick) - tick
        if count <= 0:
            continue
        if found and found[-1].tick - found[-1].wall_tick == shift:
            found[-1] = replace(found[-1], count=found[-1].count + count)
        else:
            found.append(TickRun(tick, tick - shift, count))
        tick += count
    return found


def runs_of_wall_time(
    segments: Sequence[tuple[int, int]], oldest: int, newest: int, begin: int, end: int
) -> list[TickRun]:
    """Runs of ticks that cover the wall ticks from `begin` to `end` (exclusive) without overlap.

    `segments` are (first tick, shift), oldest first. If the clock was set back, the newer run takes precedence over the
    older run with the same wall time.
    """
    free, found, following = [(begin, end)], [], newest + 1
    for first, shift in reversed(segments):
        low, high = max(first, oldest) - shift, following - shift
        following = min(first, following)
        if low >= high:
            continue
        for left, right in free:
            start, stop = max(left, low), min(right, high)
            if start < stop:
                found.append(TickRun(start + shift, start, stop - start))
        rest = [part for left, right in free for part in ((left, min(right, low)), (max(left, high), right))]
        free = [(left, right) for left, right in rest if left < right]
    return found
