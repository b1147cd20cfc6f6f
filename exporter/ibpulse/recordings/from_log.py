"""The part of an event log that belongs to a recording of its ring."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ibpulse.events import Event, EventLog, PortHistory
from ibpulse.recordings.recorded_events import limit_events
from ibpulse.recordings.recording import RecordedPort
from ibpulse.ring import layout as at
from ibpulse.ring.reader import RingReader


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
    return tuple(_at_begin(port, history, ticks) for port in ports)


def _at_begin(port: RecordedPort, history: PortHistory, ticks: RecordedTicks) -> RecordedPort:
    # a change at the first tick is an event of the recording
    spans = history.spans(str(port.id), ticks.first - 1, ticks.end)
    states = [span.state for span in spans if span.state is not None]
    return port.in_state(states[0]) if states else port


def events_in(log: EventLog, reader: RingReader, ticks: RecordedTicks) -> tuple[tuple[Event, ...], int]:
    """The events of a recording of a ring, and the number of those above its limit.

    When the wall clock is set, the times of a recording go on at the interval, and so do those of its events.
    """
    return limit_events(_place(log.events(), reader, ticks))


def _place(events: Sequence[Event], reader: RingReader, ticks: RecordedTicks) -> list[Event]:
    ring, interval_ns = reader.ring.words[at.H_CREATED_WALL_NS], reader.interval_ns
    placed = []
    for event in events:
        sample = (event.time_ns - ticks.start_ns) // interval_ns
        here = event.tick - ticks.first if event.tick and event.ring == ring else sample
        if 0 <= here < ticks.end - ticks.first:
            on_clock = here == sample
            placed.append(event if on_clock else replace(event, time_ns=ticks.start_ns + here * interval_ns))
    return placed
