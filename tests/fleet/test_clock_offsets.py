"""Offsets of clocks against closed forms: the truth lies within the stated uncertainty."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.core.statistics.lateness import DRIFT, KEPT_NS, ClockOffset, ClockOffsets

MS = 1_000_000
SECOND = 1_000_000_000
# of the own wall clock against the monotonic clock
LEAD = 1_763_683_203 * SECOND

delays = st.integers(0, 500 * MS)


def exchange(clock: ClockOffsets, true_ns: int, sent_ns: int, there_ns: int, back_ns: int) -> bool:
    """An exchange with a node whose clock is `true_ns` ahead of ours, with these delays of request and reply."""
    return clock.add(sent_ns, sent_ns + there_ns + back_ns, sent_ns + there_ns + LEAD + true_ns)


def offset(clock: ClockOffsets, now_ns: int) -> ClockOffset:
    return clock.offset(now_ns, now_ns + LEAD)


@given(true_ns=st.integers(-3600 * SECOND, 3600 * SECOND), there=delays, back=delays)
def test_asymmetric_delays_stay_within_the_uncertainty(true_ns: int, there: int, back: int) -> None:
    clock = ClockOffsets()
    exchange(clock, true_ns, 5 * SECOND, there, back)
    found = offset(clock, 5 * SECOND)
    assert found.uncertainty_ns == -(-(there + back) // 2)
    assert abs(found.offset_ns - true_ns) <= found.uncertainty_ns
    # the closed form: half of the asymmetry
    assert abs(found.offset_ns - true_ns - (there - back) / 2) <= 1


@given(
    true_ns=st.integers(-100 * MS, 100 * MS),
    drift=st.floats(-DRIFT, DRIFT),
    exchanges=st.lists(st.tuples(delays, delays), min_size=1, max_size=60),
)
def test_drifting_clocks_stay_within_the_uncertainty(
    true_ns: int, drift: float, exchanges: list[tuple[int, int]]
) -> None:
    clock, now_ns = ClockOffsets(), 0
    for there, back in exchanges:
        now_ns += 5 * SECOND
        moment_ns = now_ns + there
        node_ns = moment_ns + LEAD + true_ns + round(drift * moment_ns)
        assert not clock.add(now_ns, now_ns + there + back, node_ns)
        later_ns = now_ns + 2 * SECOND
        found = offset(clock, later_ns)
        assert abs(found.offset_ns - true_ns - drift * later_ns) <= found.uncertainty_ns + 2


def test_quick_request_and_reply_of_different_exchanges_suffice() -> None:
    clock = ClockOffsets()
    exchange(clock, 7 * MS, 0, 100_000, 20 * MS)
    assert offset(clock, 0).uncertainty_ns == (20 * MS + 100_000) // 2
    exchange(clock, 7 * MS, SECOND, 30 * MS, 100_000)
    now_ns = SECOND + 30 * MS + 100_000
    # the request of the first exchange and the reply of the second one; and 50 us for the second between them
    found = offset(clock, now_ns)
    drift_ns = round(DRIFT * now_ns)
    assert found.uncertainty_ns == -(-(200_000 + drift_ns) // 2)
    assert abs(found.offset_ns - 7 * MS) <= drift_ns


def test_exchanges_expire() -> None:
    clock = ClockOffsets()
    assert clock.offset(0, LEAD) is None
    exchange(clock, 0, 0, 0, 0)
    assert clock.offset(KEPT_NS, LEAD + KEPT_NS) is not None
    assert clock.offset(KEPT_NS + 1, LEAD + KEPT_NS) is None
    clock = ClockOffsets()
    exchange(clock, 7 * MS, 0, 0, 0)
    exchange(clock, 7 * MS, 200 * SECOND, 40 * MS, 40 * MS)
    # 301 s after the better exchange, and 101 s after the other one, of which the uncertainty is 45 ms
    assert offset(clock, KEPT_NS + SECOND).uncertainty_ns == 15 * MS + 50_000


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 40)), min_size=1, max_size=40))
def test_uncertainty_is_the_least_of_all_exchanges(exchanges: list[tuple[int, int]]) -> None:
    clock, every, now_ns = ClockOffsets(), [], 0
    for pause, half_ms in exchanges:
        now_ns += pause * SECOND
        exchange(clock, 0, now_ns, half_ms * MS, half_ms * MS)
        every.append((half_ms * MS, now_ns + half_ms * MS))
    later_ns = now_ns + 90 * MS
    known = [half + round(DRIFT * (later_ns - at)) for half, at in every]
    assert offset(clock, later_ns).uncertainty_ns == min(known)


def test_steps_of_nodes_reset_the_bounds_and_slow_exchanges_do_not() -> None:
    clock = ClockOffsets()
    exchange(clock, 0, 0, MS, MS)
    # drift and delays explain 1 + 1 + 0.25 ms
    assert not exchange(clock, 2 * MS, 5 * SECOND, MS, MS)
    assert exchange(clock, 40 * MS, 10 * SECOND, 5 * MS, 5 * MS)
    # the new exchange alone counts, although the old ones were quicker
    found = offset(clock, 10 * SECOND)
    assert (found.offset_ns, found.uncertainty_ns) == (40 * MS, 5 * MS)
    clock = ClockOffsets()
    exchange(clock, 0, 0, MS, MS)
    assert not exchange(clock, 0, 5 * SECOND, 900 * MS, 0)
    assert not exchange(clock, 0, 10 * SECOND, 0, 900 * MS)


def test_own_clock_steps_move_offsets_and_reset_no_bounds() -> None:
    clock = ClockOffsets()
    exchange(clock, 3 * MS, 0, MS, MS)
    before, after = (clock.offset(SECOND, SECOND + LEAD + step_ns) for step_ns in (0, 3600 * SECOND))
    assert after == ClockOffset(before.offset_ns - 3600 * SECOND, before.uncertainty_ns)
    # what the node answers has nothing to do with our wall clock
    assert not exchange(clock, 3 * MS, 5 * SECOND, MS, MS)


def test_replies_before_requests_are_refused() -> None:
    with pytest.raises(ValueError, match="a reply 1 ns before its request"):
        ClockOffsets().add(1, 0, 0)
