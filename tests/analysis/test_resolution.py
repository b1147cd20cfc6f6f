from __future__ import annotations

import numpy as np
import pytest

from ibpulse.core.statistics.rates import coarsest_ticks, effective_resolution, finest_ticks, stands_still

INTERVAL_NS = 10_000_000
THRESHOLD = 0.1e9


def measure(shown: np.ndarray, missing: tuple[int, ...] = ()) -> float:
    """Resolution of a port whose transmit counter is `shown` (bytes) every 10 ms, and whose receive counter rests."""
    samples = len(shown)
    time_ns = np.tile(np.arange(samples) * INTERVAL_NS, (2, 1))
    counters = np.stack([shown, np.full(samples, 77)]).astype(np.uint64)
    sampled = np.ones((2, samples), dtype=bool)
    sampled[:, list(missing)] = False
    return effective_resolution(time_ns, counters, sampled, 1, THRESHOLD)


def refreshed_every(ticks: int, samples: int = 600) -> np.ndarray:
    """A counter at 10 GB/s that the device refreshes every `ticks` ticks."""
    return (np.arange(samples) // ticks) * ticks * 100_000_000


@pytest.mark.parametrize("ticks", [1, 2, 3, 10])
def test_resolution_is_the_refresh_of_the_counter(ticks: int) -> None:
    assert measure(refreshed_every(ticks)) == pytest.approx(ticks * 0.01)


def test_a_port_with_long_pauses_keeps_its_resolution() -> None:
    active = (np.arange(1000) % 100 < 30).astype(np.int64)
    assert measure(np.cumsum(active * 100_000_000)) == pytest.approx(0.01)


def test_an_idle_port_has_no_resolution() -> None:
    assert np.isnan(measure(np.cumsum(np.full(600, 1000))))


def test_too_few_changes_give_no_resolution() -> None:
    assert np.isnan(measure(refreshed_every(30)))
    assert measure(refreshed_every(28)) == pytest.approx(0.28)


def test_a_gap_with_a_missing_sample_does_not_count() -> None:
    missing = tuple(range(0, 600, 3))
    assert np.isnan(measure(refreshed_every(2), missing))


def test_a_reset_is_no_change() -> None:
    # 0, 1, 0, 2, 0, 3, ... GB: every other sample is a reset
    shown = np.arange(600) // 2 * (np.arange(600) % 2) * 10**9
    assert np.isnan(measure(shown))


def test_regular_single_ticks_look_like_a_slow_counter() -> None:
    active = (np.arange(600) % 2 == 0).astype(np.int64)
    assert measure(np.cumsum(active * 400_000_000)) == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("seconds", "stride", "ticks"),
    [(None, 1, 1), (0.01, 1, 1), (0.015, 1, 1), (0.016, 1, 2), (0.04, 1, 4), (0.04, 3, 1)],
)
def test_a_slow_counter_resolves_nothing_finer_than_its_changes(seconds: float | None, stride: int, ticks: int) -> None:
    assert finest_ticks(seconds, INTERVAL_NS, stride) == ticks


def test_a_counter_stands_still_beyond_one_and_a_half_samples() -> None:
    assert not stands_still(0.015, 0.01)
    assert stands_still(0.0151, 0.01)
    assert not stands_still(float("nan"), 0.01)


def test_a_sum_resolves_as_much_as_its_coarsest_counter() -> None:
    assert coarsest_ticks([1, 4, 2]) == 4
    assert coarsest_ticks([]) == 1
