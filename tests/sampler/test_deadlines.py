"""The tick clock on a clock of the test's own: nothing here sleeps."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibpulse.agent.sampler.deadlines import TickClock

MS = 1_000_000
SECOND = 1_000 * MS
WALL_NS = 1_700_000_000 * SECOND + 3_456_789


@dataclass
class Machine:
    """Two clocks that advance only when they are read or slept on."""

    monotonic: int = 77 * SECOND + 1234
    offset: int = WALL_NS
    read_ns: int = 50
    overslept: list[int] = field(default_factory=list)
    torn: list[int] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)

    def time_ns(self) -> int:
        self.monotonic += self.torn.pop(0) if self.torn else self.read_ns
        return self.monotonic + self.offset

    def monotonic_ns(self) -> int:
        self.monotonic += self.read_ns
        return self.monotonic

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.slept.append(seconds)
        self.monotonic += round(seconds * SECOND) + (self.overslept.pop(0) if self.overslept else 0)

    def clock(self, interval_ns: int = 10 * MS, *, shift: int = 0, last_tick: int = 0, last_ns: int = 0) -> TickClock:
        return TickClock(
            interval_ns,
            shift=shift,
            last_tick=last_tick,
            last_ns=last_ns,
            clock=self,
        )

    @property
    def now_wall(self) -> int:
        return self.monotonic + self.offset

    def elapse(self, ns: int) -> None:
        self.monotonic += ns


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def clock(machine: Machine) -> TickClock:
    """A clock of 10 ms after its first tick."""
    made = machine.clock()
    made.wait()
    return made


def test_the_first_tick_is_the_next_one_of_the_wall_clock(machine: Machine) -> None:
    clock = machine.clock()
    expected = machine.now_wall // (10 * MS) + 1
    clock.wait()
    assert (clock.tick, clock.shift, clock.missed, clock.steps) == (expected, 0, 0, 0)


def test_late_wake_ups_are_summed_where_they_cost_a_tick(machine: Machine, clock: TickClock) -> None:
    read_ns = machine.monotonic
    # the first is in time for its tick
    machine.overslept = [4 * MS, 7 * MS, 0]
    clock.wait(read_ns)
    assert clock.overslept_ns == 0
    clock.wait(machine.monotonic)
    assert clock.overslept_ns == pytest.approx(7 * MS, abs=2000)
    # elsewhere, after quick reads, and after reads that took until 25 ms after the tick
    for read_ms, slept_ms, late_ms in ((0, 32, 22), (25, 33, 8)):
        before, began = clock.overslept_ns, clock.began_ns
        machine.monotonic = began + slept_ms * MS
        clock.wait(began + read_ms * MS)
        assert clock.overslept_ns - before == pytest.approx(late_ms * MS, abs=2000)


def test_reads_that_always_take_longer_than_an_interval_cost_few_ticks(machine: Machine) -> None:
    """A tick is begun late rather than left out: by 0, 2 and 4 ms; only at 6 ms it is skipped."""
    clock = machine.clock()
    for number in range(500):
        clock.wait()
        if number == 100:
            first, missed = clock.tick, clock.missed
        machine.elapse(12 * MS)
    assert (clock.missed - missed) / (clock.tick - first) == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize("held_up_ms", [6, 9.5, 14])
def test_a_tick_too_soon_after_delayed_reads_is_skipped(machine: Machine, held_up_ms: float) -> None:
    """The last port of the tick was perhaps read just now."""
    clock = machine.clock()
    for _ in range(10):
        clock.wait()
        machine.elapse(MS // 10)
    first, missed = clock.tick, clock.missed
    machine.elapse(round(held_up_ms * MS))
    assert clock.wait() < 1000
    assert (clock.tick, clock.missed) == (first + 2, missed + 1)


@pytest.mark.parametrize("duration_ms", [4, 6, 9])
def test_reads_that_always_take_a_good_part_of_an_interval_miss_nothing(machine: Machine, duration_ms: int) -> None:
    clock = machine.clock()
    for number in range(200):
        clock.wait()
        machine.elapse(duration_ms * MS)
        if number == 100:
            missed = clock.missed
    assert clock.missed == missed


def test_a_new_clock_does_not_begin_with_a_tick_of_the_past(machine: Machine) -> None:
    machine.elapse(10 * MS - machine.now_wall % (10 * MS) + 2 * MS)
    clock = machine.clock()
    assert clock.wait() < 1000


@pytest.mark.parametrize("parts_per_million", [-500, -20, 20, 500])
@pytest.mark.parametrize("interval_ns", [MS, 10 * MS, SECOND])
def test_a_slewed_wall_clock_is_followed_without_a_step(
    machine: Machine, parts_per_million: int, interval_ns: int
) -> None:
    clock = machine.clock(interval_ns)
    clock.wait()
    first = clock.tick
    for _ in range(2000):
        machine.offset += interval_ns * parts_per_million // 1_000_000
        clock.wait()
    assert (clock.tick - first, clock.missed, clock.steps, clock.shift) == (2000, 0, 0, 0)
    assert abs(machine.now_wall - clock.tick * interval_ns) < 30_000 + interval_ns // 1000


def test_time_that_passes_before_a_step_is_detected_is_missing(machine: Machine, clock: TickClock) -> None:
    """A stalled sampler that wakes to a wall clock set by an hour has missed its ticks all the same."""
    first = clock.tick
    machine.elapse(3 * SECOND)
    machine.offset += 3600 * SECOND
    clock.wait()
    assert clock.steps == 1
    assert clock.tick - first == pytest.approx(300, abs=1)
    assert clock.missed == clock.tick - first - 1


def test_a_torn_pair_of_clock_reads_is_not_a_step(machine: Machine, clock: TickClock) -> None:
    first, offset = clock.tick, machine.offset
    machine.torn = [7 * MS]
    late = clock.wait()
    assert (clock.tick, clock.steps) == (first + 1, 0)
    assert machine.monotonic + offset - clock.tick * 10 * MS == pytest.approx(late, abs=1000)


def test_a_clock_measures_by_the_tightest_of_some_tries(machine: Machine) -> None:
    first_measurement, later_reads = [9 * MS, 30_000, 9 * MS, 9 * MS, 9 * MS], [9 * MS] * 6
    machine.torn = first_measurement + later_reads
    clock = machine.clock(SECOND)
    clock.wait()
    assert machine.torn == []
    assert abs(machine.now_wall - clock.tick * SECOND) < 20_000


def test_a_new_clock_continues_after_the_last_tick_and_counts_the_ticks_between(machine: Machine) -> None:
    first = machine.clock()
    first.wait()
    last_ns = machine.monotonic
    machine.elapse(2 * SECOND)
    second = machine.clock(last_tick=first.tick, last_ns=last_ns)
    second.wait()
    assert (second.tick, second.missed, second.steps, second.shift) == (first.tick + 201, 200, 0, 0)


def test_ticks_without_a_sampler_are_not_missed(machine: Machine) -> None:
    last = machine.now_wall // (10 * MS) - 500
    clock = machine.clock(last_tick=last)
    clock.wait()
    assert (clock.tick, clock.missed, clock.steps) == (last + 501, 0, 0)


def test_a_new_clock_keeps_the_shift(machine: Machine) -> None:
    last = machine.now_wall // (10 * MS) + 1000
    clock = machine.clock(shift=1000, last_tick=last)
    clock.wait()
    assert (clock.tick, clock.shift, clock.steps) == (last + 1, 1000, 0)


def test_a_wall_clock_set_back_while_no_sampler_ran_is_a_step_after_missing_data(machine: Machine) -> None:
    last = machine.now_wall // (10 * MS)
    machine.offset -= 3600 * SECOND
    clock = machine.clock(last_tick=last)
    clock.wait()
    assert (clock.tick, clock.steps, clock.missed) == (last + 2, 1, 0)
    assert machine.now_wall // (10 * MS) == clock.tick - clock.shift


@pytest.mark.parametrize("hours", [1, -1])
def test_a_wall_clock_stepped_between_two_samplers_is_a_step_that_keeps_the_elapsed_time(
    machine: Machine, hours: int
) -> None:
    first = machine.clock()
    first.wait()
    last_ns = machine.monotonic
    machine.elapse(SECOND // 2)
    machine.offset += hours * 3600 * SECOND
    second = machine.clock(last_tick=first.tick, last_ns=last_ns)
    second.wait()
    assert second.steps == 1
    assert second.tick - first.tick == pytest.approx(51, abs=1)
    assert second.missed == second.tick - first.tick - 1
    assert machine.now_wall // (10 * MS) == second.tick - second.shift


@settings(max_examples=200, deadline=None)
@given(
    interval_ms=st.sampled_from([1, 2, 10, 100, 1000]),
    delays=st.lists(st.floats(0, 4), min_size=1, max_size=60),
    works=st.lists(st.floats(0, 3), min_size=1, max_size=60),
    start=st.integers(0, 2 * SECOND),
)
def test_whatever_the_delays_ticks_grow_on_multiples_and_none_is_lost(
    interval_ms: int, delays: list[float], works: list[float], start: int
) -> None:
    """Missed plus sampled is elapsed; two samples are half an interval apart at least."""
    interval_ns = interval_ms * MS
    machine = Machine(offset=WALL_NS + start)
    machine.overslept = [round(delay * interval_ns) for delay in delays]
    clock = machine.clock(interval_ns)
    ticks: list[int] = []
    begun: list[int] = []
    for work in works:
        late = clock.wait()
        ticks.append(clock.tick)
        begun.append(machine.monotonic)
        assert machine.now_wall - clock.tick * interval_ns == pytest.approx(late, abs=200)
        assert late <= interval_ns // 2
        machine.elapse(round(work * interval_ns))
    assert all(later > earlier for earlier, later in pairwise(ticks))
    assert clock.missed + len(ticks) == ticks[-1] - ticks[0] + 1
    assert all(later - earlier >= interval_ns // 2 - 1000 for earlier, later in pairwise(begun))


@settings(max_examples=200, deadline=None)
@given(steps=st.lists(st.integers(-10 * SECOND, 10 * SECOND), min_size=1, max_size=30))
def test_whatever_the_steps_ticks_grow_and_fall_on_multiples(steps: list[int]) -> None:
    machine = Machine()
    clock = machine.clock()
    clock.wait()
    first, begun = clock.tick, machine.monotonic
    for number, step in enumerate(steps, 1):
        machine.offset += step
        late = clock.wait()
        assert clock.tick == first + number
        assert 5 * MS - 1000 <= machine.monotonic - begun <= 15 * MS + 1000
        assert machine.now_wall - (clock.tick - clock.shift) * 10 * MS == pytest.approx(late, abs=200)
        begun = machine.monotonic
    assert clock.missed == 0


@pytest.mark.parametrize(("reads_ms", "skipped", "missed"), [(32, 2, 0), (52, 4, 0), (72, 6, 1), (482, 47, 9)])
def test_a_skipped_tick_at_which_no_port_is_due_is_not_missed(
    machine: Machine, clock: TickClock, reads_ms: int, skipped: int, missed: int
) -> None:
    while clock.tick % 5:
        clock.wait()
    clock.stride, first = 5, clock.tick
    machine.elapse(reads_ms * MS)
    clock.wait(machine.monotonic - reads_ms * MS)
    assert (clock.tick - first - 1, clock.missed) == (skipped, missed)


def test_slow_reads_of_ports_that_are_not_due_soon_cost_no_tick(machine: Machine) -> None:
    """What counts is when the ports that may be due at the next tick were read."""
    clock = machine.clock()
    for tick in range(200):
        clock.wait(machine.monotonic - (7 * MS if tick % 10 == 1 else 0))
        machine.elapse(7 * MS if tick % 10 == 0 else 0)
    assert clock.missed == 0


def test_a_late_wake_up_is_late_enough_for_reads_that_took_long(machine: Machine, clock: TickClock) -> None:
    """Reads end 5.5 ms after the tick: the next deadline would be too soon, but the clock is read 2 ms after it."""
    tick = clock.tick
    machine.elapse(12 * MS)
    assert clock.wait(clock.began_ns + 5_500_000) == pytest.approx(2 * MS, abs=MS // 100)
    assert (clock.tick, clock.missed) == (tick + 1, 0)
