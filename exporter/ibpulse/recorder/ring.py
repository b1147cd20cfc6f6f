"""The newest ticks of a ring as pieces of a recording. It must not know where they go."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from ibpulse.capture.window import read_pieces, widest_stride
from ibpulse.recording import Recording, RecordingMeta
from ibpulse.ring.reader import RingReader
from ibpulse.units import SECOND_NS

# A sampler's write of a tick is surely over by then.
SETTLE_NS = 200_000_000
# How far a recording goes on with holes when nobody samples; more is a wall clock that was set.
AHEAD_SECONDS = 2


class RingFollower:
    """Follows a ring from `first_tick` on, each tick once and in order.

    Ticks stand at the wall time that the first of them had, plus their distance: where the wall clock is set, the
    samples after that keep their distance in ticks.
    """

    def __init__(
        self,
        reader: RingReader,
        meta: RecordingMeta,
        first_tick: int,
        wall_clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.meta = meta
        self._reader = reader
        self._wall_clock_ns = wall_clock_ns
        self._next_tick = self._first_tick = first_tick
        self._start_ns = int(reader.wall_ns(np.array([first_tick]))[0])
        self._ticks_per_second = SECOND_NS // reader.interval_ns

    def read(self) -> Iterator[Recording]:
        """What became certain since the last call, in pieces of at most a second; what the ring lost is holes."""
        newest = self._reader.newest_tick(self._wall_clock_ns())
        last = min(newest, self._reader.ring.latest_tick() + AHEAD_SECONDS * self._ticks_per_second)
        last -= -(-SETTLE_NS // self._reader.interval_ns) + widest_stride(self._reader, self.meta) - 1
        start_ns = self._start_ns + (self._next_tick - self._first_tick) * self._reader.interval_ns
        for piece in read_pieces(self._reader, self.meta, self._next_tick, last, start_ns, self._ticks_per_second):
            self._next_tick += piece.ticks
            yield piece
