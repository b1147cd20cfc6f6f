"""Reads of the ring: by tick, over its end, while it is written."""

from __future__ import annotations

import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.reader import GUARD_TICKS, RingReader
from tests.ring.conftest import CAPACITY, INTERVAL_NS
from tests.ring.writing import PACK, put


def ticks(*numbers: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(numbers, dtype=np.int64)


def test_a_record_is_read_at_its_tick(ring: RingFile) -> None:
    slot = ring.assign("mlx5_0:1", 4, 3)
    put(ring, slot, 70, (1000, 1010, 1050, 2**64 - 2, 9))
    block = RingReader(ring).read([slot], 69, 71)
    assert block.present.tolist() == [[False, True, False]]
    assert block.counters()[0, :, 1].tolist() == [2**64 - 2, 9]
    assert block.time_ns()[0, :, 1].tolist() == [1005, 1030]
    assert block.stamps()[0, 1].tolist() == [1000, 1010, 1050]
    assert (block.scale.tolist(), block.stride.tolist()) == ([4], [3])
    assert (block.first_tick, block.interval_ns) == (69, INTERVAL_NS)


def test_a_counter_that_was_not_read_is_not_valid(ring: RingFile) -> None:
    slot = ring.assign("mlx5_0:1", 4, 1)
    put(ring, slot, 5, (1, 2, 3, at.ABSENT, 12))
    block = RingReader(ring).read([slot], 5, 6)
    assert block.valid()[0].tolist() == [[False, False], [True, False]]


def test_a_slot_without_a_port_has_no_samples(ring: RingFile) -> None:
    block = RingReader(ring).read([9], 1, 5)
    assert not block.present.any()
    assert block.stride.tolist() == [1]


def test_each_record_holds_its_stride(ring: RingFile) -> None:
    slot = ring.assign("mlx5_0:1", 4, 10)
    for tick, stride in ((69, 0), (70, 1), (71, 1000)):
        put(ring, slot, tick, stride=stride)
    block = RingReader(ring).read([slot], 69, 72)
    assert block.present.tolist() == [[True, True, True, False]]
    # what does not say is of the slot's stride
    assert block.strides.tolist() == [[10, 1, 1000, 10]]


def test_records_of_the_stride_that_their_slots_have_need_no_strides(ring: RingFile) -> None:
    slots = [ring.assign("mlx5_0:1", 4, 1), ring.assign("mlx5_1:1", 4, 5)]
    for tick in range(60, 71):
        put(ring, slots[0], tick, stride=1)
        if tick % 5 == 0:
            put(ring, slots[1], tick, stride=5)
    block = RingReader(ring).read(slots, 60, 70)
    assert block.strides is None
    assert block.present.sum(axis=1).tolist() == [11, 3]


@pytest.mark.parametrize(("first", "last"), [(5, 4), (9, 2)])
def test_an_empty_span_gives_an_empty_block(ring: RingFile, first: int, last: int) -> None:
    block = RingReader(ring).read([0, 1], first, last)
    assert block.records.shape == (2, 0, at.RECORD_WORDS)
    assert block.valid().shape == (2, 2, 0)


def test_a_block_of_no_ports_is_empty(ring: RingFile) -> None:
    assert RingReader(ring).read([], 1, 5).records.shape == (0, 5, at.RECORD_WORDS)


def test_an_unwritten_record_is_not_taken_for_tick_zero(ring: RingFile) -> None:
    assert not RingReader(ring).read([0], -CAPACITY, CAPACITY).present.any()


def test_a_tick_that_a_sampler_has_begun_hides_what_it_overwrites(ring: RingFile) -> None:
    """After a long pause, the writer is far from the newest completed tick."""
    put(ring, 0, 60)
    ring.words[at.lane_at(2) + at.L_BEGUN] = 60 + CAPACITY
    assert not RingReader(ring).read([0], 60, 60).present.any()


def test_a_record_is_void_before_it_is_rewritten(ring: RingFile) -> None:
    """The order of stores that readers trust: a write that ends half way leaves no tick."""
    put(ring, 0, 10)
    record = at.records_at(0, CAPACITY) + 10 * at.RECORD_WORDS
    with pytest.raises(struct.error):
        PACK(ring.words.cast("B"), record * at.WORD, 1, -1, 2, 3, 4, 10)
    assert not RingReader(ring).read([0], 10, 10).present.any()


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.integers(1, 30), min_size=1, max_size=120),
    first=st.integers(1, 2**50),
    look=st.tuples(st.integers(-80, 80), st.integers(0, 160)),
)
def test_a_record_is_read_at_its_tick_or_absent(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int], first: int, look: tuple[int, int]
) -> None:
    ring = RingFile.create(tmp_path_factory.mktemp("ring") / "ring", INTERVAL_NS, 32)
    written = (first + np.cumsum(steps)).tolist()
    for tick in written:
        put(ring, 1, tick, (tick, tick, tick, tick, tick))
    newest = written[-1]
    begin = newest + look[0]
    block = RingReader(ring).read([1], begin, begin + look[1])
    expected = [
        tick in written and newest - 32 + GUARD_TICKS < tick <= newest for tick in range(begin, begin + look[1] + 1)
    ]
    assert block.present[0].tolist() == expected
    held = np.arange(begin, begin + look[1] + 1)[block.present[0]]
    assert np.array_equal(block.counters()[0, 0][block.present[0]].astype(np.int64), held)
    ring.close()


READS = 2000


# a long copy gives a record that is just being written the time to become whole
@pytest.mark.parametrize("capacity", [64, 500])
@pytest.mark.real("process")
def test_a_reader_never_sees_a_torn_record_while_a_process_writes_at_full_speed(tmp_path: Path, capacity: int) -> None:
    ring = RingFile.create(tmp_path / "ring", INTERVAL_NS, capacity)
    reader = RingReader(ring)
    writer = subprocess.Popen([sys.executable, "-m", "tests.ring.writing", str(ring.path), "1000"])
    try:
        seen, laps = 0, set()
        reads = 0
        while writer.poll() is None and (reads < READS or seen < 1000 or len(laps) <= 10):
            reads += 1
            latest = ring.latest_tick()
            block = reader.read([0], latest - capacity, latest + 2)
            held = block.present[0]
            found = np.arange(latest - capacity, latest + 3)[held].astype(np.uint64)
            for word, factor in enumerate((5, 6, 7, 8, 9)):
                assert np.array_equal(block.records[0, held, word], found * np.uint64(factor))
            seen += len(found)
            laps.add(latest // capacity)
    finally:
        writer.kill()
        writer.wait()
        ring.close()
    assert seen >= 1000
    assert len(laps) > 10


def test_without_segments_ticks_are_wall_time(ring: RingFile) -> None:
    reader = RingReader(ring)
    assert reader.wall_ns(ticks(5)).tolist() == [5 * INTERVAL_NS]
    assert reader.tick_at(5 * INTERVAL_NS + 3) == 5


@pytest.mark.parametrize(
    ("wall", "tick"),
    [
        (90, 90),  # before the first segment
        (101, 101),
        (200, 200),
        (201, 201),  # a time that the clock jumped over is the first tick after it
        (250, 201),
        (251, 201),
        (320, 270),
        (321, 301),  # a time that came twice is the later one
        (350, 330),
        (420, 400),
    ],
)
def test_the_tick_of_a_wall_time(ring: RingFile, wall: int, tick: int) -> None:
    ring.begin_segment(101, 0)
    ring.begin_segment(201, -50)
    ring.begin_segment(301, -20)
    assert RingReader(ring).tick_at(wall * INTERVAL_NS + 1) == tick


@given(
    segments=st.lists(st.tuples(st.integers(1, 500), st.integers(-1000, 1000)), min_size=1, max_size=8),
    offset=st.integers(0, 3000),
)
@settings(max_examples=60, deadline=None)
def test_the_tick_of_a_ticks_wall_time_is_that_tick_or_a_later_one_with_the_same_time(
    tmp_path_factory: pytest.TempPathFactory, segments: list[tuple[int, int]], offset: int
) -> None:
    ring = RingFile.create(tmp_path_factory.mktemp("ring") / "ring", INTERVAL_NS, 8)
    reader = RingReader(ring)
    begin = 2000
    first = begin
    for length, shift in segments:
        ring.begin_segment(begin, shift)
        begin += length
    wall = int(reader.wall_ns(ticks(first + offset))[0])
    found = reader.tick_at(wall)
    assert found >= first + offset
    assert reader.wall_ns(ticks(found))[0] == wall
    ring.close()


def test_the_newest_tick_stays_clear_of_the_writer_by_a_given_time_or_the_clock(
    ring: RingFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = RingReader(ring)
    assert (reader.newest_tick(), reader.oldest_tick()) == (0, 1)
    ring.begin_segment(1, 100)
    assert reader.newest_tick(1000 * INTERVAL_NS + 5) == 1100 - GUARD_TICKS
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000 * INTERVAL_NS + 5)
    assert reader.newest_tick() == 1_000_100 - GUARD_TICKS


def test_all_ticks_from_the_oldest_to_the_newest_are_readable(ring: RingFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also at the moment when the sampler has just begun the next tick."""
    ring.begin_segment(1, 0)
    reader = RingReader(ring)
    now = 1_000_000
    monkeypatch.setattr(time, "time_ns", lambda: now * INTERVAL_NS)
    for tick in range(now - CAPACITY, now + 1):
        put(ring, 0, tick)
    oldest, newest = reader.oldest_tick(), reader.newest_tick()
    if newest + GUARD_TICKS > now:
        ring.words[at.lane_at(0) + at.L_BEGUN] = newest + GUARD_TICKS
    assert reader.read([0], oldest, min(newest, now)).present.all()


class Interrupted(np.ndarray[Any, Any]):
    """Records; before their words are looked up for the second time, `meanwhile` happens."""

    meanwhile: Callable[[], None] = staticmethod(lambda: None)
    lookups = 0

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, tuple) and len(key) == 3:
            Interrupted.lookups += 1
            if Interrupted.lookups == 2:
                Interrupted.meanwhile()
        return super().__getitem__(key)


def read_interrupted(ring: RingFile, tick: int, meanwhile: Callable[[], None]) -> list[int] | None:
    """The five words of a record, None if it is absent."""
    reader = RingReader(ring)
    reader._records = reader._records.view(Interrupted)
    Interrupted.meanwhile, Interrupted.lookups = staticmethod(meanwhile), 0
    block = reader.read([0], tick, tick)
    assert Interrupted.lookups >= 2
    return block.records[0, 0, : at.R_TICK].tolist() if block.present[0, 0] else None


def whole(tick: int) -> list[int]:
    return [tick * factor for factor in (5, 6, 7, 8, 9)]


@pytest.mark.parametrize("before", [60, None])
def test_a_record_written_between_two_copies_is_whole_or_absent(ring: RingFile, before: int | None) -> None:
    tick = 60 + CAPACITY
    if before is not None:
        put(ring, 0, before)
    # the sampler has begun the tick, so the reader copies it
    ring.words[at.lane_at(0) + at.L_BEGUN] = tick
    assert read_interrupted(ring, tick, lambda: put(ring, 0, tick)) in (None, whole(tick))


def test_a_record_that_is_overwritten_between_two_copies_is_absent(ring: RingFile) -> None:
    """Its mark was copied, but the words are those of the tick that took its place."""
    put(ring, 0, 60)
    assert read_interrupted(ring, 60, lambda: None) == whole(60)
    assert read_interrupted(ring, 60, lambda: put(ring, 0, 60 + CAPACITY)) is None
