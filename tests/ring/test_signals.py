"""Readings of signals in the ring: what a window has of them, and which are dropped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.reader import RingReader, read_signals
from ibpulse.core.signals import Signal
from tests.ring.conftest import CAPACITY, INTERVAL_NS
from tests.ring.writing import put_signals

READINGS = 8
SIGNALS = (
    Signal("rp_cnp_packets_handled", 64),
    Signal("port_transmit_wait", 32, stops=True),
    Signal("port_discards_transmitted", 16),
)


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[RingFile]:
    made = RingFile.create(tmp_path / "ring", INTERVAL_NS, CAPACITY, signal_capacity=READINGS)
    made.assign("mlx5_0:1", 4, 1)
    made.assign("mlx5_1:1", 4, 1)
    made.begin_segment(1, 0)
    made.assign_signals(1, SIGNALS, 1)
    yield made
    made.close()


def fill(ring: RingFile, ticks: range) -> None:
    for tick in ticks:
        put_signals(ring, 1, tick, (tick, 2 * tick, 3 * tick), (tick * 100, tick * 100 + 20, tick * 100 + 60))


def read(ring: RingFile, first: int = 0, last: int = 1000) -> list[int]:
    """The ticks of the readings, by their first counter."""
    return read_signals(RingReader(ring), 1, first, last)[1].counters[:, 0].tolist()


def test_a_reading_has_its_counters_and_the_time_of_each(ring: RingFile) -> None:
    fill(ring, range(10, 13))
    found = read_signals(RingReader(ring), 1, 10, 12)[1]
    assert found.signals == SIGNALS
    assert found.wall_ns.tolist() == [tick * INTERVAL_NS for tick in (10, 11, 12)]
    assert found.counters.tolist() == [[tick, 2 * tick, 3 * tick] for tick in (10, 11, 12)]
    assert found.time_ns[0].tolist() == [1010, 1040, 1040]
    np.testing.assert_array_equal(found.gains().gained[1:], [[1, 2, 3]] * 2)


def test_a_window_begins_with_the_reading_before_it(ring: RingFile) -> None:
    fill(ring, range(10, 16))
    assert read(ring, 13, 14) == [12, 13, 14]
    assert read(ring, 10, 11) == [10, 11]
    assert read(ring, 20, 30) == [15]


def test_the_oldest_readings_are_overwritten(ring: RingFile) -> None:
    fill(ring, range(10, 10 + READINGS + 3))
    # one less than there is space for: the writer may be overwriting it
    assert read(ring) == list(range(14, 21))


def test_readings_of_other_signals_are_dropped(ring: RingFile) -> None:
    fill(ring, range(10, 13))
    before = ring.assign_signals(1, SIGNALS, 1)
    assert read(ring) == [10, 11, 12]
    assert ring.assign_signals(1, SIGNALS[:2], 1) != before
    assert read(ring) == []
    put_signals(ring, 1, 14, (7, 8))
    assert read_signals(RingReader(ring), 1, 0, 20)[1].counters.tolist() == [[7, 8]]


def test_another_device_has_none(ring: RingFile) -> None:
    fill(ring, range(10, 13))
    slot = ring.assign("mlx5_1:1", 4, 1, anew=True)
    assert ring.signals(slot) == ()
    assert read_signals(RingReader(ring), slot, 0, 20)[1].counters.shape == (0, 0)


def test_a_port_without_signals_and_a_ring_without_them_have_none(ring: RingFile, tmp_path: Path) -> None:
    assert read_signals(RingReader(ring), 0, 0, 20)[1].signals == ()
    without = RingFile.create(tmp_path / "without", INTERVAL_NS, CAPACITY)
    without.assign("mlx5_0:1", 4, 1)
    assert read_signals(RingReader(without), 0, 0, 20)[1].signals == ()
    without.close()


def test_a_ring_with_another_capacity_is_replaced(ring: RingFile) -> None:
    kept = RingFile.open_or_create(ring.path, INTERVAL_NS, CAPACITY, signal_capacity=READINGS)
    assert kept.slots() == {"mlx5_0:1": 0, "mlx5_1:1": 1}
    replaced = RingFile.open_or_create(ring.path, INTERVAL_NS, CAPACITY)
    assert (replaced.signal_capacity, replaced.slots()) == (0, {})
    kept.close()
    replaced.close()


def test_damaged_names_are_no_error(ring: RingFile) -> None:
    head = ring.signals_at(1)
    ring.words[head + at.N_NAMES] = ring.words[head + at.N_SIGNALS] = 2**62 + 255
    assert len(ring.signals(1)) == at.SIGNAL_COUNT
    assert ring.assign_signals(1, SIGNALS, 1) > 0
    assert ring.signals(1) == SIGNALS
