"""The last active sample of the rails, at the interval of the sampler: which node of a job stopped first."""

from __future__ import annotations

from pathlib import Path

from ibpulse.agent.aggregator import Aggregator, AggregatorOptions
from tests.aggregator.rings import MS, Ring, Traffic, constant, port, update

QUIET = constant(0.0)
THRESHOLD = AggregatorOptions().active_bytes_per_second


def until(tick: int, bytes_per_second: float = 10e9) -> Traffic:
    """Traffic that ends with a tick."""
    return lambda now: bytes_per_second if now <= tick else 0.0


def test_it_is_the_last_sample_above_the_threshold_of_all_rails_together(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port("mlx5_0:1"), port("mlx5_1:1"))
    aggregator = Aggregator(ring.reader, AggregatorOptions())
    ring.write("mlx5_0:1", (until(237), QUIET), 1, 500)
    ring.write("mlx5_1:1", (QUIET, until(251, THRESHOLD * 1.1)), 1, 500)
    for second in range(1, 5):
        found = update(ring, aggregator, second).last_traffic_ns
        assert found == min(second * 100, 251) * 10 * MS


def test_traffic_from_before_the_start_counts(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port("mlx5_0:1"))
    ring.write("mlx5_0:1", (until(333), QUIET), 1, 500)
    snapshot = update(ring, Aggregator(ring.reader, AggregatorOptions()), 4)
    assert snapshot.last_traffic_ns == 3330 * MS


def test_it_is_unknown_without_traffic_on_a_rail(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port("mlx5_0:1"), port("mlx5_1:1", rail=False))
    aggregator = Aggregator(ring.reader, AggregatorOptions())
    ring.write("mlx5_0:1", (constant(THRESHOLD * 0.9), QUIET), 1, 500)
    ring.write("mlx5_1:1", (constant(10e9), QUIET), 1, 500)
    assert update(ring, aggregator, 4).last_traffic_ns is None


def test_missing_samples_are_not_traffic(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port("mlx5_0:1"))
    aggregator = Aggregator(ring.reader, AggregatorOptions())
    ring.write("mlx5_0:1", (constant(10e9), QUIET), 1, 600, holes=range(250, 601))
    assert update(ring, aggregator, 4).last_traffic_ns == 2490 * MS
