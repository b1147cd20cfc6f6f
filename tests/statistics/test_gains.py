"""What counters of all widths gained between readings."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.core.signals import Signal
from ibpulse.core.statistics.gains import MISSING, Gains, find_gains
from tests.tables import for_each

STOPS = Signal("symbol_error", 16, stops=True)
WRAPS = Signal("port_discards_transmitted", 16)
WIDE = Signal("rp_cnp_packets_handled", 64)
NAN = float("nan")
MISSED = int(MISSING)


def gains_of(signal: Signal, *counters: int) -> Gains:
    readings = np.array(counters, dtype=np.uint64)[:, None]
    time_ns = np.arange(len(counters), dtype=np.int64)[:, None] * 100_000_000
    return find_gains([signal], time_ns, readings)


@for_each(
    {
        "a rise": (WIDE, (5, 9, 9), (4, 0), (False, False)),
        "more than a float can count": (WIDE, (2**62, 2**62 + 1), (1,), (False,)),
        "a missing reading": (WIDE, (5, MISSED, 9), (NAN, NAN), (False, False)),
        "a reset": (WIDE, (5, 1, 3), (NAN, 2), (False, False)),
        "a wrap": (WRAPS, (65535, 2), (3,), (False,)),
        "a reset of a counter that wraps": (WRAPS, (9, 0), (NAN,), (False,)),
        "a reset of a counter that stops": (STOPS, (65000, 2), (NAN,), (False,)),
        "full": (STOPS, (65000, 65535, 65535, 0, 4), (NAN, NAN, NAN, 4), (True, True, False, False)),
    }
)
def test_gains(signal: Signal, counters: tuple[int, ...], gained: tuple[float, ...], full: tuple[bool, ...]) -> None:
    found = gains_of(signal, *counters)
    np.testing.assert_array_equal(found.gained[1:, 0], gained)
    assert tuple(found.full[1:, 0].tolist()) == full
    np.testing.assert_array_equal(np.isnan(found.seconds), np.isnan(found.gained))
    assert np.isnan(found.gained[0]).all()


def test_seconds_are_those_between_the_reads_of_each_counter() -> None:
    time_ns = np.array([[0, 7], [100, 207]], dtype=np.int64) * 1_000_000
    found = find_gains([WIDE, WIDE], time_ns, np.zeros((2, 2), dtype=np.uint64))
    np.testing.assert_allclose(found.seconds[1], [0.1, 0.2])


@for_each([(0,), (1,)])
def test_one_reading_gains_nothing(count: int) -> None:
    assert np.isnan(gains_of(WIDE, *range(count)).gained).all()


@given(st.lists(st.integers(0, 32767), min_size=1, max_size=20), st.integers(0, 65535))
def test_gains_of_a_counter_that_wraps_add_up(steps: list[int], first: int) -> None:
    counters = (first + np.cumsum([0, *steps])) % 65536
    np.testing.assert_array_equal(gains_of(WRAPS, *counters.tolist()).gained[1:, 0], steps)
