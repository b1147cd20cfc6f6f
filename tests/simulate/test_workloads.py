"""Workloads and schedules: bytes, speed and pauses of each, exact at any time and in any order."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibpulse.base.errors import ConfigError
from ibpulse.workbench.simulate import timeline as module
from ibpulse.workbench.simulate import workloads
from ibpulse.workbench.simulate.timeline import Schedule
from ibpulse.workbench.simulate.workloads import WORKLOADS, Constant, Square, make_workload
from tests.tables import for_each
from tests.truth import truth_of

MINUTE_NS = 60_000_000_000
BEGIN_NS = 3_000_000_000
MS = 1_000_000

# mean when active, peak (GB/s, transmit + receive, all rails), duty, CV, step (s): the founding article's table
ARTICLE = {"dense": (270.0, 463.0, 0.747, 0.20, 0.315), "moe": (363.0, 659.0, 0.916, 0.42, 1.444)}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["dense", "moe"])
def test_a_minute_shows_what_the_article_measured(name: str, seed: int) -> None:
    schedule = Schedule(workloads.make_workload(name), seed, workloads.CAPTURED_RAILS)
    truth = truth_of(schedule, BEGIN_NS, BEGIN_NS + MINUTE_NS)
    mean, peak, duty, cv, step = ARTICLE[name]
    assert truth.active_mean / 1e9 == pytest.approx(mean, rel=0.05)
    assert truth.peak / 1e9 == pytest.approx(peak, rel=0.10)
    assert truth.duty == pytest.approx(duty, abs=0.03)
    assert truth.cv == pytest.approx(cv, abs=0.05)
    steps = np.diff(schedule.step_starts_ns(BEGIN_NS, BEGIN_NS + MINUTE_NS)) / 1e9
    assert steps.mean() == pytest.approx(step, rel=0.02)


@pytest.mark.parametrize("model", [workloads.DENSE, workloads.MOE], ids=lambda model: model.name)
def test_a_step_carries_the_bytes_of_its_collectives_and_the_published_parameters(model: workloads.Fsdp) -> None:
    rng = np.random.default_rng(1)
    for _ in range(3):
        step = model.step(rng)
        port_bytes = float((step.durations_ns * step.rates_bytes_per_second).sum()) / 1e9
        assert port_bytes * 7 == pytest.approx(model.step_bytes, rel=1e-4)
    published = {"dense": 7.6156e9, "moe": 46.703e9}[model.name]
    assert sum(unit.parameters for unit in model.units) == pytest.approx(published, rel=0.002)


@for_each(itertools.product(workloads.WORKLOADS, [0.1, 0.5, 0.9, 1.3, 10.0]))
def test_stretched_workload_stays_within_line_rate(name: str, factor: float) -> None:
    workload = workloads.make_workload(name)
    for seed in range(5):
        step = workload.step(np.random.default_rng(seed))
        stretched = workloads.Stretched(workload, factor).step(np.random.default_rng(seed))
        assert stretched.rates_bytes_per_second.max() <= 50e9
        moved = (step.rates_bytes_per_second * step.durations_ns).sum()
        assert (stretched.rates_bytes_per_second * stretched.durations_ns).sum() == pytest.approx(moved)
        # only what would exceed the line rate takes longer
        fits = step.rates_bytes_per_second <= 50e9 * factor * 0.99
        np.testing.assert_allclose(stretched.durations_ns[fits], step.durations_ns[fits] * factor, rtol=0.01, atol=1)


@pytest.mark.parametrize("name", ["constant", "square"])
@pytest.mark.parametrize("rate", [50.1e9, -1.0])
def test_a_rate_that_no_port_has_is_refused(name: str, rate: float) -> None:
    with pytest.raises(
        ConfigError, match=f"{name}: a rate of {rate / 1e9:g} GB/s is not possible on a port of 50 GB/s"
    ):
        workloads.make_workload(name, rate_bytes_per_second=rate)
    workloads.make_workload(name, rate_bytes_per_second=50e9)


@pytest.mark.parametrize("name", ["dense", "moe"])
def test_all_rails_carry_the_same(name: str) -> None:
    flowed = Schedule(workloads.make_workload(name), rails=16).cumulative_bytes(MINUTE_NS)
    assert len(np.unique(flowed)) == 1
    assert flowed.min() > 0


def test_one_unit_is_gathered_computed_scattered() -> None:
    """By hand: gather 1 s, compute 2 s, gather again 1 s, backward 4 s, scatter 2 s, tail 1 s."""
    model = workloads.Fsdp(
        name="toy",
        units=(workloads.Unit(8e9, 1),),
        ranks=16,
        recompute=False,
        gathers_ahead=1,
        forward_seconds=2,
        tail_seconds=1,
        collective_bytes_per_second=15e9,
        scatter_slowness=2,
        latency_seconds=0,
        wire_fraction=1,
        compute_jitter=0,
        speed_jitter=0,
    )
    step = model.step(np.random.default_rng(0))
    assert step.durations_ns.tolist() == [1e9, 2e9, 1e9, 4e9, 2e9, 1e9]
    per_port = [15e9 / 7, 0, 15e9 / 7, 0, 7.5e9 / 7, 0]
    assert step.rates_bytes_per_second.tolist() == pytest.approx(per_port)


def test_expert_parallel_looks_dense_and_takes_published_times() -> None:
    truth = truth_of(Schedule(workloads.ExpertParallel(), seed=3), BEGIN_NS, BEGIN_NS + MINUTE_NS)
    assert truth.duty == 1.0
    assert truth.cv == pytest.approx(0.19, abs=0.05)
    step = workloads.ExpertParallel().step(np.random.default_rng(4))
    busy = step.durations_ns[step.rates_bytes_per_second > 0] / 1e6
    assert len(busy) == 16
    assert ((busy[::2] > 3) & (busy[::2] < 5)).all()
    assert ((busy[1::2] > 5.8) & (busy[1::2] < 6.7)).all()


@pytest.mark.parametrize(("bin_ms", "cv", "duty"), [(1, 0.36, 0.74), (2, 0.45, None), (5, 0.41, None), (50, 0.05, 1)])
def test_expert_parallel_matches_profile_at_all_scales(bin_ms: int, cv: float, duty: float | None) -> None:
    truth = truth_of(Schedule(workloads.ExpertParallel(), seed=3), BEGIN_NS, BEGIN_NS + MINUTE_NS, bin_ms * MS)
    assert truth.cv == pytest.approx(cv, abs=0.05)
    assert duty is None or truth.duty == pytest.approx(duty, abs=0.03)


def test_square_waves_on_and_off_the_grid_match_the_closed_form() -> None:
    truth = truth_of(Schedule(workloads.Square(100 * MS, 0.3, 20e9), rails=2), 0, 10_000_000_000)
    assert truth.mean == pytest.approx(4 * 20e9 * 0.3)
    assert truth.active_mean == truth.peak == pytest.approx(4 * 20e9)
    assert truth.duty == pytest.approx(0.3)
    assert truth.cv == pytest.approx(0, abs=1e-9)
    assert truth.total_bytes == pytest.approx(4 * 20e9 * 0.3 * 10)
    # busy 3.5 bins of 10, from the edge of a bin: three full bins and a half one
    truth = truth_of(Schedule(workloads.Square(100 * MS, 0.35, 20e9), rails=1), 0, 10_000_000_000, directions=(0,))
    values = [1, 1, 1, 0.5]
    mean = sum(values) / 4
    assert truth.duty == pytest.approx(0.4)
    assert truth.active_mean == pytest.approx(20e9 * mean)
    assert truth.cv == pytest.approx(math.sqrt(sum((v - mean) ** 2 for v in values) / 4) / mean)


def test_constant_is_its_rate_in_every_bin() -> None:
    truth = truth_of(Schedule(workloads.Constant(7e9), rails=3), 12345, 12345 + MINUTE_NS)
    assert truth.bytes_per_second == pytest.approx(np.full(6000, 42e9), rel=1e-9)
    assert truth.duty == 1.0
    schedule = Schedule(workloads.Constant(20_000_000_000), rails=1)
    flowed = schedule.cumulative_bytes(np.arange(0, 2_000_000_000, 10_000_000))[:, 0, 0]
    assert set(np.diff(flowed).tolist()) == {200_000_000}


@pytest.mark.parametrize(("period_ns", "duty"), [(1, 0.5), (100, 0.0), (100, 1.0)])
def test_a_square_that_is_not_one_is_refused(period_ns: int, duty: float) -> None:
    with pytest.raises(ConfigError, match="give a period and a duty between 0 and 1"):
        workloads.Square(period_ns, duty)


SECOND_NS = 1_000_000_000


@pytest.mark.parametrize(
    ("job", "rate", "gigabytes", "cv"),
    [("qwen2.5-7b-fsdp", 272.0, 85.68, 0.20), ("mixtral-8x7b-fsdp", 363.9, 525.4, 0.42)],
)
def test_a_predicted_job_shows_the_published_run(job: str, rate: float, gigabytes: float, cv: float) -> None:
    workload = workloads.PredictedJob.of(job)
    truth = truth_of(Schedule(workload), SECOND_NS, 61 * SECOND_NS)
    assert truth.mean / 1e9 == pytest.approx(rate, rel=2e-3)
    assert truth.mean * workload.period_seconds / 1e9 == pytest.approx(gigabytes, rel=2e-3)
    assert truth.cv == pytest.approx(cv, abs=0.1)
    # a rail carries 47 GB/s at most, in each direction
    assert truth.peak <= 7 * 2 * 47e9 * (1 + 1e-6)


def test_predicted_steps_are_equal() -> None:
    workload = workloads.PredictedJob.of("mixtral-8x7b-fsdp")
    first, second = (workload.step(np.random.default_rng(seed)) for seed in (1, 2))
    assert first.durations_ns.tolist() == second.durations_ns.tolist()
    assert int(first.durations_ns.sum()) == 1_444_000_000
    assert np.flatnonzero(workload.weights(16).sum(axis=1) == 0).tolist() == [6, 14]


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
