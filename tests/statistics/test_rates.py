"""Rates from counters: closed forms, the law of the docstring, missing data, resets and extremes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibpulse.core.statistics.plausible import LineRate
from ibpulse.core.statistics.rates import (
    Bound,
    Increase,
    Rates,
    coarsest_ticks,
    effective_resolution,
    finest_ticks,
    increase,
    rates,
    stands_still,
)
from tests.tables import for_each

MS = 1_000_000
NAN = float("nan")


def compute(
    counters: list[int],
    times_ms: list[float] | None = None,
    *,
    unread: tuple[int, ...] = (),
    scale: int = 1,
    stride: int = 1,
) -> Rates:
    """Rates of one port whose two directions count the same, every 10 ms unless `times_ms` says otherwise."""
    count = len(counters)
    instants = np.array(times_ms if times_ms is not None else [10 * k for k in range(count)]) * MS
    valid = np.ones((1, 2, count), dtype=np.bool_)
    valid[..., list(unread)] = False
    return rates(
        np.broadcast_to(instants.astype(np.int64), (1, 2, count)),
        np.broadcast_to(np.array(counters, dtype=np.uint64), (1, 2, count)),
        valid,
        np.array([scale]),
        np.array([stride]),
    )


def check(actual: npt.NDArray[Any], expected: list[float]) -> None:
    """Both directions of the one port are this."""
    np.testing.assert_allclose(actual, np.broadcast_to(np.array(expected), actual.shape), rtol=1e-12)


def test_a_rate_is_scale_times_difference_over_measured_time() -> None:
    found = compute([100, 350, 350, 1350], [0, 10, 20, 25], scale=4)
    check(found.bytes_per_second, [NAN, 100_000, 0, 800_000])
    check(found.seconds, [0, 0.010, 0.010, 0.005])
    assert not found.reset.any()


def test_each_port_and_direction_has_its_own_times_and_scale() -> None:
    counters = np.array([[[0, 10], [0, 20]], [[5, 10], [5, 20]]], dtype=np.uint64)
    times = np.array([[[0, 10], [1, 21]], [[0, 5], [0, 10]]], dtype=np.int64) * MS
    found = rates(times, counters, np.ones((2, 2, 2), dtype=np.bool_), np.array([4, 1]), np.array([1, 1]))
    np.testing.assert_allclose(found.bytes_per_second[..., 1], [[4000, 4000], [1000, 1500]])
    np.testing.assert_allclose(found.seconds[..., 1], [[0.010, 0.020], [0.005, 0.010]])


def test_a_missing_sample_costs_its_rate_and_the_next() -> None:
    found = compute([0, 10, 999, 30, 40], unread=(2,))
    check(found.bytes_per_second, [NAN, 1000, NAN, NAN, 1000])
    check(found.seconds, [0, 0.01, 0, 0, 0.01])


def test_a_counter_that_fell_was_reset_and_did_not_wrap() -> None:
    found = compute([100, 200, 50, 60])
    check(found.bytes_per_second, [NAN, 10_000, NAN, 1000])
    check(found.seconds, [0, 0.01, 0, 0.01])
    assert found.reset.tolist() == [[[False, False, True, False]] * 2]


@pytest.mark.parametrize(
    ("earlier", "later"), [(2**64 - 2, 0), (2**63, 2**63 - 1), (0, 2**64 - 2), (2**63 - 1, 2**63 + 1)]
)
def test_the_difference_of_two_counters_at_any_size(earlier: int, later: int) -> None:
    found = compute([earlier, later], [0, 1000], scale=4)
    assert found.reset[..., 1].all() == (later < earlier)
    check(found.bytes_per_second[..., 1:], [NAN if later < earlier else float(4 * (later - earlier))])


def test_without_ports_or_within_one_stride_there_are_no_rates() -> None:
    none = np.zeros((0, 2, 5), dtype=np.int64)
    found = rates(none, none.astype(np.uint64), none.astype(np.bool_), np.zeros(0, int), np.zeros(0, int))
    assert found.bytes_per_second.shape == (0, 2, 5)
    for ticks in range(6):
        check(compute(list(range(ticks)), stride=5).bytes_per_second, [NAN] * ticks)


@pytest.mark.parametrize("times_ms", [[10.0, 10.0], [10.0, 5.0]])
def test_two_samples_without_time_between_them_have_no_rate(times_ms: list[float]) -> None:
    """As after a reboot: the monotonic clock restarts at zero."""
    found = compute([1, 2], times_ms)
    assert np.isnan(found.bytes_per_second).all()
    assert not found.seconds.any()
    assert not found.reset.any()


def test_each_tick_of_a_stride_has_its_mean_rate() -> None:
    found = compute([0, 0, 0, 30, 0, 0, 90], unread=(1, 2, 4, 5), stride=3, scale=2)
    check(found.bytes_per_second, [NAN, 2000, 2000, 2000, 4000, 4000, 4000])
    check(found.seconds, [0, *[0.01] * 6])


def test_a_missed_sample_costs_two_strides() -> None:
    found = compute([0, 0, 10, 0, 20, 0, 30, 0, 40], unread=(1, 3, 4, 5, 7), stride=2)
    check(found.bytes_per_second, [NAN, 500, 500, NAN, NAN, NAN, NAN, 500, 500])


def test_a_reset_within_a_stride_is_marked_at_its_end() -> None:
    found = compute([50, 0, 10, 0, 30], unread=(1, 3), stride=2)
    assert found.reset.tolist() == [[[False, False, True, False, False]] * 2]
    check(found.bytes_per_second, [NAN, NAN, NAN, 1000, 1000])


def test_a_history_sampled_more_often_than_its_stride_keeps_the_newest_mean() -> None:
    """After a port's stride was raised."""
    found = compute([0, 10, 30, 60, 100], stride=2)
    check(found.bytes_per_second, [NAN, 1500, 1500, 2500, 3500])


def test_ports_of_different_strides_do_not_disturb_each_other() -> None:
    times = np.broadcast_to(np.arange(7, dtype=np.int64) * 10 * MS, (3, 2, 7))
    counters = np.broadcast_to(np.arange(7, dtype=np.uint64) * 10, (3, 2, 7))
    valid = np.ones((3, 2, 7), dtype=np.bool_)
    valid[1] = np.arange(7) % 3 == 0
    found = rates(times, counters, valid, np.ones(3, int), np.array([1, 3, 1]))
    np.testing.assert_allclose(found.bytes_per_second[:, :, 1:], 1000)


@settings(max_examples=100, deadline=None)
@given(
    data=st.data(),
    stride=st.sampled_from([1, 2, 5, 10]),
    scale=st.sampled_from([1, 4]),
    samples=st.integers(2, 12),
    start=st.integers(0, 2**63),
)
def test_rate_times_time_adds_up_to_the_increase_of_the_counter(
    data: st.DataObject, stride: int, scale: int, samples: int, start: int
) -> None:
    """The law of the docstring, for any jitter of the reads."""
    moves = data.draw(st.lists(st.integers(0, 2**40), min_size=samples - 1, max_size=samples - 1))
    gaps = data.draw(st.lists(st.integers(1, 2_000_000_000), min_size=samples - 1, max_size=samples - 1))
    ticks = (samples - 1) * stride + 1
    counters = np.zeros((1, 2, ticks), dtype=np.uint64)
    times = np.zeros((1, 2, ticks), dtype=np.int64)
    valid = np.zeros((1, 2, ticks), dtype=np.bool_)
    counters[..., ::stride] = [start + sum(moves[:k]) for k in range(samples)]
    times[..., ::stride] = [sum(gaps[:k]) for k in range(samples)]
    valid[..., ::stride] = True
    found = rates(times, counters, valid, np.array([scale]), np.array([stride]))
    total = np.nansum(found.bytes_per_second * found.seconds, axis=2)
    np.testing.assert_allclose(total, scale * sum(moves), rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(found.seconds.sum(axis=2), sum(gaps) / 1e9, rtol=1e-9)


@settings(max_examples=100, deadline=None)
@given(
    counters=st.lists(st.integers(0, 2**64 - 2), min_size=1, max_size=20),
    holes=st.sets(st.integers(0, 19)),
    stride=st.integers(1, 6),
)
def test_time_is_counted_exactly_where_there_is_a_rate(counters: list[int], holes: set[int], stride: int) -> None:
    found = compute(counters, unread=tuple(hole for hole in holes if hole < len(counters)), stride=stride)
    assert np.array_equal(found.seconds > 0, ~np.isnan(found.bytes_per_second))
    assert not (found.bytes_per_second < 0).any()
    assert found.reset.shape == found.seconds.shape


def test_a_change_of_the_stride_costs_at_most_one_stride() -> None:
    """Every tick up to 4, every fifth from 5 to 15, every tick again from 17 on; 100 bytes a tick."""
    ticks = np.arange(20)
    stride = np.where(ticks < 5, 1, np.where(ticks < 17, 5, 1))[None]
    sampled = (ticks < 5) | (ticks % 5 == 0) & (ticks < 17) | (ticks >= 17)
    found = rates(
        np.broadcast_to(ticks * 10 * MS, (1, 2, 20)),
        np.broadcast_to(100 * ticks.astype(np.uint64), (1, 2, 20)),
        np.broadcast_to(sampled, (1, 2, 20)),
        np.array([1]),
        stride,
    )
    check(found.bytes_per_second, [NAN, *[10_000] * 4, NAN, *[10_000] * 10, NAN, NAN, *[10_000] * 2])
    check(found.seconds, [0, *[0.01] * 4, 0, *[0.01] * 10, 0, 0, *[0.01] * 2])


def test_a_reset_is_reported_at_the_stride_at_which_it_was_seen() -> None:
    counters = np.array([10, 20, 5, 6, 7, 8, 9, 10, 3, 11], dtype=np.uint64)
    stride = np.array([[1, 1, 1, 1, 2, 2, 2, 2, 2, 2]])
    even = np.arange(10) % 2 == 0
    found = rates(
        np.broadcast_to(np.arange(10) * 10 * MS, (1, 2, 10)),
        np.broadcast_to(counters, (1, 2, 10)),
        np.broadcast_to((stride[0] == 1) | even, (1, 2, 10)),
        np.array([1]),
        stride,
    )
    assert np.flatnonzero(found.reset[0, 0]).tolist() == [2, 8]


SCALE = np.array([4])


def of(*counters: int | None, receive: list[int | None] | None = None) -> Increase:
    """One port; None is an unread counter. Receive stays at 5 by default."""
    ways = [list(counters), receive or [5] * len(counters)]
    values = np.array([[[value or 0 for value in way] for way in ways]], dtype=np.uint64)
    valid = np.array([[[value is not None for value in way] for way in ways]])
    return increase(values, valid, SCALE)


# counters of transmit and of receive, bytes that the first moved, resets
@for_each(
    {
        "the scaled difference": ((10, 12, 17), None, 28, 0),
        "across missing data": ((None, 10, None, None, 17, None), None, 28, 0),
        "a fall adds nothing": ((100, 110, 3, 8), None, 60, 1),
        "a fall across missing data": ((100, None, 3), None, 0, 1),
        "both fall together": ((100, 3), [50, 2], 0, 1),
        "the other falls": ((100, 110), [50, 2], 40, 1),
        "near two to the 64": ((2**64 - 20, 2**64 - 10), None, 40, 0),
    }
)
def test_what_a_counter_gained(
    counters: tuple[int | None, ...], receive: list[int | None] | None, moved: int, resets: int
) -> None:
    found = of(*counters, receive=receive)
    assert (found.moved_bytes.tolist(), found.resets.tolist()) == ([[moved, 0]], [resets])


@pytest.mark.parametrize(
    ("line", "missing", "most"),
    # 10 ms and a second more, then three times 10 ms, a line that was faster in between, and none that is known
    [
        (LineRate((1e9,)), 0, 1.01e9),
        (LineRate((1e9,)), 2, 1.03e9),
        (LineRate((1e9, 2e9, 1e9), (102, 103)), 2, 2.06e9),
        (LineRate(), 0, 1.01e12),
    ],
)
def test_more_than_the_line_carries_in_the_time_and_a_second_is_a_jump(
    line: LineRate, missing: int, most: float
) -> None:
    bound = Bound([line], np.array([[100, 100]]), 101, 10_000_000, 1)
    for words, jumps in ((round(most / 4), 0), (round(most / 4) + 1, 1)):
        values = [10, *[None] * missing, 10 + words, 12 + words]
        counters = np.array([[[value or 0 for value in values]] * 2], dtype=np.uint64)
        valid = np.array([[[value is not None for value in values]] * 2])
        found = increase(counters, valid, SCALE, bound)
        # the new value is the base of the next
        assert found.moved_bytes.tolist() == [[4 * (2 + words * (1 - jumps))] * 2]
        assert (found.jumps.tolist(), found.resets.tolist()) == ([jumps], [0])


def test_a_counter_that_is_sampled_rarely_may_be_four_samples_late() -> None:
    bound = Bound([LineRate((1e9,))], np.array([[100, 100]]), 101, 1_000_000_000, 1)
    counters = np.array([[[0, 5 * 10**9 // 4], [0, 5 * 10**9 // 4 + 1]]], dtype=np.uint64)
    found = increase(counters, np.ones((1, 2, 2), dtype=np.bool_), SCALE, bound)
    assert found.moved_bytes.tolist() == [[5 * 10**9, 0]]


def test_the_last_valid_counter_is_given_back_where_there_is_one() -> None:
    found = of(7, None, receive=[None, None])
    assert found.known.tolist() == [[True, False]]
    assert found.last[0, 0] == 7


@given(
    counters=st.lists(st.one_of(st.none(), st.integers(0, 1000)), min_size=2, max_size=30),
    cut=st.integers(1, 29),
)
def test_a_span_that_is_cut_moves_the_same_bytes(counters: list[int | None], cut: int) -> None:
    cut = min(cut, len(counters) - 1)
    whole, left = of(*counters), of(*counters[:cut])
    bridge = [int(left.last[0, 0]) if left.known[0, 0] else None]
    right = of(*bridge, *counters[cut:])
    np.testing.assert_array_equal(left.moved_bytes + right.moved_bytes, whole.moved_bytes)
    np.testing.assert_array_equal(left.resets + right.resets, whole.resets)


INTERVAL_NS = 10_000_000
THRESHOLD = 0.1e9


def measure(shown: np.ndarray, missing: tuple[int, ...] = ()) -> float:
    """Resolution of a port whose transmit counter is `shown` (bytes) every 10 ms, and whose receive counter rests."""
    samples = len(shown)
    time_ns = np.tile(np.arange(samples) * INTERVAL_NS, (2, 1))
    counters = np.stack([shown, np.full(samples, 77)]).astype(np.uint64)
    sampled = np.ones((2, samples), dtype=bool)
    sampled[:, list(missing)] = False
    return effective_resolution(time_ns, counters, sampled, 1, THRESHOLD)


def refreshed_every(ticks: int, samples: int = 600) -> np.ndarray:
    """A counter at 10 GB/s that the device refreshes every `ticks` ticks."""
    return (np.arange(samples) // ticks) * ticks * 100_000_000


def moving(active: np.ndarray) -> np.ndarray:
    """A counter that moves 100 MB at the active ticks."""
    return np.cumsum(active.astype(np.int64) * 100_000_000)


TICKS = np.arange(600)


@for_each(
    {
        **{f"every {ticks} ticks": (refreshed_every(ticks), (), ticks) for ticks in (1, 2, 3, 10, 28)},
        "too few changes": (refreshed_every(30), (), NAN),
        "long pauses": (moving(np.arange(1000) % 100 < 30), (), 1),
        "idle": (1000 * TICKS, (), NAN),
        "a gap with a missing sample does not count": (refreshed_every(2), tuple(range(0, 600, 3)), NAN),
        # 0, 1, 0, 2, 0, 3, ... GB: every other sample is a reset
        "a reset is no change": (TICKS // 2 * (TICKS % 2) * 10**9, (), NAN),
        "single ticks look like a slow counter": (moving(TICKS % 2 == 0), (), 2),
    }
)
def test_resolution_is_the_refresh_of_the_counter(shown: np.ndarray, missing: tuple[int, ...], ticks: float) -> None:
    assert measure(shown, missing) == pytest.approx(ticks * 0.01, nan_ok=True)


@pytest.mark.parametrize(
    ("seconds", "stride", "ticks"),
    [(None, 1, 1), (0.01, 1, 1), (0.015, 1, 1), (0.016, 1, 2), (0.04, 1, 4), (0.04, 3, 1)],
)
def test_a_slow_counter_resolves_nothing_finer_than_its_changes(seconds: float | None, stride: int, ticks: int) -> None:
    assert finest_ticks(seconds, INTERVAL_NS, stride) == ticks


def test_a_counter_stands_still_beyond_one_and_a_half_samples() -> None:
    assert not stands_still(0.015, 0.01)
    assert stands_still(0.0151, 0.01)
    assert not stands_still(float("nan"), 0.01)


def test_a_sum_resolves_as_much_as_its_coarsest_counter() -> None:
    assert coarsest_ticks([1, 4, 2]) == 4
    assert coarsest_ticks([]) == 1
