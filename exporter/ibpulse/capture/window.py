"""Ticks of the ring as a recording, piece by piece. It must not know why, nor where they go."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ibpulse.analysis.rates import rates
from ibpulse.recording import Recording, RecordingMeta
from ibpulse.ring import layout as at
from ibpulse.ring.reader import RingReader


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
