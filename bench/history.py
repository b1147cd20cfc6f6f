"""Creates a ring file with synthetic samples, so that a daemon or an aggregator starts with minutes of history."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from bench.bench import NS_PER_SECOND
from bench.sampler import HISTORY_SECONDS, wall_offset_ns
from ibpulse.core.defaults import SIGNAL_INTERVAL_NS
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.reader import RingReader

LINE_BYTES_PER_SECOND = 50e9
WORD_BYTES = 4
READ_NS = 1_000


def filled_ring(
    path: Path,
    interval_ns: int,
    ports: int,
    seconds: int,
    ring_seconds: int = HISTORY_SECONDS,
    signals_ns: int = SIGNAL_INTERVAL_NS,
) -> RingReader:
    """A new ring of this length whose last seconds hold a noisy square wave on every port, busy half of the time.

    It has space for signals every `signals_ns`, unless that is 0, as the ring of a daemon with this setting.
    """
    capacity = ring_seconds * NS_PER_SECOND // interval_ns
    readings = capacity // max(1, signals_ns // interval_ns) if signals_ns else 0
    ring = RingFile.create(path, interval_ns, capacity, signal_capacity=readings)
    count = seconds * NS_PER_SECOND // interval_ns
    last = time.time_ns() // interval_ns
    ring.begin_segment(last - count, 0)
    ticks = np.arange(last - count + 1, last + 1)
    marks = ticks | 1 << at.STRIDE_SHIFT
    monotonic = ticks * interval_ns - wall_offset_ns()
    random = np.random.default_rng(1)
    reader = RingReader(ring)
    words = np.frombuffer(ring.words, dtype=np.uint64)
    for number in range(ports):
        slot = ring.assign(f"mlx5_{number}:1", WORD_BYTES, 1)
        busy = (ticks // 20 + number) % 2
        moved = busy * random.normal(0.8, 0.05, (2, count)) * LINE_BYTES_PER_SECOND / WORD_BYTES
        counters = np.cumsum(moved * interval_ns / NS_PER_SECOND, axis=1).astype(np.uint64)
        rows = np.stack(
            [monotonic, monotonic + READ_NS, monotonic + 2 * READ_NS, counters[0], counters[1], marks], axis=1
        )
        begin = at.records_at(slot, ring.capacity)
        view = words[begin : begin + ring.capacity * at.RECORD_WORDS].reshape(ring.capacity, at.RECORD_WORDS)
        view[ticks % ring.capacity] = rows.astype(np.uint64)
    ring.words[at.lane_at(0) + at.L_TICK] = last
    return reader
