"""The ring as a file: creating, opening, rejecting, and assigning slots."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ibpulse.base.errors import RingError
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import GIVEN_UP_NS, RingFile
from ibpulse.core.ring.reader import RingReader
from tests.clocks import GivenClock
from tests.ring.conftest import CAPACITY, INTERVAL_NS
from tests.ring.writing import put


def test_a_new_ring_is_empty_and_has_its_settings(ring: RingFile) -> None:
    assert (ring.interval_ns, ring.capacity) == (INTERVAL_NS, CAPACITY)
    assert ring.slots() == {}
    assert ring.segments() == []
    assert ring.last_shift() is None
    assert (ring.latest_tick(), ring.latest_begun_tick()) == (0, 0)


def test_a_new_ring_takes_almost_no_memory(ring: RingFile) -> None:
    assert ring.path.stat().st_size == at.file_bytes(CAPACITY)
    assert ring.path.stat().st_blocks * 512 <= at.RECORD_TABLE * at.WORD


def test_a_ring_that_is_replaced_stays_whole_for_those_who_map_it(ring: RingFile) -> None:
    put(ring, ring.assign("mlx5_0:1", 4, 1), 7)
    RingFile.create(ring.path, INTERVAL_NS, 10).close()
    assert RingReader(ring).read([0], 7, 7).present.all()


Spoil = Callable[[RingFile], object]


def damaged(word: int, value: int, size: int = at.file_bytes(CAPACITY)) -> Spoil:
    def spoil(ring: RingFile) -> None:
        ring.words[word] = value
        os.truncate(ring.path, size)

    return spoil


def content(data: bytes) -> Spoil:
    return lambda ring: ring.path.write_bytes(data)


def shortened(missing: int) -> Spoil:
    return lambda ring: os.truncate(ring.path, at.file_bytes(CAPACITY) - missing)


DELETE = "delete it, it only holds the last minutes of samples"
HEADER = f"has a damaged header; {DELETE}"


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda ring: ring.path.unlink(), "cannot be opened: No such file or directory; is `ibpulse serve` running?"),
        *(
            (content(data), f"is {len(data)} bytes long, shorter than a ring's header; {DELETE}")
            for data in (b"", b"IBPULSE\0", b"x" * 1001)
        ),
        (content(b"x" * (at.RECORD_TABLE * at.WORD + 3)), f"is not a ring file (bad magic number); {DELETE}"),
        (
            damaged(at.H_VERSION, at.VERSION + 1),
            f"has version {at.VERSION + 1}, but this program reads version {at.VERSION}; {DELETE}",
        ),
        *(
            (damaged(word, value), HEADER)
            for word, value in (
                *((at.H_INTERVAL_NS, 0), (at.H_CAPACITY, 0), (at.H_CAPACITY, 49), (at.H_CAPACITY, 2**64 - 1)),
            )
        ),
        # without any record
        (damaged(at.H_CAPACITY, 0, at.file_bytes(0)), HEADER),
        *((shortened(missing), HEADER) for missing in (1, 7, 8, 4096)),
    ],
)
def test_a_file_that_is_no_whole_ring_is_refused(ring: RingFile, spoil: Spoil, sentence: str) -> None:
    spoil(ring)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(RingError) as caught:
        RingFile(ring.path)
    assert str(caught.value) == f"ring {ring.path} {sentence}"
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_damaged_name_of_a_port_is_no_port_of_the_node(ring: RingFile) -> None:
    slot = ring.assign("mlx5_0:1", 4, 1)
    ring.words[at.slot_at(slot) + at.S_NAME] = 2**64 - 1
    assert ring.slots() == {"\ufffd" * 8: slot}
    assert ring.assign("mlx5_0:1", 4, 1) != slot


def test_a_ring_that_cannot_be_mapped_is_refused(ring: RingFile) -> None:
    limit = resource.getrlimit(resource.RLIMIT_AS)
    big = ring.path.with_name("big")
    RingFile.create(big, INTERVAL_NS, 1_000_000).close()
    resource.setrlimit(resource.RLIMIT_AS, (2**33, limit[1]))
    try:
        with pytest.raises(RingError, match=r"cannot be mapped into memory: Cannot allocate memory; set ring\.dir to"):
            RingFile(big)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limit)


def test_a_ring_that_cannot_be_created_is_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "ring"
    with pytest.raises(RingError) as caught:
        RingFile.create(path, INTERVAL_NS, 10)
    assert str(caught.value) == (
        f"ring {path} cannot be created: File exists; set ring.dir to a writable directory, preferably on tmpfs"
    )


@pytest.mark.real("process")
def test_a_full_file_system_is_an_error_at_creation_and_leaves_nothing_behind(tiny_tmpfs: Path) -> None:
    (tiny_tmpfs / "ballast").write_bytes(b"x" * 690_000)
    with pytest.raises(RingError, match=r"cannot be created: No space left on device; set ring\.dir to"):
        RingFile.create(tiny_tmpfs / "ring", INTERVAL_NS, 10)
    assert [path.name for path in tiny_tmpfs.iterdir()] == ["ballast"]


@pytest.mark.real("process")
def test_a_port_without_room_is_refused_and_the_others_stay(tiny_tmpfs: Path) -> None:
    ring = RingFile.create(tiny_tmpfs / "ring", INTERVAL_NS, 10_000)
    ring.assign("mlx5_0:1", 4, 1)
    with pytest.raises(RingError) as caught:
        ring.assign("mlx5_1:1", 4, 1)
    assert str(caught.value) == (
        f"ring {ring.path} has no space for port mlx5_1:1 (480000 bytes): No space left on device; "
        "give ring.dir more space or shorten sampler.history"
    )
    assert ring.slots() == {"mlx5_0:1": 0}
    ring.close()


def test_a_ring_with_the_same_settings_keeps_its_history(ring: RingFile) -> None:
    put(ring, ring.assign("mlx5_0:1", 4, 1), 30)
    again = RingFile.open_or_create(ring.path, INTERVAL_NS, CAPACITY)
    assert RingReader(again).read([again.slots()["mlx5_0:1"]], 30, 30).present.all()


@pytest.mark.parametrize(("interval_ns", "capacity"), [(INTERVAL_NS * 2, CAPACITY), (INTERVAL_NS, CAPACITY + 1)])
def test_a_ring_with_other_settings_is_recreated(ring: RingFile, interval_ns: int, capacity: int) -> None:
    ring.assign("mlx5_0:1", 4, 1)
    again = RingFile.open_or_create(ring.path, interval_ns, capacity)
    assert (again.interval_ns, again.capacity, again.slots()) == (interval_ns, capacity, {})
    again.close()


def test_a_file_that_is_no_ring_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "ring").write_text("rubbish")
    RingFile.open_or_create(tmp_path / "ring", INTERVAL_NS, 10).close()
    assert RingFile(tmp_path / "ring").capacity == 10


def test_a_ring_opened_to_read_cannot_be_written(ring: RingFile) -> None:
    read_only = RingFile(ring.path, writable=False)
    with pytest.raises(TypeError, match="read-only"):
        read_only.words[0] = 0
    read_only.close()


def test_a_ring_can_be_closed_while_an_array_views_it(ring: RingFile) -> None:
    second = RingFile(ring.path)
    array = np.frombuffer(second.words, dtype=np.uint64)
    second.close()
    assert array[at.H_MAGIC] == at.MAGIC


def test_a_port_keeps_its_slot_and_its_history(ring: RingFile) -> None:
    first = ring.assign("mlx5_0:1", 4, 1)
    ring.assign("mlx5_1:1", 4, 1)
    put(ring, first, 20)
    assert ring.assign("mlx5_0:1", 4, 5) == first
    assert ring.slot_word(first, at.S_STRIDE) == 5
    assert RingReader(ring).read([first], 20, 20).present.all()


def test_a_port_counted_in_another_unit_gets_another_slot(ring: RingFile) -> None:
    """A sampler may still write the old unit into the old slot for a tick."""
    old = ring.assign("mlx5_0:1", 4, 1)
    put(ring, old, 20)
    new = ring.assign("mlx5_0:1", 1, 1)
    assert new != old
    assert ring.slots() == {"mlx5_0:1": new}
    assert not RingReader(ring).read([new], 20, 20).present.any()


def test_a_port_of_another_device_gets_another_slot(ring: RingFile) -> None:
    """A sampler may still write to the old slot, so nobody else gets it either."""
    now_ns = [10**18]
    ring.clock = GivenClock(lambda: 0.0, lambda: now_ns[0])  # type: ignore[assignment]
    names = ("mlx5_0:1", "mlx5_1:1")
    old = [ring.assign(name, 4, 1, f"{name} - 7") for name in names]
    put(ring, old[0], 20)
    new = [
        ring.assign(name, 4, 1, device, anew=True) for name, device in zip(names, ("b 0000:18:00.0 9", ""), strict=True)
    ]
    assert len({*old, *new}) == 4
    assert [ring.slot_device(slot) for slot in (*old, *new)] == ["mlx5_0:1 - 7", "mlx5_1:1 - 7", "b 0000:18:00.0 9", ""]
    assert ring.slots() == dict(zip(names, new, strict=True))
    assert not RingReader(ring).read([new[0]], 20, 20).present.any()
    now_ns[0] += GIVEN_UP_NS - 1
    assert ring.assign("mlx5_2:1", 4, 1) not in old
    now_ns[0] += 1
    assert ring.assign("mlx5_3:1", 4, 1) == old[0]
    assert ring.slot_device(old[0]) == ""


def test_the_port_unseen_for_longest_gives_way(ring: RingFile) -> None:
    for number in range(at.SLOT_COUNT):
        slot = ring.assign(f"p{number}:1", 4, 1)
        put(ring, slot, 20)
        ring.words[at.slot_at(slot) + at.S_LAST_SEEN_WALL_NS] = 1000 + (number * 7) % at.SLOT_COUNT
    assert ring.assign("new:1", 1, 1) == 0
    ring.words[at.slot_at(0) + at.S_LAST_SEEN_WALL_NS] = 5000
    oldest = next(number for number in range(at.SLOT_COUNT) if number * 7 % at.SLOT_COUNT == 1)
    assert ring.assign("newer:1", 1, 1) == oldest
    assert "p0:1" not in ring.slots()
    assert not RingReader(ring).read([0, oldest], 20, 20).present.any()


def test_a_slot_given_to_another_port_forgets_the_old_ports_faults(ring: RingFile) -> None:
    for number in range(at.SLOT_COUNT):
        slot = ring.assign(f"p{number}:1", 4, 1)
        ring.words[at.slot_at(slot) + at.S_ERRORS] = 9
        ring.words[at.slot_at(slot) + at.S_STATUS] = at.GONE
    slot = ring.assign("new:1", 1, 2)
    assert [ring.slot_word(slot, which) for which in (at.S_ERRORS, at.S_STATUS, at.S_SCALE, at.S_STRIDE)] == [
        *(0, at.OK, 1, 2)
    ]


def test_the_longest_name_fits_and_a_longer_one_is_refused(ring: RingFile) -> None:
    name = "é" * (at.NAME_BYTES // 2)
    assert ring.slot_name(ring.assign(name, 4, 1)) == name
    with pytest.raises(RingError, match=f"port name 'x{name}' is longer than {at.NAME_BYTES} bytes"):
        ring.assign("x" + name, 4, 1)


def test_the_latest_tick_is_that_of_any_lane(ring: RingFile) -> None:
    ring.words[at.lane_at(0) + at.L_TICK] = 8
    ring.words[at.lane_at(3) + at.L_TICK] = 9
    ring.words[at.lane_at(5) + at.L_BEGUN] = 10
    assert (ring.latest_tick(), ring.latest_begun_tick()) == (9, 10)


def test_segments_keep_negative_shifts_and_their_order(ring: RingFile) -> None:
    ring.begin_segment(1, 0)
    ring.begin_segment(50, -3000)
    ring.begin_segment(60, 2**40)
    assert ring.segments() == [(1, 0), (50, -3000), (60, 2**40)]
    assert ring.last_shift() == 2**40


def test_only_the_last_segments_are_kept(ring: RingFile) -> None:
    for number in range(200):
        ring.begin_segment(number * 10, number)
    assert ring.segments() == [(number * 10, number) for number in range(200 - at.SEGMENT_COUNT + 1, 200)]
