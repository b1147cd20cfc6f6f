"""Ticks of the ring as a recording: the rates of the arithmetic, at their ticks, holes where nothing is known."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from ibpulse.core.model import PortIdentity
from ibpulse.core.recordings import RecordedPort, Recording, RecordingMeta, concatenate
from ibpulse.core.recordings.from_ring import read_pieces
from tests.aggregator.rings import Ring, constant, port, square

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


def test_rates_stand_at_their_ticks(ring: Ring) -> None:
    found = read(ring, meta(1, 5), 151, 250)
    assert (found.start_ns, found.ticks) == (START_NS, 100)
    sent = [5e9 if (tick - 1) % 50 < 20 else 0.0 for tick in range(151, 251)]
    np.testing.assert_allclose(found.bytes_per_second[0, 0], sent, rtol=1e-6)
    np.testing.assert_allclose(found.bytes_per_second[1], [[2e9] * 100, [3e9] * 100])
    np.testing.assert_allclose(found.seconds[0, 0], [0.01 + ((t % 7) - (t - 1) % 7) * 1e-7 for t in range(151, 251)])


def test_missed_ticks_are_holes(ring: Ring) -> None:
    found = read(ring, meta(1, 5), 91, 110)
    holes = np.isnan(found.bytes_per_second[0, 0])
    assert [tick for tick, hole in zip(range(91, 111), holes, strict=True) if hole] == [100, 101, 102]
    assert not np.isnan(found.bytes_per_second[1]).any()


def test_samples_of_another_device_are_missing(ring: Ring) -> None:
    words = ring.file.slots()
    for name, device in {"mlx5_0:1": "b - 7", "mlx5_1:1": "a - 7"}.items():
        assert ring.file.assign(name, 4, 1 if words[name] == 0 else 5, device) == words[name]
    about = meta(1, 5)
    ports = tuple(dataclasses.replace(each, identity=PortIdentity(guid="a")) for each in about.ports)
    found = read(ring, dataclasses.replace(about, ports=ports), 151, 250)
    assert np.isnan(found.bytes_per_second[0]).all()
    np.testing.assert_allclose(found.bytes_per_second[1], [[2e9] * 100, [3e9] * 100])


def test_pieces_are_what_the_whole_is(ring: Ring) -> None:
    about = meta(1, 5)
    assert read(ring, about, 40, 333, at_once=17) == read(ring, about, 40, 333)


def test_what_the_ring_does_not_hold_is_holes(ring: Ring) -> None:
    # more ticks than there are, and a port without a place
    about = dataclasses.replace(meta(1, 5, 1))
    found = read(ring, about, 1, 600)
    assert np.isnan(found.bytes_per_second[2]).all()
    assert np.isnan(found.bytes_per_second[:, :, 500:]).all()
    assert np.isnan(found.bytes_per_second[0, :, 0]).all()
    assert not np.isnan(found.bytes_per_second[0, :, 1:99]).any()


def test_ports_that_no_ring_has_are_holes(ring: Ring) -> None:
    about = RecordingMeta("node7", 10_000_000, (RecordedPort("mlx5_9", 1),), "capture")
    assert np.isnan(read(ring, about, 1, 10).bytes_per_second).all()


def test_the_bytes_of_the_window_are_what_the_counters_rose_by(ring: Ring) -> None:
    found = read(ring, meta(1, 5), 201, 400)
    moved = np.nansum(found.bytes_per_second * found.seconds, axis=-1)
    np.testing.assert_allclose(moved, [[4 * 20 * 0.01 * 5e9, 2e9], [4e9, 6e9]], rtol=1e-4)
