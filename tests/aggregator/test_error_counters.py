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


def total_after(*readings: CounterReading) -> int:
    return follow(CounterTotals(), *readings).totals[0].total


def stalled(*readings: CounterReading, of: Port = PORT, tick: int | None = 8) -> float | None:
    return follow(CounterTotals(tick), *readings, of=of).stalled_ratio


def test_a_total_starts_at_the_value_of_the_counter() -> None:
    assert total_after(read(70, 0)) == 70


def test_a_total_grows_by_the_differences() -> None:
    assert total_after(read(70, 0), read(75, 5), read(75, 10), read(100, 15)) == 100


def test_after_a_reset_the_new_value_is_added() -> None:
    assert total_after(read(70, 0), read(30, 5), read(35, 10), read(0, 15), read(1, 20)) == 70 + 30 + 5 + 0 + 1


def test_the_total_of_another_device_starts_at_its_own_value() -> None:
    totals = CounterTotals(8)
    one, other = (replace(PORT, device=DeviceIdentity(guid)) for guid in ("1", "2"))
    follow(totals, read(70, 0), read(75, 5), of=one)
    found = follow(totals, read(1000, 10), of=other)
    assert (found.totals[0].total, found.stalled_ratio) == (1000, None)


def test_a_wrap_is_taken_as_a_reset() -> None:
    assert total_after(read(2**32 - 5, 0), read(7, 5)) == 2**32 - 5 + 7


def test_a_repeated_reading_is_not_counted_again() -> None:
    assert total_after(read(70, 0), read(30, 5), read(30, 5), read(30, 5)) == 100


def test_the_totals_of_a_port_that_came_back_continue() -> None:
    totals = CounterTotals()
    follow(totals, read(70, 0))
    assert totals.update(Fabric()) == ()
    assert follow(totals, read(4, 60)).totals[0].total == 74


def test_an_unreadable_counter_is_absent_and_continues_later() -> None:
    totals = CounterTotals()
    follow(totals, read(70, 0))
    (found,) = totals.update(fabric())
    assert found.totals == ()
    assert follow(totals, read(90, 10)).totals[0].total == 90


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


def test_the_stalled_share_is_the_time_of_the_ticks() -> None:
    # 50 GB/s and 8 bytes a tick are 6.25e9 ticks a second: a quarter of 0.4 s
    assert stalled(read(1000, 0), read(1000 + 625_000_000, 0.4)) == pytest.approx(0.25)


def test_a_port_that_was_never_stalled_has_a_share_of_nothing() -> None:
    assert stalled(read(1000, 0), read(1000, 5)) == 0.0


def test_the_share_is_of_the_last_two_reads() -> None:
    assert stalled(read(0, 0), read(10**9, 5), read(10**9, 10)) == 0.0


def test_the_share_stays_until_the_next_read() -> None:
    twice = read(625_000_000, 0.4)
    assert stalled(read(0, 0), twice, twice) == pytest.approx(0.25)


def test_one_read_has_no_share() -> None:
    assert stalled(read(1000, 0)) is None


def test_without_the_length_of_a_tick_there_is_no_share() -> None:
    assert stalled(read(0, 0), read(10, 5), tick=None) is None


def test_other_counters_have_no_stalled_ratio() -> None:
    assert stalled(read(0, 0, file="symbol_error"), read(10, 5, file="symbol_error")) is None


def test_a_counter_that_stopped_between_the_reads_has_no_share() -> None:
    assert stalled(read(0, 0), read(2**32 - 1, 5, full=True)) is None


def test_a_counter_that_was_full_has_no_share_until_two_reads_after_it_was_cleared() -> None:
    full = read(2**32 - 1, 0, full=True)
    assert stalled(full, replace(full, taken_ns=5 * SECOND)) is None
    assert stalled(full, read(10, 5)) is None
    assert stalled(full, read(10, 5), read(10, 10)) == 0.0


def test_a_reset_between_the_reads_has_no_share() -> None:
    assert stalled(read(1000, 0), read(10, 5)) is None


def test_a_port_that_is_not_active_has_no_share() -> None:
    totals = CounterTotals(8)
    down = port("mlx5_0:1", active=False)
    follow(totals, read(0, 0))
    assert follow(totals, read(10, 5), of=down).stalled_ratio is None
    # the time of which it was down a part says nothing either
    assert follow(totals, read(20, 10)).stalled_ratio is None
    assert follow(totals, read(20, 15)).stalled_ratio == 0.0


def test_a_port_that_went_down_since_the_read_has_no_share() -> None:
    totals = CounterTotals(8)
    follow(totals, read(0, 0), read(10, 5))
    assert follow(totals, read(10, 5), of=port("mlx5_0:1", active=False)).stalled_ratio is None


def test_a_port_whose_rate_changed_has_no_share() -> None:
    totals = CounterTotals(8)
    follow(totals, read(0, 0))
    assert follow(totals, read(10, 5), of=replace(PORT, rate_bytes_per_second=RATE / 2)).stalled_ratio is None


def test_on_roce_there_is_no_share() -> None:
    roce = replace(PORT, identity=replace(PORT.identity, link_layer="Ethernet"))
    assert stalled(read(0, 0), read(10, 5), of=roce) is None


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
