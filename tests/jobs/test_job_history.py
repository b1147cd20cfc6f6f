"""The jobs of the past, as events describe them."""

from __future__ import annotations

import pytest

from ibpulse.events import Event
from ibpulse.jobs.claims import Claim, PlacedJob
from ibpulse.jobs.job_history import job_details, read_job, trace_jobs
from ibpulse.model import PortId


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
