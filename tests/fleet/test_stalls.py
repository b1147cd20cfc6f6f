"""Stalls of nodes whose silences are known, on clocks that are known to a bound."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ibpulse.core.arrays import Floats
from ibpulse.core.statistics.nodes import SampleTimes, Silence, find_silences, find_stalls, shortest_stall

INTERVAL = 0.01


def traffic(*silent: tuple[float, float], seconds: float = 10.0) -> Floats:
    """Steps of 0.3 s with 0.1 s of silence, and longer silences."""
    times = np.arange(round(seconds / INTERVAL)) * INTERVAL
    busy = (times % 0.3) < 0.2
    for begin, end in silent:
        busy &= (times < begin - 1e-9) | (times >= end - 1e-9)
    return np.tile(np.where(busy, 1e9, 0.0), (2, 1))


def silences(rates: Floats, bound: float | None = 0.001, resolution: float = 0.0) -> list[Silence]:
    return find_silences(rates, SampleTimes(0.0, INTERVAL, bound, resolution), 1e6, shortest_stall(0.3))


def test_long_silences_have_bounds() -> None:
    (found,) = silences(traffic((4.25, 6.05)))
    # the last traffic before is that of the burst up to 4.25 s
    assert found.low <= 4.25 <= found.high
    assert found.high - found.low == pytest.approx(INTERVAL + 0.002)
    assert found.end == pytest.approx(6.05, abs=0.15)
    assert silences(traffic((4.25, 5.0))) == []
    assert shortest_stall(None) == 1.0
    assert shortest_stall(2.0) == 6.0


def test_missing_data_widens_bounds_and_is_no_silence() -> None:
    rates = traffic((4.25, 6.05))
    rates[:, 425:430] = np.nan
    (found,) = silences(rates)
    assert found.high - found.low == pytest.approx(6 * INTERVAL + 0.002)
    lost = traffic()
    lost[:, 400:600] = np.nan
    assert silences(lost) == []


WHOLE = [(0.0, 10.0)]


def test_first_silent_node_is_named_beyond_bounds() -> None:
    found = {name: silences(traffic((begin, 20.0))) for name, begin in (("a", 4.25), ("b", 4.11), ("c", 4.25))}
    (stall,) = find_stalls(found, dict.fromkeys(found, WHOLE))
    assert stall.moving == ()
    assert stall.first == ("b",)
    assert stall.silent[0] == "b"
    assert 0.1 < stall.sending.gap < 0.14
    assert math.isinf(stall.until)
    vague = {name: silences(traffic((begin, 20.0)), 0.1) for name, begin in (("a", 4.25), ("b", 4.11))}
    (stall,) = find_stalls(vague, dict.fromkeys(vague, WHOLE))
    assert set(stall.sending.nodes) == {"a", "b"}
    assert (stall.first, stall.sending.gap) == ((), 0.0)


@pytest.mark.parametrize(("bound", "resolution"), [(None, 0.0), (0.001, 0.2)])
def test_no_order_without_clocks_or_fine_counters(bound: float | None, resolution: float) -> None:
    found = {"a": silences(traffic((4.25, 20.0)), bound, resolution), "b": silences(traffic((4.11, 20.0)))}
    (stall,) = find_stalls(found, dict.fromkeys(found, WHOLE))
    assert stall.first == ()
    assert stall.receiving.gap == 0.0


def test_first_to_stop_sending_still_receives() -> None:
    # b stops sending at 4.11 s and receives what a sends until 4.25 s
    stopped = np.stack([traffic((4.11, 20.0))[0], traffic((4.25, 20.0))[1]])
    found = {"a": silences(traffic((4.25, 20.0))), "b": silences(stopped)}
    (stall,) = find_stalls(found, dict.fromkeys(found, WHOLE))
    assert stall.first == ("b",)
    # the last sample with traffic ends between 0.12 and 0.14 s earlier
    assert stall.sending.gap == pytest.approx(0.13, abs=0.011)
    assert set(stall.receiving.nodes) == {"a", "b"}


def test_nodes_without_samples_do_not_keep_moving() -> None:
    found = {"a": silences(traffic((4.0, 20.0))), "b": []}
    (stall,) = find_stalls(found, {"a": WHOLE, "b": [(0.0, 4.5)]}, shortest_stall(0.3))
    assert stall.moving == ()


def test_nodes_that_keep_moving_did_not_stop_first() -> None:
    found = {"a": silences(traffic((4.0, 20.0))), "b": silences(traffic()), "c": []}
    (stall,) = find_stalls(found, {"a": WHOLE, "b": WHOLE, "c": [(8.0, 10.0)]})
    assert stall.silent == ("a",)
    assert stall.moving == ("b",)


def test_consecutive_silences_are_two_stalls() -> None:
    found = {name: silences(traffic((2.0, 4.0), (6.0, 9.0))) for name in "ab"}
    stalls = find_stalls(found, dict.fromkeys(found, WHOLE))
    assert [round(stall.since) for stall in stalls] == [6, 2]
    assert find_stalls({"a": []}, {"a": WHOLE}) == []
