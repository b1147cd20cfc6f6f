"""The jobs of a recording: as of its beginning, followed while it grows, cut with it, and read with suspicion."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ibpulse.base.errors import DaemonError, RecordingError
from ibpulse.core.client.connection import DaemonConnection
from ibpulse.core.events import Event
from ibpulse.core.jobs import Claim, Holding, JobRecord, PlacedJob, job_details, trace_jobs
from ibpulse.core.model import PortId
from ibpulse.core.recordings import Recording, RecordingWriter, load, read_meta, save
from ibpulse.core.recordings.file_format import KEY
from ibpulse.core.recordings.recorded_jobs import MAX_JOBS, jobs_at_begin, limit_jobs, trace_holdings
from ibpulse.core.recordings.recording import meta_between
from ibpulse.workbench.recorder.from_daemon import ask_jobs
from tests.client.servers import canned
from tests.fleet.small_answers import jobs_of
from tests.recordings.recordings import INTERVAL_NS, START_NS, make_meta, make_recording

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


def test_a_job_that_came_back_is_two_each_with_its_own_time() -> None:
    again = recorded(job("1", "mlx5_1"), began=80)
    events = (*STORY, event(80, "job-began", again.job))
    found = trace_holdings((JOBS[0], again), events)
    assert [len(each.holdings) for each in found] == [2, 1]
    assert found[1].holdings[0].since == events[-1]


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


def test_a_job_has_no_ports_until_they_are_known() -> None:
    (late,) = trace_jobs([event(50, "job-change", MOVED)])
    (before,) = jobs_at_begin([late], at(0), at(50))
    assert (before.job.claim.id, before.job.ports, before.job.basis) == ("1", (), "")
    (within,) = jobs_at_begin([late], at(0), at(51))
    assert (within.job.ports, within.job.basis) == (MOVED.ports, "gpus")


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
        ([7], "jobs: a job is not an object with an id"),
        ([{"job_id": "../etc"}], "jobs: a job is not an object with an id"),
        ([{"job_id": "1", "ports": "all"}], "jobs: a job is not an object with an id"),
        ([{"job_id": "1", "name": "\ud800"}], "jobs: a job is not an object with an id"),
        ([{"job_id": "1", "namespace": "x" * 129}], "jobs: a job is not an object with an id"),
        ([{"job_id": "1", "began_ns": -1}], "jobs: began_ns of job 1 is not a time in nanoseconds"),
        ([{"job_id": "1", "ended_ns": True}], "jobs: ended_ns of job 1 is not a time in nanoseconds"),
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


def test_very_many_jobs_of_one_id_and_events_are_traced_at_once() -> None:
    same = [recorded(BEFORE, began=1) for _ in range(MAX_JOBS)]
    found = trace_holdings(same, [event(2, "job-change", MOVED)] * 2000)
    assert sum(len(each.holdings) for each in found) == MAX_JOBS + 2000


@pytest.mark.timeout(60)
def test_very_many_changes_of_a_job_in_a_file_that_grew_take_time_in_proportion() -> None:
    (found,) = trace_jobs([event(2, "job-change", MOVED)] * 30_000, [recorded(BEFORE)])
    assert len(found.holdings) == 30_001


def test_a_file_without_jobs_has_none(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    save(path, whole())
    table = pq.read_table(path)
    about = json.loads(table.schema.metadata[KEY])
    for gone in ("jobs", "jobs_left_out"):
        del about[gone]
    pq.write_table(table.replace_schema_metadata({KEY: json.dumps(about)}), path)
    assert load(path).meta.jobs == ()
    pq.write_table(table.replace_schema_metadata({KEY: json.dumps({**about, "jobs": [{"job_id": "1"}]})}), path)
    assert [each.job.claim.id for each in load(path).meta.jobs] == ["1"]


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
