"""A ring followed while it fills: each tick once, holes kept, the wall clock of the beginning."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from ibpulse.core.model import PortIdentity
from ibpulse.core.recordings import RecordedPort, Recording, RecordingMeta, concatenate
from ibpulse.core.recordings.from_ring import RingFollower, describe_fabric, read_pieces
from tests.aggregator.rings import MS, Ring, constant, port, square

TRAFFIC = (square(20e9, 3, 7), constant(4e8))
INTERVAL_NS = 10 * MS
# the follower trusts ticks that are 0.2 s old with the four samples after them, and a reader stays two ticks behind
BEHIND = 26


def make_meta(ring: Ring, stride: int = 1) -> RecordingMeta:
    ports = describe_fabric(ring.fabric, lambda name: stride)
    return RecordingMeta("node7", ring.file.interval_ns, ports, "record")


class Followed:
    """A follower of a ring whose clock the test sets."""

    def __init__(self, ring: Ring, first_tick: int, stride: int = 1) -> None:
        self.now_tick = 0
        self.follower = RingFollower(ring.reader, make_meta(ring, stride), first_tick, self._wall_ns)

    def _wall_ns(self) -> int:
        return self.now_tick * INTERVAL_NS

    def at(self, tick: int) -> list[Recording]:
        self.now_tick = tick
        return list(self.follower.read())


def test_each_tick_comes_once_and_what_it_moved_is_exact(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port("mlx5_0"), port("mlx5_1"))
    first = ring.write("mlx5_0:1", TRAFFIC, 1, 1000, late_ns=lambda tick: tick % 7 * 100_000)
    ring.write("mlx5_1:1", TRAFFIC, 1, 1000)
    followed = Followed(ring, 2)
    assert followed.at(10) == []
    pieces = [piece for tick in (34, 35, 94, 95, 644) for piece in followed.at(tick)]
    assert [piece.ticks for piece in pieces] == [7, 1, 59, 1, 100, 100, 100, 100, 100, 49]
    whole = concatenate(pieces)
    assert (whole.start_ns, whole.end_ns) == (2 * INTERVAL_NS, (644 - BEHIND + 1) * INTERVAL_NS)
    moved = (whole.bytes_per_second * whole.seconds).sum(axis=2)
    expected = [[20e9 * 0.01 * (62 * 3 - 1), 4e8 * 0.01 * 617]] * 2
    np.testing.assert_allclose(moved, expected, rtol=1e-3)
    np.testing.assert_allclose(moved[1], expected[1], rtol=1e-9)
    assert first[0] > 1000


def test_what_was_not_measured_is_a_hole(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port("mlx5_0"), port("mlx5_1"))
    ring.write("mlx5_0:1", TRAFFIC, 1, 300, holes={50}, absent={(60, 1)}, resets={70})
    whole = concatenate(Followed(ring, 2).at(300 + BEHIND))
    holes = np.argwhere(np.isnan(whole.bytes_per_second[0])).tolist()
    # ticks begin at 2; a missed sample spoils the rate after it too
    assert holes == [[0, 48], [0, 49], [0, 68], [1, 48], [1, 49], [1, 58], [1, 59], [1, 68]]
    assert np.isnan(whole.bytes_per_second[1]).all()


def test_a_cached_counter_is_waited_for_until_its_stride_is_over(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port("mlx5_0"))
    ring.write("mlx5_0:1", TRAFFIC, 1, 300, stride=5)
    followed = Followed(ring, 10, stride=5)
    whole = concatenate([*followed.at(141), *followed.at(153), *followed.at(300)])
    assert not np.isnan(whole.bytes_per_second).any()
    assert whole.end_ns == (300 - 22 - 24 + 1) * INTERVAL_NS


def test_a_silent_sampler_gives_holes_for_two_seconds_and_then_nothing(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port("mlx5_0"))
    ring.write("mlx5_0:1", TRAFFIC, 1, 300)
    followed = Followed(ring, 2)
    assert concatenate(followed.at(100_000)).end_ns == (500 - 24 + 1) * INTERVAL_NS
    assert followed.at(200_000) == []


def test_ticks_keep_their_distance_when_the_clock_is_set(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port("mlx5_0"))
    ring.write("mlx5_0:1", TRAFFIC, 1, 400)
    ring.file.begin_segment(200, -1000)
    whole = concatenate(Followed(ring, 2).at(400 + 1000 + BEHIND))
    assert whole.start_ns == 2 * INTERVAL_NS
    assert whole.ticks == 399
    assert not np.isnan(whole.bytes_per_second).any()


START_NS = 1_763_683_200 * 10**9


@pytest.fixture
def ring(tmp_path: Path) -> Ring:
    made = Ring.create(tmp_path, port("mlx5_0:1"), port("mlx5_1:1"), seconds=10)
    made.write(
        "mlx5_0:1", (square(5e9, 20, 30), constant(1e9)), 1, 500, holes=(100, 101), late_ns=lambda t: t % 7 * 100
    )
    made.write("mlx5_1:1", (constant(2e9), constant(3e9)), 1, 500, stride=5)
    return made


def meta(*strides: int) -> RecordingMeta:
    ports = tuple(RecordedPort(f"mlx5_{number}", 1, stride=stride) for number, stride in enumerate(strides))
    return RecordingMeta("node7", 10_000_000, ports, "capture")


def read(ring: Ring, about: RecordingMeta, first: int, last: int, at_once: int = 10_000) -> Recording:
    return concatenate(list(read_pieces(ring.reader, about, first, last, START_NS, at_once)))


def test_samples_of_another_device_are_missing(ring: Ring) -> None:
    words = ring.file.slots()
    for name, device in {"mlx5_0:1": "b - 7", "mlx5_1:1": "a - 7"}.items():
        assert ring.file.assign(name, 4, 1 if words[name] == 0 else 5, device) == words[name]
    about = meta(1, 5)
    ports = tuple(dataclasses.replace(each, identity=PortIdentity(guid="a")) for each in about.ports)
    found = read(ring, dataclasses.replace(about, ports=ports), 151, 250)
    assert np.isnan(found.bytes_per_second[0]).all()
    np.testing.assert_allclose(found.bytes_per_second[1], [[2e9] * 100, [3e9] * 100])


def test_pieces_are_what_the_whole_is_and_what_the_ring_does_not_hold_is_holes(ring: Ring) -> None:
    about = meta(1, 5)
    assert read(ring, about, 40, 333, at_once=17) == read(ring, about, 40, 333)
    # more ticks than there are, and a port without a place
    about = dataclasses.replace(meta(1, 5, 1))
    found = read(ring, about, 1, 600)
    assert np.isnan(found.bytes_per_second[2]).all()
    assert np.isnan(found.bytes_per_second[:, :, 500:]).all()
    assert np.isnan(found.bytes_per_second[0, :, 0]).all()
    assert not np.isnan(found.bytes_per_second[0, :, 1:99]).any()
