"""Jobs of the past, as events describe them: those that the event log forgets, and when each had its ports."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.core.events import Event, EventLog
from ibpulse.core.events.log import MAX_PER_KIND, EventFile
from ibpulse.core.jobs import Claim, JobPorts, PlacedJob, job_details, list_jobs, read_job, trace_jobs
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


NAMES = ("a:1", "b:1", "c:1")
LAST = 40


def placed(ports: frozenset[int], job: str = "1") -> PlacedJob:
    return PlacedJob(Claim(job, "slurm", "file"), tuple(PortId("abc"[number], 1) for number in sorted(ports)))


def happened(tick: int, kind: str, job: PlacedJob, ring: int = RING) -> Event:
    return Event(tick * 10, kind, "", "", details=job_details(job), tick=tick, ring=ring)


def story(changes: list[tuple[int, frozenset[int] | None]]) -> tuple[list[Event], np.ndarray]:
    """Events of a job, whose ports are None while it does not run, and the truth: (ports, ticks)."""
    events, truth, before = [], np.zeros((3, LAST), dtype=bool), None
    for tick, ports in sorted(changes, key=lambda change: change[0]):
        if before is None and ports is not None:
            events.append(happened(tick, "job-began", placed(ports)))
        elif ports is None and before is not None:
            events.append(happened(tick, "job-ended", placed(before)))
        elif ports is not None and before is not None:
            events.append(happened(tick, "job-change", placed(ports)))
        before = ports
        truth[:, tick:] = False
        for number in ports or ():
            truth[number, tick:] = True
    return events, truth


CHANGES = st.lists(
    st.tuples(st.integers(0, LAST - 1), st.none() | st.frozensets(st.integers(0, 2))),
    max_size=8,
    unique_by=lambda change: change[0],
)


@given(CHANGES)
def test_the_mask_is_the_truth_of_every_tick(changes: list[tuple[int, frozenset[int] | None]]) -> None:
    events, truth = story(changes)
    ports = JobPorts.of(trace_jobs(events), RING)
    np.testing.assert_array_equal(ports.mask(NAMES, 0, LAST), truth)
    inside = ports.within(10, 30)
    np.testing.assert_array_equal(inside.mask(NAMES, 10, 20), truth[:, 10:30])
    assert not inside.mask(NAMES, 0, 10).any()
    assert {*inside.spans} == {name for name, had in zip(NAMES, truth[:, 10:30], strict=True) if had.any()}


@given(CHANGES)
def test_the_steady_span_is_the_longest_with_the_same_ports(changes: list[tuple[int, frozenset[int] | None]]) -> None:
    events, truth = story(changes)
    first, end = JobPorts.of(trace_jobs(events), RING).steady(0, LAST)
    longest = max(
        (
            stop - begin
            for begin in range(LAST)
            for stop in range(begin + 1, LAST + 1)
            if truth[:, begin].any() and (truth[:, begin:stop] == truth[:, begin : begin + 1]).all()
        ),
        default=0,
    )
    assert end - first == longest
    if longest:
        assert (truth[:, first:end] == truth[:, first : first + 1]).all()


def test_what_another_ring_saw_is_before_the_first_tick_of_this_one() -> None:
    events = [
        happened(900, "job-began", placed(frozenset({0})), ring=3),
        happened(20, "job-ended", placed(frozenset({0}))),
    ]
    assert JobPorts.of(trace_jobs(events), RING).spans == {"a:1": [(0, 20)]}
    both = [*events[:1], happened(950, "job-ended", placed(frozenset({0})), ring=3)]
    assert JobPorts.of(trace_jobs(both), RING).spans == {}


def test_a_job_of_which_only_the_end_is_known_had_its_last_ports_before() -> None:
    (record,) = trace_jobs([happened(20, "job-ended", placed(frozenset({1})))])
    assert JobPorts.of([record], RING).spans == {"b:1": [(0, 20)]}
    assert (record.began_ns, record.ended_ns) == (None, 200)


def test_what_a_job_had_before_a_change_is_not_known_without_its_begin() -> None:
    (record,) = trace_jobs([happened(20, "job-change", placed(frozenset({1})))])
    assert JobPorts.of([record], RING).spans == {"b:1": [(20, 2**62)]}


def test_running_jobs_come_first_then_the_last_that_ended() -> None:
    one, two, three, four = (placed(frozenset({0}), job) for job in "1234")
    events = [
        happened(1, "job-began", one),
        happened(2, "job-began", two),
        happened(3, "job-ended", one),
        happened(5, "job-ended", two),
        happened(6, "job-began", three),
    ]
    found = list_jobs(trace_jobs(events), [four, three], 40)
    assert [record.job.claim.id for record in found] == ["4", "3", "2"]
    assert [len(record.holdings) for record in found] == [1, 1, 1]
    assert found[0].holdings[0].since is None
    assert [record.job.claim.id for record in list_jobs(trace_jobs(events), [], 0)] == ["2", "1"]
