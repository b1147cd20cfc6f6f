"""Stalls of nodes in a dataset whose silences are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ibpulse.core.arrays import Floats
from ibpulse.core.statistics.silences import SampleTimes, find_silences
from ibpulse.workbench.fleet.stalls import FleetStall, find_stalls

INTERVAL = 0.01


def traffic(*silent: tuple[float, float], seconds: float = 10.0) -> Floats:
    """Steps of 0.3 s with 0.1 s of silence, and longer silences."""
    times = np.arange(round(seconds / INTERVAL)) * INTERVAL
    busy = (times % 0.3) < 0.2
    for begin, end in silent:
        busy &= (times < begin - 1e-9) | (times >= end - 1e-9)
    return np.tile(np.where(busy, 1e9, 0.0), (2, 1))


def silences(rates: Floats) -> list[tuple[float, float]]:
    return find_silences(rates, SampleTimes(0.0, INTERVAL, 0.001), 1e6)


def test_notable_silences_begin_and_end_with_traffic_and_missing_data_is_none() -> None:
    (found,) = silences(traffic((4.25, 6.05)))
    assert found == pytest.approx((4.25, 6.05), abs=INTERVAL)
    assert silences(traffic((4.25, 5.0))) == []
    ((begin, end),) = silences(traffic((8.25, 20.0)))
    assert (begin, end) == (pytest.approx(8.25, abs=INTERVAL), math.inf)
    lost = traffic()
    lost[:, 400:600] = np.nan
    assert silences(lost) == []


WHOLE = [(0.0, 10.0)]


def test_silences_that_overlap_are_one_stall_and_others_are_two() -> None:
    found = {"a": [(4.25, math.inf)], "b": [(4.11, math.inf)], "c": [], "d": []}
    stalls = find_stalls(found, {"a": WHOLE, "b": WHOLE, "c": WHOLE, "d": [(0.0, 4.5)]})
    assert stalls == [FleetStall(("b", "a"), ("c",), 4.25, math.inf)]
    found = {name: [(2.0, 4.0), (6.0, 9.0)] for name in "ab"}
    stalls = find_stalls(found, dict.fromkeys(found, WHOLE))
    assert [stall.since for stall in stalls] == [6.0, 2.0]
    assert find_stalls({"a": []}, {"a": WHOLE}) == []
