"""Hot rails, failovers and stalls of rates whose factors and silences are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ibpulse.core.arrays import Floats
from ibpulse.core.statistics.nodes import FleetStall, find_failovers, find_hot_rail, find_stalls, split_rates
from ibpulse.core.statistics.silences import SampleTimes, find_silences

NODES, RAILS = tuple(f"node{number}" for number in range(6)), tuple(f"mlx5_{number}:1" for number in range(8))


def rates(noise: float = 0.01) -> Floats:
    return 20e9 * np.random.default_rng(0).normal(1.0, noise, (len(NODES), len(RAILS)))


def test_equal_and_unknown_rates_name_nothing() -> None:
    found = split_rates(NODES, RAILS, rates())
    assert found.hot_rails() == []
    assert found.differing_nodes() == []
    assert found.differing_ports() == []
    assert found.idle_ports() == []
    values = rates()
    values[1, 2] = np.nan
    values[3] = np.nan
    found = split_rates(NODES, RAILS, values)
    assert found.idle_ports() == []
    assert np.isnan(found.rest[3]).all()
    assert found.hot_rails() == []


def test_hot_rail_node_and_port_are_separated() -> None:
    values = rates()
    values[:, 1] *= 1.4
    values[4] *= 0.6
    values[2, 6] *= 0.5
    values[0, 3] = 0.0
    found = split_rates(NODES, RAILS, values)
    ((rail, factor, nodes),) = found.hot_rails()
    assert (rail, nodes) == ("mlx5_1:1", 6)
    assert factor == pytest.approx(1.4, rel=0.02)
    assert [(name, pytest.approx(factor, rel=0.02)) for name, factor in found.differing_nodes()] == [("node4", 0.6)]
    assert [each[:2] for each in found.differing_ports()] == [("node2", "mlx5_6:1")]
    assert found.idle_ports() == [("node0", "mlx5_3:1")]


def test_factors_are_exact_without_noise() -> None:
    node, rail = np.array([1.0, 2.0, 1.0]), np.array([1.0, 1.0, 3.0, 1.0])
    values = 5e9 * node[:, np.newaxis] * rail
    found = split_rates(("a", "b", "c"), RAILS[:4], values)
    assert found.node == pytest.approx(node)
    assert found.rail == pytest.approx(rail)
    assert found.rest == pytest.approx(np.ones((3, 4)))


def moved(seconds: int = 30) -> Floats:
    return 20e9 * np.random.default_rng(1).normal(1.0, 0.02, (seconds, 4))


def test_a_silent_rail_with_a_doubled_one_is_a_failover() -> None:
    values = moved()
    values[12:20, 3] += values[12:20, 1]
    values[12:20, 1] = 0
    (found,) = find_failovers(RAILS[:4], values)
    assert (found.silent, found.doubled, found.first, found.end) == ("mlx5_1:1", "mlx5_3:1", 12, 20)
    assert not found.lasting
    assert found.bytes_ratio == pytest.approx(1.0, abs=0.02)
    values = moved()
    values[5:, 3] += values[5:, 1]
    values[5:, 1] = 0
    (found,) = find_failovers(RAILS[:4], values)
    assert (found.silent, found.doubled, found.first, found.lasting) == ("mlx5_1:1", "mlx5_3:1", 5, True)


@pytest.mark.parametrize("case", ["usual", "shared", "short", "idle", "unknown"])
def test_other_patterns_are_no_failover(case: str) -> None:
    values = moved()
    if case == "shared":
        # the others share the traffic of the silent rail
        values[12:, [0, 2, 3]] *= 4 / 3
        values[12:, 1] = 0
    elif case == "short":
        values[12:14, 3] *= 2
        values[12:14, 1] = 0
    elif case == "idle":
        values[:, 1] = 0
    elif case == "unknown":
        values[:] = np.nan
    assert find_failovers(RAILS[:4], values) == []


def test_hot_rails_carry_most_on_most_nodes() -> None:
    usual = dict.fromkeys((f"mlx5_{number}:1" for number in range(8)), 10.0)
    hot = usual | {"mlx5_3:1": 20.0}
    found = find_hot_rail({"a": hot, "b": hot, "c": usual})
    assert (found.port, found.nodes) == ("mlx5_3:1", 2)
    assert found.share_ratio == pytest.approx(20 / 90)
    assert found.usual_ratio == pytest.approx(1 / 8)
    assert find_hot_rail({"a": hot, "b": usual}) is None
    assert find_hot_rail({"a": dict.fromkeys(usual, 0.0)}) is None


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
