"""The silence that separates the steps of a group, where traffic stalls or ends before the samples do."""

from __future__ import annotations

import numpy as np
import pytest

from ibpulse.core.arrays import Floats
from ibpulse.core.statistics.steps.edges import find_least_idle

INTERVAL, PERIOD = 0.01, 1.444
# begin and length of the bursts of a step, as parts of it; the longest silence is a quarter of it
BURSTS = ((0.0, 0.09), (0.11, 0.05), (0.18, 0.05), (0.25, 0.05), (0.32, 0.05), (0.40, 0.35))
LEAST = round(0.5 * 0.25 * PERIOD / INTERVAL)


def traffic(seconds: float, first: float = 0.0) -> Floats:
    """Rates of a node, as exact means over the samples; steps begin at `first`."""
    edges = np.arange(round(seconds / INTERVAL) + 1) * INTERVAL
    begins = first + PERIOD * np.arange(int((seconds - first) / PERIOD))
    bursts = [(begin + PERIOD * part, PERIOD * length) for begin in begins for part, length in BURSTS]
    busy = np.sum([np.clip(edges - begin, 0.0, length) for begin, length in bursts], axis=0)
    return np.asarray(2e11 * np.diff(busy) / INTERVAL)


def least_idle(rates: Floats) -> int | None:
    return find_least_idle(rates, 1e7, round(INTERVAL * 1e9))


# the bins of a period search cut the bursts differently
@pytest.mark.parametrize("first", [0.0, 0.01, 0.02, 0.03, 0.04, 0.7])
def test_silence_after_the_last_step_divides_no_step(first: float) -> None:
    steps = traffic(43.0, first)
    for rates in (steps, np.append(steps, np.zeros(1700)), np.append(np.zeros(900), steps)):
        assert least_idle(rates) == pytest.approx(LEAST, abs=1)


def test_a_stall_between_steps_divides_no_step() -> None:
    for silent in (300, 900, 1700):
        stalled = np.concatenate([traffic(22.0), np.zeros(silent), traffic(22.0)])
        assert least_idle(stalled) == pytest.approx(LEAST, abs=1)


def test_chatter_below_the_threshold_has_no_steps() -> None:
    chatter = np.zeros(12_000)
    chatter[::3000] = 3.5e5
    assert least_idle(chatter) is None
