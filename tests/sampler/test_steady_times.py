"""The times that the hot loop measures, on a clock that only the test moves."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from ibpulse.core.ring import layout as at
from tests.sampler.moved_clock import PER_SECOND, MovedLoop
from tests.sampler.tree import Tree

US, MS = 1_000, 1_000_000


@pytest.fixture
def moved(tmp_path: Path, tree: Tree) -> Iterator[MovedLoop]:
    made = MovedLoop(tmp_path, tree)
    yield made
    made.close()


def test_each_wake_up_delay_is_counted_in_its_bucket(moved: MovedLoop) -> None:
    delays = (0, 50 * US, 51 * US, 400 * US, 4 * MS)
    moved.clock.late_ns = itertools.cycle(delays).__next__
    before = moved.word(at.L_LATENESS)
    assert moved.run() == PER_SECOND - 1
    # 99 ticks: 20 of each but the last
    assert moved.word(at.L_LATENESS_SUM_NS) == 20 * sum(delays) - delays[-1]
    buckets = [moved.word(at.L_LATENESS + number) for number in range(at.BUCKET_COUNT)]
    expected = [0] * at.BUCKET_COUNT
    # at most 50 us, 100 us, 500 us and 5 ms
    expected[0], expected[1], expected[4], expected[10] = before + 40, 20, 20, 19
    assert buckets == expected


def test_the_duration_of_a_tick_is_that_of_its_reads(moved: MovedLoop) -> None:
    moved.clock.late_ns = lambda: 3 * MS
    moved.reads_ns = [30 * US] * 10
    moved.run()
    assert moved.word(at.L_DURATION_SUM_NS) == 300 * US
    # at most 75 us
    assert moved.word(at.L_DURATION + 4) == 5


@pytest.mark.parametrize(
    ("transmit_ns", "receive_ns", "values", "doubts"),
    [
        (MS, 0, [1000, 2000], 0),
        (MS // 2 + 1, MS // 2, [1000, 2000], 0),
        (MS + 1, 0, [at.ABSENT, 2000], 1),
        (0, MS + 1, [1000, at.ABSENT], 1),
        (2 * MS, 2 * MS, [at.ABSENT, at.ABSENT], 1),
    ],
)
def test_a_read_that_takes_longer_than_a_tenth_of_the_interval_is_not_used(
    moved: MovedLoop,
    transmit_ns: int,
    receive_ns: int,
    values: list[int],
    doubts: int,
) -> None:
    moved.reads_ns = [transmit_ns, receive_ns]
    first = moved.ticks.tick + 1
    # reads that took unusually long end the hot loop
    assert moved.run() == 1
    assert moved.record(first) == [0, transmit_ns, transmit_ns + receive_ns, *values]
    assert moved.ring.slot_word(moved.ports[0].slot, at.S_UNCERTAIN) == doubts
