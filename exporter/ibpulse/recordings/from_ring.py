"""Reads samples from a ring as pieces of a recording."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from ibpulse.analysis.plausible import LineRate
from ibpulse.events import PortHistory
from ibpulse.model import DeviceIdentity
from ibpulse.recordings import RecordedPort, Recording, RecordingMeta
from ibpulse.ring.reader import RingReader
from ibpulse.ring.window import AHEAD_SECONDS, read_rates, settled_tick, ticks_to_settle, widest_stride
from ibpulse.units import SECOND_NS


def read_pieces(
    reader: RingReader,
    meta: RecordingMeta,
    first_tick: int,
    last_tick: int,
    start_ns: int,
    ticks_at_once: int,
    lines: Sequence[LineRate] = (),
) -> Iterator[Recording]:
    """The rates at the ticks `first_tick` to `last_tick`, the first of them at wall time `start_ns`.

    `lines` are the line rates of the ports, by default those of the metadata. Samples and ports that the ring does not
    contain are missing samples (NaN).
    """
    lines = lines or line_rates(PortHistory(), meta.ports)
    for tick in range(first_tick, last_tick + 1, ticks_at_once):
        count = min(ticks_at_once, last_tick - tick + 1)
        yield _read_piece(reader, meta, lines, tick, count, start_ns + (tick - first_tick) * meta.interval_ns)


def _strides(reader: RingReader, meta: RecordingMeta, slots: Mapping[str, int]) -> list[int]:
    """The stride of each port: the larger of the recording's and the ring's current one."""
    found = [slots.get(str(port.id)) for port in meta.ports]
    return [
        port.stride if slot is None else max(port.stride, reader.stride(slot))
        for port, slot in zip(meta.ports, found, strict=True)
    ]


def line_rates(history: PortHistory, ports: Sequence[RecordedPort]) -> list[LineRate]:
    """The line rates of the ports, in ticks of the ring of a history."""
    return [history.line_rate(str(port.id), port.rate_bytes_per_second) for port in ports]


def _read_piece(
    reader: RingReader, meta: RecordingMeta, lines: Sequence[LineRate], tick: int, count: int, start_ns: int
) -> Recording:
    slots = _find_slots(reader, meta)
    strides = _strides(reader, meta, slots)
    rows = [row for row, port in enumerate(meta.ports) if str(port.id) in slots]
    shape = (len(meta.ports), 2, count)
    bytes_per_second, seconds = np.full(shape, np.nan), np.zeros(shape)
    steps, merged = np.zeros(shape, dtype=np.uint16), np.zeros(shape, dtype=np.bool_)
    chosen = [slots[str(meta.ports[row].id)] for row in rows]
    mine = [lines[row] for row in rows]
    found = read_rates(reader, chosen, [strides[row] for row in rows], tick, tick + count - 1, mine, exact=True)
    bytes_per_second[rows], seconds[rows] = found.bytes_per_second, found.seconds
    if found.steps is not None:
        steps[rows] = np.where(found.seconds > 0, found.steps, 0)
    merged[rows] = found.merged
    return Recording(meta, start_ns, bytes_per_second, seconds, steps, merged)


def _find_slots(reader: RingReader, meta: RecordingMeta) -> dict[str, int]:
    """The slots by port name, without those in which another device than that of the recording is sampled now."""
    slots = reader.ring.slots()
    for port in meta.ports:
        slot = slots.get(str(port.id))
        if slot is not None:
            known = DeviceIdentity.parse(reader.ring.slot_device(slot))
            # a GUID that several devices have is not in the ring
            if known.guid and port.identity.guid not in ("", known.guid):
                del slots[str(port.id)]
    return slots


class RingFollower:
    """Follows a ring from `first_tick` on, each tick once and in order.

    Wall times count from that of the first tick at the nominal interval, so a step of the wall clock does not change
    the distance between samples. `history` has the states of the ports.
    """

    def __init__(
        self,
        reader: RingReader,
        meta: RecordingMeta,
        first_tick: int,
        wall_clock_ns: Callable[[], int] = time.time_ns,
        history: PortHistory | None = None,
    ) -> None:
        self.meta = meta
        self._history = PortHistory() if history is None else history
        self._reader = reader
        self._wall_clock_ns = wall_clock_ns
        self._next_tick = self._first_tick = first_tick
        self._start_ns = int(reader.wall_ns(np.array([first_tick]))[0])
        self._ticks_per_second = SECOND_NS // reader.interval_ns

    def read(self) -> Iterator[Recording]:
        """The samples settled since the last call, in pieces of at most a second; lost samples are missing (NaN)."""
        ring = self._reader.ring
        widest = widest_stride(_strides(self._reader, self.meta, ring.slots()))
        # if sampling has stopped, continue with missing samples for a while
        last = ring.latest_tick() + AHEAD_SECONDS * self._ticks_per_second
        last -= ticks_to_settle(self._reader.interval_ns, widest)
        last = min(last, settled_tick(self._reader, widest, self._wall_clock_ns()))
        start_ns = self._start_ns + (self._next_tick - self._first_tick) * self._reader.interval_ns
        lines, at_once = line_rates(self._history, self.meta.ports), self._ticks_per_second
        for piece in read_pieces(self._reader, self.meta, self._next_tick, last, start_ns, at_once, lines):
            self._next_tick += piece.ticks
            yield piece
