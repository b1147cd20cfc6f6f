"""The samples and events of a ring as a recording: a part of it, or as they arrive."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ibpulse.base.errors import FabricError
from ibpulse.base.units import SECOND_NS
from ibpulse.core.events import Event, EventLog, PortHistory
from ibpulse.core.model import DeviceIdentity, Fabric
from ibpulse.core.recordings.recording import MAX_PORTS, RecordedPort, Recording, RecordingMeta, limit_events
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.reader import RingReader, read_signals
from ibpulse.core.ring.spans import AHEAD_SECONDS, read_rates, settled_tick, ticks_to_settle, widest_stride
from ibpulse.core.statistics.gains import PortSignals, no_readings
from ibpulse.core.statistics.plausible import LineRate

MADE_BY = "record"
NO_PORT = "has no ports with byte counters, so there is nothing to record; run `ibpulse doctor` to find out why"
APPEARED = "appeared"


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
    signals = tuple(_read_signals(reader, port, slots, tick, count) for port in meta.ports)
    return Recording(meta, start_ns, bytes_per_second, seconds, steps, merged, signals)


def _read_signals(
    reader: RingReader, port: RecordedPort, slots: Mapping[str, int], tick: int, count: int
) -> PortSignals:
    """The readings of a port at `count` ticks, counted from the first; none if its slot has other signals by now."""
    slot = slots.get(str(port.id))
    if slot is None or not port.signals:
        return no_readings(len(port.signals))
    ticks, readings = read_signals(reader, slot, tick, tick + count - 1)
    if readings.signals != port.signals or not len(ticks):
        return no_readings(len(port.signals))
    # the middle of the whole reading
    time_ns = (readings.time_ns.min(axis=1) + readings.time_ns.max(axis=1)) / 2
    seconds = np.diff(time_ns, prepend=np.nan) / 1e9
    kept = ticks >= tick
    return PortSignals(ticks[kept] - tick, seconds[kept], readings.counters[kept])


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
        self._start_ns = reader.wall_of(first_tick)
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


class SampleSource(ABC):
    """A stream of the samples and events of the ports in `meta`."""

    meta: RecordingMeta

    @abstractmethod
    def read(self) -> Iterator[Recording]:
        """The pieces since the last call."""

    @abstractmethod
    async def read_events(self) -> Sequence[Event]:
        """The events since the last call."""

    @abstractmethod
    def check(self) -> None:
        """Raise the error with which sampling has ended, if it has."""


def describe_fabric(fabric: Fabric, stride_of: Callable[[str], int]) -> tuple[RecordedPort, ...]:
    """The ports of a fabric that count bytes; `stride_of` returns the ticks between two samples of a port by name."""
    found = tuple(
        RecordedPort.of(port, port.source.name, stride_of(str(port.id)))
        for port in fabric.ports
        if port.source is not None
    )
    if not found:
        raise FabricError(f"this node {NO_PORT}")
    return found[:MAX_PORTS]


@dataclass(frozen=True, slots=True)
class RecordedTicks:
    """The ticks of a recording from `first` up to `end`, exclusive; the first sample is at wall time `start_ns`."""

    first: int
    end: int
    start_ns: int


def ports_at_begin(
    ports: Iterable[RecordedPort], history: PortHistory, ticks: RecordedTicks
) -> tuple[RecordedPort, ...]:
    """The ports as of the beginning of a recording; a port that appeared later, as of then.

    A port that the history does not know stays as it is.
    """
    found = []
    for port in ports:
        # a change at the first tick is an event of the recording
        spans = history.spans(str(port.id), ticks.first - 1, ticks.end)
        state = next((span.state for span in spans if span.state is not None), None)
        found.append(port if state is None else port.in_state(state))
    return tuple(found)


def events_in(log: EventLog, reader: RingReader, ticks: RecordedTicks) -> tuple[tuple[Event, ...], int]:
    """The events of a recording of a ring, and the number of those above its limit."""
    return limit_events(_within(log.events(), reader, ticks))


def place_events(events: Iterable[Event], reader: RingReader, ticks: RecordedTicks) -> list[Event]:
    """The events with their times in a recording of a ring, also those from before and after it.

    When the wall clock is set, the times of a recording go on at the interval, and so do those of its events. An event
    outside keeps its time unless that is on the other side or within.
    """
    ring, interval_ns = reader.ring.words[at.H_CREATED_WALL_NS], reader.interval_ns
    count, placed = ticks.end - ticks.first, []
    for event in events:
        sample = (event.time_ns - ticks.start_ns) // interval_ns
        here = event.tick - ticks.first if event.tick and event.ring == ring else sample
        is_right = here == sample or max(here, sample) < 0 or min(here, sample) >= count
        placed.append(event if is_right else replace(event, time_ns=ticks.start_ns + here * interval_ns))
    return placed


def _within(events: Iterable[Event], reader: RingReader, ticks: RecordedTicks) -> list[Event]:
    """The events of a recording of a ring by its times."""
    end_ns = ticks.start_ns + (ticks.end - ticks.first) * reader.interval_ns
    return [event for event in place_events(events, reader, ticks) if ticks.start_ns <= event.time_ns < end_ns]


class LogEvents:
    """The events of a log since the first tick of a recording of its ring, each once."""

    def __init__(
        self, events: EventLog, reader: RingReader, ticks: RecordedTicks, ports: Iterable[RecordedPort]
    ) -> None:
        self._log, self._reader, self._ticks = events, reader, ticks
        self._names = {str(port.id) for port in ports}
        self._number = 0

    async def read(self) -> Sequence[Event]:
        """The events that were added since the last call."""
        fresh = list(self._log.after(self._number))
        self._number = self._log.added
        return mark_others(_within(fresh, self._reader, self._ticks), self._names)


def mark_others(events: Sequence[Event], names: Collection[str]) -> Sequence[Event]:
    """The events, with a note at the ports that appeared during a recording, because it does not contain them."""
    return [
        replace(event, text=f"{event.text}; it is not recorded")
        if event.kind == APPEARED and event.subject not in names
        else event
        for event in events
    ]
