"""The exactness of the schedule: cumulative bytes at any time, in any order, in bounded memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibpulse.workbench.simulate import timeline as module
from ibpulse.workbench.simulate.timeline import Schedule
from ibpulse.workbench.simulate.workloads import WORKLOADS, Constant, Square, make_workload
from tests.truth import truth_of

HOUR_NS = 3_600_000_000_000
NAMES = st.sampled_from(list(WORKLOADS))


@settings(max_examples=40, deadline=None)
@given(NAMES, st.integers(0, 5), st.lists(st.integers(0, 20_000_000_000), min_size=2, max_size=30))
def test_cumulative_bytes_never_fall_and_are_whole_words(name: str, seed: int, times: list[int]) -> None:
    moments = np.array(sorted(times))
    flowed = Schedule(make_workload(name), seed).cumulative_bytes(moments)
    assert flowed.shape == (len(times), 8, 2)
    assert flowed.dtype == np.int64
    assert (np.diff(flowed, axis=0) >= 0).all()
    assert (flowed % 4 == 0).all()


@settings(max_examples=40, deadline=None)
@given(NAMES, st.lists(st.integers(-10, 9_000_000_000), min_size=1, max_size=8), st.integers(0, 7), st.integers(0, 1))
def test_one_port_reads_the_same_as_all_together(name: str, times: list[int], rail: int, direction: int) -> None:
    together = Schedule(make_workload(name), 1, start_ns=5).cumulative_bytes(np.array(times))
    single = Schedule(make_workload(name), 1, start_ns=5)
    assert [single.port_bytes(time, rail, direction) for time in times] == together[:, rail, direction].tolist()


@settings(max_examples=20, deadline=None)
@given(NAMES, st.permutations([0, 1, 999_999_999, 1_000_000_000, 5_000_000_123, 30_000_000_000]))
def test_the_order_of_the_questions_does_not_matter(name: str, times: list[int]) -> None:
    schedule = Schedule(make_workload(name), 7)
    asked = {time: schedule.cumulative_bytes(time).tolist() for time in times}
    fresh = Schedule(make_workload(name), 7).cumulative_bytes(np.array(sorted(times))).tolist()
    assert [asked[time] for time in sorted(times)] == fresh


def test_truth_equals_concatenated_steps() -> None:
    """The segments of the first block, spread over microseconds by hand, and summed per bin."""
    workload = make_workload("dense")
    rng = np.random.default_rng((9, 0))
    steps = [workload.step(rng) for _ in range(3)]
    durations = np.concatenate([step.durations_ns for step in steps])
    rates = np.concatenate([step.rates_bytes_per_second for step in steps])
    edges = np.concatenate([[0], np.cumsum(durations)])
    middle = np.arange(500, 800_000_000, 1000)
    rate = rates[np.searchsorted(edges, middle, side="right") - 1] * 16
    by_hand = rate.reshape(80, 10_000).mean(axis=1)
    truth = truth_of(Schedule(workload, 9), 0, 800_000_000)
    assert truth.bytes_per_second == pytest.approx(by_hand, rel=0.001, abs=1e8)


def test_nothing_flows_before_the_start_and_seeds_differ() -> None:
    schedule = Schedule(Constant(4e9), rails=1, start_ns=1_000)
    assert schedule.cumulative_bytes(np.array([0, 999, 1_000])).sum() == 0
    assert schedule.port_bytes(999, 0, 0) == 0
    assert schedule.port_bytes(1_000_001_000, 0, 0) == 4_000_000_000
    first, again, other = (Schedule(make_workload("moe"), seed).port_bytes(HOUR_NS // 9, 0, 0) for seed in (1, 1, 2))
    assert first == again != other


def test_memory_stays_bounded_for_hours() -> None:
    schedule = Schedule(make_workload("square", jitter=0.1), 1, rails=1)
    early = schedule.port_bytes(500_000_000, 0, 0)
    for second in range(0, 1000, 7):
        schedule.port_bytes(second * 1_000_000_000, 0, 0)
    assert len(schedule._blocks) <= module.BLOCKS_IN_MEMORY
    assert schedule.port_bytes(500_000_000, 0, 0) == early


def test_what_lies_too_far_back_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCKS_REACHABLE", 10)
    schedule, whole = (Schedule(Square(1_000_000_000, 0.5, jitter=0.2), 2, rails=1) for _ in range(2))
    for second in range(60):
        schedule.port_bytes(second * 1_000_000_000, 0, 0)
    assert len(schedule._starts_ns) <= 21
    with pytest.raises(ValueError, match="time 1 ns is out of reach: the schedule now begins at"):
        schedule.port_bytes(1, 0, 0)
    monkeypatch.undo()
    assert schedule.port_bytes(59_500_000_000, 0, 0) == whole.port_bytes(59_500_000_000, 0, 0)
