"""The phases of traffic that is made from known times, and of traffic that has none."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibpulse.core.statistics.steps.period import StepPeriod, find_period
from ibpulse.core.statistics.steps.phases import (
    BARRIER,
    CHECKPOINT,
    FIRST_STEP,
    FIRST_TRAFFIC,
    Phase,
    PhaseRules,
    PhaseTraffic,
    find_phases,
)
from ibpulse.workbench.simulate.timeline import Schedule, Workload
from ibpulse.workbench.simulate.workloads import DENSE, MOE, ExpertParallel, Square
from tests.tables import for_each

TICK = 0.01
GB = 1e9
BIN = 5


def samples(seconds: float) -> int:
    return round(seconds / TICK)


def silence(seconds: float) -> np.ndarray:
    return np.zeros(samples(seconds))


def play(workload: Workload, seconds: float, seed: int = 0) -> np.ndarray:
    """Exact rates of eight rails together."""
    edges = np.arange(samples(seconds) + 1) * 10_000_000
    return np.diff(Schedule(workload, seed).cumulative_bytes(edges).sum(axis=(1, 2))) / TICK


def wave(period: float, busy: float, seconds: float) -> np.ndarray:
    """Steps that are busy from their beginning on, then silent."""
    one = np.repeat([100 * GB, 0.0], [samples(busy), samples(period - busy)])
    return np.resize(one, samples(seconds))


def finder(rates: np.ndarray) -> Callable[[int, int], StepPeriod]:
    """The step period of a part, from means over 50 ms; a mean of unknown samples is unknown."""

    def find(first: int, end: int) -> StepPeriod:
        part = rates[first:end]
        bins = part[: len(part) // BIN * BIN].reshape(-1, BIN).mean(axis=1)
        return find_period(bins, BIN * TICK)

    return find


def phases_of(
    rates: np.ndarray, storage: np.ndarray | None = None, down: slice | None = None, rules: PhaseRules | None = None
) -> tuple[Phase, ...]:
    troubled = np.zeros(len(rates), dtype=np.bool_)
    if down is not None:
        troubled[down] = True
    return find_phases(PhaseTraffic(rates, troubled, TICK, storage), finder(rates), rules)


def one(phases: tuple[Phase, ...], kind: str) -> Phase:
    found = [phase for phase in phases if phase.kind == kind]
    assert len(found) == 1, phases
    return found[0]


def at(seconds: float, phase: Phase) -> bool:
    """Whether the phase begins at that time, up to a sample and its own uncertainty."""
    return abs(phase.first - samples(seconds)) <= 1 + phase.uncertainty


# first traffic and first step


@pytest.mark.parametrize("quiet", [31.0, 47.3, 120.0])
def test_traffic_after_a_long_silence_is_the_first(quiet: float) -> None:
    found = one(phases_of(np.concatenate((silence(quiet), play(DENSE, 30)))), FIRST_TRAFFIC)
    assert found.certain
    assert found.first == samples(quiet)
    assert found.silent_seconds == pytest.approx(quiet)
    assert found.uncertainty == 1


def test_silence_that_began_before_the_data_may_be_too_short() -> None:
    found = one(phases_of(np.concatenate((silence(29.9), play(DENSE, 30)))), FIRST_TRAFFIC)
    assert found.doubt == "the silence before it began earlier than the data"
    assert phases_of(np.concatenate((silence(0.3), play(DENSE, 30)))) == ()


def test_traffic_that_soon_ends_may_be_no_job() -> None:
    rates = np.concatenate((silence(40), np.full(samples(0.5), 100 * GB), silence(60)))
    assert one(phases_of(rates), FIRST_TRAFFIC).doubt == "the traffic ends 0.50 s later"
    rates = np.concatenate((silence(40), np.full(samples(4), 100 * GB)))
    assert one(phases_of(rates), FIRST_TRAFFIC).doubt == "the data ends 4.00 s later"


@pytest.mark.parametrize(("period", "busy"), [(0.5, 0.3), (1.0, 0.9), (2.0, 0.6), (3.7, 2.9)])
@pytest.mark.parametrize("warm_up", [False, True])
def test_the_first_step_is_the_first_of_regular_ones(period: float, busy: float, warm_up: bool) -> None:
    slow = [np.full(samples(0.4), 90 * GB), silence(4.1 * period), np.full(samples(1.3), 40 * GB), silence(5 * period)]
    start = np.concatenate((silence(40), *(slow if warm_up else [])))
    found = one(phases_of(np.concatenate((start, wave(period, busy, 25 * period)))), FIRST_STEP)
    assert found.certain
    assert abs(found.first - len(start)) <= 1
    assert abs(found.end - len(start) - samples(period)) <= 1


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("workload", "certain"), [(DENSE, True), (MOE, False)], ids=["dense", "moe"])
def test_the_first_step_of_a_job_is_within_its_uncertainty(workload: Workload, certain: bool, seed: int) -> None:
    found = one(phases_of(np.concatenate((silence(40), play(workload, 60, seed)))), FIRST_STEP)
    # no single silence separates the steps of the MoE run
    assert found.certain == certain
    assert at(40, found)


@pytest.mark.parametrize("busy", [1.2, 1.9, 2.4])
def test_a_slow_first_step_is_not_the_first_regular_one(busy: float) -> None:
    slow = np.concatenate((np.full(samples(busy), 100 * GB), silence(0.2)))
    # a short silence, one step before the first regular one
    slow[-100] = 0.0
    found = one(phases_of(np.concatenate((silence(40), slow, wave(1.0, 0.8, 30)))), FIRST_STEP)
    assert found.certain
    assert abs(found.first - samples(40.2 + busy)) <= 1


@pytest.mark.parametrize("seed", range(10))
def test_a_silence_that_wanders_within_the_steps_does_not_separate_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    steps = []
    for _ in range(40):
        step = np.repeat([100 * GB, 60 * GB, 100 * GB, 30 * GB], 25)
        for place in (12, 34, 56, 78):
            step[place : place + int(rng.integers(2, 7))] = 0.0
        steps.append(step)
    rates = np.concatenate((silence(40), np.full(samples(2.4), 100 * GB), *steps))
    found = one(phases_of(rates), FIRST_STEP)
    assert not found.certain
    assert at(42.4, found)


def test_counters_that_resolve_less_show_only_longer_silences() -> None:
    for resolution, kinds in ((100, [BARRIER]), (500, [])):
        traffic = PhaseTraffic(INTERRUPTED, np.zeros(len(INTERRUPTED), dtype=np.bool_), TICK, resolution=resolution)
        found = find_phases(traffic, finder(INTERRUPTED))
        assert [phase.kind for phase in found] == kinds
        assert all(phase.uncertainty == resolution for phase in found)


def test_traffic_directly_before_regular_steps_may_belong_to_them() -> None:
    half = np.concatenate((np.full(samples(0.4), 100 * GB), silence(0.2)))
    found = one(phases_of(np.concatenate((silence(40), half, wave(1.0, 0.8, 30)))), FIRST_STEP)
    assert found.doubt == "regular steps are only seen from 0.60 s later on"
    assert (found.first, found.uncertainty) == (4000, 61)


@pytest.mark.parametrize("workload", [DENSE, MOE, Square(500_000_000, 0.6), ExpertParallel()])
def test_data_that_begins_in_traffic_has_no_start(workload: Workload) -> None:
    assert phases_of(play(workload, 60)) == ()


# a barrier


@pytest.mark.parametrize("seconds", [0.9, 3.0, 5.0, 20.0])
@pytest.mark.parametrize("workload", [DENSE, MOE], ids=["dense", "moe"])
def test_a_long_silence_within_steps_is_a_barrier(workload: Workload, seconds: float) -> None:
    before = play(workload, 30)
    active = np.flatnonzero(before > 0.1 * GB)[-1] + 1
    found = one(phases_of(np.concatenate((before, silence(seconds), play(workload, 30, 1)))), BARRIER)
    assert found.certain
    assert (found.first, found.end) == (active, samples(30 + seconds))
    assert found.silent_seconds == pytest.approx((found.end - found.first) * TICK)


@for_each(
    {
        # four usual gaps, half a step where that is longer, and what is a start
        "gaps of 0.3 s": (0.7, 1.1, 1.25, [BARRIER]),
        "gaps of 0.06 s": (0.94, 0.46, 0.51, [BARRIER]),
        "a start": (0.7, 29.9, 30.1, [FIRST_TRAFFIC, FIRST_STEP]),
    }
)
def test_a_silence_between_steps_is_what_its_length_makes_it(
    busy: float, shorter: float, longer: float, kinds: list[str]
) -> None:
    steps = wave(1.0, busy, 30)[: samples(29 + busy)]
    found = [
        [phase.kind for phase in phases_of(np.concatenate((steps, silence(seconds), steps)))]
        for seconds in (shorter, longer)
    ]
    assert found == [[BARRIER] if kinds != [BARRIER] else [], kinds]


def test_silence_between_other_traffic_is_no_barrier() -> None:
    steady = np.full(samples(30), 100 * GB)
    assert phases_of(np.concatenate((steady, silence(5), steady))) == ()
    assert phases_of(np.concatenate((steady[:1000], silence(2), play(DENSE, 60)))) == ()


def test_a_barrier_that_no_steps_follow_is_a_guess() -> None:
    rates = np.concatenate((play(DENSE, 30), silence(3), np.full(samples(20), 100 * GB)))
    assert one(phases_of(rates), BARRIER).doubt == "no regular steps follow it"
    # silence that nothing ends is none
    assert phases_of(np.concatenate((play(DENSE, 30), silence(3)))) == ()


def test_silence_with_a_link_down_is_no_barrier() -> None:
    rates = np.concatenate((play(DENSE, 30), silence(3), play(DENSE, 30, 1)))
    assert [phase.kind for phase in phases_of(rates, down=slice(3100, 3101))] == []
    assert [phase.kind for phase in phases_of(rates, down=slice(2000, 2900))] == [BARRIER]
    start = np.concatenate((silence(40), play(DENSE, 30)))
    assert not one(phases_of(start, down=slice(3900, 3901)), FIRST_TRAFFIC).certain


# missing data


def test_missing_data_is_never_silence() -> None:
    before, after = play(DENSE, 30), play(DENSE, 30, 1)
    for seconds in (0.5, 3, 40):
        assert phases_of(np.concatenate((before, np.full(samples(seconds), np.nan), after))) == ()
    assert phases_of(np.concatenate((np.full(samples(40), np.nan), before))) == ()


def test_missing_data_within_a_silence_makes_a_guess() -> None:
    rates = np.concatenate((play(DENSE, 30), silence(3), play(DENSE, 30, 1)))
    rates[3100:3110] = np.nan
    found = one(phases_of(rates), BARRIER)
    assert found.doubt == "data is missing for 0.10 s"
    assert found.silent_seconds == pytest.approx(2.9, abs=0.1)
    rates[3100:3200] = np.nan
    assert phases_of(rates) == ()


def test_missing_data_before_the_first_traffic_makes_a_guess() -> None:
    rates = np.concatenate((silence(40), play(DENSE, 30)))
    rates[3000] = np.nan
    found = one(phases_of(rates), FIRST_TRAFFIC)
    assert found.doubt == "data is missing for 0.01 s"
    assert found.silent_seconds == pytest.approx(39.99)
    rates[3000], rates[500] = 0.0, np.nan
    assert one(phases_of(rates), FIRST_TRAFFIC).certain
    rates[3990:4000] = np.nan
    found = one(phases_of(rates), FIRST_TRAFFIC)
    assert not found.certain
    assert (found.first, found.end) == (3990, 4001)


def test_missing_data_before_the_first_step_makes_a_guess() -> None:
    rates = np.concatenate((silence(40), np.full(100, 50 * GB), silence(4), wave(1.0, 0.8, 30)))
    assert one(phases_of(rates), FIRST_STEP).certain
    rates[4200:4210] = np.nan
    found = phases_of(rates)
    assert one(found, FIRST_TRAFFIC).certain
    assert one(found, FIRST_STEP).doubt == "data is missing for 0.10 s"


# checkpoints


def saving(rates: np.ndarray, first: float, end: float, way: int = 0, rate: float = 20 * GB) -> np.ndarray:
    storage = np.zeros((2, len(rates)))
    storage[way, samples(first) : samples(end)] = rate
    return storage


INTERRUPTED = np.concatenate((play(DENSE, 30), silence(12), play(DENSE, 30, 1)))


@pytest.mark.parametrize("seconds", [12, 45])
def test_a_burst_on_storage_ports_during_a_silence_is_a_checkpoint(seconds: float) -> None:
    rates = np.concatenate((play(DENSE, 30), silence(seconds), play(DENSE, 30, 1)))
    storage = saving(rates, 31, 29 + seconds)
    storage[1] = storage[0] / 100
    (found,) = phases_of(rates, storage)
    assert (found.kind, found.certain) == (CHECKPOINT, True)
    assert (found.first, found.end) == (3100, samples(29 + seconds))
    assert found.transmitted == pytest.approx((seconds - 2) * 20 * GB)
    assert found.received == pytest.approx((seconds - 2) * 0.2 * GB)
    assert found.silent_seconds == pytest.approx(seconds - 2)


def test_pauses_of_a_file_system_do_not_split_a_checkpoint() -> None:
    storage = saving(INTERRUPTED, 31, 40)
    storage[0, 3500:3600] = 0.0
    assert one(phases_of(INTERRUPTED, storage), CHECKPOINT).transmitted == pytest.approx(160 * GB)
    storage[0, 3500:3601] = 0.0
    assert [phase.kind for phase in phases_of(INTERRUPTED, storage)] == [CHECKPOINT] * 2


@pytest.mark.parametrize(
    ("first", "end", "way", "rate"),
    [(31, 40, 1, 20 * GB), (31, 31.4, 0, 0.2 * GB), (10, 20, 0, 20 * GB), (0, 72, 0, 2 * GB)],
    ids=["a load", "a log file", "while steps go on", "all the time"],
)
def test_other_traffic_of_storage_ports_is_no_checkpoint(first: float, end: float, way: int, rate: float) -> None:
    for storage in (None, saving(INTERRUPTED, first, end, way, rate)):
        assert [phase.kind for phase in phases_of(INTERRUPTED, storage)] == [BARRIER]


def test_what_a_job_reads_is_no_checkpoint() -> None:
    storage = saving(INTERRUPTED, 31, 40, rate=2 * GB)
    for received, kind in ((1.9, CHECKPOINT), (2.1, BARRIER)):
        storage[1] = storage[0] * received / 2
        assert [phase.kind for phase in phases_of(INTERRUPTED, storage)] == [kind]


def test_a_node_without_a_job_has_no_checkpoints() -> None:
    idle = silence(120)
    assert phases_of(idle, saving(idle, 20, 60)) == ()
    # a burst long after the end of the traffic
    ended = np.concatenate((play(DENSE, 30), silence(90)))
    assert phases_of(ended, saving(ended, 70, 90)) == ()
    assert one(phases_of(ended, saving(ended, 32, 90)), CHECKPOINT).certain


def test_a_start_soon_after_a_checkpoint_goes_on_with_the_same_job() -> None:
    rates = np.concatenate((play(DENSE, 30), silence(60), play(DENSE, 30, 1)))
    assert [phase.kind for phase in phases_of(rates, saving(rates, 31, 61))] == [CHECKPOINT]
    kinds = [phase.kind for phase in phases_of(rates, saving(rates, 31, 59))]
    assert kinds == [CHECKPOINT, FIRST_TRAFFIC, FIRST_STEP]


def test_doubts_about_a_checkpoint() -> None:
    steady = np.concatenate((np.full(3000, 100 * GB), silence(12), np.full(3000, 100 * GB)))
    assert one(phases_of(steady, saving(steady, 31, 40)), CHECKPOINT).doubt == "no regular steps come before it"
    early = one(phases_of(INTERRUPTED, saving(INTERRUPTED, 27, 36)), CHECKPOINT)
    assert early.doubt == "only 67 % of it was written while the rails were silent"
    holed = saving(INTERRUPTED, 31, 40)
    holed[:, 3300:3310] = np.nan
    assert one(phases_of(INTERRUPTED, holed), CHECKPOINT).doubt == "data is missing for 0.10 s"
    cut = INTERRUPTED[:3700]
    assert one(phases_of(cut, saving(cut, 31, 37)), CHECKPOINT).doubt == "the data does not show all of it"
    down = one(phases_of(INTERRUPTED, saving(INTERRUPTED, 31, 40), slice(4100, 4101)), CHECKPOINT)
    assert down.doubt == "the link of a rail was down in the silence"
    busy = np.concatenate((play(DENSE, 30), np.full(1200, 10 * GB), play(DENSE, 30, 1)))
    found = one(phases_of(busy, saving(busy, 31, 41)), CHECKPOINT)
    assert found.doubt == "regular steps are interrupted, but the rails are not silent"
    assert found.silent_seconds == 0


# nothing


@for_each(itertools.product(range(8), [0.05, 0.3, 2.0]))
def test_random_traffic_has_no_phases(seed: int, mean: float) -> None:
    rng = np.random.default_rng(seed)
    lengths = np.minimum(np.ceil(rng.exponential(mean / TICK, 2 * round(60 / mean))), samples(29)).astype(int)
    rates = np.repeat(np.tile([100 * GB, 0.0], len(lengths) // 2), lengths)
    assert phases_of(rates) == ()


@pytest.mark.parametrize("rate", [0.0, 0.05 * GB, 100 * GB])
def test_steady_traffic_and_an_idle_node_have_no_phases(rate: float) -> None:
    assert phases_of(np.full(samples(90), rate), np.zeros((2, samples(90)))) == ()
    assert phases_of(np.zeros(0)) == ()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from((0.0, 1.0, 50.0, math.nan)), st.integers(1, 900)), max_size=30),
    # powers of two, which change no rounding
    st.sampled_from([2.0**power for power in (-9, -1, 1, 7)]),
)
def test_laws(pieces: list[tuple[float, int]], factor: float) -> None:
    rates = np.repeat([rate * GB for rate, _ in pieces], [count for _, count in pieces]) if pieces else np.zeros(0)
    storage = np.stack((rates[::-1], np.nan_to_num(rates) / 2))
    found = phases_of(rates, storage)
    assert all(0 <= phase.first < phase.end <= len(rates) for phase in found)
    assert list(found) == sorted(found, key=lambda phase: phase.first)
    rules = PhaseRules()
    scaled = replace(
        rules,
        active_bytes_per_second=rules.active_bytes_per_second * factor,
        checkpoint_bytes=rules.checkpoint_bytes * factor,
    )
    again = phases_of(rates * factor, storage * factor, rules=scaled)
    assert [(phase.kind, phase.first, phase.end) for phase in again] == [(p.kind, p.first, p.end) for p in found]
