"""A simulated job that is a prediction shows the published numbers, and nothing of it is random."""

from __future__ import annotations

import numpy as np
import pytest

from ibpulse.workbench.simulate.predicted_job import PredictedJob
from ibpulse.workbench.simulate.timeline import Schedule

SECOND_NS = 1_000_000_000


@pytest.mark.parametrize(
    ("job", "rate", "gigabytes", "cv"),
    [("qwen2.5-7b-fsdp", 272.0, 85.68, 0.20), ("mixtral-8x7b-fsdp", 363.9, 525.4, 0.42)],
)
def test_a_predicted_job_shows_the_published_run(job: str, rate: float, gigabytes: float, cv: float) -> None:
    workload = PredictedJob.of(job)
    truth = Schedule(workload).truth(SECOND_NS, 61 * SECOND_NS)
    assert truth.mean / 1e9 == pytest.approx(rate, rel=2e-3)
    assert truth.mean * workload.period_seconds / 1e9 == pytest.approx(gigabytes, rel=2e-3)
    assert truth.cv == pytest.approx(cv, abs=0.1)
    # a rail carries 47 GB/s at most, in each direction
    assert truth.peak <= 7 * 2 * 47e9 * (1 + 1e-6)


def test_all_steps_are_equal_and_one_of_eight_rails_is_idle() -> None:
    workload = PredictedJob.of("mixtral-8x7b-fsdp")
    first, second = (workload.step(np.random.default_rng(seed)) for seed in (1, 2))
    assert first.durations_ns.tolist() == second.durations_ns.tolist()
    assert int(first.durations_ns.sum()) == 1_444_000_000
    assert np.flatnonzero(workload.weights(16).sum(axis=1) == 0).tolist() == [6, 14]
