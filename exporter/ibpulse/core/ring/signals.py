"""Reads the readings of signals from the ring as numpy arrays."""

from __future__ import annotations

import numpy as np

from ibpulse.core.arrays import Counts
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.reader import RingReader
from ibpulse.core.statistics.gains import SignalReadings

# the oldest reading may be half overwritten already
GUARD_READINGS = 1


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
