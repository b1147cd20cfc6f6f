"""The daemon's statistics: the same for all that ask within a second, each second with its own ports and jobs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ibpulse.agent.aggregator import Aggregator, AggregatorOptions, Snapshot
from ibpulse.agent.node.node import BATCH_SECONDS, STALE_SECONDS, CurrentSnapshot
from ibpulse.agent.node.silence import JobSilences
from ibpulse.base.deadline import BEAT_SECONDS
from ibpulse.base.internal_errors import InternalErrors
from ibpulse.core.events import EventLog
from ibpulse.core.jobs import PlacedJob
from ibpulse.core.model import CaptureCounts, Fabric, SamplerHealth
from tests.aggregator.rings import Ring, constant, port
from tests.virtual.clock import NodeClock, VirtualLoop
from tests.virtual.world import SECOND, World

A, B = port("mlx5_0:1"), port("mlx5_1:1")
JOBS: list[PlacedJob] = []


class Asked:
    """A real aggregator that remembers with what it was asked, or fails."""

    def __init__(self, path: Path, world: World) -> None:
        self.world, self.clock = world, NodeClock(world)
        self.ring = Ring.create(path, A, B)
        self.ring.reader.ring.clock = self.clock
        self.calls: list[tuple[Fabric, Sequence[PlacedJob] | None, int]] = []
        self.noted: list[Snapshot] = []
        self.failing = False
        self.fabric, self.jobs, self.whole = Fabric((A,)), JOBS, True
        self.errors = InternalErrors()
        self._aggregator = Aggregator(self.ring.reader, AggregatorOptions())
        events = EventLog()
        node: Any = SimpleNamespace(
            name="node",
            reader=self.ring.reader,
            clock=self.clock,
            errors=self.errors,
            events=events,
            silences=JobSilences(self.ring.reader, events, 1.0),
            aggregator=self,
            supervisor=SimpleNamespace(fabric=None, health=SamplerHealth, known_ports=tuple),
            expected_rails=SimpleNamespace(update=lambda fabric: None),
            jobs=SimpleNamespace(update=lambda fabric: None, view=self),
            captures=SimpleNamespace(recorder=SimpleNamespace(counts=CaptureCounts), note=self.noted.append),
            sampled_fabric=lambda: self.fabric,
        )
        self.current = CurrentSnapshot(node)

    def wait(self, seconds: float) -> None:
        self.world.pause(round(seconds * SECOND))

    def run(self, seconds: float) -> None:
        """Let it follow the time by itself."""
        loop = VirtualLoop(self.world)
        with contextlib.suppress(TimeoutError), contextlib.closing(loop):
            loop.run_until_complete(asyncio.wait_for(self.current.run(), seconds))

    def update(self, fabric: Fabric, tick: int, jobs: Sequence[PlacedJob] | None, counters_now: bool) -> Snapshot:
        if self.failing:
            raise ValueError("no statistics")
        self.calls.append((fabric, jobs, tick))
        return self._aggregator.update(fabric, tick, jobs, counters_now)

    def with_counters_now(self, snapshot: Snapshot, tick: int) -> Snapshot:
        return self._aggregator.with_counters_now(snapshot, tick)


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    with contextlib.closing(World()) as world:
        asked = Asked(tmp_path, world)
        # a second is aggregated once its samples are whole
        asked.wait(BEAT_SECONDS)
        asked.current.begin()
        yield asked


def test_all_that_ask_within_a_second_get_the_same_snapshot(asked: Asked) -> None:
    first = asked.current.get()
    assert first is not None
    assert asked.current.get() is first
    asked.wait(1)
    second = asked.current.get()
    assert second is not first
    assert [id(each) for each in asked.noted] == [id(first), id(second)]


def test_counters_of_ports_go_on_within_a_second(asked: Asked) -> None:
    traffic = (constant(1e9), constant(1e9))
    begin = asked.ring.reader.newest_tick()
    asked.ring.write("mlx5_0:1", traffic, begin, begin + 600)
    asked.wait(4)
    seen = []
    for _ in range(3):
        found = asked.current.get_now()
        assert found is not None
        seen.append(found.ports[0].observed_seconds)
        asked.wait(0.25)
    assert np.diff(seen) == pytest.approx([0.25, 0.25])
    # all others get the snapshot of the second, and rules of captures see it once
    assert asked.current.get() is asked.noted[-1]
    assert len(asked.noted) == 2


def test_the_seconds_before_a_change_have_the_ports_and_jobs_of_then(asked: Asked) -> None:
    before, asked.fabric = asked.fabric, Fabric((A, B))
    asked.wait(3)
    asked.current.get()
    _, (then, _, earlier), (now, _, newest) = asked.calls
    assert (then, now) == (before, asked.fabric)
    assert newest - earlier == 100


def test_without_a_change_there_is_one_batch(asked: Asked) -> None:
    asked.fabric = Fabric((A,), notices=("something else changed",))
    asked.wait(3)
    asked.current.get()
    assert len(asked.calls) == 2


def test_statistics_that_fail_for_long_are_withdrawn_and_come_back(asked: Asked) -> None:
    last, asked.failing = asked.current.get(), True
    asked.wait(1)
    assert asked.current.get() is last
    asked.wait(STALE_SECONDS - 0.1)
    assert asked.current.get() is last
    asked.wait(0.9)
    assert asked.current.get() is None
    assert asked.errors.counts()["aggregation"] == 3
    asked.failing = False
    asked.wait(1)
    assert asked.current.get() is not None


@pytest.mark.parametrize(("passed", "updates"), [(BATCH_SECONDS - 0.1, 0), (BATCH_SECONDS + 0.1, 1)])
def test_it_aggregates_by_itself_after_a_batch(asked: Asked, passed: float, updates: int) -> None:
    asked.run(passed)
    assert len(asked.calls) == 1 + updates


def test_it_aggregates_by_itself_after_a_clock_set_back(asked: Asked) -> None:
    asked.clock.step(-2)
    asked.run(1.1)
    assert len(asked.calls) == 2


def test_other_jobs_are_aggregated_within_a_second(asked: Asked) -> None:
    asked.jobs = [*JOBS]
    asked.run(1.1)
    assert [jobs is asked.jobs for _, jobs, _ in asked.calls] == [False, False, True]
