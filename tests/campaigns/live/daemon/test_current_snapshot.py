"""The daemon's statistics: the same for all that ask within a second, each second with its own ports and jobs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from ibpulse.aggregator import Aggregator, AggregatorOptions, Snapshot
from ibpulse.commands import current_snapshot
from ibpulse.commands.current_snapshot import BATCH_SECONDS, STALE_SECONDS, CurrentSnapshot
from ibpulse.internal_errors import InternalErrors
from ibpulse.jobs import PlacedJob
from ibpulse.model import Fabric, SamplerHealth
from tests.aggregator.rings import Ring, port

A, B = port("mlx5_0:1"), port("mlx5_1:1")
JOBS: list[PlacedJob] = []


class Asked:
    """A real aggregator that remembers with what it was asked, or fails; seconds pass when they are told to."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ring = Ring.create(path, A, B)
        self.calls: list[tuple[Fabric, Sequence[PlacedJob] | None, int]] = []
        self.noted: list[Snapshot] = []
        self.failing = False
        self.fabric, self.jobs = Fabric((A,)), JOBS
        self.second, self.now = 1000, 50.0
        self.errors = InternalErrors()
        self._aggregator = Aggregator(self.ring.reader, AggregatorOptions())
        self.current = CurrentSnapshot(
            self.ring.reader,
            self.update,
            lambda: self.fabric,
            lambda: self.jobs,
            self.noted.append,
            self.errors,
            lambda: self.now,
        )
        monkeypatch.setattr(current_snapshot, "_newest_second", lambda: self.second)

    def update(self, fabric: Fabric, jobs: Sequence[PlacedJob] | None, tick: int) -> Snapshot:
        if self.failing:
            raise ValueError("no statistics")
        self.calls.append((fabric, jobs, tick))
        return self._aggregator.update(fabric, SamplerHealth(), tick, jobs=jobs)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    asked = Asked(tmp_path, monkeypatch)
    asked.current.begin()
    return asked


def test_all_that_ask_within_a_second_get_the_same_snapshot(asked: Asked) -> None:
    first = asked.current.get()
    assert first is not None
    assert asked.current.get() is first
    asked.second += 1
    second = asked.current.get()
    assert second is not first
    assert [id(each) for each in asked.noted] == [id(first), id(second)]


def test_the_seconds_before_a_change_have_the_ports_and_jobs_of_then(asked: Asked) -> None:
    before, asked.fabric = asked.fabric, Fabric((A, B))
    asked.second += 3
    asked.current.get()
    _, (then, _, earlier), (now, _, newest) = asked.calls
    assert (then, now) == (before, asked.fabric)
    # ticks follow the real clock, which may pass one between both
    assert 99 <= newest - earlier <= 101


def test_without_a_change_there_is_one_batch(asked: Asked) -> None:
    asked.fabric = Fabric((A,), notices=("something else changed",))
    asked.second += 3
    asked.current.get()
    assert len(asked.calls) == 2


def test_statistics_that_fail_for_long_are_withdrawn_and_come_back(asked: Asked) -> None:
    last, asked.failing = asked.current.get(), True
    for seconds, expected in ((0.0, last), (STALE_SECONDS - 0.1, last), (STALE_SECONDS, None)):
        asked.second, asked.now = asked.second + 1, 50.0 + seconds
        assert asked.current.get() is expected
    assert asked.errors.counts()["aggregation"] == 3
    asked.second, asked.failing = asked.second + 1, False
    assert asked.current.get() is not None


@pytest.mark.parametrize(("passed", "asks"), [(1, 0), (BATCH_SECONDS - 1, 0), (BATCH_SECONDS, 1), (-1, 1)])
def test_it_aggregates_by_itself_after_a_batch_or_a_clock_set_back(asked: Asked, passed: int, asks: int) -> None:
    async def run_once() -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asked.current.run(), 1.1)

    asked.second += passed
    asyncio.run(run_once())
    assert len(asked.calls) == 1 + asks


def test_other_jobs_are_aggregated_at_once(asked: Asked) -> None:
    asked.jobs = [*JOBS]
    asked.second += 1

    async def run_once() -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asked.current.run(), 1.1)

    asyncio.run(run_once())
    assert [jobs is asked.jobs for _, jobs, _ in asked.calls] == [False, False, True]
