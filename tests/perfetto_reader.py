"""Reads a trace by Perfetto's published schema, as compiled in its own package: nothing of ours decodes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

REALTIME = schema.ClockSnapshot.Clock.REALTIME


@dataclass
class Track:
    """A track: its names from the process down, its counter samples, its slices and its instants, by time in ns."""

    path: tuple[str, ...]
    unit: str = ""
    samples: list[tuple[int, float]] = field(default_factory=list)
    slices: list[tuple[str, int, int]] = field(default_factory=list)
    instants: list[tuple[str, int]] = field(default_factory=list)
    details: list[dict[str, Any]] = field(default_factory=list)


def read_trace(content: bytes) -> dict[tuple[str, ...], Track]:
    """The tracks of a trace by their paths; the rules of Perfetto's own importer are asserted."""
    trace = schema.Trace()
    trace.ParseFromString(content)
    tracks: dict[int, Track] = {}
    for packet in in_order(trace):
        assert packet.trusted_packet_sequence_id
        assert not any(len(UnknownFieldSet(part)) for part in (packet, packet.track_event, packet.track_descriptor))
        if packet.HasField("track_descriptor"):
            described = packet.track_descriptor
            assert described.uuid not in {0, *tracks}
            parent = tracks[described.parent_uuid].path if described.parent_uuid else ()
            name = described.process.process_name or described.thread.thread_name or described.name
            assert described.HasField("process") == (not parent)
            tracks[described.uuid] = Track((*parent, name), described.counter.unit_name)
        elif packet.HasField("track_event"):
            assert packet.timestamp_clock_id == REALTIME
            add_event(tracks[packet.track_event.track_uuid], packet.timestamp, packet.track_event)
        else:
            assert packet.clock_snapshot.primary_trace_clock == REALTIME
    assert all(end for track in tracks.values() for _, _, end in track.slices)
    found = {track.path: track for track in tracks.values()}
    assert len(found) == len(tracks)
    return found


def in_order(trace: Any) -> Iterator[Any]:
    """Descriptions first, then events by time, as Perfetto sorts them."""
    events = [packet for packet in trace.packet if packet.HasField("track_event")]
    yield from (packet for packet in trace.packet if not packet.HasField("track_event"))
    yield from sorted(events, key=lambda packet: packet.timestamp)


def add_event(track: Track, time_ns: int, event: Any) -> None:
    """Add an event to its track."""
    kinds = schema.TrackEvent
    if event.type == kinds.TYPE_COUNTER:
        assert track.unit
        track.samples.append((time_ns, event.double_counter_value))
    elif event.type == kinds.TYPE_SLICE_END:
        name, begin, end = track.slices.pop()
        assert not end
        track.slices.append((name, begin, time_ns))
    else:
        track.details.append({each.name: each.string_value or each.double_value for each in event.debug_annotations})
        if event.type == kinds.TYPE_SLICE_BEGIN:
            assert not track.slices or track.slices[-1][2]
            track.slices.append((event.name, time_ns, 0))
        else:
            assert event.type == kinds.TYPE_INSTANT
            track.instants.append((event.name, time_ns))
