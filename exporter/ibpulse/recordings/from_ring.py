"""The ticks of a ring as pieces of a recording."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from ibpulse.analysis.rates import rates
from ibpulse.recordings import Recording, RecordingMeta
from ibpulse.ring import layout as at
from ibpulse.ring.reader import RingReader
from ibpulse.units import SECOND_NS


def read_pieces(
    reader: RingReader, meta: RecordingMeta, first_tick: int, last_tick: int, start_ns: int, ticks_at_once: int
) -> Iterator[Recording]:
    """The rates at the ticks from `first_tick` to `last_tick`, of which the first stands at wall time `start_ns`.

    What the ring does not hold is holes, and so is a port that has no place in it.
    """
    for tick in range(first_tick, last_tick + 1, ticks_at_once):
        count = min(ticks_at_once, last_tick - tick + 1)
        yield _read_piece(reader, meta, tick, count, start_ns + (tick - first_tick) * meta.interval_ns)


def widest_stride(reader: RingReader, meta: RecordingMeta) -> int:
    """The most ticks that a sample of these ports stands for, by the recording or, since then, by the ring.

    So long after a tick its sample may come.
    """
    slots = reader.ring.slots()
    found = [slots[str(port.id)] for port in meta.ports if str(port.id) in slots]
    return max([*(port.stride for port in meta.ports), *(reader.ring.slot_word(slot, at.S_STRIDE) for slot in found)])


def _read_piece(reader: RingReader, meta: RecordingMeta, tick: int, count: int, start_ns: int) -> Recording:
    slots = reader.ring.slots()
    rows = [row for row, port in enumerate(meta.ports) if str(port.id) in slots]
    shape = (len(meta.ports), 2, count)
    bytes_per_second, seconds = np.full(shape, np.nan), np.zeros(shape)
    if rows:
        # a sample at the end of a stride also stands for the ticks before it
        widest = widest_stride(reader, meta)
        chosen = [slots[str(meta.ports[row].id)] for row in rows]
        block = reader.read(chosen, tick - widest, tick + count + widest - 2)
        found = rates(block.time_ns(), block.counters(), block.valid(), block.scale, block.taken_every())
        span = slice(widest, widest + count)
        bytes_per_second[rows] = found.bytes_per_second[:, :, span]
        seconds[rows] = found.seconds[:, :, span]
    return Recording(meta, start_ns, bytes_per_second, seconds)


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
