"""Signs of what limited a port, on intervals whose answer is known from how they are made."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.core.arrays import Floats
from ibpulse.core.statistics.signs import (
    BLIND,
    ERRORS,
    FAR_FULL,
    FLAPS,
    GAINS,
    LINK,
    LOSS,
    LOST,
    NAMES,
    NOTHING,
    NOTIFIED,
    PATH,
    PEAK,
    RECEIVER,
    REFUSED,
    RESENT_BYTES,
    SOURCE,
    TIMEOUTS,
    WAITED_SECONDS,
    WEAK,
    Readings,
    Signs,
    Transmit,
    find_signs,
)
from tests.tables import for_each

LINE = 50e9
TEN = 10
NAN = float("nan")
# a port of each link layer whose counters are alive and do not move
INFINIBAND = {NOTIFIED: NAN, FAR_FULL: NAN}
ROCE = {WAITED_SECONDS: NAN, FAR_FULL: NAN}


def find(rates: Floats, gained: Floats, *, peak: float = LINE, line: Any = LINE, certain: bool = True) -> Signs:
    """The signs of intervals of ten samples of 10 ms; `gained` is (GAINS, intervals)."""
    intervals = gained.shape[1]
    transmit = Transmit(rates, np.where(np.isnan(rates), 0.0, 0.01), peak, LINE, LINE, 1e6)
    bounds = np.arange(intervals + 1) * TEN
    return find_signs(transmit, Readings(bounds, gained, np.broadcast_to(line, intervals) + 0.0, certain))


def gains_of(intervals: int, of: dict[int, float], moved: dict[int, float] | None = None) -> Floats:
    """What the counters of a port of this kind gained in all intervals, and what moved in the first."""
    gained = np.zeros((GAINS, intervals))
    for row, value in of.items():
        gained[row] = value
    for row, value in (moved or {}).items():
        gained[row, 0] = value
    return gained


def code_of(rate: float | list[float], gained: Floats, **others: Any) -> int:
    """The sign of one interval, at a constant rate in parts of the line rate or at that of each sample."""
    rates = np.full(TEN, rate) if isinstance(rate, float) else np.array(rate)
    return int(find(rates * LINE, gained, **others).codes[0])


SHORT, ONE, BURST = [0.5, 0.5, *[0.0] * 8], [0.5, *[0.0] * 9], [0.0, 0.1, 0.6, 0.6, 0.1, *[0.0] * 5]


@for_each(
    {
        "half of the usual rate, and nothing waits": (0.5, INFINIBAND, {}, SOURCE),
        "the same on RoCE": (0.5, ROCE, {}, SOURCE),
        "at the usual rate": (0.95, INFINIBAND, {}, PEAK),
        "half of the time it waits": (0.5, INFINIBAND, {WAITED_SECONDS: 0.05}, PATH),
        "a wait that is a sixth of the shortfall": (0.4, INFINIBAND, {WAITED_SECONDS: 0.01}, WEAK),
        "a wait shorter than a tenth of the shortfall": (0.4, INFINIBAND, {WAITED_SECONDS: 0.005}, SOURCE),
        "it waits at its usual rate": (0.95, INFINIBAND, {WAITED_SECONDS: 0.012}, PATH),
        "notifications": (0.5, ROCE, {NOTIFIED: 334}, PATH),
        "fewer notifications": (0.5, ROCE, {NOTIFIED: 333}, WEAK),
        "stray notifications": (0.5, ROCE, {NOTIFIED: 9}, SOURCE),
        "a packet in twenty is sent again": (0.5, ROCE, {RESENT_BYTES: 0.05 * 0.05 * LINE}, LOSS),
        "fewer are sent again": (0.5, ROCE, {RESENT_BYTES: 0.04 * 0.05 * LINE}, SOURCE),
        "notifications at the usual rate": (0.95, ROCE, {NOTIFIED: 500}, PEAK),
        "refusals": (0.5, ROCE, {REFUSED: 12}, RECEIVER),
        "refusals and notifications": (0.5, ROCE, {REFUSED: 12, NOTIFIED: 400}, RECEIVER),
        "one refusal": (0.5, ROCE, {REFUSED: 1}, SOURCE),
        "the other end has no buffers": (0.5, ROCE, {FAR_FULL: 90, NOTIFIED: 400}, RECEIVER),
        "retransmissions": (0.5, ROCE, {LOST: 12}, LOSS),
        "one retransmission": (0.5, ROCE, {LOST: 1}, SOURCE),
        "retransmissions at the usual rate": (0.95, ROCE, {LOST: 12}, PEAK),
        "one timeout": (0.1, ROCE, {TIMEOUTS: 1}, LOSS),
        "a timeout and a wait": (0.1, INFINIBAND, {TIMEOUTS: 1, WAITED_SECONDS: 0.05}, LOSS),
        "the link went down": (0.5, ROCE, {FLAPS: 1, TIMEOUTS: 3}, LINK),
        "bit errors": (0.5, INFINIBAND, {ERRORS: 12, LOST: 12}, LINK),
        "bit errors at the usual rate": (0.95, INFINIBAND, {ERRORS: 12}, PEAK),
        "no counter of congestion": (0.5, {**INFINIBAND, **ROCE}, {}, BLIND),
        "no counter of congestion, but one of loss": (0.5, {**INFINIBAND, **ROCE}, {LOST: 12}, LOSS),
        "no counter of congestion at the usual rate": (0.95, {**INFINIBAND, **ROCE}, {}, PEAK),
        "a counter of waiting says nothing on RoCE": (0.5, {NOTIFIED: 0.0}, {WAITED_SECONDS: NAN}, SOURCE),
        "nothing": (0.0, INFINIBAND, {}, NOTHING),
        "it waits for the whole time": (0.0, INFINIBAND, {WAITED_SECONDS: 0.1}, PATH),
        # the first and the last sample of a burst are slower: 0.4 of the time in which it sends is missing, not 0.65
        "a wait in a burst": (BURST, INFINIBAND, {WAITED_SECONDS: 0.0081}, PATH),
        "in a burst without a middle": ([0.0, 0.1, 0.1, *[0.0] * 7], INFINIBAND, {WAITED_SECONDS: 0.0081}, WEAK),
        # events count by the time in which the port sends
        "notifications while it sends": (SHORT, ROCE, {NOTIFIED: 67}, PATH),
        "notifications of half of that time": (ONE, ROCE, {NOTIFIED: 67}, WEAK),
        "losses while it sends": (SHORT, ROCE, {LOST: 2}, LOSS),
        "a loss of half of that time": (ONE, ROCE, {LOST: 1}, SOURCE),
        # a port that reaches its peak between notifications may be slow by itself
        "never at its peak": ([0.5, 0.2] * 5, ROCE, {NOTIFIED: 340}, PATH),
        "at its peak for a sample": ([0.5, 0.2] * 4 + [1.0, 0.2], ROCE, {NOTIFIED: 340}, WEAK),
        "half is missing": ([NAN] * 5 + [0.5] * 5, INFINIBAND, {}, SOURCE),
        "more is missing": ([NAN] * 6 + [0.5] * 4, INFINIBAND, {}, BLIND),
    }
)
def test_sign_of_an_interval(
    rate: float | list[float], of: dict[int, float], moved: dict[int, float], code: int
) -> None:
    found = code_of(rate, gains_of(1, of, moved))
    assert (found, NAMES[found]) == (code, NAMES[code])


@for_each(
    {
        "at what is left of a link": (0.48, {}, {"line": LINE / 2}, LINK),
        "far below what is left": (0.2, {}, {"line": LINE / 2}, SOURCE),
        "the path limits it more": (0.2, {WAITED_SECONDS: 0.06}, {"line": LINE / 2}, PATH),
        "it has never been faster": (0.48, {}, {"line": LINE}, SOURCE),
        # a wait of uncertain length is calm only if the longest tick makes it so
        "a short wait": (0.5, {WAITED_SECONDS: 0.0005}, {"certain": True}, SOURCE),
        "a wait that may be longer": (0.5, {WAITED_SECONDS: 0.0005}, {"certain": False}, WEAK),
        "a wait that is short in any case": (0.5, {WAITED_SECONDS: 0.0001}, {"certain": False}, SOURCE),
        "no usual peak": (0.5, {}, {"peak": NAN}, BLIND),
        "no usual peak, but a wait": (0.5, {WAITED_SECONDS: 0.02}, {"peak": NAN}, PATH),
        "no usual peak, but an interruption": (0.5, {FLAPS: 1}, {"peak": NAN}, LINK),
    }
)
def test_sign_with_another_line_peak_or_tick(rate: float, moved: dict[int, float], how: Any, code: int) -> None:
    assert code_of(rate, gains_of(1, INFINIBAND, moved), **how) == code


@for_each({"the same": (0.5, WEAK), "a little slower": (0.48, WEAK), "slower": (0.4, PATH), "faster": (0.6, PATH)})
def test_notifications_that_change_nothing_are_no_sign(then: float, code: int) -> None:
    gained = gains_of(4, ROCE)
    gained[NOTIFIED, 1:3] = 340
    rates = np.repeat([0.5, then, then, 0.5], TEN) * LINE
    assert find(rates, gained).codes.tolist() == [SOURCE, code, code, SOURCE]


def test_a_link_that_was_down_limits_the_first_traffic_after_it() -> None:
    gained = gains_of(5, INFINIBAND)
    gained[FLAPS, 1] = 1
    rates = np.repeat([0.5, 0.0, 0.0, 0.5, 0.5], TEN) * LINE
    assert find(rates, gained).codes.tolist() == [SOURCE, NOTHING, NOTHING, LINK, SOURCE]


@for_each(
    {
        "in the next interval": ([0.9, 0.5], 1, [LOSS, LOSS]),
        "after a silence": ([0.9, 0.0, 0.0, 0.5], 3, [LOSS, NOTHING, NOTHING, LOSS]),
        "in the silence": ([0.9, 0.0, 0.0, 0.5], 1, [LOSS, NOTHING, NOTHING, SOURCE]),
        "after more traffic": ([0.9, 0.5, 0.0, 0.5], 3, [PEAK, LOSS, NOTHING, LOSS]),
        "none": ([0.9, 0.0, 0.0, 0.5], None, [PEAK, NOTHING, NOTHING, SOURCE]),
    }
)
def test_a_timeout_belongs_to_the_traffic_before_the_silence(
    levels: list[float], place: int | None, codes: list[int]
) -> None:
    gained = gains_of(len(levels), ROCE)
    if place is not None:
        gained[TIMEOUTS, place] = 1
    # traffic ends in each interval, as it does before a timeout
    rates = np.concatenate([[level] * 6 + [0.0] * 4 for level in levels]) * LINE
    assert find(rates, gained).codes.tolist() == codes


def test_a_timeout_after_an_interruption_of_the_link_is_of_the_link() -> None:
    gained = gains_of(14, ROCE)
    gained[FLAPS, 0] = gained[TIMEOUTS, 3] = gained[TIMEOUTS, 12] = 1
    codes = find(np.full(14 * TEN, 0.5 * LINE), gained).codes.tolist()
    assert codes == [LINK, SOURCE, SOURCE, LINK, *[SOURCE] * 8, LOSS, SOURCE]


def test_before_a_change_of_the_link_nothing_is_of_the_source() -> None:
    gained = gains_of(3, ROCE)
    readings = Readings(np.arange(4) * TEN, gained, np.full(3, LINE), unsure=np.array([False, True, False]))
    transmit = Transmit(np.full(3 * TEN, 0.5 * LINE), np.full(3 * TEN, 0.01), LINE, LINE, LINE, 1e6)
    assert find_signs(transmit, readings).codes.tolist() == [SOURCE, WEAK, SOURCE]


def test_samples_have_the_sign_of_their_interval() -> None:
    gained = gains_of(2, INFINIBAND)
    gained[WAITED_SECONDS, 1] = 0.03
    rates = np.array([0.0, 0.5, 0.5, *[0.0] * 7, *[0.0] * 5, *[0.5] * 5]) * LINE
    found = find(rates, gained)
    assert found.of_samples().tolist() == [NOTHING, SOURCE, SOURCE, *[NOTHING] * 12, *[PATH] * 5]
    tally = found.tally()
    np.testing.assert_allclose(tally[:, 0], [0, 0.02, 0.05, 0, 0, 0, 0, 0, 0], atol=1e-12)
    np.testing.assert_allclose(tally[PATH, 1 + WAITED_SECONDS], 0.03)
    assert tally[SOURCE, 1:].sum() == 0


@given(st.integers(0, 40), st.integers(0, 2**32 - 1))
def test_the_tally_of_a_span_is_the_sum_of_its_parts(cut: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    gained = rng.choice([0.0, 1.0, 20.0, NAN], (GAINS, 4))
    rates = rng.choice([0.0, 0.2, 0.95, NAN], 4 * TEN) * LINE
    found = find(rates, gained)
    np.testing.assert_allclose(found.cut(0, cut).tally() + found.cut(cut, 4 * TEN).tally(), found.tally(), atol=1e-9)


@given(st.integers(0, 2**32 - 1))
def test_signs_do_not_depend_on_the_unit_of_rates(seed: int) -> None:
    rng = np.random.default_rng(seed)
    gained = rng.choice([0.0, 1.0, 20.0, NAN], (GAINS, 3))
    gained[WAITED_SECONDS] *= 0.004
    rates = rng.choice([0.0, 0.2, 0.6, 0.95, NAN], 3 * TEN) * LINE
    bounds, line = np.arange(4) * TEN, np.full(3, LINE)
    seconds = np.full(len(rates), 0.01)

    def codes(scale: float) -> list[int]:
        transmit = Transmit(rates * scale, seconds, LINE * scale, LINE * scale, LINE * scale, 1e6 * scale)
        return find_signs(transmit, Readings(bounds, gained, line * scale)).codes.tolist()

    assert codes(1.0) == codes(0.125)
