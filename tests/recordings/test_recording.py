"""A recording that cannot be is not made."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from ibpulse.base.errors import DaemonError, RecordingError
from ibpulse.core.client.connection import DaemonConnection
from ibpulse.core.events import Event
from ibpulse.core.jobs import Claim, Holding, JobRecord, PlacedJob, job_details, trace_jobs
from ibpulse.core.model import PortId, PortState
from ibpulse.core.recordings import (
    RecordedPort,
    Recording,
    RecordingMeta,
    RecordingWriter,
    concatenate,
    finish,
    load,
    read_meta,
    save,
)
from ibpulse.core.recordings.file_format import KEY
from ibpulse.core.recordings.recording import (
    MAX_EVENT_BYTES,
    MAX_EVENTS,
    MAX_JOBS,
    events_to_json,
    jobs_at_begin,
    limit_events,
    limit_jobs,
    meta_between,
    trace_holdings,
)
from ibpulse.workbench.recorder.from_daemon import ask_jobs
from tests.client.servers import canned
from tests.fleet.small_answers import jobs_of
from tests.recordings.recordings import INTERVAL_NS, START_NS, make_meta, make_recording


def arrays(ticks: int = 3) -> tuple[np.ndarray, np.ndarray]:
    return np.ones((2, 2, ticks)), np.full((2, 2, ticks), 0.01)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda rates, seconds: (rates, seconds[:, :, :1]), "do not fit 2 ports"),
        (lambda rates, seconds: (-rates, seconds), "negative or not finite"),
        (lambda rates, seconds: (rates, seconds * np.nan), "negative or not finite"),
        (lambda rates, seconds: (rates * 1e300, seconds), "higher than counters can make it"),
        (lambda rates, seconds: (rates * np.nan, seconds), "its seconds must be 0"),
    ],
)
def test_arrays_that_are_no_rates_are_refused(change: Callable, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Recording(make_meta(2), START_NS, *change(*arrays()))


def test_what_a_recording_says_of_itself_is_checked() -> None:
    with pytest.raises(ValueError, match="'':1 names no port"):
        RecordedPort("", 1)
    with pytest.raises(ValueError, match="'mlx5_0':256 names no port"):
        RecordedPort("mlx5_0", 256)
    with pytest.raises(ValueError, match="port mlx5_0:1 has a stride of 0; the least is 1"):
        RecordedPort("mlx5_0", 1, stride=0)
    port = RecordedPort("mlx5_0", 1)
    with pytest.raises(ValueError, match="an interval of 0 ns is out of bounds"):
        RecordingMeta("a", 0, (port,), "x")
    with pytest.raises(ValueError, match="0 ports; a recording has 1 to 256"):
        RecordingMeta("a", 1, (), "x")
    with pytest.raises(ValueError, match="a port is listed twice"):
        RecordingMeta("a", 1, (port, port), "x")
    with pytest.raises(ValueError, match="4001 events; a recording has at most 4000"):
        recording_of(FLAP[:1] * (MAX_EVENTS + 1))
    for start_ns in (-1, 2**63 - 20_000_000):
        with pytest.raises(ValueError, match="outside of 1970 to 2262"):
            Recording(make_meta(2), start_ns, *arrays())


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


def test_states_follow_from_ports_and_events_in_every_part() -> None:
    recording = recording_of(FLAP)
    assert actives(recording) == [True] * 3 + [False] * 4 + [True] * 3
    assert actives(recording, "mlx5_0:1") == [True] * 10
    assert recording.states.at("mlx5_1:1", 5) == DOWN
    assert recording.states.names() == ["mlx5_0:1", "mlx5_1:1"]
    for first, end in itertools.combinations(range(11), 2):
        assert actives(recording.cut(first, end)) == actives(recording)[first:end]
    assert concatenate([recording.cut(0, 4), recording.cut(4, 10)]).states.at("mlx5_1:1", 4) == DOWN
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


def test_a_finished_file_has_the_events_of_its_samples(tmp_path: Path) -> None:
    whole = recording_of(())
    with RecordingWriter(tmp_path / "a.parquet", whole.meta) as writer:
        writer.append(whole.cut(0, 7))
        writer.add_events(FLAP)
    assert load(tmp_path / "a.parquet").meta.events == FLAP[:1]
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


def test_the_port_with_most_events_loses_its_oldest_and_large_ones_count_more() -> None:
    many = [changed(number, UP, DOWN) for number in range(MAX_EVENTS + 5)]
    rare = [changed(0, UP, DOWN, "mlx5_0:1"), Event(START_NS, "clock-step", "", "The clock was set.")]
    kept, left_out = limit_events([*many, *rare])
    assert (len(kept), left_out) == (MAX_EVENTS, 7)
    assert all(event in kept for event in rare)
    assert kept[-1] == many[-1]
    assert [event for event in kept if event.subject == "mlx5_1:1"] == many[7:]
    many = [Event(number, "started", "", "x" * 1000, details={"a": "y" * 9000}) for number in range(1000)]
    kept, left_out = limit_events(many)
    assert len(kept) + left_out == 1000
    assert MAX_EVENT_BYTES * 0.95 < len(str(events_to_json(kept))) <= MAX_EVENT_BYTES * 1.05


def test_a_recording_does_not_repeat_the_ports_of_a_start_nor_the_place_in_a_ring() -> None:
    event = Event(5, "started", "", "Started.", details={"ports": {"mlx5_0:1": {}}, "version": "0.2"}, tick=7, ring=8)
    (members,) = events_to_json([event])
    assert members["details"] == {"version": "0.2"}
    assert not members.keys() & {"tick", "ring"}


TICKS = 100


def job(name: str, *devices: str) -> PlacedJob:
    return PlacedJob(Claim(name, "slurm", "file", "llama"), tuple(PortId(device, 1) for device in devices), "gpus")


def at(sample: int) -> int:
    """Wall time of a sample."""
    return START_NS + sample * INTERVAL_NS


def recorded(placed: PlacedJob, began: int | None = None, ended: int | None = None) -> JobRecord:
    """A job as a recording has it; its times are samples."""
    times = [None if sample is None else at(sample) for sample in (began, ended)]
    return JobRecord(placed, times[0], 3 if began else 0, times[1], 4 if ended else 0, (Holding(placed.ports),))


def event(sample: int, kind: str, placed: PlacedJob) -> Event:
    uncertainty_ns = {"job-began": 3, "job-change": 0, "job-ended": 4}[kind]
    return Event(at(sample), kind, "", "", uncertainty_ns, details=job_details(placed))


BEFORE, MOVED, NEXT = job("1", "mlx5_0"), job("1", "mlx5_1"), job("2", "mlx5_0")
STORY = (event(20, "job-change", MOVED), event(40, "job-began", NEXT), event(60, "job-ended", MOVED))
JOBS = (recorded(BEFORE, ended=60), recorded(NEXT, began=40))


def whole() -> Recording:
    return make_recording(TICKS, events=STORY, jobs=JOBS)


def grow(path: Path, *, finish: bool) -> None:
    """A recording that begins while job 1 is running."""
    writer = RecordingWriter(path, make_meta(jobs=(recorded(BEFORE),)))
    recording = make_recording(TICKS)
    writer.append(replace(recording.cut(0, 50), meta=make_meta()))
    # one of them comes late, and one is of a time after the end
    writer.add_events([STORY[1], STORY[0]])
    writer.append(replace(recording.cut(50, TICKS), meta=make_meta()))
    writer.add_events([STORY[2], event(TICKS + 5, "job-ended", NEXT)])
    if finish:
        writer.close()


@pytest.mark.parametrize("finish", [True, False])
def test_a_recording_follows_the_jobs_while_it_grows_and_after_a_kill(tmp_path: Path, finish: bool) -> None:
    path = tmp_path / "a.parquet"
    grow(path, finish=finish)
    meta = load(path).meta
    assert meta.jobs == JOBS
    assert meta.events == STORY
    assert (read_meta(path).jobs, meta.jobs_left_out) == (JOBS, 0)


def test_what_happened_to_jobs_before_the_first_sample_is_followed_but_no_event_of_the_recording(
    tmp_path: Path,
) -> None:
    with RecordingWriter(tmp_path / "a.parquet", make_meta(jobs=(recorded(BEFORE),))) as writer:
        writer.add_events([event(-9, "job-ended", BEFORE), event(-5, "job-began", NEXT)])
        writer.append(replace(make_recording(TICKS), meta=make_meta()))
    meta = read_meta(tmp_path / "a.parquet")
    assert meta.jobs == (recorded(NEXT, began=-5),)
    assert meta.events == ()


def test_a_file_has_its_jobs_as_json(tmp_path: Path) -> None:
    save(tmp_path / "a.parquet", whole())
    assert load(tmp_path / "a.parquet") == whole()
    about = json.loads(pq.read_schema(tmp_path / "a.parquet").metadata[KEY])
    assert about["jobs"][1] == {
        "job_id": "2",
        "scheduler": "slurm",
        "source": "file",
        "ports": ["mlx5_0:1"],
        "basis": "gpus",
        "name": "llama",
        "began_ns": at(40),
        "began_uncertainty_ns": 3,
    }
    assert about["jobs_left_out"] == 0


def test_the_ports_of_a_job_follow_from_the_events() -> None:
    first, second = trace_holdings(JOBS, STORY)
    assert [(each.ports, each.since, each.until and each.until.time_ns) for each in first.holdings] == [
        (BEFORE.ports, None, at(20)),
        (MOVED.ports, STORY[0], at(60)),
    ]
    assert [(each.ports, each.since, each.until) for each in second.holdings] == [(NEXT.ports, STORY[1], None)]
    (late,) = trace_jobs([event(50, "job-change", MOVED)])
    (before,) = jobs_at_begin([late], at(0), at(50))
    assert (before.job.claim.id, before.job.ports, before.job.basis) == ("1", (), "")
    (within,) = jobs_at_begin([late], at(0), at(51))
    assert (within.job.ports, within.job.basis) == (MOVED.ports, "gpus")


@pytest.mark.parametrize(
    ("first", "end", "expected"),
    [
        (0, 10, [("1", "mlx5_0")]),
        (10, 50, [("1", "mlx5_0"), ("2", "mlx5_0")]),
        (30, 50, [("1", "mlx5_1"), ("2", "mlx5_0")]),
        (60, 100, [("2", "mlx5_0")]),
        (0, 40, [("1", "mlx5_0")]),
    ],
)
def test_a_part_has_the_jobs_of_its_time_with_the_ports_that_they_had_first(
    first: int, end: int, expected: list[tuple[str, str]]
) -> None:
    meta = meta_between(whole().meta, at(first), at(end))
    assert [(each.job.claim.id, each.job.ports[0].device) for each in meta.jobs] == expected


def test_of_too_many_jobs_those_that_ended_first_are_left_out() -> None:
    many = [recorded(job(str(number), "mlx5_0"), began=number, ended=number + 1) for number in range(1, MAX_JOBS + 6)]
    kept, left_out = limit_jobs([recorded(BEFORE), *many])
    assert (len(kept), left_out) == (MAX_JOBS, 6)
    assert kept[:2] == (recorded(BEFORE), many[6])
    wide = [recorded(job(str(number), *(f"mlx5_{n}" for n in range(256))), began=1) for number in range(300)]
    kept, left_out = limit_jobs(wide)
    assert 0 < left_out == 300 - len(kept)
    assert make_meta(jobs=kept).jobs == kept


@pytest.mark.parametrize(
    ("jobs", "sentence"),
    [
        ({}, "jobs are not a list"),
        ([{"job_id": "../etc"}], "jobs: a job is not an object with an id"),
        ([{"job_id": "1", "namespace": "x" * 129}], "jobs: a job is not an object with an id"),
        ([{"job_id": "1", "began_ns": -1}], "jobs: began_ns of job 1 is not a time in nanoseconds"),
        ([{"job_id": "1", "ended_uncertainty_ns": 10**30}], "jobs: ended_uncertainty_ns of job 1 is not a time"),
        ([{"job_id": "1"}] * (MAX_JOBS + 1), f"has {MAX_JOBS + 1} jobs; at most {MAX_JOBS} are read"),
    ],
)
def test_jobs_that_cannot_be_used_are_told(tmp_path: Path, jobs: object, sentence: str) -> None:
    path = tmp_path / "a.parquet"
    save(path, whole())
    table = pq.read_table(path)
    about = json.loads(table.schema.metadata[KEY])
    pq.write_table(table.replace_schema_metadata({KEY: json.dumps({**about, "jobs": jobs})}), path)
    with pytest.raises(RecordingError, match=sentence):
        load(path)


@pytest.mark.timeout(60)
def test_very_many_changes_of_a_job_in_a_file_that_grew_take_time_in_proportion() -> None:
    (found,) = trace_jobs([event(2, "job-change", MOVED)] * 30_000, [recorded(BEFORE)])
    assert len(found.holdings) == 30_001


def test_the_jobs_of_a_daemon_are_asked_for() -> None:
    with canned() as server:
        server.answer("/api/v1/jobs", jobs_of({}))
        connection = DaemonConnection(server.url)
        (found,) = ask_jobs(connection)
        assert (found.job.claim.id, found.job.ports, found.job.basis) == ("7", (PortId("mlx5_0", 1),), "alone")
        assert (found.began_ns, found.began_uncertainty_ns, found.ended_ns) == (5_000_000, 2_000_000, None)
        for body in (
            jobs_of({"job_id": "../7"}),
            jobs_of({"began_ms": "9" * 1_000_000}),
            jobs_of({"ended_ms": 2**63 // 10**6 + 1}),
            b'{"jobs": [7]}',
            b"[]",
        ):
            server.answer("/api/v1/jobs", body)
            with pytest.raises(DaemonError, match="is this an ibpulse daemon of a compatible version"):
                ask_jobs(connection)
        connection.close()
