"""Burstiness depends more on the time scale of the measurement than on the workload."""

from __future__ import annotations

import numpy as np
import pytest

from ibpulse.core.statistics import moments
from ibpulse.workbench.simulate.timeline import Schedule
from ibpulse.workbench.simulate.workloads import ExpertParallel, Square
from tests.truth import truth_of

THRESHOLD = 0.1e9


def variation_at(schedule: Schedule, timescale_ms: int, seconds: int = 60) -> float:
    """CV of the active bins of a time scale, from samples of one millisecond."""
    fine = truth_of(schedule, 3_000_000_000, (3 + seconds) * 1_000_000_000, 1_000_000).bytes_per_second
    values, weights = moments.rebin(fine, np.full(fine.shape, 1e-3), timescale_ms)
    return float(moments.variation(moments.weighted_sums(values, weights, values > THRESHOLD)))


@pytest.mark.parametrize(("slot_ms", "expected"), [(2, 0.04), (4, 0.09), (15, 0.35), (20, 0.51)])
def test_the_same_busy_share_has_another_burstiness_for_every_length_of_its_slots(
    slot_ms: int, expected: float
) -> None:
    slots = Square(period_ns=slot_ms * 1_000_000, duty=0.55, jitter=0.1)
    assert variation_at(Schedule(slots), 10) == pytest.approx(expected, abs=0.03)


def test_expert_parallelism_is_bursty_at_1_ms_and_nearly_steady_at_50_ms() -> None:
    schedule = Schedule(ExpertParallel())
    found = [variation_at(schedule, timescale_ms) for timescale_ms in (2, 10, 50)]
    assert found[0] > 0.3
    assert found[1] == pytest.approx(0.2, abs=0.03)
    assert found[2] < 0.05
