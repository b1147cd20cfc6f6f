"""The events of a recording: bounded, and as JSON in its metadata."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import orjson

from ibpulse.events import Event
from ibpulse.events.event import from_json, to_json
from ibpulse.recordings.recording import MAX_EVENTS

MAX_EVENT_BYTES = 2_000_000


def events_to_json(events: Iterable[Event]) -> list[dict[str, Any]]:
    """The events as values of JSON, without their place in a ring and the ports of `started`, which it has itself."""
    return [to_json(replace(event, tick=0, ring=0, details=_details(event))) for event in events]


def _details(event: Event) -> Mapping[str, Any]:
    return {name: value for name, value in event.details.items() if name != "ports"}


def events_from_json(members: object) -> tuple[Event, ...]:
    """The events of `events_to_json` in order of time.

    Raises:
        ValueError: they are too many or not events; the message continues a sentence that begins with the file name.
    """
    count = len(members) if isinstance(members, list) else 0
    if count > MAX_EVENTS:
        raise ValueError(f"has {count} events; at most {MAX_EVENTS} are read")
    try:
        events = [from_json(each) for each in (members if isinstance(members, list) else [members])]
    except ValueError as error:
        raise ValueError(f"has invalid metadata: events: {error}") from error
    return tuple(sorted(events, key=lambda event: event.time_ns))


def limit_events(events: Iterable[Event]) -> tuple[tuple[Event, ...], int]:
    """The events that a recording can hold, in order of time, and the number of those left out.

    If there are too many, the oldest of the port or device with most of them are left out, so that a flapping port
    cannot push out the others.
    """
    subjects: dict[str, deque[tuple[int, Event]]] = {}
    count = total_bytes = left_out = 0
    for event in sorted(events, key=lambda event: event.time_ns):
        size = len(orjson.dumps(events_to_json([event])))
        subjects.setdefault(event.subject, deque()).append((size, event))
        count, total_bytes = count + 1, total_bytes + size
    while count > MAX_EVENTS or total_bytes > MAX_EVENT_BYTES:
        size, _ = max(subjects.values(), key=len).popleft()
        count, total_bytes, left_out = count - 1, total_bytes - size, left_out + 1
    kept = [event for queue in subjects.values() for _, event in queue]
    return tuple(sorted(kept, key=lambda event: event.time_ns)), left_out
