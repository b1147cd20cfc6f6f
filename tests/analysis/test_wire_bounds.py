"""Bounds of exposed communication contain the truth, and are as tight as their intervals allow."""

from __future__ import annotations

import numpy as np
import pytest

from ibpulse.core.statistics.span import exposed_bounds


def test_the_bounds_of_one_interval_are_frechets() -> None:
    low, high = exposed_bounds(np.array([0.6, 0.9, 0.2]), np.array([0.7, 0.3, 1.0]))
    assert low == pytest.approx([0.0, 0.6, 0.0])
    assert high == pytest.approx([0.3, 0.7, 0.0])


def test_without_the_gpu_anything_up_to_the_active_time_is_possible() -> None:
    low, high = exposed_bounds(np.array([0.6]), np.array([np.nan]))
    assert (low.tolist(), high.tolist()) == ([0.0], [0.6])


@pytest.mark.parametrize("seed", range(5))
def test_the_truth_is_between_the_bounds_and_shorter_intervals_bring_them_together(seed: int) -> None:
    """Phases of the wire and of the GPU of some 30 ms, known to the millisecond."""
    rng = np.random.default_rng(seed)
    wire, gpu = (np.repeat(rng.random(40) < 0.6, rng.integers(10, 50, 40))[:800].astype(float) for _ in range(2))
    truth, widths = float((wire * (1 - gpu)).mean()), []
    for interval in (800, 100, 10, 1):
        low, high = exposed_bounds(wire.reshape(-1, interval).mean(axis=1), gpu.reshape(-1, interval).mean(axis=1))
        assert low.mean() - 1e-9 <= truth <= high.mean() + 1e-9
        widths.append(high.mean() - low.mean())
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] == pytest.approx(0.0, abs=1e-9)
