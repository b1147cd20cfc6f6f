"""Spans of the ring as rates: complete ticks, padding by strides, missing data, and clock segments."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibpulse.core.ring import layout as at
from ibpulse.core.ring import spans
from ibpulse.core.ring.reader import GUARD_TICKS, RingReader
from ibpulse.core.ring.spans import (
    TickRun,
    complete_tick,
    join_rates,
    place_ports,
    read_groups,
    read_planned,
    read_rates,
    read_series,
    runs_of_ticks,
    runs_of_wall_time,
    settled_tick,
    ticks_to_settle,
)
from ibpulse.core.statistics.plausible import LineRate
from tests.aggregator.rings import MS, Ring, constant, port, square
from tests.tables import for_each

PORTS = ("mlx5_0:1", "mlx5_1:1", "mlx5_2:1")
STRIDES = (5, 1, 10)
WAVE = square(20e9, 30, 20)
LAST = 400


@pytest.fixture
def ring(tmp_path: Path) -> Ring:
    """Three ports of different strides, sampled from tick 1 to tick 400."""
    made = Ring.create(tmp_path, *map(port, PORTS), seconds=10)
    for number, (name, stride) in enumerate(zip(PORTS, STRIDES, strict=True), start=1):
        made.write(name, (WAVE, constant(number * 1e9)), 1, LAST, stride=stride)
    return made


def slots_of(ring: Ring) -> list[int]:
    slots = ring.file.slots()
    return [slots[name] for name in PORTS]


def known(tick: int, stride: int) -> bool:
    """Whether both samples around a tick are in the ring; the first sample is at the stride."""
    end = -(-tick // stride) * stride
    return end - stride >= 1 and end <= LAST


def mean_wave(tick: int, stride: int) -> float:
    """Mean rate of the ticks that share a sample with this one."""
    end = -(-tick // stride) * stride
    return sum(WAVE(one) for one in range(end - stride + 1, end + 1)) / stride


def expected(first: int, last: int) -> np.ndarray:
    return np.array(
        [
            [
                [mean_wave(tick, stride) if known(tick, stride) else np.nan for tick in range(first, last + 1)],
                [number * 1e9 if known(tick, stride) else np.nan for tick in range(first, last + 1)],
            ]
            for number, stride in enumerate(STRIDES, start=1)
        ]
    )


# strides


def test_a_slot_without_a_stride_is_sampled_at_every_tick(ring: Ring) -> None:
    assert ring.reader.strides(slots_of(ring)) == list(STRIDES)
    ring.file.words[at.slot_at(slots_of(ring)[0]) + at.S_STRIDE] = 0
    assert ring.reader.stride(slots_of(ring)[0]) == 1


def test_ports_are_placed_in_order_without_those_lacking_a_slot_or_a_source(ring: Ring) -> None:
    mute = port("mlx5_1:1")
    mute = type(mute)(mute.id, mute.identity, True, "ACTIVE", None, None)
    asked = (port("mlx5_2:1"), port("mlx5_7:1"), mute, port("mlx5_0:1"))
    placed = place_ports(ring.reader, asked, ring.file.slots())
    assert [(str(one.port.id), one.stride) for one in placed] == [("mlx5_2:1", 10), ("mlx5_0:1", 5)]
    assert [one.slot for one in placed] == [slots_of(ring)[2], slots_of(ring)[0]]


# certain ticks


@for_each(itertools.product([1, 2, 8, 10, 100, 125, 250, 1000], [1, 5, 100]))
def test_a_settled_tick_is_at_least_200_ms_old_and_its_stride_is_over(interval_ms: int, widest: int) -> None:
    waited = next(ticks for ticks in range(1000) if ticks * interval_ms >= 200)
    assert ticks_to_settle(interval_ms * MS, widest) == waited + (widest - 1) + 4 * widest


def test_the_settled_and_the_complete_tick_follow_the_wall_clock_and_its_segment(ring: Ring) -> None:
    now_ns = 390 * 10 * MS
    assert ring.reader.newest_tick(now_ns) == 390 - GUARD_TICKS
    assert complete_tick(ring.reader, 1, now_ns) == 384
    assert complete_tick(ring.reader, 10, now_ns) == 339
    assert settled_tick(ring.reader, 1, now_ns) == 364
    assert settled_tick(ring.reader, 10, now_ns) == 319
    ring.file.begin_segment(200, -1000)
    assert settled_tick(ring.reader, 10, (390 + 1000) * 10 * MS) == 319


def test_a_complete_tick_has_the_rate_that_it_keeps_and_not_every_tick_after_it(tmp_path: Path) -> None:
    """A sampler that is on time: at every instant the newest tick is the last one written."""
    line, seen, before = LineRate((1e9,)), {}, {}
    ring = Ring.create(tmp_path, port("mlx5_0:1"), seconds=10)
    # of six samples one is late, and the fourth after it has its bytes
    parts = (0.2e9, 1e9, 1e9, 1e9, 1.8e9, 0.5e9)
    counters = (1000, 2000)
    for tick in range(1, 200):
        wave = (lambda tick: parts[(tick - 1) // 5 % 6], constant(1e9))
        counters = ring.write("mlx5_0:1", wave, tick, tick, stride=5, start=counters)
        last = complete_tick(ring.reader, 5, (tick + GUARD_TICKS) * 10 * MS)
        if last >= 6:
            found = read_rates(ring.reader, [0], [5], last, last + 1, [line]).bytes_per_second[0, 0].tolist()
            seen[last], before[last + 1] = found
    final = read_rates(ring.reader, [0], [5], 1, 175, [line]).bytes_per_second[0, 0].tolist()
    assert max(final[30:]) == pytest.approx(1e9)
    assert all(value == final[tick - 1] for tick, value in seen.items())
    # a moment earlier, the sample that is merged with it was not there
    assert sum(value != final[tick - 1] for tick, value in before.items() if tick <= 175) >= 5


# ticks to rates


def test_rates_are_at_their_ticks_in_any_span(ring: Ring) -> None:
    for first, last in [(1, 400), (1, 1), (96, 100), (101, 133), (250, 251), (399, 400)]:
        found = read_rates(ring.reader, slots_of(ring), STRIDES, first, last)
        np.testing.assert_allclose(found.bytes_per_second, expected(first, last), rtol=1e-6)
        np.testing.assert_allclose(found.seconds, np.where(np.isnan(expected(first, last)), 0, 0.01))
        assert not found.reset.any()


def test_data_outside_the_ring_is_missing(ring: Ring) -> None:
    found = read_rates(ring.reader, slots_of(ring), STRIDES, -20, 460)
    np.testing.assert_allclose(found.bytes_per_second, expected(-20, 460), rtol=1e-6)


def test_at_the_old_end_a_rate_needs_the_sample_a_stride_before(tmp_path: Path) -> None:
    """One second of ring, guarded by two ticks: of 400 ticks the samples from 303 on can be read."""
    ring = Ring.create(tmp_path, *map(port, PORTS), seconds=1)
    for name, stride in zip(PORTS, STRIDES, strict=True):
        ring.write(name, (constant(1e9), constant(1e9)), 1, LAST, stride=stride)
    assert LAST - ring.reader.capacity + GUARD_TICKS + 1 == 303
    found = read_rates(ring.reader, slots_of(ring), STRIDES, 280, LAST).bytes_per_second
    # first samples at 305, 303 and 310: the ticks after them have rates
    assert [280 + int(np.flatnonzero(~np.isnan(one[0]))[0]) for one in found] == [306, 304, 311]


def test_an_empty_span_and_no_ports_give_empty_arrays(ring: Ring) -> None:
    assert read_rates(ring.reader, slots_of(ring), STRIDES, 50, 49).bytes_per_second.shape == (3, 2, 0)
    assert read_rates(ring.reader, [], [], 50, 59).seconds.shape == (0, 2, 10)


def test_a_port_sampled_less_often_before_needs_its_old_stride(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port("mlx5_0:1"), seconds=10)
    counters = ring.write("mlx5_0:1", (constant(1e9), constant(2e9)), 1, 200, stride=20)
    ring.write("mlx5_0:1", (constant(1e9), constant(2e9)), 201, 400, start=counters)
    assert ring.reader.strides([0]) == [1]
    assert np.isnan(read_rates(ring.reader, [0], [1], 95, 100).bytes_per_second).all()
    found = read_rates(ring.reader, [0], [20], 95, 100).bytes_per_second
    np.testing.assert_allclose(found[0], np.repeat([[1e9], [2e9]], 6, axis=1), rtol=1e-6)


def test_samples_from_before_a_longer_interval_keep_their_own(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port("mlx5_0:1"), seconds=10)
    counters = ring.write("mlx5_0:1", (constant(1e9), constant(2e9)), 1, 200)
    ring.write("mlx5_0:1", (constant(1e9), constant(2e9)), 201, 400, stride=10, start=counters)
    (slot,) = ring.file.slots().values()
    assert ring.reader.strides([slot]) == [10]
    found = read_rates(ring.reader, [slot], [10], 151, 350).bytes_per_second[0]
    wanted = np.repeat([[1e9], [2e9]], 200, axis=1)
    # the change is a hole of one stride, and no false rate
    wanted[:, 50:60] = np.nan
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_a_group_is_padded_by_its_own_stride_alone(ring: Ring) -> None:
    groups = list(read_groups(ring.reader, slots_of(ring), STRIDES, 101, 150))
    assert [group.rows.tolist() for group in groups] == [[1], [0], [2]]
    # the reads of five samples before, the rest of the stride and four samples after
    assert [group.block.first_tick for group in groups] == [96, 76, 51]
    assert [group.block.records.shape[1] for group in groups] == [59, 99, 149]
    joined = join_rates(groups, 3, 50)
    np.testing.assert_allclose(joined.bytes_per_second, expected(101, 150), rtol=1e-6)


@pytest.mark.parametrize("stride", [1, 5, 10])
def test_planned_samples_are_at_multiples_of_the_stride(ring: Ring, stride: int) -> None:
    slot = slots_of(ring)[STRIDES.index(stride)]
    block = read_planned(ring.reader, [slot], stride, 7, 399)
    last = 399 // stride * stride
    ticks = [last - stride * back for back in range(6, -1, -1)]
    assert (block.records[0, :, at.R_TICK] & np.uint64(at.TICK_MASK)).tolist() == ticks
    assert block.present.all()
    assert block.time_ns()[0, 0].tolist() == [tick * 10 * MS for tick in ticks]


# the fast way


@pytest.mark.parametrize("cached", [1, 150, 100_000])
@pytest.mark.parametrize(("first", "last"), [(1, 400), (7, 7), (96, 203)])
def test_the_series_are_the_rates(
    ring: Ring, monkeypatch: pytest.MonkeyPatch, cached: int, first: int, last: int
) -> None:
    monkeypatch.setattr(spans, "CACHED_RECORDS", cached)
    run = TickRun(first, 0, last - first + 1)
    found = dict(read_series(ring.reader, slots_of(ring), run, 2 * LAST))
    assert sorted(found) == [0, 1, 2]
    for row, series in found.items():
        values = series.bytes_per_second
        assert values.dtype == np.float32
        np.testing.assert_allclose(values, expected(first, last)[row], rtol=1e-6)


def test_a_series_takes_nothing_after_the_newest_tick_and_shows_complete_ticks_alone(ring: Ring) -> None:
    run = TickRun(271, 0, 6)
    ends = {row: series.bytes_per_second for row, series in read_series(ring.reader, slots_of(ring), run, 299)}
    # four samples may be merged with a later one: those of the strides 5 and 10 are complete up to 275 and 250
    assert np.isnan(ends[0][0]).tolist() == [False] * 5 + [True]
    assert not np.isnan(ends[1]).any()
    assert np.isnan(ends[2]).all()
    ((_, series),) = read_series(ring.reader, slots_of(ring)[1:2], TickRun(290, 0, 10), 299)
    assert np.isnan(series.bytes_per_second[0]).tolist() == [False] * 6 + [True] * 4


def test_a_series_recognises_an_unread_counter(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port("mlx5_0:1"), seconds=10)
    ring.write("mlx5_0:1", (constant(1e9), constant(2e9)), 1, 50, absent={(20, 1), (1, 0)})
    ((_, series),) = read_series(ring.reader, [0], TickRun(2, 0, 40), 50)
    # the first tick is 2; without the sample before it there is no rate
    assert np.argwhere(np.isnan(series.bytes_per_second)).tolist() == [[0, 0], [1, 18], [1, 19]]


# the wall clock


@st.composite
def segments(draw: st.DrawFn) -> list[tuple[int, int]]:
    begins = draw(st.lists(st.integers(2, 60), max_size=4, unique=True))
    shifts = st.integers(-30, 30)
    return [(begin, draw(shifts)) for begin in [1, *sorted(begins)]]


def wall_tick(clock: list[tuple[int, int]], tick: int) -> int:
    """Wall time in intervals of a tick, by the last segment that began at or before it."""
    return tick - [shift for begin, shift in clock if begin <= tick][-1]


@given(clock=segments(), oldest=st.integers(1, 70), newest=st.integers(1, 70), begin=st.integers(-40, 90))
def test_runs_fill_a_span_of_wall_time_with_the_newest_ticks(
    clock: list[tuple[int, int]], oldest: int, newest: int, begin: int
) -> None:
    end = begin + 40
    filled = {wall_tick(clock, tick): tick for tick in range(oldest, newest + 1)}
    runs = runs_of_wall_time(clock, oldest, newest, begin, end)
    found = [(run.wall_tick + step, run.tick + step) for run in runs for step in range(run.count)]
    # each wall tick once, from the last tick that had it
    assert sorted(found) == sorted((wall, tick) for wall, tick in filled.items() if begin <= wall < end)


def test_a_clock_segment_that_the_ring_no_longer_holds_is_excluded() -> None:
    assert runs_of_wall_time([(1, 0), (50, 3)], oldest=60, newest=90, begin=0, end=100) == [TickRun(60, 57, 31)]


@settings(deadline=None, max_examples=50)
@given(clock=segments(), first=st.integers(1, 70), count=st.integers(0, 40))
def test_runs_of_ticks_end_where_the_clock_was_set(
    clock: list[tuple[int, int]], first: int, count: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    ring = Ring.create(tmp_path_factory.mktemp("clock"), seconds=1).file
    ring.words[at.H_SEGMENTS] = 0
    for begin, shift in clock:
        ring.begin_segment(begin, shift)
    runs = runs_of_ticks(RingReader(ring), first, first + count)
    ticks = [(run.tick + step, run.wall_tick + step) for run in runs for step in range(run.count)]
    assert ticks == [(tick, wall_tick(clock, tick)) for tick in range(first, first + count)]
    # no run could be one with the next
    assert all(one.wall_tick + one.count != two.wall_tick for one, two in itertools.pairwise(runs))


def test_after_its_interval_was_shortened_a_port_is_complete_as_soon_as_the_others(tmp_path: Path) -> None:
    """Samples every 10 ticks up to tick 200, then at each: the wide ones do not hold up the newest."""
    ring = Ring.create(tmp_path, port(PORTS[0]), seconds=10)
    counters = ring.write(PORTS[0], (constant(1e9), constant(2e9)), 1, 200, stride=10)
    ring.write(PORTS[0], (constant(1e9), constant(2e9)), 201, LAST, start=counters)
    ((_, found),) = read_series(ring.reader, [ring.file.slots()[PORTS[0]]], TickRun(101, 101, 300), LAST)
    known = ~np.isnan(found.bytes_per_second[0])
    # samples may be merged with up to four before them, so the last four are not final
    assert np.flatnonzero(known)[-1] + 101 == LAST - 4


def test_a_merge_is_that_of_its_own_port_among_ports_of_different_strides(tmp_path: Path) -> None:
    """The second port is sampled every two ticks, and its counter was late at tick 50."""
    ring = Ring.create(tmp_path, *map(port, PORTS[:2]), seconds=10)
    late = {49: 10e9, 50: 10e9, 51: 70e9, 52: 70e9}
    ring.write(PORTS[0], (constant(1e9), constant(1e9)), 1, LAST)
    ring.write(PORTS[1], (constant(1e9), lambda tick: late.get(tick, 40e9)), 1, LAST, stride=2)
    slots = [ring.file.slots()[name] for name in PORTS[:2]]
    lines = [LineRate.of(50e9)] * 2
    found = read_rates(ring.reader, slots, [1, 2], 41, 60, lines)
    # port, direction, first and last tick, from tick 41 on
    assert found.merges.places.tolist() == [[1, 1, 8, 11]]
    np.testing.assert_allclose(found.bytes_per_second[1, 1], 40e9)
