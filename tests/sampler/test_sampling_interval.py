"""The rules of the sampling interval against answers by hand. Times in ms; the interval is 10 ms unless given."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibpulse.agent.sampler.adaptive import (
    BUSY_SHARE,
    MAX_TICK,
    OWN_PROCESSES_MAX,
    Cost,
    SamplingInterval,
    find_intervals,
    stride_above,
    stride_for,
)
from ibpulse.agent.sampler.loop import MAX_READ
from tests.tables import for_each

MS = 1_000_000


def paces(*devices: tuple[float, float], interval_ms: float = 10, least: int = 1) -> list[SamplingInterval]:
    """The paces of devices given as (one read, all reads of a tick) in ms."""
    costs = {f"mlx5_{number}": Cost(read * MS, tick * MS) for number, (read, tick) in enumerate(devices)}
    found = find_intervals(costs, dict.fromkeys(costs, least), int(interval_ms * MS))
    return [found[device] for device in costs]


def strides(*devices: tuple[float, float], interval_ms: float = 10, least: int = 1) -> list[int]:
    return [pace.stride for pace in paces(*devices, interval_ms=interval_ms, least=least)]


FAST = (0.05, 0.1)


@pytest.mark.parametrize(
    ("refresh_seconds", "interval_ms", "stride"),
    [
        (0.0, 10, 1),
        (0.001, 10, 1),
        (0.010, 10, 4),  # 3 × 10 ms is 3 ticks, the next divisor of 100 is 4
        (0.014, 10, 5),
        (0.010, 1, 40),
        (0.010, 100, 1),
        (1.0, 10, 100),  # a second is the most
        (60.0, 1, 1000),
        (0.010, 1000, 1),
    ],
)
def test_the_stride_is_three_refreshes_rounded_up_to_a_divisor(
    refresh_seconds: float, interval_ms: int, stride: int
) -> None:
    assert stride_for(refresh_seconds, interval_ms * 1_000_000) == stride


@pytest.mark.parametrize(
    ("ticks", "stride"), [(0, 1), (1, 1), (1.01, 2), (3, 4), (4, 4), (21, 25), (99, 100), (500, 100)]
)
def test_a_stride_is_the_next_divisor_of_the_ticks_in_a_second(ticks: float, stride: int) -> None:
    assert stride_above(ticks, 10 * MS) == stride


# devices, the interval, the least stride, and the strides
@for_each(
    {
        "healthy": ([FAST] * 8, 10, 1, [1] * 8),
        "the same rule at 1 ms": ([(0.13, 0.01), (0.05, 0.01)], 1, 1, [2, 1]),
        "the same rule at 1 s": ([(90, 150), (101, 150), (0.1, 0.2)], 1000, 1, [1, 1, 1]),
        "cached sources": ([FAST, (1.5, 1.6), (4.5, 0.1)], 10, 4, [4, 4, 5]),
        "the costliest are lengthened first": ([(0.9, 1.8)] * 3 + [(0.1, 0.2)] * 5, 10, 1, [2] * 3 + [1] * 5),
        "about the same cost": ([(0.5, 1.0), (0.5, 1.2), (0.5, 1.4), (0.5, 1.6)], 10, 1, [2] * 4),
        # 8 ms at the ticks at which all are due: the quick one would miss the tick after each of them
        "all that one process reads fits into three quarters": ([(0.9, 2.0)] * 4 + [(0.05, 0.1)], 10, 1, [2] * 5),
        "and just so": ([(0.9, 1.8)] * 4 + [(0.05, 0.1)], 10, 1, [2] * 4 + [1]),
        "the only device": ([(8.2, 16.4)], 10, 1, [10]),
        # a node that is slow as a whole reads for half of the time
        **{
            f"{count} of {tick_ms} ms": ([(0.1, tick_ms)] * count, 10, 1, [stride] * count)
            for count, tick_ms, stride in (
                *((8, 0.6, 1), (8, 0.63, 2), (8, 1.25, 2), (8, 1.3, 4), (8, 2.4, 4), (64, 0.3, 4), (64, 2.0, 50)),
                (8, 200, 100),
            )
        },
        "none": ([], 10, 1, []),
    }
)
def test_strides_of_nodes(
    devices: list[tuple[float, float]], interval_ms: int, least: int, expected: list[int]
) -> None:
    found = paces(*devices, interval_ms=interval_ms, least=least)
    assert found == [SamplingInterval(stride) for stride in expected]


@pytest.mark.parametrize(
    ("read_ms", "stride"), [(0.99, 1), (1.0, 1), (1.01, 2), (2.01, 4), (4.1, 5), (8.2, 10), (60, 100)]
)
def test_a_read_takes_at_most_a_tenth_of_its_devices_interval(read_ms: float, stride: int) -> None:
    assert strides((read_ms, 0.1), *[FAST] * 7) == [stride, *[1] * 7]


@pytest.mark.parametrize(
    ("tick_ms", "pace"),
    [
        (2.5, SamplingInterval(1)),
        (2.6, SamplingInterval(1, own_process=True)),
        (5.0, SamplingInterval(1, own_process=True)),
        (5.1, SamplingInterval(2, own_process=True)),  # it may read for half of its time
        (16.4, SamplingInterval(4, own_process=True)),
    ],
)
def test_a_device_that_takes_over_a_quarter_of_the_interval_is_read_apart(
    tick_ms: float, pace: SamplingInterval
) -> None:
    assert paces(FAST, (0.9, tick_ms), FAST) == [SamplingInterval(1), pace, SamplingInterval(1)]


def test_half_of_the_devices_may_be_read_apart_and_not_more() -> None:
    slow = (0.9, 4.0)
    assert paces(slow, slow, FAST, FAST) == [
        SamplingInterval(1, True),
        SamplingInterval(1, True),
        SamplingInterval(1),
        SamplingInterval(1),
    ]
    # 12 ms of reads, every 30 ms, and the fast one is not to miss a tick because of them
    assert paces(slow, slow, slow, FAST) == [
        SamplingInterval(4),
        SamplingInterval(4),
        SamplingInterval(4),
        SamplingInterval(2),
    ]


def test_the_costliest_are_read_apart_when_there_are_too_many() -> None:
    slow = [(0.5, 3.0 + number / 10) for number in range(OWN_PROCESSES_MAX + 2)]
    found = paces(*slow, *[FAST] * 20)
    assert [pace.own_process for pace in found[: len(slow)]] == [False, False, *[True] * OWN_PROCESSES_MAX]


def test_a_slower_device_never_gets_a_shorter_interval_than_it_has() -> None:
    assert SamplingInterval(4).slower(SamplingInterval(2, own_process=True)) == SamplingInterval(4, own_process=True)
    assert SamplingInterval(2, own_process=True).slower(SamplingInterval(2)) == SamplingInterval(2, own_process=True)


@settings(deadline=None)
@given(
    devices=st.lists(
        st.tuples(st.floats(0.001, 50), st.floats(1.0, 8.0), st.sampled_from([1, 4])), min_size=1, max_size=40
    ),
    interval_ms=st.sampled_from([1, 2, 10, 100, 1000]),
)
def test_every_pace_keeps_the_rules_or_is_the_longest(
    devices: list[tuple[float, float, int]], interval_ms: int
) -> None:
    interval_ns = interval_ms * MS
    costs = {str(number): Cost(read * MS, read * more * MS) for number, (read, more, _) in enumerate(devices)}
    least = {str(number): stride_above(stride, interval_ns) for number, (_, _, stride) in enumerate(devices)}
    found = find_intervals(costs, least, interval_ns)
    longest = 1000 // interval_ms
    for device, pace in found.items():
        assert longest % pace.stride == 0
        assert pace.stride >= least[device]
        assert pace.stride == longest or costs[device].read_ns <= MAX_READ * pace.stride * interval_ns * (1 + 1e-9)
    shared = [device for device, pace in found.items() if not pace.own_process]
    load = sum(costs[device].tick_ns / found[device].stride for device in shared)
    often = min(found[device].stride for device in shared)
    whole = sum(costs[device].tick_ns for device in shared)
    fits = load <= BUSY_SHARE * interval_ns and whole <= MAX_TICK * often * interval_ns
    assert fits or all(found[device].stride == longest for device in shared)
    assert 2 * sum(pace.own_process for pace in found.values()) <= len(devices)
