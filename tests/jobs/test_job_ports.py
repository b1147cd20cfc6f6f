"""When a job had its ports, against a list of owners for every tick."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.core.events import Event
from ibpulse.core.jobs import Claim, JobPorts, PlacedJob, job_details, list_jobs, trace_jobs
from ibpulse.core.model import PortId

RING = 7
NAMES = ("a:1", "b:1", "c:1")
LAST = 40


def placed(ports: frozenset[int], job: str = "1") -> PlacedJob:
    return PlacedJob(Claim(job, "slurm", "file"), tuple(PortId("abc"[number], 1) for number in sorted(ports)))


def event(tick: int, kind: str, job: PlacedJob, ring: int = RING) -> Event:
    return Event(tick * 10, kind, "", "", details=job_details(job), tick=tick, ring=ring)


def story(changes: list[tuple[int, frozenset[int] | None]]) -> tuple[list[Event], np.ndarray]:
    """Events of a job, whose ports are None while it does not run, and the truth: (ports, ticks)."""
    events, truth, before = [], np.zeros((3, LAST), dtype=bool), None
    for tick, ports in sorted(changes, key=lambda change: change[0]):
        if before is None and ports is not None:
            events.append(event(tick, "job-began", placed(ports)))
        elif ports is None and before is not None:
            events.append(event(tick, "job-ended", placed(before)))
        elif ports is not None and before is not None:
            events.append(event(tick, "job-change", placed(ports)))
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
    events = [event(900, "job-began", placed(frozenset({0})), ring=3), event(20, "job-ended", placed(frozenset({0})))]
    assert JobPorts.of(trace_jobs(events), RING).spans == {"a:1": [(0, 20)]}
    both = [*events[:1], event(950, "job-ended", placed(frozenset({0})), ring=3)]
    assert JobPorts.of(trace_jobs(both), RING).spans == {}


def test_a_job_of_which_only_the_end_is_known_had_its_last_ports_before() -> None:
    (record,) = trace_jobs([event(20, "job-ended", placed(frozenset({1})))])
    assert JobPorts.of([record], RING).spans == {"b:1": [(0, 20)]}
    assert (record.began_ns, record.ended_ns) == (None, 200)


def test_what_a_job_had_before_a_change_is_not_known_without_its_begin() -> None:
    (record,) = trace_jobs([event(20, "job-change", placed(frozenset({1})))])
    assert JobPorts.of([record], RING).spans == {"b:1": [(20, 2**62)]}


def test_running_jobs_come_first_then_the_last_that_ended() -> None:
    one, two, three, four = (placed(frozenset({0}), job) for job in "1234")
    events = [
        event(1, "job-began", one),
        event(2, "job-began", two),
        event(3, "job-ended", one),
        event(5, "job-ended", two),
        event(6, "job-began", three),
    ]
    found = list_jobs(trace_jobs(events), [four, three], 40)
    assert [record.job.claim.id for record in found] == ["4", "3", "2"]
    assert [len(record.holdings) for record in found] == [1, 1, 1]
    assert found[0].holdings[0].since is None
    assert [record.job.claim.id for record in list_jobs(trace_jobs(events), [], 0)] == ["2", "1"]
