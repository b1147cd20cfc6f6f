"""Totals over resets, and the stalled time, against arithmetic by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.agent.aggregator.ports import CounterTotals
from ibpulse.agent.aggregator.snapshot import PortCounters
from ibpulse.core.model import CounterReading, DeviceIdentity, Fabric, Port, PortReadings
from tests.aggregator.rings import RATE, port
from tests.tables import for_each

NAME = "ibpulse_symbol_error_total"
WAIT = "port_xmit_wait"
SECOND = 1_000_000_000
PORT = port("mlx5_0:1")


def read(value: int, second: float, *, file: str = WAIT, full: bool = False) -> CounterReading:
    return CounterReading(NAME, file, value, round(second * SECOND) + 1, full)


def fabric(*readings: CounterReading, of: Port = PORT) -> Fabric:
    return Fabric((of,), counters=(PortReadings(of.id, readings),))


def follow(totals: CounterTotals, *readings: CounterReading, of: Port = PORT) -> PortCounters:
    """The last of the updates, each with one reading."""
    for reading in readings:
        (found,) = totals.update(fabric(reading, of=of))
    return found


def stalled(*readings: CounterReading, of: Port = PORT, tick: int | None = 8) -> float | None:
    return follow(CounterTotals(tick), *readings, of=of).stalled_ratio


@for_each(
    {
        "starts at the value of the counter": ([read(70, 0)], 70),
        "grows by the differences": ([read(70, 0), read(75, 5), read(75, 10), read(100, 15)], 100),
        "grows by the new value after a reset": (
            [read(70, 0), read(30, 5), read(35, 10), read(0, 15), read(1, 20)],
            70 + 30 + 5 + 0 + 1,
        ),
        "takes a wrap as a reset": ([read(2**32 - 5, 0), read(7, 5)], 2**32 - 5 + 7),
        "counts a repeated reading once": ([read(70, 0), read(30, 5), read(30, 5), read(30, 5)], 100),
    }
)
def test_a_total(readings: list[CounterReading], total: int) -> None:
    assert follow(CounterTotals(), *readings).totals[0].total == total


def test_the_total_of_another_device_starts_at_its_own_value() -> None:
    totals = CounterTotals(8)
    one, other = (replace(PORT, device=DeviceIdentity(guid)) for guid in ("1", "2"))
    follow(totals, read(70, 0), read(75, 5), of=one)
    found = follow(totals, read(1000, 10), of=other)
    assert (found.totals[0].total, found.stalled_ratio) == (1000, None)


def test_a_total_is_absent_without_a_reading_and_continues_later() -> None:
    totals = CounterTotals()
    follow(totals, read(70, 0))
    assert totals.update(Fabric()) == ()
    (found,) = totals.update(fabric())
    assert found.totals == ()
    # the counter began again at 0 meanwhile
    assert follow(totals, read(4, 60)).totals[0].total == 74


def test_ports_and_counters_are_kept_apart() -> None:
    other = port("mlx5_1:1")
    both = Fabric(
        (PORT, other),
        counters=(PortReadings(PORT.id, (read(1, 0),)), PortReadings(other.id, (read(2, 0),))),
    )
    totals = CounterTotals()
    totals.update(both)
    again = totals.update(replace(both, counters=(PortReadings(other.id, (read(5, 1),)), both.counters[0])))
    assert [(str(found.port), found.totals[0].total) for found in again] == [("mlx5_1:1", 5), ("mlx5_0:1", 1)]


def test_a_saturated_counter_is_reported() -> None:
    (total,) = follow(CounterTotals(), read(65535, 0, file="symbol_error", full=True)).totals
    assert (total.name, total.file, total.total, total.saturated) == (NAME, "symbol_error", 65535, True)


@given(st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=5), min_size=1, max_size=6))
def test_a_total_never_decreases_and_misses_only_unseen_clears(lives: list[list[int]]) -> None:
    totals, shown, second = CounterTotals(), [], 0
    for life in lives:
        counter = 0
        for grown in life:
            counter += grown
            second += 1
            shown.append(follow(totals, read(counter, second)).totals[0].total)
    assert shown == sorted(shown)
    assert shown[-1] <= sum(map(sum, lives))


# 50 GB/s and 8 bytes a tick are 6.25e9 ticks a second: a quarter of 0.4 s
QUARTER = read(625_000_000, 0.4)
FULL = read(2**32 - 1, 0, full=True)


@for_each(
    {
        "the time of the ticks": ([read(0, 0), QUARTER], 0.25),
        "nothing if it was never stalled": ([read(1000, 0), read(1000, 5)], 0.0),
        "of the last two reads": ([read(0, 0), read(10**9, 5), read(10**9, 10)], 0.0),
        "the same until the next read": ([read(0, 0), QUARTER, QUARTER], 0.25),
        "unknown after one read": ([read(1000, 0)], None),
        "unknown for other counters": ([read(0, 0, file="symbol_error"), read(10, 5, file="symbol_error")], None),
        "unknown if the counter stopped": ([read(0, 0), replace(FULL, taken_ns=5 * SECOND)], None),
        "unknown while the counter is full": ([FULL, replace(FULL, taken_ns=5 * SECOND)], None),
        "unknown since it was full": ([FULL, read(10, 5)], None),
        "known two reads after it was full": ([FULL, read(10, 5), read(10, 10)], 0.0),
        "unknown across a reset": ([read(1000, 0), read(10, 5)], None),
    }
)
def test_the_stalled_share_is(readings: list[CounterReading], share: float | None) -> None:
    assert stalled(*readings) == (None if share is None else pytest.approx(share))


def test_without_the_length_of_a_tick_and_on_roce_there_is_no_share() -> None:
    roce = replace(PORT, identity=replace(PORT.identity, link_layer="Ethernet"))
    assert stalled(read(0, 0), read(10, 5), tick=None) is stalled(read(0, 0), read(10, 5), of=roce) is None


def test_a_port_that_is_not_active_has_no_share() -> None:
    totals = CounterTotals(8)
    down = port("mlx5_0:1", active=False)
    follow(totals, read(0, 0))
    assert follow(totals, read(10, 5), of=down).stalled_ratio is None
    # the time of which it was down a part says nothing either
    assert follow(totals, read(20, 10)).stalled_ratio is None
    assert follow(totals, read(20, 15)).stalled_ratio == 0.0
    # it went down since the read
    assert follow(totals, read(20, 15), of=down).stalled_ratio is None


def test_a_port_whose_rate_changed_has_no_share() -> None:
    totals = CounterTotals(8)
    follow(totals, read(0, 0))
    assert follow(totals, read(10, 5), of=replace(PORT, rate_bytes_per_second=RATE / 2)).stalled_ratio is None


@pytest.mark.parametrize("between", [Fabric((PORT,)), fabric()], ids=["device away", "read failed"])
def test_over_a_gap_there_is_no_share(between: Fabric) -> None:
    totals = CounterTotals(8)
    follow(totals, read(0, 0))
    totals.update(between)
    assert follow(totals, read(10, 10)).stalled_ratio is None
    assert follow(totals, read(10, 15)).stalled_ratio == 0.0


def test_counters_of_a_port_that_the_fabric_has_not_are_counted_without_a_share() -> None:
    totals = CounterTotals(8)
    readings = (PortReadings(PORT.id, (read(3, 0),)),)
    (found,) = totals.update(Fabric(counters=readings))
    assert (found.totals[0].total, found.stalled_ratio) == (3, None)
