"""The events of a recording, and the states of its ports that follow from them."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from ibpulse.core.events import Event
from ibpulse.core.model import PortState
from ibpulse.core.recordings import (
    RecordedPort,
    Recording,
    RecordingMeta,
    RecordingWriter,
    concatenate,
    finish,
    load,
    save,
)
from ibpulse.core.recordings.recording import MAX_EVENT_BYTES, MAX_EVENTS, events_to_json, limit_events, meta_between
from tests.recordings.recordings import INTERVAL_NS, START_NS, make_recording

UP = PortState("ACTIVE", "LinkUp", True, 50e9, True)
DOWN = PortState("DOWN", "Polling", False, 50e9, True)
PORTS = tuple(RecordedPort(f"mlx5_{number}", 1).in_state(UP) for number in range(2))


def changed(sample: int, before: PortState | None, after: PortState | None, subject: str = "mlx5_1:1") -> Event:
    """An event between a sample and the next one."""
    kind = "link-up" if after and after.active else "link-down"
    return Event(START_NS + sample * INTERVAL_NS + 3, kind, subject, "A sentence.", before=before, after=after)


FLAP = (changed(3, UP, DOWN), changed(7, DOWN, UP))


def recording_of(events: tuple[Event, ...], ticks: int = 10, ports: tuple[RecordedPort, ...] = PORTS) -> Recording:
    plain = make_recording(ticks, len(ports))
    meta = RecordingMeta("node7", INTERVAL_NS, ports, "record", events=events)
    return Recording(meta, plain.start_ns, plain.bytes_per_second, plain.seconds)


def actives(recording: Recording, name: str = "mlx5_1:1") -> list[bool | None]:
    """Whether a port was active at each sample; None where it did not exist."""
    states = [recording.states.at(name, sample) for sample in range(recording.ticks)]
    return [state.active if state else None for state in states]


def test_states_follow_from_ports_and_events() -> None:
    recording = recording_of(FLAP)
    assert actives(recording) == [True] * 3 + [False] * 4 + [True] * 3
    assert actives(recording, "mlx5_0:1") == [True] * 10
    assert recording.states.at("mlx5_1:1", 5) == DOWN
    assert recording.states.names() == ["mlx5_0:1", "mlx5_1:1"]


def test_a_part_has_the_states_of_its_samples() -> None:
    recording = recording_of(FLAP)
    for first, end in itertools.combinations(range(11), 2):
        assert actives(recording.cut(first, end)) == actives(recording)[first:end]
    assert concatenate([recording.cut(0, 4), recording.cut(4, 10)]).states.at("mlx5_1:1", 4) == DOWN


def test_the_metadata_of_a_part_stands_for_itself() -> None:
    recording = recording_of(FLAP)
    for first, end in itertools.combinations(range(11), 2):
        part = recording.cut(first, end)
        meta = meta_between(recording.meta, part.start_ns, part.end_ns)
        alone = Recording(meta, part.start_ns, part.bytes_per_second, part.seconds)
        assert actives(alone) == actives(part)
        assert [event in meta.events for event in FLAP] == [first <= 3 < end, first <= 7 < end]
        assert meta.ports[1].active is (True if first == 0 else actives(recording)[first - 1])


def test_a_port_that_appears_has_no_state_before_and_one_that_disappears_none_after() -> None:
    recording = recording_of((changed(2, None, UP), changed(8, UP, None)))
    assert actives(recording) == [None] * 2 + [True] * 6 + [None] * 2
    late = meta_between(recording.meta, START_NS + 9 * INTERVAL_NS, recording.end_ns)
    assert (late.ports[1].active, late.ports[1].problem) == (False, "disappeared")
    early = meta_between(recording.meta, START_NS + INTERVAL_NS, recording.end_ns)
    assert early.ports[1] == PORTS[1]


def test_events_of_other_ports_and_without_states_change_nothing() -> None:
    events = (changed(1, UP, DOWN, "mlx5_9:1"), Event(START_NS, "clock-step", "", "The clock was set."))
    recording = recording_of(events)
    assert actives(recording) == [True] * 10
    assert recording.states.names() == ["mlx5_0:1", "mlx5_1:1"]


def test_a_file_has_the_events(tmp_path: Path) -> None:
    save(tmp_path / "a.parquet", recording_of(FLAP))
    assert load(tmp_path / "a.parquet") == recording_of(FLAP)
    assert load(tmp_path / "a.parquet").meta.events == FLAP


def test_events_of_a_growing_file_survive_a_kill(tmp_path: Path) -> None:
    path, whole = tmp_path / "a.parquet", recording_of(())
    writer = RecordingWriter(path, whole.meta)
    writer.append(whole.cut(0, 3))
    writer.append(whole.cut(3, 5))
    writer.add_events(FLAP[:1])
    # not closed: as after a kill
    assert load(path).meta.events == FLAP[:1]
    assert actives(load(path)) == [True] * 3 + [False] * 2
    writer.add_events(FLAP[1:])
    writer.add_events([])
    writer.append(whole.cut(6, 10))
    assert load(path).ticks == 10
    assert actives(load(path)) == [True] * 3 + [False] * 4 + [True] * 3
    writer.close()
    assert not writer.partial.exists()
    assert load(path).meta.events == FLAP
    assert load(path).meta.ports == PORTS


def test_events_after_the_last_sample_are_left_out_of_the_finished_file(tmp_path: Path) -> None:
    whole = recording_of(())
    with RecordingWriter(tmp_path / "a.parquet", whole.meta) as writer:
        writer.append(whole.cut(0, 7))
        writer.add_events(FLAP)
    assert load(tmp_path / "a.parquet").meta.events == FLAP[:1]


def test_a_growing_file_that_is_trimmed_keeps_the_events_of_its_part(tmp_path: Path) -> None:
    whole = recording_of(())
    writer = RecordingWriter(tmp_path / "a.parquet", whole.meta)
    writer.add_events(FLAP)
    writer.append(whole)
    writer.close(5, 8)
    loaded = load(tmp_path / "a.parquet")
    assert loaded.meta.events == FLAP[1:]
    assert not loaded.meta.ports[1].active
    assert actives(loaded) == [False, False, True, True]


def test_a_stream_that_is_cut_off_keeps_the_events_up_to_there(tmp_path: Path) -> None:
    path, whole = tmp_path / "a.parquet", recording_of(())
    writer = RecordingWriter(path, whole.meta)
    writer.append(whole.cut(0, 5))
    writer.add_events(FLAP[:1])
    size = writer.bytes_written
    writer.add_events(FLAP[1:])
    writer.partial.write_bytes(writer.partial.read_bytes()[: size + 20])
    assert load(path).meta.events == FLAP[:1]
    finish(writer.partial)
    assert load(path).meta.events == FLAP[:1]


def test_the_port_with_most_events_loses_its_oldest_above_the_limit() -> None:
    many = [changed(number, UP, DOWN) for number in range(MAX_EVENTS + 5)]
    rare = [changed(0, UP, DOWN, "mlx5_0:1"), Event(START_NS, "clock-step", "", "The clock was set.")]
    kept, left_out = limit_events([*many, *rare])
    assert (len(kept), left_out) == (MAX_EVENTS, 7)
    assert all(event in kept for event in rare)
    assert kept[-1] == many[-1]
    assert [event for event in kept if event.subject == "mlx5_1:1"] == many[7:]


def test_large_events_are_limited_by_their_size() -> None:
    many = [Event(number, "started", "", "x" * 1000, details={"a": "y" * 9000}) for number in range(1000)]
    kept, left_out = limit_events(many)
    assert len(kept) + left_out == 1000
    assert MAX_EVENT_BYTES * 0.95 < len(str(events_to_json(kept))) <= MAX_EVENT_BYTES * 1.05


def test_a_recording_does_not_repeat_the_ports_of_a_start_nor_the_place_in_a_ring() -> None:
    event = Event(5, "started", "", "Started.", details={"ports": {"mlx5_0:1": {}}, "version": "0.2"}, tick=7, ring=8)
    (members,) = events_to_json([event])
    assert members["details"] == {"version": "0.2"}
    assert not members.keys() & {"tick", "ring"}


def test_too_many_events_are_refused() -> None:
    with pytest.raises(ValueError, match="4001 events; a recording has at most 4000"):
        recording_of(FLAP[:1] * (MAX_EVENTS + 1))
