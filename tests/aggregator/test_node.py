"""The sum over rails against closed forms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.agent.aggregator import Aggregator, AggregatorOptions, Snapshot
from ibpulse.agent.aggregator.node import NodeTotals, RollingSeconds
from ibpulse.core.statistics.sums import NodeTicks
from tests.aggregator.rings import MS, Ring, Traffic, constant, port, square, started, update

A, B = "mlx5_0:1", "mlx5_1:1"
IDLE = constant(0.0)
SECONDS = 5


def summed(ring: Ring, options: AggregatorOptions | None = None, **traffic: tuple[Traffic, Traffic]) -> Snapshot:
    """A snapshot after five seconds; the keywords name devices."""
    aggregator = Aggregator(ring.reader, options or AggregatorOptions())
    for device, both in traffic.items():
        ring.write(f"{device}:1", both, 1, (SECONDS + 1) * ring.ticks_per_second)
    return update(ring, aggregator, SECONDS)


def test_bandwidth_is_transmit_and_receive_of_all_rails(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port(A), port(B))
    found = summed(ring, mlx5_0=(constant(10e9), constant(20e9)), mlx5_1=(constant(3e9), constant(4e9)))
    window = found.node[0]
    assert window.transmit_bytes_per_second == pytest.approx(13e9)
    assert window.receive_bytes_per_second == pytest.approx(24e9)
    assert window.bandwidth_peak_bytes_per_second == pytest.approx(37e9)
    assert window.bandwidth_active_mean_bytes_per_second == pytest.approx(37e9)
    assert window.duty_cycle_ratio == 1.0
    assert window.burstiness_cv == dict.fromkeys(("10ms", "50ms", "100ms", "1s"), pytest.approx(0, abs=1e-6))
    assert found.rails.rails == 2


def test_ports_that_are_not_rails_or_not_active_are_ignored(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port(A), port(B, rail=False), port("mlx5_2:1", active=False))
    both = (constant(10e9), IDLE)
    found = summed(ring, mlx5_0=both, mlx5_1=both, mlx5_2=both)
    assert found.node[0].bandwidth_peak_bytes_per_second == pytest.approx(10e9)
    assert found.rails.rails == 2


def test_duty_and_active_mean_of_a_square_wave(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port(A))
    found = summed(ring, mlx5_0=(square(40e9, 20, 80), square(20e9, 20, 80)))
    window = found.node[0]
    assert window.duty_cycle_ratio == pytest.approx((1.0 - 0.01) / (5 - 0.01))
    assert window.bandwidth_active_mean_bytes_per_second == pytest.approx(60e9)
    assert window.transmit_bytes_per_second == pytest.approx(40e9 * 0.99 / 4.99)
    assert window.peak_to_mean_ratio == pytest.approx(4.99 / 0.99)


def test_missing_data_of_one_rail_is_missing_for_the_node(tmp_path: Path) -> None:
    ring, aggregator = started(tmp_path, port(A), port(B))
    ring.write(A, (constant(20e9), IDLE), 1, 400)
    ring.write(B, (constant(10e9), IDLE), 1, 400, holes=range(150, 160))
    found = update(ring, aggregator, 3)
    assert found.node[0].transmit_bytes_per_second == pytest.approx(30e9)
    assert found.node[0].burstiness_cv["10ms"] == pytest.approx(0, abs=1e-6)
    # the second in which a rail had a hole, and the first, have no whole bin of 1 s
    assert found.node[0].burstiness_cv["1s"] is None


def test_time_scales_that_divide_samples_of_a_rail_give_nothing(tmp_path: Path) -> None:
    ring, aggregator = started(tmp_path, port(A), port(B))
    ring.write(A, (constant(20e9), IDLE), 1, 500)
    ring.write(B, (constant(10e9), IDLE), 1, 500, stride=2)
    at_10ms, at_50ms, *coarser = update(ring, aggregator, 4).node[0].burstiness_cv.values()
    assert (at_10ms, at_50ms) == (None, None)
    assert coarser == [pytest.approx(0, abs=1e-6)] * 2


@pytest.mark.parametrize(
    ("interval_ms", "known"),
    [(1, [True] * 4), (20, [False, False, True, True]), (100, [False, False, True, True]), (250, [False] * 3 + [True])],
)
def test_a_time_scale_must_be_a_whole_number_of_ticks(tmp_path: Path, interval_ms: int, known: list[bool]) -> None:
    ring = Ring.create(tmp_path, port(A), interval_ms=interval_ms)
    found = summed(ring, mlx5_0=(constant(20e9), IDLE))
    assert [value is not None for value in found.node[0].burstiness_cv.values()] == known


def test_what_was_sampled_before_an_interval_was_lengthened_is_no_window() -> None:
    node = NodeTotals(AggregatorOptions(), 10 * MS)
    ticks = NodeTicks(np.full((2, 1, 100), 5e9), np.full((1, 100), 0.01), np.ones((1, 100), np.bool_))
    known = []
    for stride in (1, 2, 1):
        node.add_seconds(ticks, stride, np.array([[40e9]]))
        known.append([value is not None for value in node.windows()[0].burstiness_cv.values()])
    # a bin of 1 s alone has no variation
    assert known == [[True, True, True, False], [False, False, True, True], [True] * 4]


def test_what_slow_counters_do_not_resolve_has_no_peak_of_utilization() -> None:
    node = NodeTotals(AggregatorOptions(), 10 * MS)
    ticks = NodeTicks(np.full((2, 1, 100), 5e9), np.full((1, 100), 0.01), np.ones((1, 100), np.bool_))
    node.add_seconds(ticks, 1, np.array([[40e9]]))
    fine, coarse = node.windows()[0], node.windows(resolution_ticks=10)[0]
    assert (fine.bandwidth_peak_bytes_per_second, fine.bandwidth_peak_utilization_ratio) == (10e9, 0.25)
    assert (coarse.bandwidth_peak_bytes_per_second, coarse.bandwidth_peak_utilization_ratio) == (None, None)
    assert coarse.transmit_bytes_per_second == pytest.approx(5e9)


pushes = st.lists(st.lists(st.integers(0, 100), min_size=1, max_size=4), max_size=12)


@given(pushes=pushes, window=st.integers(1, 7))
def test_a_window_is_the_last_values_pushed(pushes: list[list[int]], window: int) -> None:
    rolling = RollingSeconds(7, (1,))
    for values in pushes:
        rolling.push(np.array(values, dtype=float)[:, None])
    last = [value for values in pushes for value in values][-window:]
    assert rolling.sum(window)[0] == sum(last)
    assert rolling.max(window)[0] == max(last, default=0)


def test_missing_seconds_push_old_values_out() -> None:
    rolling = RollingSeconds(5, (1,))
    rolling.push(np.full((5, 1), 3.0))
    rolling.push_holes(3)
    assert rolling.sum(5)[0] == 6
    rolling.push_holes(1_000_000)
    assert rolling.sum(5)[0] == 0


def test_a_new_and_a_cleared_row_are_empty_and_the_others_stay() -> None:
    rolling = RollingSeconds(3, (2, 2))
    rolling.push(np.ones((2, 2, 2)))
    rolling.add_row()
    rolling.clear_row(0)
    np.testing.assert_array_equal(rolling.sum(3), [[0, 0], [2, 2], [0, 0]])
