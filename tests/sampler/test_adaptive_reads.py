"""The read times of devices, from records whose instants were written by hand."""

from __future__ import annotations

import pytest

from ibpulse.agent.sampler.adaptive import ReadTimes, measure_reads
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.reader import RingReader
from tests.sampler.reads import MS, Reads, planned, write_reads


def measured(ring: RingFile, reads: Reads, last: int = 1000, *, stride: int = 1, missed: range = range(0)) -> ReadTimes:
    port = planned(ring, "mlx5_0:1", stride)
    write_reads(ring, port, 1, last, reads, missed)
    return measure_reads(RingReader(ring), [port], last)["mlx5_0"]


def test_the_times_of_a_device_are_those_of_its_reads(ring: RingFile) -> None:
    found = measured(ring, lambda tick: (0.2, 0.3))
    assert found.lasting == found.highest
    assert (found.lasting.read_ns, found.lasting.tick_ns) == (0.3 * MS, 0.5 * MS)
    assert (found.p99_ns, found.worst_ns) == (0.3 * MS, 0.3 * MS)


@pytest.mark.parametrize(("long_ones", "expected_ms"), [(29, 0.1), (30, 0.1), (31, 5.0)])
def test_a_read_is_as_long_as_all_but_fifteen_in_a_hundred(ring: RingFile, long_ones: int, expected_ms: float) -> None:
    """A second of 200 reads, of which so many are long."""
    found = measured(ring, lambda tick: (5.0 if (tick - 1) % 100 < long_ones else 0.1, 0.1))
    assert found.lasting.read_ns == expected_ms * MS
    assert found.lasting.tick_ns == pytest.approx((0.2 + 4.9 * long_ones / 100) * MS)
    assert found.p99_ns == found.worst_ns == 5.0 * MS


def test_p99_leaves_out_one_read_in_a_hundred(ring: RingFile) -> None:
    """Three seconds are 600 reads; the longest six are not in their p99."""
    assert measured(ring, lambda tick: (5.0 if tick % 50 == 0 else 0.1, 0.1)).p99_ns == 0.1 * MS
    assert measured(ring, lambda tick: (5.0 if tick % 42 == 0 else 0.1, 0.1)).p99_ns == 5.0 * MS


def test_a_disturbance_shorter_than_three_seconds_is_not_lasting(ring: RingFile) -> None:
    found = measured(ring, lambda tick: (4.0, 4.0) if 750 <= tick < 890 else (0.1, 0.1))
    assert (found.lasting.read_ns, found.lasting.tick_ns) == (0.1 * MS, 0.2 * MS)
    assert found.highest.read_ns == 4.0 * MS
    assert found.highest.tick_ns == pytest.approx((0.89 * 8.0 + 0.11 * 0.2) * MS)


def test_older_reads_than_three_seconds_do_not_count(ring: RingFile) -> None:
    found = measured(ring, lambda tick: (4.0, 4.0) if tick <= 700 else (0.1, 0.1))
    assert (found.highest.read_ns, found.worst_ns) == (0.1 * MS, 0.1 * MS)


def test_missed_ticks_are_no_short_reads(ring: RingFile) -> None:
    found = measured(ring, lambda tick: (0.4, 0.2), missed=range(0, 1000, 2))
    assert (found.lasting.read_ns, found.lasting.tick_ns) == (0.4 * MS, pytest.approx(0.6 * MS))


def test_a_port_with_a_stride_is_measured_on_its_own_samples(ring: RingFile) -> None:
    """A part of the span holds at least twenty samples: here the last six seconds."""
    found = measured(ring, lambda tick: (7.0, 1.0) if tick > 405 else (90.0, 1.0), 1009, stride=10)
    assert (found.worst_ns, found.highest.tick_ns) == (7.0 * MS, pytest.approx(8.0 * MS))


def test_the_ports_of_a_device_add_up(ring: RingFile) -> None:
    ports = [planned(ring, "mlx5_0:1"), planned(ring, "mlx5_0:2", 2), planned(ring, "mlx5_1:1")]
    for port, read in zip(ports, (0.2, 0.7, 0.1), strict=True):
        write_reads(ring, port, 1, 1000, lambda tick, read=read: (read, 0.1))
    found = measure_reads(RingReader(ring), ports, 1000)
    assert found["mlx5_0"].lasting.read_ns == 0.7 * MS
    assert found["mlx5_0"].lasting.tick_ns == pytest.approx(1.1 * MS)
    assert found["mlx5_1"].lasting.tick_ns == pytest.approx(0.2 * MS)


def test_a_device_that_was_hardly_sampled_is_not_known(ring: RingFile) -> None:
    ports = [planned(ring, "mlx5_0:1"), planned(ring, "mlx5_1:1"), planned(ring, "mlx5_1:2")]
    write_reads(ring, ports[0], 1, 1000, lambda tick: (0.1, 0.1), range(801, 900))
    for port in ports[1:]:
        write_reads(ring, port, 1, 1000, lambda tick: (0.1, 0.1), range(802, 900))
    assert sorted(measure_reads(RingReader(ring), ports, 1000)) == ["mlx5_1"]
    assert measure_reads(RingReader(ring), [], 1000) == {}
