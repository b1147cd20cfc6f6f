"""The hot loop on a clock that only the test moves: what it stores, the times that it measures, and what ends it."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ibpulse.core.ring import layout as at
from tests.sampler.moved_clock import INTERVAL_NS, PER_SECOND, MovedLoop
from tests.sampler.tree import Tree

US, MS = 1_000, 1_000_000


def start(path: Path, tree: Tree, *strides: int) -> MovedLoop:
    """Ports of plain files, which count 1000 and 2000, 1001 and 2001 and so on."""
    made = MovedLoop(path)
    for number in range(len(strides)):
        tree.write(f"mlx5_{number}", 1000 + number, 2000 + number)
    made.start(*(tree.planned(made.ring, f"mlx5_{number}", stride) for number, stride in enumerate(strides)))
    assert made.ticks.tick % PER_SECOND == 1
    return made


@pytest.fixture
def moved(tmp_path: Path, tree: Tree) -> Iterator[MovedLoop]:
    made = start(tmp_path, tree, 1, 1)
    yield made
    made.close()


def at_tick(moved: MovedLoop, number: int, happens: Callable[[], int | None]) -> None:
    """Let something happen while the loop sleeps before a tick of this second; it may say by how much it is late."""
    tick = moved.ticks.tick - 1 + number

    def late_ns() -> int:
        return happens() or 0 if moved.clock.time_ns() // INTERVAL_NS + 1 == tick else 0

    moved.clock.late_ns = late_ns


def test_a_tick_stores_what_a_full_one_stores(moved: MovedLoop) -> None:
    first = moved.ticks.tick
    moved.clock.late_ns = lambda: 50 * US
    assert moved.steadily() == PER_SECOND - 1
    for port in range(2):
        records = moved.records(port)
        assert records[0] == [first, 0, 0, 0, 1000 + port, 2000 + port]
        later = range(first + 1, first + PER_SECOND)
        assert records[1:] == [[tick, *[50 * US] * 3, 1000 + port, 2000 + port] for tick in later]
    assert moved.word(at.L_TICK) == moved.word(at.L_BEGUN) == moved.ticks.tick == first + PER_SECOND - 1
    assert moved.word(at.L_TICKS) == PER_SECOND


def test_it_ends_with_the_second(moved: MovedLoop) -> None:
    moved.steadily()
    assert moved.ticks.tick % PER_SECOND == 0
    assert moved.steadily() == 0


def test_a_new_plan_ends_it_after_the_tick(moved: MovedLoop) -> None:
    at_tick(moved, 20, lambda: moved.ring.words.__setitem__(moved.lane + at.L_PLAN_WANTED, 9))
    assert moved.steadily() == 19
    assert moved.steadily() == 0


def test_a_clock_that_was_set_ends_it_before_the_next_tick(moved: MovedLoop) -> None:
    def step() -> None:
        moved.clock.ahead_ns += 30 * MS

    at_tick(moved, 20, step)
    assert moved.steadily() == 19
    assert moved.ticks.steps == 0
    moved.full()
    assert moved.ticks.steps == 1


def test_a_late_wake_up_ends_it_without_a_sample(moved: MovedLoop) -> None:
    at_tick(moved, 20, lambda: INTERVAL_NS // 2 + 1)
    assert moved.steadily() == 18
    assert len(moved.records()) == 19


def test_reads_that_take_longer_than_usual_end_it_after_the_tick(moved: MovedLoop) -> None:
    """A read of 0.2 ms is no reason to doubt its value, but the next one may not follow too soon."""
    at_tick(moved, 20, lambda: moved.reads_ns.append(200 * US))
    assert moved.steadily() == 19
    assert moved.records()[-1][-2:] == [1000, 2000]


def test_a_port_whose_file_is_bad_is_left_to_the_full_tick(moved: MovedLoop, tree: Tree) -> None:
    at_tick(moved, 20, lambda: tree.write("mlx5_1", "N/A", 7))
    # in the middle of the second the lists of ports change, and it begins anew
    assert moved.steadily() == 19
    assert [port.planned.device for port in moved.loop.slow] == ["mlx5_1"]
    assert (moved.slot_word(at.S_ERRORS, 1), moved.slot_word(at.S_LAST_ERRNO, 1)) == (1, errno.EBADMSG)
    assert moved.steadily() == PER_SECOND - 20
    assert (len(moved.records(0)), moved.last(1)) == (PER_SECOND, [at.ABSENT, 7])


def test_ports_that_are_not_due_at_every_tick_are_read_at_theirs(tmp_path: Path, tree: Tree) -> None:
    mixed = start(tmp_path, tree, 1, 4)
    first = mixed.ticks.tick
    # it ends once when the other port opens its files
    assert [mixed.steadily(), mixed.steadily()] == [3, PER_SECOND - 4]
    often, seldom = ([record[0] for record in mixed.records(port)] for port in (0, 1))
    assert often == list(range(first, first + PER_SECOND))
    assert seldom == [tick for tick in often if tick % 4 == 0]
    mixed.close()


def test_each_wake_up_delay_is_counted_in_its_bucket(moved: MovedLoop) -> None:
    delays = (0, 50 * US, 51 * US, 400 * US, 4 * MS)
    moved.clock.late_ns = itertools.cycle(delays).__next__
    before = moved.word(at.L_LATENESS)
    assert moved.steadily() == PER_SECOND - 1
    # 99 ticks: 20 of each but the last
    assert moved.word(at.L_LATENESS_SUM_NS) == 20 * sum(delays) - delays[-1]
    buckets = [moved.word(at.L_LATENESS + number) for number in range(at.BUCKET_COUNT)]
    expected = [0] * at.BUCKET_COUNT
    # at most 50 us, 100 us, 500 us and 5 ms
    expected[0], expected[1], expected[4], expected[10] = before + 40, 20, 20, 19
    assert buckets == expected


def test_the_duration_of_a_tick_is_that_of_its_reads(moved: MovedLoop) -> None:
    moved.clock.late_ns = lambda: 3 * MS
    moved.reads_ns = [15 * US] * 20
    moved.steadily()
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
    moved: MovedLoop, transmit_ns: int, receive_ns: int, values: list[int], doubts: int
) -> None:
    moved.reads_ns = [transmit_ns, receive_ns]
    # reads that took unusually long end the hot loop
    assert moved.steadily() == 1
    assert moved.records()[-1][1:] == [0, transmit_ns, transmit_ns + receive_ns, *values]
    assert moved.slot_word(at.S_UNCERTAIN) == doubts
