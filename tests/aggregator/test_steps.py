"""First traffic and checkpoints that the daemon records, from traffic of known times and from a ring."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from ibpulse.agent.aggregator import Aggregator, AggregatorOptions
from ibpulse.agent.aggregator.steps import (
    EVERY_SECONDS,
    PhaseWatch,
    StepSearch,
    StepWatch,
    measure_step,
    plan_search,
    search_next,
)
from ibpulse.base.units import SECOND_NS
from ibpulse.core.events import Event, EventLog
from ibpulse.core.events.log import EventFile
from ibpulse.core.events.watch import note_phases
from ibpulse.core.jobs import Claim, PlacedJob
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.spans import place_ports
from ibpulse.core.statistics.steps.period import StepPeriod
from ibpulse.core.statistics.steps.phases import CHECKPOINT, FIRST_TRAFFIC, Phase
from ibpulse.core.statistics.sums import Seconds, sum_rails
from tests.aggregator.rings import Ring, Traffic, constant, port, square, update

GB = 1e9
TICK_NS = 10_000_000
STEP = StepPeriod(0.5, 0.9)


def wave(seconds: float, rate: float = 10 * GB) -> np.ndarray:
    """Steps of half a second, silent at their end."""
    return np.resize(np.repeat([rate, 0.0], [35, 15]), round(seconds * 100))


def silence(seconds: float) -> np.ndarray:
    return np.zeros(round(seconds * 100))


def watch(
    rails: np.ndarray,
    storage: np.ndarray | None = None,
    step: StepPeriod | None = STEP,
    at_once: int = 1,
    links: Sequence[tuple[int, int]] = (),
    rhythm_until: int = 10**9,
    skipped: int | None = None,
    hidden: tuple[int, float] = (0, 0.0),
    reset: int = 10**9,
) -> tuple[Phase, ...]:
    """Two equal rails and a storage port, whole seconds from tick 1 on; rail 1 is down in the seconds `links`.

    The step period is known until the second `rhythm_until`. The second `skipped` was not read. A missing sample
    hides (sample, bytes), which the counters count, and a counter is reset in the second `reset`.
    """
    moved = np.nan_to_num(rails) / 100
    moved[hidden[0]] += hidden[1]
    totals = np.cumsum(moved).astype(int)
    found = PhaseWatch(0.1 * GB, TICK_NS)
    stored = np.zeros((2, len(rails))) if storage is None else storage
    rates = np.stack([np.stack((rails / 4, rails / 4))] * 2 + [stored])
    good = ~np.isnan(rates).any(axis=1)
    for first in range(0, len(rails) // 100, at_once):
        part = slice(first * 100, min(len(rails), (first + at_once) * 100))
        shape = (3, 2, -1, 100)
        values = np.nan_to_num(rates[..., part]).reshape(shape)
        seconds = Seconds(values, np.where(values >= 0, 0.01, 0.0), good[:, part].reshape(3, -1, 100))
        chosen = [0] if any(low <= first < high for low, high in links) else [0, 1]
        node = sum_rails(Seconds(*(each[chosen] for each in (values, seconds.seconds, seconds.good))))
        if first == skipped:
            found.push_holes()
        else:
            counters = np.array([[totals[part.stop - 1] - (first >= reset), 0.0]])
            found.add_seconds(part.start + 1, node, seconds, chosen, [2], counters)
        found.note_period(step if first < rhythm_until else None)
    return found.take()


@pytest.mark.parametrize("quiet", [60.0, 61.27, 300.0])
@pytest.mark.parametrize("at_once", [1, 7])
def test_traffic_after_a_minute_of_silence_is_the_first(quiet: float, at_once: int) -> None:
    (found,) = watch(np.concatenate((silence(quiet), wave(40 - quiet % 1))), at_once=at_once)
    assert (found.kind, found.certain) == (FIRST_TRAFFIC, True)
    assert found.first == round(quiet * 100) + 1
    assert found.silent_seconds == pytest.approx(quiet)


@pytest.mark.parametrize(
    "rates",
    [
        wave(120),
        silence(120),
        np.full(12000, 10 * GB),
        np.concatenate((silence(59.99), wave(40.01))),
        np.concatenate((silence(70), wave(9.5), silence(40.5))),
        np.concatenate((silence(70), wave(9.5))),
        np.concatenate((wave(40), silence(59), wave(41))),
        np.concatenate((silence(70), np.full(1, GB), silence(30.49), wave(19.5))),
    ],
    ids=["steps", "idle", "steady", "too short", "soon over", "soon cut", "a pause", "a lone burst"],
)
def test_other_traffic_is_not_the_first(rates: np.ndarray) -> None:
    assert watch(rates[: len(rates) // 100 * 100]) == ()


def test_missing_data_and_link_changes_are_no_silence() -> None:
    rates = np.concatenate((silence(100), wave(20)))
    assert len(watch(rates)) == 1
    for hole in (4001, 9999):
        holed = rates.copy()
        holed[hole] = np.nan
        assert watch(holed, hidden=(hole, 1.1e6)) == ()
    # the counters show at the next sample that nothing was moved, unless that comes after the traffic began
    assert watch(holed) == ()
    holed = np.where(np.arange(len(rates)) % 300 >= 297, np.nan, rates)
    (found,) = watch(holed[:11900])
    assert found.silent_seconds == pytest.approx(100)
    holed = np.where(np.arange(len(rates)) % 300 == 150, np.nan, rates)
    (found,) = watch(holed)
    assert found.silent_seconds == pytest.approx(100)
    assert watch(holed, reset=49) == watch(holed, links=((50, 51),)) == ()
    assert watch(rates, skipped=45) == ()
    # in the second in which the traffic begins, and in that in which earlier traffic ends
    late = np.concatenate((silence(100.5), wave(19.5)))
    assert len(watch(late)) == 1
    late[10030] = np.nan
    assert watch(late) == ()
    again = np.concatenate((wave(20.35), silence(60.2), wave(19.45)))
    assert len(watch(again)) == 1
    again[2080] = np.nan
    assert watch(again) == ()
    holed = rates.copy()
    holed[3000] = np.nan
    (found,) = watch(holed, hidden=(3000, 1e7))
    assert found.silent_seconds == pytest.approx(69.99)
    assert watch(rates, links=((50, 51),)) == ()
    assert watch(rates, links=((0, 99),)) == ()
    assert len(watch(rates, links=((0, 30),))) == len(watch(rates, links=((20, 120),))) == 1


@pytest.mark.parametrize(("hidden", "kinds"), [(2_000_000, []), (1_000, [FIRST_TRAFFIC])])
@pytest.mark.parametrize("missing", [range(60, 61), range(60, 64)])
def test_seconds_without_data_of_a_rail_are_silent_if_its_counters_show_it(
    missing: range, hidden: int, kinds: list[str]
) -> None:
    made = PhaseWatch(0.1 * GB, TICK_NS)
    for second in range(120):
        busy = GB if second >= 100 else 0.0
        values, good = np.full((2, 2, 1, 100), busy), np.ones((2, 1, 100), dtype=np.bool_)
        good[1] = second not in missing
        seconds = Seconds(values, np.where(good[:, None], 0.01, 0.0), good)
        counters = np.array([[0.0, 0.0], [hidden * (second >= missing.stop), 0.0]])
        made.add_seconds(second * 100 + 1, sum_rails(seconds), seconds, [0, 1], [], counters)
    assert [phase.kind for phase in made.take()] == kinds


def test_the_time_before_the_first_sample_is_no_silence() -> None:
    missing = np.full(30_000, np.nan)
    for seconds, kinds in ((59, []), (61, [FIRST_TRAFFIC])):
        for at_once in (1, 20):
            found = watch(np.concatenate((missing, silence(seconds), wave(20))), at_once=at_once)
            assert [phase.kind for phase in found] == kinds
            assert all(phase.silent_seconds == pytest.approx(seconds) for phase in found)


# checkpoints: 40 s of steps, 12 s of silence, 30 s of steps

SAVING = np.concatenate((wave(40), silence(12), wave(30)))


def burst(first: float, end: float, rate: float = 8 * GB, received: float = 0.0) -> np.ndarray:
    storage = np.zeros((2, len(SAVING)))
    storage[:, round(first * 100) : round(end * 100)] = [[rate], [received]]
    return storage


@pytest.mark.parametrize(("first", "end"), [(41.0, 46.0), (42.31, 51.78), (38.7, 51.0), (42.0, 52.8)])
def test_a_burst_on_storage_ports_while_the_rails_are_silent_is_a_checkpoint(first: float, end: float) -> None:
    (found,) = watch(SAVING, burst(first, end, received=GB))
    assert (found.kind, found.certain) == (CHECKPOINT, True)
    assert (found.first, found.end) == (round(first * 100) + 1, round(end * 100) + 1)
    assert found.transmitted == pytest.approx((end - first) * 8 * GB)
    assert found.received == pytest.approx((end - first) * GB)


@pytest.mark.parametrize(
    ("storage", "step"),
    [
        (burst(41, 46), None),
        (burst(41, 46), StepPeriod(math.nan, 0.2)),
        # a silence of 12 s is usual in such steps
        (burst(41, 46), StepPeriod(15.0, 0.9)),
        (burst(41, 46, received=9 * GB), STEP),
        (burst(41, 41.3, rate=0.3 * GB), STEP),
        (burst(20, 30), STEP),
        (burst(36, 46), STEP),
        (burst(0, 82), STEP),
        (burst(49, 60), STEP),
    ],
    ids=["unknown steps", "no steps", "long steps", "a load", "a log file", "in steps", "early", "always", "late"],
)
def test_other_bursts_are_no_checkpoints(storage: np.ndarray, step: StepPeriod | None) -> None:
    assert watch(SAVING, storage, step) == ()


def test_the_steps_before_a_silence_count_and_not_those_in_it() -> None:
    assert [phase.kind for phase in watch(SAVING, burst(44, 49), rhythm_until=42)] == [CHECKPOINT]
    assert watch(SAVING, burst(44, 49), rhythm_until=30) == ()


def test_doubts_about_a_checkpoint() -> None:
    good = burst(41, 46)
    for row, tick in ((0, 4300), (1, 4599)):
        storage, rails = good.copy(), SAVING.copy()
        storage[row, tick] = np.nan
        rails[tick] = np.nan
        assert watch(SAVING, storage) == watch(rails, good, hidden=(tick, 1.1e6)) == ()
    assert watch(SAVING, good, links=((43, 82),)) == ()
    assert watch(np.concatenate((silence(40), SAVING[4000:])), good) == ()
    # the same burst long after the traffic
    late = np.concatenate((wave(40), silence(42)))
    storage = np.zeros((2, len(late)))
    storage[0, 7100:7600] = 8 * GB
    assert watch(late, storage) == ()
    storage = np.roll(storage, -200, axis=1)
    assert [phase.kind for phase in watch(late, storage)] == [CHECKPOINT]


def test_the_same_job_goes_on_after_a_checkpoint() -> None:
    rails = np.concatenate((wave(40), silence(80), wave(30)))
    storage = np.zeros((2, len(rails)))
    storage[0, 4500:10000] = 8 * GB
    assert [phase.kind for phase in watch(rails, storage)] == [CHECKPOINT]
    storage[0, 5500:] = 0.0
    (saved, start) = watch(rails, storage)
    assert (saved.kind, start.kind) == (CHECKPOINT, FIRST_TRAFFIC)
    assert start.silent_seconds == pytest.approx(65.0, abs=0.02)


# a ring, the aggregator and the event log


class Node:
    """A rail and a storage port in a ring, and the daemon's parts that read it, which can be started again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ring = Ring.create(path, port("mlx5_0:1"), replace(port("mlx5_1:1", rail=False), role="storage"))
        self.start()

    def start(self) -> None:
        self.log = EventLog(EventFile(self.path / "events"))
        self.log.load(self.ring.file.words[at.H_CREATED_WALL_NS])
        self.aggregator = Aggregator(self.ring.reader, AggregatorOptions())

    def write(self, rail: Traffic, storage: Traffic, seconds: int) -> None:
        """Samples of whole seconds from the beginning on; a tick belongs to the interval that it ends."""
        for name, transmit in (("mlx5_0:1", rail), ("mlx5_1:1", storage)):
            self.ring.write(name, (transmit, constant(0.0)), 1, seconds * 100 + 50)
        self.reach(0)

    def reach(self, tick: int) -> None:
        """The newest sampled tick is this one."""
        self.ring.file.words[at.lane_at(0) + at.L_TICK] = tick

    def follow(self, first: int, last: int) -> list[Event]:
        for second in range(first, last + 1):
            self.reach(second * 100 + 50)
            note_phases(self.log, self.ring.reader, update(self.ring, self.aggregator, second).phases)
        return list(self.log.events())


def test_the_first_traffic_is_an_event_that_a_restart_does_not_repeat(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.write(lambda tick: GB if tick > 7042 else 0.0, constant(0.0), 110)
    assert node.follow(1, 80) == []
    (found,) = node.follow(81, 90)
    # the first sample has no rate
    assert (found.kind, found.subject, found.tick) == ("first-traffic", "", 7043)
    assert (found.time_ns, found.uncertainty_ns) == (7043 * TICK_NS, TICK_NS)
    assert found.text == "first traffic on the rails, after 70.41 s of silence"
    assert found.details == {"silent_seconds": 70.41}
    node.log.close()
    node.start()
    assert [event.kind for event in node.follow(91, 100)] == ["first-traffic"]
    assert node.log.added == 0


def test_what_a_daemon_did_not_see_is_no_silence(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.write(lambda tick: GB if tick > 7042 else 0.0, constant(0.0), 110)
    node.reach(3000)
    node.start()
    assert node.follow(31, 100) == []


def test_a_checkpoint_is_an_event_with_its_bytes(tmp_path: Path) -> None:
    node = Node(tmp_path)
    steps = [2 * GB if rate else 0.0 for rate in SAVING]
    node.write(lambda tick: (steps + steps)[tick - 1], lambda tick: 8 * GB if 4100 < tick <= 4600 else 0.0, 70)
    (found,) = node.follow(1, 60)
    assert (found.kind, found.subject, found.tick, found.time_ns) == ("checkpoint", "", 4600, 46 * 10**9)
    assert found.text == "checkpoint: 40.00 GB to storage in 5.00 s, rails silent"
    assert found.details == {
        "silent_seconds": 5.0,
        "seconds": 5.0,
        "transmitted_bytes": pytest.approx(40 * GB, rel=1e-6),
        "received_bytes": 0,
    }


RAILS, QUIET = 8, constant(0.0)
WINDOW_NS = 12 * SECOND_NS
PERIODS = {"mlx5_0:1": 50, "mlx5_1:1": 40}


def ring_of(path: Path, seconds: int) -> Ring:
    """A ring with eight rails, each of which is busy for a half of its period."""
    ring = Ring.create(path, *(port(f"mlx5_{number}:1") for number in range(RAILS)), seconds=seconds + 5)
    for number in range(RAILS):
        half = PERIODS.get(f"mlx5_{number}:1", 30) // 2
        ring.write(f"mlx5_{number}:1", (square(8e9, half, half), QUIET), 1, (seconds + 1) * ring.ticks_per_second)
    return ring


def searches_in(ring: Ring, groups: Sequence[Sequence[int]], window_ns: int = WINDOW_NS) -> list[StepSearch]:
    placed = place_ports(ring.reader, ring.fabric.ports, ring.file.slots())
    return [plan_search([placed[index] for index in group], [1] * len(group), window_ns) for group in groups]


@pytest.mark.parametrize(("jobs", "interval"), [(0, 10), (1, 10), (4, 10), (8, 10)])
def test_each_search_has_its_turn_and_no_second_has_two(tmp_path: Path, jobs: int, interval: int) -> None:
    ring = ring_of(tmp_path, 14)
    searches = searches_in(ring, [range(RAILS), *([number] for number in range(jobs))], 2 * SECOND_NS)
    wanted = [(StepWatch(), search) for search in searches]
    done: list[list[int]] = [[] for _ in wanted]
    for second in range(3, 48):
        search_next(ring.reader, wanted, second)
        now = [index for index, (watch, _) in enumerate(wanted) if watch.second == second]
        assert len(now) <= 1
        for index in now:
            done[index].append(second)
    assert [seconds[0] for seconds in done] == [3 + index for index in range(jobs + 1)]
    assert {after - before for seconds in done for before, after in pairwise(seconds)} == {interval}


def test_a_search_finds_what_measuring_the_same_rails_finds(tmp_path: Path) -> None:
    ring = ring_of(tmp_path, 14)
    wanted = [(StepWatch(), search) for search in searches_in(ring, [[0], [1]])]
    for second in (13, 14):
        search_next(ring.reader, wanted, second)
    for (watch, search), second in zip(wanted, (13, 14), strict=True):
        assert watch.found == measure_step(ring.reader, search.rails, search.resolutions, second * 100, WINDOW_NS)
        assert watch.found is not None
        assert watch.found.seconds == pytest.approx(PERIODS[str(search.rails[0].port.id)] / 100, rel=0.02)


def test_equal_searches_are_one_and_others_are_not(tmp_path: Path) -> None:
    ring = ring_of(tmp_path, 14)
    (node, part), (shorter,) = searches_in(ring, [range(RAILS), [0]]), searches_in(ring, [range(RAILS)], SECOND_NS)
    watches = [StepWatch() for _ in range(4)]
    search_next(ring.reader, list(zip(watches, (node, node, part, shorter), strict=True)), 14)
    assert [watch.second == 14 for watch in watches] == [True, True, False, False]
    assert watches[0].found == watches[1].found


def test_the_only_job_of_a_node_has_the_step_of_the_node_after_one_window(tmp_path: Path) -> None:
    """Until then its search covers only the seconds of the job."""
    ring = ring_of(tmp_path, 50)
    aggregator = Aggregator(ring.reader, AggregatorOptions(traffic_window_ns=WINDOW_NS))
    job = PlacedJob(Claim("a", "slurm", "file"), tuple(each.id for each in ring.fabric.ports), "alone")
    shared, searched = set(), set()
    for second in range(1, 49):
        tick = ring.now_after(second)
        ring.file.words[at.lane_at(0) + at.L_TICK] = tick
        found = aggregator.update(ring.fabric, tick, jobs=[job] if second > 3 else [])
        if second > 3 + WINDOW_NS // SECOND_NS + EVERY_SECONDS:
            (statistics,) = found.job_statistics
            shared.add(statistics.step_seconds == found.traffic.concluded.step_period_seconds)
            searched.add(found.traffic.concluded.step_period_seconds)
    assert shared == {True}
    assert len(searched) > 1
