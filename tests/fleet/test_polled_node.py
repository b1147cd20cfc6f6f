"""What a poll remembers between answers: the clock at which a job fell silent, and since when a rail is idle."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ibpulse.core.answers.jobs import JobsAnswer
from ibpulse.gateway.nodes import node_table
from ibpulse.gateway.nodes.node_figures import NodeFigures
from ibpulse.gateway.nodes.node_table import PolledNode
from ibpulse.gateway.nodes.targets import Target
from tests.clocks import GivenClock
from tests.fleet.small_answers import jobs_of

START_NS = 1_763_683_200_000_000_000
KEY = ("slurm", "7")


@pytest.fixture
def now() -> dict[str, float]:
    return {"seconds": 100.0}


@pytest.fixture
def polled(now: dict[str, float]) -> PolledNode:
    clock = GivenClock(lambda: now["seconds"], lambda: START_NS + round(now["seconds"] * 1e9))
    return PolledNode(Target("a", "http://127.0.0.1:10055"), clock)


def exchange(polled: PolledNode, now: dict[str, float], ahead_ms: float = 0.0) -> None:
    """A reply of the node's clock that takes no time."""
    monotonic_ns = round(now["seconds"] * 1e9)
    polled._offsets.add(monotonic_ns, monotonic_ns, START_NS + monotonic_ns + round(ahead_ms * 1e6))


def jobs(last_ms: int | None, *more: str) -> JobsAnswer:
    times: dict[str, Any] = {f"{name}_ms": last_ms for name in ("last", "last_transmit", "last_receive")}
    times |= {f"{name}_uncertainty_ms": 10 for name in ("last", "last_transmit", "last_receive")}
    traffic = {"since_ms": 0, "known_until_ms": 10**12, "step_period_seconds": None, **times}
    members = [{"job_id": each, "traffic": traffic} for each in ("7", *more)]
    return JobsAnswer.model_validate_json(jobs_of(*members))


def test_the_clock_is_that_of_when_the_silence_became_known(polled: PolledNode, now: dict[str, float]) -> None:
    exchange(polled, now)
    polled.note_jobs(jobs(1000))
    first = polled.state.clocks_then[KEY]
    now["seconds"] += 250
    exchange(polled, now, ahead_ms=8.0)
    polled.note_jobs(jobs(1000, "8"))
    assert polled.state.clocks_then[KEY] == first
    assert polled.state.clocks_then["slurm", "8"].offset.offset_ns != first.offset.offset_ns
    # traffic, and another silence
    polled.note_jobs(jobs(2000))
    assert set(polled.state.clocks_then) == {KEY}
    assert polled.state.clocks_then[KEY].at_ns == polled.state.seen_ns == START_NS + round(350e9)


def test_a_silence_without_a_known_clock_has_none_until_it_is_known(polled: PolledNode, now: dict[str, float]) -> None:
    exchange(polled, now)
    polled.note_jobs(jobs(1000))
    now["seconds"] += 3600
    # no exchange for an hour: the clock of the silence before does not hold for this one
    polled.note_jobs(jobs(2000))
    assert polled.state.clocks_then == {}
    exchange(polled, now)
    polled.note_jobs(jobs(2000))
    assert set(polled.state.clocks_then) == {KEY}


def test_a_rail_is_idle_since_the_gateway_saw_it_carry_traffic(
    polled: PolledNode, now: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([("mlx5_0:1",), (), ("mlx5_0:1",), ("mlx5_0:1", "mlx5_1:1"), ()])

    async def ask(_: object) -> NodeFigures:
        return NodeFigures("1.2.3", None, next(answers))

    monkeypatch.setattr(node_table, "ask_figures", ask)
    found = []
    for _ in range(5):
        polled._polls = 0
        asyncio.run(polled._read_figures(None))  # type: ignore[arg-type]
        since_ns = polled.state.idle_since_ns
        found.append(None if since_ns is None else (since_ns - START_NS) / 1e9)
        now["seconds"] += 30
    # at first nothing is known of before
    assert found == [None, None, 160.0, 160.0, None]
