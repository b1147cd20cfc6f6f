"""Late wake-ups, missed ticks and slow reads, as the sampler counts them and as its samples show them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ibpulse.workbench.simulate.workloads import Constant
from tests.running import Metrics
from tests.virtual.clock import WAKE_NS
from tests.virtual.node import Node
from tests.virtual.rates import RATE, assert_no_false_rate, holes

MS = 1_000_000
SECONDS = 10
TICKS = 100 * SECONDS


@pytest.fixture
def node(folder: Path) -> Iterator[Node]:
    with Node(folder, rails=2, workload=Constant(RATE)) as node:
        # the sampler counts whole seconds, and half a second later they are in the metrics
        node.run(1.5)
        yield node


def buckets(metrics: Metrics, name: str) -> dict[float, float]:
    """The samples of each bucket of a histogram that has any, by its upper bound in seconds."""
    found = metrics.find(f"ibpulse_sampler_{name}_seconds_bucket")
    counts = sorted((float(dict(labels)["le"]), count) for labels, count in found.items())
    below = [0.0, *(count for _, count in counts)]
    return {bound: count - before for (bound, count), before in zip(counts, below, strict=False) if count > before}


def grown(node: Node, name: str) -> dict[float, float]:
    """What a histogram counts in whole seconds."""
    node.run(1)
    before = buckets(node.metrics(), name)
    node.run(SECONDS)
    after = buckets(node.metrics(), name)
    return {bound: count - before.get(bound, 0) for bound, count in after.items() if count != before.get(bound, 0)}


def test_each_wake_up_is_counted_by_its_delay(node: Node) -> None:
    """One tick in ten is 2 ms late, one in a hundred 4 ms; all others by what a process takes to wake."""
    node.late_by(lambda tick: 4 * MS if tick % 100 == 55 else 2 * MS if tick % 10 == 0 else 0)
    counted = grown(node, "lateness")
    assert WAKE_NS == 50_000
    assert counted == {0.00005: TICKS - 110, 0.003: 100, 0.005: 10}
    assert node.metrics().value("ibpulse_sampler_missed_ticks_total") == 0


def test_late_samples_have_the_right_rate(node: Node) -> None:
    node.late_by(lambda tick: (tick * 7919) % (4 * MS))
    node.run(SECONDS)
    assert holes(node.window("5s")["mlx5_0:1 transmit"]) == []
    assert_no_false_rate(node, "5s")


def test_a_tick_that_begins_more_than_half_an_interval_late_is_missed(node: Node) -> None:
    """A wake-up 32 ms late costs its own tick and the two after it; the third begins with it, 2 ms late."""
    node.late_by(lambda tick: 32 * MS if tick % 100 == 50 else 0)
    assert grown(node, "lateness") == {0.00005: TICKS - 4 * SECONDS, 0.003: SECONDS}
    assert node.metrics().value("ibpulse_sampler_missed_ticks_total") == 3 * SECONDS
    # the first sample after missed ones has no rate
    assert set(holes(node.window("5s")["mlx5_0:1 transmit"])) == {4}
    assert_no_false_rate(node, "5s")


def test_the_value_of_a_slow_read_is_not_a_sample(node: Node) -> None:
    """A read may take a tenth of the interval; this one takes three, and the others follow it in time."""
    node.slow("mlx5_0", 0.003, "port_xmit_data")
    node.run(2)
    window = node.window("1s")
    assert window["mlx5_0:1 transmit"] == [None] * 100
    assert window["mlx5_0:1 receive"] == [RATE] * 100
    assert window["mlx5_1:1 transmit"] == [RATE] * 100


def test_a_read_of_a_tenth_of_the_interval_is_a_sample(node: Node) -> None:
    node.slow("mlx5_0", 0.001, "port_xmit_data")
    node.run(2)
    assert node.window("1s")["mlx5_0:1 transmit"] == [RATE] * 100


def test_the_duration_of_each_tick_is_counted(node: Node) -> None:
    node.slow("mlx5_0", 0.0007, "port_xmit_data")
    assert grown(node, "tick_duration") == {0.001: TICKS}
