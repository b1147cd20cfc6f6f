"""Writes the samples of nodes as a trace of Perfetto, in its native protobuf format, in pieces.

Numbers of fields are those of protos/perfetto/trace/perfetto_trace.proto. A node is a process, a rail a thread with a
counter track per direction; what happened are slices and instants. A rate stands at the beginning of its sample,
because Perfetto draws a value up to the next one; where samples are missing it is NaN, which is no value in its SQL.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ibpulse.core.arrays import Floats
from ibpulse.core.defaults import ACTIVE_BYTES_PER_SECOND
from ibpulse.core.model import DIRECTIONS
from ibpulse.core.recordings.marks import Mark, NodeSamples
from ibpulse.core.recordings.recording import Recording, RecordingMeta

UNIT, GIGA = "GB/s", 1e9
REALTIME, BOOTTIME = 1, 6
SLICE_BEGIN, SLICE_END, INSTANT, COUNTER = 1, 2, 3, 4
# varints may be longer than necessary; 63 bits hold every time of a recording
TIME_BYTES = 9
_SHIFTS = 7 * np.arange(TIME_BYTES)
_GOES_ON = np.array([0x80] * (TIME_BYTES - 1) + [0], dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class TracedNode:
    """The samples of a node: contiguous pieces, whose events and jobs `meta` has, and the names of the ports to write.

    The clock of the node is ahead by `ahead_ns`, which is subtracted. `notes` are shown with its name.
    """

    meta: RecordingMeta
    pieces: Iterable[Recording]
    ports: Sequence[str] = ()
    ahead_ns: int = 0
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> list[int]:
        """The rows of the ports; of the rails by default, of all ports if there are none."""
        rails = [row for row, port in enumerate(self.meta.ports) if port.rail]
        return self.meta.named_rows(self.ports)[0] if self.ports else rails or list(range(len(self.meta.ports)))


def write_trace(nodes: Iterable[TracedNode], active: float = ACTIVE_BYTES_PER_SECOND) -> Iterator[bytes]:
    """The parts of a trace file. Memory follows the pieces, and the sums over the rails of one node.

    Bursts are above `active` bytes per second.
    """
    numbers = itertools.count(1)
    for place, node in enumerate(nodes, 1):
        yield from _Node(place, node, numbers).write(active)


class _Node:
    """The tracks of one node, and its packets."""

    def __init__(self, place: int, node: TracedNode, numbers: Iterator[int]) -> None:
        self._place, self._node, self._numbers = place, node, numbers
        self._rows = node.rows
        self._process, self._tracks = next(numbers), dict[str, int]()
        names = [str(node.meta.ports[row].id) for row in self._rows]
        self._threads = {name: next(numbers) for name in names}
        self._counters = [next(numbers) for _ in range(2 * (len(names) + 1))]
        self._ended = np.ones(len(self._counters), dtype=np.bool_)

    def write(self, active: float) -> Iterator[bytes]:
        samples = NodeSamples(self._node.meta, self._rows)
        for piece in self._node.pieces:
            begin_ns = piece.start_ns - piece.meta.interval_ns - self._node.ahead_ns
            if not samples.ticks:
                yield self._describe(begin_ns)
            rows = np.concatenate((samples.add(piece)[np.newaxis], piece.bytes_per_second[self._rows]))
            yield from self._count(begin_ns, piece.meta.interval_ns, rows.reshape(-1, piece.ticks))
        if samples.ticks:
            end_ns = samples.end_ns - self._node.ahead_ns
            yield from self._count(end_ns, 1, np.full((len(self._counters), 1), np.nan))
            # tracks are described before the first event on them
            for mark in samples.marks(active):
                yield b"".join(self._mark(mark))

    def _describe(self, begin_ns: int) -> bytes:
        """The clock and the tracks."""
        node = self._node
        # readers that ignore the primary clock take times for those of BOOTTIME
        clocks = b"".join(_part(1, _number(1, clock) + _number(2, begin_ns)) for clock in (REALTIME, BOOTTIME))
        labels = b"".join(_part(8, note) for note in node.notes)
        process = _number(1, self._place) + _part(6, node.meta.host or "node") + labels
        found = [_packet(_part(6, clocks + _number(2, REALTIME))), _track(self._process, _part(3, process))]
        found += self._describe_counters(self._process, self._counters[:2], "all rails, ", f"sum {self._place}")
        for number, (name, uuid) in enumerate(self._threads.items()):
            thread = _number(1, self._place) + _number(2, self._place * 1000 + number) + _part(5, name)
            found.append(_track(uuid, _part(4, thread), self._process))
            mine = self._counters[2 * number + 2 :][:2]
            found += self._describe_counters(uuid, mine, f"{name} ", f"rail {self._place}")
        return b"".join(found)

    def _describe_counters(self, parent: int, uuids: Sequence[int], name: str, axis: str) -> Iterator[bytes]:
        """The tracks of both directions; those with one `axis` are drawn with the same scale."""
        for uuid, direction in zip(uuids, DIRECTIONS, strict=True):
            yield _track(uuid, _part(2, name + direction) + _part(8, _part(6, UNIT) + _part(7, axis)), parent)

    def _count(self, begin_ns: int, interval_ns: int, rates: Floats) -> Iterator[bytes]:
        """The packets of rates (counters, samples) from a time on; of missing samples in a row, the first one."""
        times = (begin_ns + interval_ns * np.arange(rates.shape[1], dtype=np.int64))[:, np.newaxis] >> _SHIFTS
        stamps = (times & 0x7F).astype(np.uint8) | _GOES_ON
        missing = np.isnan(rates)
        ended = np.concatenate((self._ended[:, np.newaxis], missing[:, :-1]), axis=1)
        self._ended = missing[:, -1]
        for uuid, row, kept in zip(self._counters, rates / GIGA, ~(missing & ended), strict=True):
            yield _counter_packets(uuid, stamps[kept], row[kept])

    def _mark(self, mark: Mark) -> Iterator[bytes]:
        ahead = self._node.ahead_ns
        uuid = self._threads[mark.port] if mark.port else self._tracks.get(mark.track)
        if uuid is None:
            uuid = self._tracks[mark.track] = next(self._numbers)
            yield _track(uuid, _part(2, mark.track), self._process)
        details = b"".join(_part(4, _part(10, name) + _detail(value)) for name, value in mark.details.items())
        kind = INSTANT if mark.end_ns is None else SLICE_BEGIN
        yield _event(mark.begin_ns - ahead, _number(9, kind) + _number(11, uuid) + _part(23, mark.name) + details)
        if mark.end_ns is not None:
            yield _event(mark.end_ns - ahead, _number(9, SLICE_END) + _number(11, uuid))


def _counter_packets(uuid: int, stamps: npt.NDArray[np.uint8], values: Floats) -> bytes:
    """A packet for each value, all of one length."""
    time, value = b"\x7e" * TIME_BYTES, b"\x7f" * 8
    body = _number(9, COUNTER) + _number(11, uuid) + _varint(44 << 3 | 1) + value
    packet = _packet(_varint(8 << 3) + time + _number(58, REALTIME) + _part(11, body))
    packets = np.tile(np.frombuffer(packet, dtype=np.uint8), (len(values), 1))
    at = packet.index(time)
    packets[:, at : at + TIME_BYTES] = stamps
    packets[:, -len(value) :] = values.astype("<f8").view(np.uint8).reshape(-1, 8)
    return packets.tobytes()


def _event(time_ns: int, body: bytes) -> bytes:
    return _packet(_number(8, time_ns) + _number(58, REALTIME) + _part(11, body))


def _track(uuid: int, body: bytes, parent: int = 0) -> bytes:
    return _packet(_part(60, _number(1, uuid) + (_number(5, parent) if parent else b"") + body))


def _packet(body: bytes) -> bytes:
    """A packet of the only sequence."""
    return _part(1, _number(10, 1) + body)


def _detail(value: str | float) -> bytes:
    return _part(6, value) if isinstance(value, str) else _varint(5 << 3 | 1) + struct.pack("<d", value)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _part(field: int, content: bytes | str) -> bytes:
    """A field of text or of another message."""
    raw = content.encode("utf-8", "replace") if isinstance(content, str) else content
    return _varint(field << 3 | 2) + _varint(len(raw)) + raw


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])
