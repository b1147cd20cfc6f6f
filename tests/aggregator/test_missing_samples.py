"""Values of windows in which samples are missing, against the bytes that the counters moved."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from ibpulse.agent.aggregator import Aggregator, AggregatorOptions, Snapshot
from ibpulse.agent.aggregator.summary import summarize
from ibpulse.base.units import SECOND_NS
from ibpulse.core.events import PortHistory
from tests.aggregator.rings import Ring, constant, follow, port, square, started, update

A, B = "mlx5_0:1", "mlx5_1:1"
IDLE = constant(0.0)
SECONDS = 11
BUSY = square(40e9, 7, 12)


def frozen(seed: int, ticks: int = 100 * SECONDS + 100) -> set[int]:
    """Missing ticks: 3 to 8 in a row, then 5 to 15 that are there; the first and the last ones are there."""
    rng, holes, tick = np.random.default_rng(seed), set[int](), 5
    while tick < ticks:
        length = int(rng.integers(3, 9))
        holes |= set(range(tick, tick + length))
        tick += length + int(rng.integers(5, 16))
    return holes


def written(tmp_path: Path, holes: Collection[int], stride: int = 1) -> Ring:
    ring = Ring.create(tmp_path, port(A), port(B))
    for name in (A, B):
        ring.write(name, (BUSY, constant(2e9)), 1, 100 * (SECONDS + 1), stride=stride, holes=holes)
    return ring


def moved(first: int, last: int) -> float:
    """Mean rate of a port between the reads of two ticks."""
    return sum(BUSY(tick) for tick in range(first + 1, last + 1)) / (last - first)


def window(snapshot: Snapshot) -> tuple[float | None, ...]:
    node = snapshot.node[0]
    return node.transmit_bytes_per_second, node.receive_bytes_per_second, node.observed_ratio


def port_means(ring: Ring) -> list[float | None]:
    end_ns = SECONDS * SECOND_NS
    found = summarize(
        ring.reader, ring.fabric.ports, PortHistory(), AggregatorOptions(), 10, end_ns, now_ns=end_ns + SECOND_NS
    )
    return [port.transmit.mean_bytes_per_second for port in found.ports]


@pytest.mark.parametrize("stride", [1, 3])
def test_means_are_those_of_all_bytes_and_their_time(tmp_path: Path, stride: int) -> None:
    holes = frozen(1)
    ring = written(tmp_path, holes, stride)
    found = window(follow(ring, Aggregator(ring.reader, AggregatorOptions()), 1, SECONDS))
    # the window is the last ten seconds: from the last read before them to the last one in them
    reads = [tick for tick in range(1, 100 * SECONDS + 1) if tick not in holes and tick % stride == 0]
    expected = moved(max(tick for tick in reads if tick <= 100), reads[-1])
    assert found[0] == pytest.approx(2 * expected, rel=2e-3 * stride)
    assert found[1] == pytest.approx(4e9, rel=1e-6)
    assert port_means(ring) == pytest.approx([expected, expected], rel=5e-3 * stride)


def test_the_share_of_observed_time_is_that_of_good_samples(tmp_path: Path) -> None:
    holes = frozen(2)
    ring = written(tmp_path, holes)
    observed = window(update(ring, Aggregator(ring.reader, AggregatorOptions()), SECONDS))[2]
    good = [tick for tick in range(101, 100 * SECONDS + 1) if not {tick, tick - 1} & holes]
    assert observed == pytest.approx(len(good) / 1000)
    assert 0.4 < len(good) / 1000 < 0.65


def test_means_do_not_depend_on_how_often_they_are_asked_for(tmp_path: Path) -> None:
    ring = written(tmp_path, frozen(3) | set(range(480, 560)))
    each, once = (Aggregator(ring.reader, AggregatorOptions()) for _ in range(2))
    assert window(follow(ring, each, 1, SECONDS)) == pytest.approx(window(update(ring, once, SECONDS)))


def test_the_bytes_across_a_reset_or_a_long_time_are_unknown(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port(A), port(B))
    ring.write(A, (BUSY, IDLE), 1, 100 * (SECONDS + 1), holes=range(250, 260), resets=[255])
    ring.write(
        B, (lambda tick: 9e9 if 300 <= tick <= 420 else 1e9, IDLE), 1, 100 * (SECONDS + 1), holes=range(300, 420)
    )
    first, second = port_means(ring)
    observed = [tick for tick in range(101, 100 * SECONDS + 1) if not 250 <= tick <= 260]
    assert first == pytest.approx(sum(map(BUSY, observed)) / len(observed), rel=1e-6)
    assert second == pytest.approx(1e9, rel=1e-6)


def test_bursts_are_watched_up_to_samples_at_most_three_after_another(tmp_path: Path) -> None:
    # a read that is missing alone takes two samples
    holes = frozen(4) | set(range(17, 100 * SECONDS, 29))
    ring, aggregator = started(tmp_path, port(A))
    ring.write(A, (BUSY, IDLE), 1, 100 * (SECONDS + 1), holes=holes)
    traffic = follow(ring, aggregator, 1, SECONDS).traffic
    good = [tick for tick in range(2, 100 * SECONDS + 1) if not {tick, tick - 1} & holes]
    watched = [(before, tick) for before, tick in pairwise(good) if tick - before <= 3]
    assert {tick - before for before, tick in watched} == {1, 3}
    assert traffic.burst_watched_seconds == pytest.approx(sum(tick - before for before, tick in watched) / 100)
    assert traffic.bursts == sum(BUSY(tick) > 0 and BUSY(before) == 0 for before, tick in watched)
