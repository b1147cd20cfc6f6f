"""Reads the ring as numpy arrays, without ever writing to it or blocking the writer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ibpulse.core.arrays import Bools, Counts, Words
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from ibpulse.core.statistics.gains import SignalReadings

# Readers stay this far from both ends of the ring: the newest tick may be incomplete, the oldest may be overwritten.
GUARD_TICKS = 2
# the oldest reading may be half overwritten already
GUARD_READINGS = 1


@dataclass(frozen=True, slots=True)
class Block:
    """Records of some ports over consecutive ticks, or over every nth tick after `every`.

    `records` is uint64 (ports, ticks, 6) with the words of `layout`; in memory, each word of a port is contiguous over
    the ticks. `present` is bool (ports, ticks), false where the ring holds no record of the tick. `scale` (bytes per
    count) and `stride` (current ticks between two samples) are int64 (ports,). `strides` is int64 (ports, ticks), the
    stride of each record, or None if it is the current stride of the port for all records.
    """

    first_tick: int
    interval_ns: int
    scale: Counts
    stride: Counts
    strides: Counts | None
    records: Words
    present: Bools

    def stamps(self) -> Counts:
        """Monotonic time before, between and after the two reads, as a view: int64 (ports, ticks, 3)."""
        return self.records[:, :, at.R_BEFORE : at.R_AFTER + 1].view(np.int64)

    def time_ns(self) -> Counts:
        """Monotonic time of each read, the midpoint between its two timestamps: int64 (ports, 2, ticks)."""
        stamps = self.stamps()
        middle = (stamps[:, :, :-1] + stamps[:, :, 1:]) >> 1
        return np.ascontiguousarray(middle.transpose(0, 2, 1))

    def counters(self) -> Words:
        """Raw counters, transmit then receive: uint64 (ports, 2, ticks)."""
        return np.ascontiguousarray(self.records[:, :, at.R_TRANSMIT : at.R_RECEIVE + 1].transpose(0, 2, 1))

    def every(self, stride: int) -> Block:
        """The block with only the first record of each port and every `stride`-th record after it."""
        strides = None if self.strides is None else self.strides[:, ::stride]
        return replace(self, records=self.records[:, ::stride], present=self.present[:, ::stride], strides=strides)

    def valid(self, counters: Words | None = None) -> Bools:
        """Whether each counter was read at each tick: bool (ports, 2, ticks); `counters` are those of the block."""
        found = self.counters() if counters is None else counters
        return np.asarray(self.present[:, None, :] & (found != at.ABSENT))


class RingReader:
    """Reads records of a ring by tick, possibly while another process writes to it."""

    def __init__(self, ring: RingFile) -> None:
        self.ring = ring
        self.interval_ns = ring.interval_ns
        self.capacity = ring.capacity
        words = np.frombuffer(ring.words, dtype=np.uint64)
        records = words[at.RECORD_TABLE : at.records_at(at.SLOT_COUNT, ring.capacity)]
        self._records = records.reshape(at.SLOT_COUNT, ring.capacity, at.RECORD_WORDS)

    def newest_tick(self, wall_ns: int | None = None) -> int:
        """The newest tick that is certain to be complete at this wall time (default: now), sampled or not."""
        shift = self.ring.last_shift()
        if shift is None:
            return 0
        now = self.ring.clock.time_ns() if wall_ns is None else wall_ns
        return now // self.interval_ns + shift - GUARD_TICKS

    @property
    def readable_ticks(self) -> int:
        """The number of ticks, up to the newest complete one, that can be read at any time."""
        return self.capacity - 2 * GUARD_TICKS

    def oldest_tick(self, wall_ns: int | None = None) -> int:
        """The oldest tick that the ring can still hold at this wall time (default: now)."""
        return max(1, self.newest_tick(wall_ns) - self.readable_ticks + 1)

    def wall_ns(self, ticks: Counts) -> Counts:
        """Wall time of ticks (int64, any shape) in ns since the epoch, according to the clock segment of each."""
        segments = self.ring.segments() or [(0, 0)]
        begins = np.array([begin for begin, _ in segments], dtype=np.int64)
        shifts = np.array([shift for _, shift in segments], dtype=np.int64)
        which = np.clip(np.searchsorted(begins, ticks, side="right") - 1, 0, None)
        return np.asarray((ticks - shifts[which]) * self.interval_ns)

    def wall_of(self, tick: int) -> int:
        """Wall time of one tick, as in `wall_ns`."""
        return int(self.wall_ns(np.array([tick]))[0])

    def tick_at(self, wall_ns: int) -> int:
        """The tick at a wall time; if the clock was set back, the later of the ticks with that time.

        For a wall time that was skipped when the clock was set forward, it is the first tick after it.
        """
        segments = self.ring.segments() or [(0, 0)]
        wall_tick = wall_ns // self.interval_ns
        end, after = 2**64, None
        for begin, shift in reversed(segments):
            tick = wall_tick + shift
            if begin <= tick < end:
                return tick
            if after is None and tick >= end:
                after = end
            end = begin
        return wall_tick + segments[0][1] if after is None else after

    def stride(self, slot: int) -> int:
        """Current number of ticks between two samples of a slot's port."""
        return max(1, self.ring.slot_word(slot, at.S_STRIDE))

    def strides(self, slots: Sequence[int]) -> list[int]:
        """Current number of ticks between two samples of each slot's port."""
        return [self.stride(slot) for slot in slots]

    def read(self, slots: Sequence[int], first_tick: int, last_tick: int) -> Block:
        """Records of `slots` at the ticks from `first_tick` to `last_tick`, inclusive.

        Records that are not in the ring, or were overwritten while being copied, are not `present` in the block.
        """
        count = max(0, last_tick - first_tick + 1)
        newest = self.ring.latest_begun_tick()
        begin, end = (min(max(0, tick - first_tick), count) for tick in (newest - self.capacity + 1, newest + 1))
        # word by word, because all that follows goes through one word of all ticks at a time
        records = np.empty((len(slots), at.RECORD_WORDS, count), dtype=np.uint64).transpose(0, 2, 1)
        records[:, :begin] = records[:, end:] = 0
        first, last = (slots[0], slots[-1]) if slots else (0, 0)
        if list(slots) == list(range(first, last + 1)):
            self._copy(slice(first, last + 1), first_tick + begin, records[:, begin:end])
        else:
            for row, slot in enumerate(slots):
                self._copy(slice(slot, slot + 1), first_tick + begin, records[row : row + 1, begin:end])
        ticks = np.arange(first_tick, first_tick + count, dtype=np.int64)
        stride = np.array(self.strides(slots), dtype=np.int64)
        present, strides = _find_records(records[:, :, at.R_TICK], ticks, stride)
        # older records may have been partly overwritten during the copy, so this is read after it
        oldest = max(1, self.ring.latest_begun_tick() - self.capacity + GUARD_TICKS + 1)
        present[:, : max(0, oldest - first_tick)] = False
        return Block(
            first_tick=first_tick,
            interval_ns=self.interval_ns,
            scale=np.array([self.ring.slot_word(slot, at.S_SCALE) for slot in slots], dtype=np.int64),
            stride=stride,
            strides=strides,
            records=records,
            present=present,
        )

    def _copy(self, slots: slice, first_tick: int, out: Words) -> None:
        """Copy consecutive records of consecutive slots, at most the capacity, wrapping at its end."""
        view, done, count = self._records[slots], 0, out.shape[1]
        while done < count:
            here = (first_tick + done) % self.capacity
            run = min(count - done, self.capacity - here)
            records, copies = view[:, here : here + run], out[:, done : done + run]
            # a sampler writes the mark last, so the words that are copied after a mark are at least as new
            copies[:, :, at.R_TICK] = records[:, :, at.R_TICK]
            copies[:, :, : at.R_TICK] = records[:, :, : at.R_TICK]
            done += run


def _find_records(marks: Words, ticks: Counts, stride: Counts) -> tuple[Bools, Counts | None]:
    """Which records belong to their tick, and the strides of a block, both (ports, ticks), from the records' marks."""
    # nearly all records have the current stride of their slot
    present = marks == (ticks | (stride << at.STRIDE_SHIFT)[:, None]).view(np.uint64)
    strides = None
    if present.all():
        return present, strides
    unsigned = ticks.view(np.uint64)
    for row in np.flatnonzero(~present.all(axis=1)).tolist():
        others = np.flatnonzero(((marks[row] & np.uint64(at.TICK_MASK)) == unsigned) & ~present[row])
        if not len(others):
            continue
        if strides is None:
            strides = np.repeat(stride[:, None], len(ticks), axis=1)
        present[row, others] = True
        own = (marks[row, others] >> np.uint64(at.STRIDE_SHIFT)).view(np.int64)
        strides[row, others] = np.where(own > 0, own, strides[row, others])
    return present, strides


def read_signals(reader: RingReader, slot: int, first_tick: int, last_tick: int) -> tuple[Counts, SignalReadings]:
    """The readings of a slot at the ticks from `first_tick` to `last_tick`, and the one before them, with their ticks.

    With the one before, gains are known from the first tick on.
    """
    ring, head = reader.ring, reader.ring.signals_at(slot)
    signals = ring.signals(slot)
    if not signals:
        none, empty = np.zeros(0, dtype=np.int64), np.zeros((0, 0), dtype=np.int64)
        return none, SignalReadings((), none, empty, empty.view(np.uint64))
    capacity, begin = ring.signal_capacity, head + at.SIGNAL_HEAD_WORDS
    words = np.frombuffer(ring.words, dtype=np.uint64)
    known = words[begin : begin + capacity * at.SIGNAL_WORDS].reshape(capacity, at.SIGNAL_WORDS)
    count, mark = ring.words[head + at.N_READINGS], ring.words[head + at.N_SET] << at.SET_SHIFT
    numbers = np.arange(max(0, count - capacity), count)
    marks = known[numbers % capacity, at.N_MARK]
    ticks = (marks & np.uint64(at.TICK_MASK)).astype(np.int64)
    wanted = (marks - ticks.view(np.uint64) == mark) & (ticks <= last_tick)
    before = np.flatnonzero(wanted & (ticks < first_tick))
    wanted[: before[-1] if len(before) else 0] = False
    numbers = numbers[wanted]
    records = known[numbers % capacity]
    # those that may have been overwritten during the copy
    kept = numbers >= ring.words[head + at.N_READINGS] - capacity + GUARD_READINGS
    records, ticks = records[kept], ticks[wanted][kept]
    stamps = records[:, : at.SIGNAL_VALUES].astype(np.int64)
    asked = np.arange(len(signals)) < ring.words[head + at.N_ASKED]
    begun, ended = (np.where(asked, stamps[:, [n]], stamps[:, [n + 1]]) for n in (0, 1))
    counters = records[:, at.SIGNAL_VALUES : at.SIGNAL_VALUES + len(signals)]
    return ticks, SignalReadings(signals, reader.wall_ns(ticks), begun + ended >> 1, counters)
