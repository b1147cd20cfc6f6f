"""The jobs of the past, as events describe them, and which of them the event log forgets."""

from __future__ import annotations

from pathlib import Path

import pytest

from ibpulse.core.events import Event, EventLog
from ibpulse.core.events.log import MAX_PER_KIND, EventFile
from ibpulse.core.jobs import Claim, PlacedJob, job_details, read_job, trace_jobs
from ibpulse.core.model import PortId

RING = 7


def event(time_ns: int, kind: str, name: str, *ports: str, before: bool = False) -> Event:
    placed = PlacedJob(Claim(name, "slurm", "slurm-map"), tuple(PortId(port, 1) for port in ports), "gpus")
    return Event(time_ns, kind, "", "", 7, details=job_details(placed, known=not before))


def test_a_history_has_begin_end_and_last_ports_of_every_job() -> None:
    records = trace_jobs(
        [
            event(10, "job-began", "1", "a", before=True),
            event(20, "job-began", "2", "b"),
            event(30, "job-change", "1", "a", "b"),
            Event(35, "link-down", "a:1", ""),
            event(40, "job-ended", "1", "a", "b"),
            event(50, "job-began", "1", "a"),
            event(60, "job-ended", "3"),
        ]
    )
    told = [
        (record.job.claim.id, len(record.job.ports), record.began_ns, record.ended_ns, record.ended_uncertainty_ns)
        for record in records
    ]
    assert told == [("1", 2, None, 40, 7), ("3", 0, None, 60, 7), ("2", 1, 20, None, 0), ("1", 1, 50, None, 0)]


@pytest.mark.parametrize(
    "details",
    [
        {},
        {"job_id": 12},
        {"job_id": "../x"},
        {"job_id": "1", "scheduler": []},
        {"job_id": "1", "ports": "a:1"},
        {"job_id": "1", "basis": "guess"},
    ],
)
def test_details_that_describe_no_job_are_skipped(details: dict[str, object]) -> None:
    assert read_job(details) is None
    assert trace_jobs([Event(1, "job-began", "", "", details=details)]) == ()


def test_ports_that_are_none_are_left_out() -> None:
    found = read_job({"job_id": "1", "ports": ["a:1", "b", 3, ":1", "a:x"]})
    assert found is not None
    assert found.ports == (PortId("a", 1),)


# what the log forgets


def opened(path: Path) -> EventLog:
    log = EventLog(EventFile(path))
    log.load(RING)
    return log


def jobs_of(log: EventLog) -> dict[str, list[str]]:
    """The kinds of the events of each job, in their order."""
    found: dict[str, list[str]] = {}
    for each in log.events():
        found.setdefault(each.details["job_id"], []).append(each.kind.removeprefix("job-"))
    return found


def test_the_begin_of_a_job_that_runs_stays_and_jobs_that_ended_go_whole(tmp_path: Path) -> None:
    log = opened(tmp_path / "events")
    log.add(event(1, "job-began", "long"))
    for number in range(2, 1700):
        log.add(event(number, "job-began", str(number)))
        log.add(event(number, "job-change", str(number)))
        # each runs while the next three begin
        if number > 5:
            log.add(event(number, "job-ended", str(number - 3)))
    again = opened(tmp_path / "events")
    for each in (log, again):
        jobs = jobs_of(each)
        assert jobs.pop("long") == ["began"]
        running = [name for name, kinds in jobs.items() if "ended" not in kinds]
        # the first one never ended
        assert running == ["2", "1697", "1698", "1699"]
        assert all(kinds == ["began", "change", "ended"][: len(kinds)] for kinds in jobs.values())
        assert min(map(len, jobs.values())) == 2
        assert len(jobs) == MAX_PER_KIND - 1


def test_a_job_that_begins_again_and_again_does_not_push_out_another(tmp_path: Path) -> None:
    log = opened(tmp_path / "events")
    log.add(event(1, "job-began", "quiet"))
    log.add(event(2, "job-ended", "quiet"))
    for number in range(3, 5000, 2):
        log.add(event(number, "job-began", "busy"))
        log.add(event(number + 1, "job-ended", "busy"))
    for each in (log, opened(tmp_path / "events")):
        jobs = jobs_of(each)
        assert jobs["quiet"] == ["began", "ended"]
        assert jobs["busy"] == ["began", "ended"] * (MAX_PER_KIND - 1)
