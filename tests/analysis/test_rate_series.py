"""The fast rates of windows agree with the rates that all statistics are based on."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ibpulse.core.ring.layout import ABSENT
from ibpulse.core.statistics.rates import rates
from ibpulse.core.statistics.series import rate_series

tick = st.tuples(
    st.booleans(),  # present
    st.integers(1, 50_000_000),  # ns since the tick before
    st.sampled_from([0, 1, 12_345, 10**9]),  # counts since the tick before
    st.sampled_from(["read", "read", "read", "absent", "reset"]),
    st.sampled_from(["read", "read", "read", "absent", "reset"]),
)


@settings(deadline=None)
@given(ticks=st.lists(tick, max_size=30), scale=st.sampled_from([1, 4]), stride=st.sampled_from([1, 1, 2, 5]))
def test_they_agree(ticks: list[tuple[bool, int, int, str, str]], scale: int, stride: int) -> None:
    count = len(ticks)
    stamps, counters = np.zeros((count, 3), dtype=np.uint64), np.zeros((count, 2), dtype=np.uint64)
    present = np.array([one[0] for one in ticks], dtype=np.bool_)
    now, counts = 10**15, [10**12, 2**62]
    for row, (_, elapsed, moved, *fates) in enumerate(ticks):
        now += elapsed + 1000
        stamps[row] = now, now + 300, now + 900
        for direction, fate in enumerate(fates):
            counts[direction] = moved if fate == "reset" else counts[direction] + moved
            counters[row, direction] = ABSENT if fate == "absent" else counts[direction]
    # what was not written is whatever an older tick left there
    stamps[~present], counters[~present] = 7, 2**63 - 1

    found = rate_series(stamps.view(np.int64), counters.view(np.int64), present, scale, stride).bytes_per_second

    times = stamps.astype(np.int64)
    middles = (times[:, :-1] + times[:, 1:]) // 2
    valid = (counters != ABSENT) & present[:, None]
    expected = rates(middles.T[None], counters.T[None], valid.T[None], np.array([scale]), np.array([stride]))
    np.testing.assert_allclose(found, expected.bytes_per_second[0].astype(np.float32), rtol=3e-6)


def test_samples_without_elapsed_time_have_no_rate() -> None:
    stamps = np.full((3, 3), 10**15, dtype=np.uint64)
    counters = np.array([[1, 1], [2, 2], [3, 3]], dtype=np.uint64)
    found = rate_series(
        stamps.view(np.int64), counters.view(np.int64), np.ones(3, dtype=np.bool_), 4, 1
    ).bytes_per_second
    assert np.isnan(found).all()


def test_an_absent_first_counter_has_no_rate() -> None:
    stamps = np.array([[k * 10**7] * 3 for k in range(1, 4)], dtype=np.uint64)
    counters = np.array([[ABSENT, 0], [0, 5], [5, 10]], dtype=np.uint64)
    found = rate_series(
        stamps.view(np.int64), counters.view(np.int64), np.ones(3, dtype=np.bool_), 4, 1
    ).bytes_per_second
    np.testing.assert_allclose(found, [[np.nan, np.nan, 2000], [np.nan, 2000, 2000]])


def test_they_agree_where_the_stride_changes() -> None:
    count = 40
    ticks = np.arange(count, dtype=np.uint64)
    strides = np.where((ticks >= 13) & (ticks < 31), 4, 1)
    present = ticks % strides == 0
    stamps = (10**15 + ticks * 10**7)[:, None] + np.array([0, 300, 900], dtype=np.uint64)
    counters = np.stack([ticks * 1000, ticks * ticks], axis=1)

    found = rate_series(stamps.view(np.int64), counters.view(np.int64), present, 4, strides).bytes_per_second

    times = stamps.astype(np.int64)
    middles = (times[:, :-1] + times[:, 1:]) // 2
    valid = np.broadcast_to(present, (1, 2, count))
    expected = rates(middles.T[None], counters.T[None], valid, np.array([4]), strides[None])
    np.testing.assert_allclose(found, expected.bytes_per_second[0].astype(np.float32), rtol=3e-6)
    # up to 12 every tick, from 16 to 28 every fourth, from 31 on every tick
    assert np.flatnonzero(np.isnan(found[0])).tolist() == [0, 13, 14, 15, 16, 29, 30, 31]
