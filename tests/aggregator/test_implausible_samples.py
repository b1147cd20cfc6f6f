"""Samples above the line rate: merged, counted once, and pointed out where nothing explains them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ibpulse.agent.aggregator import Aggregator, AggregatorOptions, summarize
from ibpulse.agent.aggregator.ports import PortTable
from ibpulse.core.events import PortHistory
from ibpulse.core.model import PortState
from ibpulse.core.ring.spans import RingPort
from ibpulse.core.statistics.plausible import MAX_BEFORE, NO_MERGES, Merges
from tests.aggregator.rings import RATE, Ring, Traffic, constant, follow, port, update

A, B = "mlx5_0:1", "mlx5_1:1"
LATE = {450, 520, 999}
"""Ticks at which half of the bytes of the port are missing; the next tick has them."""
NOTICE = (
    "mlx5_0:1 counts more than its line rate of 50GB/s can carry: there is traffic within the adapter (loopback), or "
    "the rate is wrong"
)


def late(tick: int) -> float:
    part = 0.8
    return RATE * ((part / 2 if tick in LATE else part) + (part / 2 if tick - 1 in LATE else 0.0))


def make(
    tmp_path: Path, traffic: Traffic = late, last: int = 1400, history: PortHistory | None = None
) -> tuple[Ring, Aggregator]:
    ring = Ring.create(tmp_path, port(A), port(B))
    aggregator = Aggregator(ring.reader, AggregatorOptions(), history)
    for end in (200, last):
        ring.write(A, (traffic, constant(1e9)), 1, end)
        ring.write(B, (constant(1e9), constant(1e9)), 1, end)
        if end == 200:
            # the first second sees the ring end about now
            update(ring, aggregator, 1)
    return ring, aggregator


def test_a_late_counter_is_merged_and_counted_once_and_is_no_peak(tmp_path: Path) -> None:
    ring, aggregator = make(tmp_path)
    snapshots = [update(ring, aggregator, second) for second in range(3, 13)]
    assert [found.ports[0].implausible_samples for found in snapshots] == [0, 0, 1, 2, 2, 2, 2, 3, 3, 3]
    assert snapshots[-1].ports[1].implausible_samples == 0
    assert snapshots[-1].ports[0].directions[0].windows[0].peak_bytes_per_second == pytest.approx(0.8 * RATE)
    decided = ring.now_after(12) - MAX_BEFORE
    assert snapshots[-1].ports[0].directions[0].bytes_total == pytest.approx(0.8 * RATE * (decided - 1) / 100)
    assert snapshots[-1].fabric.notices == ()


def test_a_second_takes_samples_of_the_next_into_account(tmp_path: Path) -> None:
    """The sample at tick 1000, the last of its second, is above the line rate because that at 999 was late."""
    ring, aggregator = make(tmp_path)
    found = follow(ring, aggregator, 9, 11)
    summary = summarize(ring.reader, [port(A)], PortHistory(), AggregatorOptions(), 1, 10 * 10**9, 14 * 10**9)
    assert summary.ports[0].transmit.peak_bytes_per_second == pytest.approx(0.8 * RATE)
    assert found.node[0].bandwidth_peak_bytes_per_second == pytest.approx(0.8 * RATE + 3e9)


def test_what_no_line_can_carry_is_left_as_it_is_and_pointed_out_for_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ring, aggregator = make(tmp_path, lambda tick: 1.5 * RATE if 301 <= tick <= 400 else 0.0, 7000)
    assert update(ring, aggregator, 2).fabric.notices == ()
    found = update(ring, aggregator, 4)
    assert found.ports[0].directions[0].windows[0].peak_bytes_per_second == pytest.approx(1.5 * RATE)
    assert found.fabric.notices == aggregator.with_notices(ring.fabric).notices == (NOTICE,)
    assert update(ring, aggregator, 63).fabric.notices == (NOTICE,)
    assert update(ring, aggregator, 64).fabric.notices == ()
    assert caplog.messages.count(NOTICE) == 1
    # the first samples could be merged with the silence before them
    assert found.ports[0].implausible_samples == 3


def test_without_a_known_rate_nothing_is_implausible(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port(A, rate=None))
    aggregator = Aggregator(ring.reader, AggregatorOptions())
    ring.write(A, (late, constant(1e9)), 1, 900)
    found = follow(ring, aggregator, 5, 8)
    assert found.ports[0].implausible_samples == 0
    assert found.ports[0].directions[0].windows[0].peak_bytes_per_second == pytest.approx(1.2 * RATE)


@pytest.mark.parametrize(("earlier", "merged"), [(0, True), (60, False)])
def test_a_link_that_trained_up_between_two_readings_merges_nothing(tmp_path: Path, earlier: int, merged: bool) -> None:
    """It was seen at 250 GB/s from tick 550 on, and may have had that rate from 490 on."""
    history = PortHistory()
    old = PortState("ACTIVE", "LinkUp", True, RATE, True)
    fast = PortState("ACTIVE", "LinkUp", True, 5 * RATE, True)
    history.change(A, 550, old, fast, earlier)
    traffic = lambda tick: 3 * RATE if tick >= 520 else 0.0  # noqa: E731
    ring, aggregator = make(tmp_path, traffic, 1400, history)
    found = follow(ring, aggregator, 1, 8)
    assert (found.ports[0].implausible_samples > 0) is merged
    assert found.ports[0].directions[0].windows[0].peak_bytes_per_second == pytest.approx(3 * RATE)


def test_samples_from_before_the_start_are_not_counted(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port(A))
    ring.write(A, (late, constant(1e9)), 1, 700)
    aggregator = Aggregator(ring.reader, AggregatorOptions())
    ring.write(A, (late, constant(1e9)), 1, 1400)
    # of those at 451, 521 and 1000, only the last is after the start
    assert follow(ring, aggregator, 7, 11).ports[0].implausible_samples == 1


def test_a_late_sample_at_the_end_of_a_second_is_counted_once(tmp_path: Path) -> None:
    """The counter is late at tick 500, the last of its second, and right again at 501."""
    traffic = lambda tick: RATE * {500: 0.4, 501: 1.2}.get(tick, 0.8)  # noqa: E731
    ring, aggregator = make(tmp_path, traffic)
    assert [update(ring, aggregator, second).ports[0].implausible_samples for second in (4, 5, 6, 7)] == [0, 0, 1, 1]


def test_a_row_given_to_another_port_forgets_what_no_line_could_carry() -> None:
    table = PortTable(1e6, 10)
    first, second = (RingPort(port(name), 0, 1) for name in (A, B))
    rows, _ = table.rows_of([first], [A])
    impossible = Merges(NO_MERGES.places, NO_MERGES.counts, np.array([[0, 0, 150]]))
    table.add_merges(rows, impossible, 3, 100, counting=True)
    assert table.counts.unexplained[rows].tolist() == [4]
    # the ring has given the slot of the first port to the second
    assert table.counts.unexplained[table.rows_of([second], [B])[0]].tolist() == [0]
