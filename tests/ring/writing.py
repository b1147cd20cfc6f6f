"""Writes records into a ring like a sampler."""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from pathlib import Path

from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile

PACK = struct.Struct(at.RECORD_FORMAT).pack_into
LANE = at.lane_at(0)


def put(
    ring: RingFile, slot: int, tick: int, words: tuple[int, int, int, int, int] | None = None, stride: int = 0
) -> None:
    """Write one record; by default every word of it encodes the tick."""
    ring.words[LANE + at.L_BEGUN] = tick
    record = at.records_at(slot, ring.capacity) + tick % ring.capacity * at.RECORD_WORDS
    mark = tick | stride << at.STRIDE_SHIFT
    PACK(ring.words.cast("B"), record * at.WORD, *(words or (tick * 5, tick * 6, tick * 7, tick * 8, tick * 9)), mark)
    ring.words[LANE + at.L_TICK] = tick


def put_signals(
    ring: RingFile, slot: int, tick: int, counters: Sequence[int], stamps: Sequence[int] = (0, 0, 0)
) -> None:
    """Write one reading of the signals of a slot."""
    head = ring.signals_at(slot)
    count, mark = ring.words[head + at.N_READINGS], tick | ring.words[head + at.N_SET] << at.SET_SHIFT
    place = head + at.SIGNAL_HEAD_WORDS + count % ring.signal_capacity * at.SIGNAL_WORDS
    values = [*counters, *[0] * (at.SIGNAL_COUNT - len(counters))]
    struct.pack_into(at.SIGNAL_FORMAT, ring.words.cast("B"), place * at.WORD, *stamps, *values, mark)
    ring.words[head + at.N_READINGS] = count + 1


def write_at_full_speed(path: Path, first_tick: int) -> None:
    """Fill slot 0 tick by tick, for ever, with a long pause now and then."""
    ring = RingFile(path)
    tick = first_tick
    while True:
        put(ring, 0, tick)
        tick += 1 if tick % 1000 else 3 * ring.capacity


if __name__ == "__main__":
    write_at_full_speed(Path(sys.argv[1]), int(sys.argv[2]))
