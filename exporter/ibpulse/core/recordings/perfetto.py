"""Writes the samples of nodes as a trace of Perfetto, in its native protobuf format, in pieces.

Numbers of fields are those of protos/perfetto/trace/perfetto_trace.proto. A node is a process, a rail a thread with a
counter track per direction; what happened are slices and instants. A rate stands at the beginning of its sample,
because Perfetto draws a value up to the next one; where samples are missing it is NaN, which is no value in its SQL.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ibpulse.base.units import MILLISECOND_NS, SECOND_NS
from ibpulse.core.arrays import Bools, Floats
from ibpulse.core.defaults import ACTIVE_BYTES_PER_SECOND
from ibpulse.core.jobs import trace_jobs
from ibpulse.core.limits import LEGEND
from ibpulse.core.model import DIRECTIONS
from ibpulse.core.recordings.limits import find_recorded_signs
from ibpulse.core.recordings.recording import Recording, RecordingMeta, concatenate
from ibpulse.core.statistics.signs import LETTERS, NAMES, NOTHING
from ibpulse.core.statistics.silences import SampleTimes, describe_rates
from ibpulse.core.statistics.steps.edges import find_least_idle, find_step_edges
from ibpulse.core.statistics.steps.runs import (
    MAX_BRIDGED,
    SILENT_BYTES_PER_SECOND,
    find_equal_runs,
    find_pauses,
    find_row_runs,
    silence_level,
)
from ibpulse.core.statistics.sums import line_rate
from ibpulse.core.statistics.verdict import notable_seconds

UNIT, GIGA = "GB/s", 1e9
REALTIME, BOOTTIME = 1, 6
SLICE_BEGIN, SLICE_END, INSTANT, COUNTER = 1, 2, 3, 4
# varints may be longer than necessary; 63 bits hold every time of a recording
TIME_BYTES = 9
_SHIFTS = 7 * np.arange(TIME_BYTES)
_GOES_ON = np.array([0x80] * (TIME_BYTES - 1) + [0], dtype=np.uint8)
STEPS, BURSTS, STALLS, EVENTS, MISSING = "steps", "bursts", "stalls", "events", "missing data"
SIGNS = "signs of limits,"
SIGNS_AT_ONCE_NS = 60 * SECOND_NS
"""Signs are found in parts of this length; the usual peak of a rail is the highest so far."""
MIN_STEPS = 3
"""Steps whose usual period says which silence is a stall."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A span on a track of the node, or on that of a port; without an end, an instant."""

    track: str
    name: str
    begin_ns: int
    end_ns: int | None = None
    port: str = ""
    details: Mapping[str, str | float] = field(default_factory=dict)


class NodeSamples:
    """Adds up the ports `rows` of the pieces of a recording as they pass, and finds the marks at the end."""

    def __init__(self, meta: RecordingMeta, rows: Sequence[int]) -> None:
        self._meta, self._rows = meta, rows
        self._names = [str(meta.ports[row].id) for row in rows]
        self._sums: list[Floats] = []
        self._missing: list[Bools] = []
        self._pending: list[Recording] = []
        self._peaks: dict[str, float] = {}
        self._signs: list[Mark] = []
        self.ticks = self._start_ns = 0

    @property
    def begin_ns(self) -> int:
        """The beginning of the first sample."""
        return self._start_ns - self._meta.interval_ns

    @property
    def end_ns(self) -> int:
        """The end of the last sample."""
        return self.begin_ns + self.ticks * self._meta.interval_ns

    def add(self, piece: Recording) -> Floats:
        """The sum over the ports of a piece: (2, samples), NaN where a port that is up, or every port, is missing."""
        if not self.ticks:
            self._start_ns = piece.start_ns
        self.ticks += piece.ticks
        rates, up = piece.bytes_per_second[self._rows], np.zeros((len(self._rows), 1, piece.ticks), dtype=np.bool_)
        states = piece.states
        for row, name in enumerate(self._names):
            for span in states.spans(name, 0, piece.ticks):
                up[row, 0, span.first : span.end] = span.state is not None and span.state.active
        missing = np.isnan(rates)
        total = np.where(missing, 0.0, rates).sum(axis=0)
        total[(missing & up).any(axis=0) | missing.all(axis=0)] = np.nan
        self._sums.append(total)
        self._missing.append(np.asarray(missing.any(axis=1)))
        if piece.signals:
            self._pending.append(piece)
        if sum(each.ticks for each in self._pending) * self._meta.interval_ns >= SIGNS_AT_ONCE_NS:
            self._find_signs()
        return np.asarray(total)

    def marks(self, active: float) -> Iterator[Mark]:
        """The marks of all samples, those of each track in order of time; bursts are above `active`."""
        self._find_signs()
        yield from self._signs
        rates = np.concatenate(self._sums, axis=1)
        yield from self._find_jobs()
        yield from self._find_steps(rates)
        yield from self._find_bursts(rates.sum(axis=0), active)
        for row, first, end in zip(*find_row_runs(np.concatenate(self._missing, axis=1)), strict=True):
            yield Mark(MISSING, MISSING, self._at(first), self._at(end), self._names[row])
        for event in self._meta.events:
            if self.begin_ns <= event.time_ns <= self.end_ns:
                error_ms = event.uncertainty_ns / MILLISECOND_NS
                details: dict[str, str | float] = {"subject": event.subject, "text": event.text}
                port = event.subject if event.subject in self._names else ""
                yield Mark(EVENTS, event.kind, event.time_ns, None, port, {**details, "uncertainty_ms": error_ms})

    def _find_signs(self) -> None:
        """Note the signs of what limited the ports in the pending pieces."""
        if not self._pending:
            return
        part, self._pending = concatenate(self._pending), []
        begin_ns, interval_ns = part.start_ns - part.meta.interval_ns, part.meta.interval_ns
        for port in find_recorded_signs(part, self._rows, ACTIVE_BYTES_PER_SECOND, self._peaks):
            codes = port.signs.of_samples()
            for first, end in zip(*find_equal_runs(codes.astype(np.int64)), strict=True):
                if codes[first] != NOTHING:
                    details = {"sign": LEGEND[LETTERS[codes[first]]]}
                    begin, stop = (begin_ns + int(at) * interval_ns for at in (first, end))
                    self._signs.append(Mark(f"{SIGNS} {port.name}", NAMES[codes[first]], begin, stop, "", details))

    def _at(self, sample: float) -> int:
        """The beginning of a sample."""
        return self.begin_ns + round(sample * self._meta.interval_ns)

    def _find_jobs(self) -> Iterator[Mark]:
        for record in trace_jobs(self._meta.events, self._meta.jobs):
            begin, end = record.began_ns or self.begin_ns, record.ended_ns or self.end_ns
            begin, end = max(begin, self.begin_ns), min(end, self.end_ns)
            if begin < end:
                name = f"job {record.job.claim.id}"
                ports = ", ".join(map(str, record.job.ports))
                yield Mark(name, name, begin, end, "", {"scheduler": record.job.claim.scheduler, "ports": ports})

    def _find_steps(self, rates: Floats) -> Iterator[Mark]:
        """Steps with a period, from the first traffic of one to that of the next; silences that are longer."""
        interval_ns, both = self._meta.interval_ns, rates.sum(axis=0)
        silent = float(silence_level(np.nanmax(rates, initial=0.0), SILENT_BYTES_PER_SECOND))
        least = find_least_idle(np.max(rates, axis=0), silent, interval_ns)
        if least is None:
            return
        known = [self._meta.ports[row].rate_bytes_per_second or np.nan for row in self._rows]
        line = float(line_rate(np.array(known), 1)[()])
        times = find_step_edges(rates, interval_ns, line if line > 0 else None, least).times
        at = np.fmin(times.transmit.at, times.receive.at)
        error = np.fmax(times.transmit.high, times.receive.high) - np.fmin(times.transmit.low, times.receive.low)
        begins, errors = self.begin_ns + at[~np.isnan(at)], error[~np.isnan(at)]
        if len(begins) < MIN_STEPS:
            return
        for number, (begin, end) in enumerate(pairwise(begins)):
            details = {"begin_uncertainty_ms": float(errors[number]) / MILLISECOND_NS}
            yield Mark(STEPS, f"step {number}", int(begin), int(end), "", details)
        samples = SampleTimes(0.0, interval_ns / SECOND_NS, 0.0)
        regular = describe_rates(("",), rates[np.newaxis], samples, SILENT_BYTES_PER_SECOND).regular
        shortest = notable_seconds(regular) * SECOND_NS
        pauses = find_pauses(both, silent)
        for first, end, missing in zip(pauses.first, pauses.end, pauses.missing, strict=True):
            if first and not missing and (end - first) * interval_ns >= shortest:
                yield Mark(STALLS, "stall", self._at(first), self._at(end))

    def _find_bursts(self, both: Floats, active: float) -> Iterator[Mark]:
        """Spans above the threshold; one or two missing samples do not end them."""
        pauses = find_pauses(both, active)
        kept = (pauses.missing < pauses.samples) | (pauses.samples > MAX_BRIDGED)
        firsts = np.concatenate(([0], pauses.end[kept]))
        ends = np.append(pauses.first[kept], len(both))
        for first, end in zip(firsts, ends, strict=True):
            if end > first:
                moved = float(np.nansum(both[first:end])) * self._meta.interval_ns / SECOND_NS
                yield Mark(BURSTS, "burst", self._at(first), self._at(end), "", {"GB": moved / 1e9})


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
