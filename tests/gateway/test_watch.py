"""The watch over silent jobs on the clock of the loop: alerts that end, counts of verdicts, and whom it asks when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from ibpulse.base.errors import DaemonError
from ibpulse.core.answers.jobs import CapturesAnswer, JobAnswer, PendingAnswer, SilenceAnswer, SilencesAnswer
from ibpulse.core.statistics.verdict import Verdict
from ibpulse.gateway import verdicts, watch
from ibpulse.gateway.captures import CAPTURES
from ibpulse.gateway.parts import GatewayCaptures
from ibpulse.gateway.push import PushedAlert
from ibpulse.gateway.verdicts import Verdicts
from ibpulse.gateway.watch import POLL_SECONDS, StallWatch
from tests.fleet.daemons import LOOP_CLOCK, now_ns
from tests.gateway.test_verdicts import FIRST_MS, KEY, answer
from tests.gateway.test_verdicts import verdict as make_verdict
from tests.loop_clock import pause


@dataclass
class Fleet:
    """Nodes with one job, as the watch sees them; `judge` is the judgement, `gone` are nodes that do not answer."""

    names: list[str] = field(default_factory=lambda: ["a", "b"])
    verdict: Verdict | None = None
    notable: bool = True
    sent_ms: int = FIRST_MS
    gone: set[str] = field(default_factory=set)
    slow_seconds: dict[str, float] = field(default_factory=dict)
    judged: list[float] = field(default_factory=list)
    fired: list[tuple[float, list[PushedAlert]]] = field(default_factory=list)
    asked_for_captures: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    task: asyncio.Task[None] = field(init=False)

    def __post_init__(self) -> None:
        self.verdicts = Verdicts()
        self.parts: Any = SimpleNamespace(
            discovery=SimpleNamespace(asked=asyncio.Event()), nodes=self, table=self, clock=LOOP_CLOCK, push=self,
            verdicts=self.verdicts, captures=GatewayCaptures(),
        )  # fmt: skip
        self.parts.discovery.asked.set()

    def judge(self, silences: Any, unexplained_seconds: float) -> Verdict | None:
        self.judged.append(asyncio.get_running_loop().time())
        return self.verdict

    def fire(self, alerts: list[PushedAlert]) -> None:
        self.fired.append((asyncio.get_running_loop().time(), alerts))

    def rows(self) -> list[Any]:
        job = JobAnswer.model_construct(job_id=KEY[1], scheduler=KEY[0], running=True, ended_ms=None)
        jobs = SimpleNamespace(jobs=[job])
        return [SimpleNamespace(name=name, state="up", jobs=jobs) for name in self.names]

    def row(self, name: str) -> None:
        return None

    def choose(self, names: list[str]) -> tuple[list[Any], dict[str, str]]:
        return [FakeNode(name) for name in names], {}

    async def ask_each(self, nodes: list[Any], ask: Callable[[Any], Any], seconds: float) -> AsyncIterator[Any]:
        end = asyncio.get_running_loop().time() + seconds
        for node in nodes:
            try:
                async with asyncio.timeout_at(end):
                    yield node, await ask(node)
            except (DaemonError, TimeoutError) as error:
                yield node, error

    async def ask_all(self, nodes: list[Any], ask: Callable[[Any], Any]) -> Any:
        return SimpleNamespace(answers={node.name: await ask(node) for node in nodes})

    async def ask(self, node: Any, model: Any, path: str, **_: Any) -> Any:
        if path == CAPTURES:
            self.asked_for_captures.append(node.name)
            pending = PendingAnswer.model_construct(reason="stall-node", trigger_ms=now_ns() // 10**6)
            return CapturesAnswer.model_construct(captures=[], pending=[pending])
        await pause(self.slow_seconds.get(node.name, 0.01))
        if node.name in self.gone:
            raise DaemonError("no answer")
        job: SilenceAnswer = answer(self.sent_ms, FIRST_MS + 5000, notable=self.notable)
        return SilencesAnswer.model_construct(time_ms=FIRST_MS, clock_error_ms=None, jobs=[job])


@dataclass(frozen=True)
class FakeNode:
    name: str

    def limited_by(self, _: asyncio.Semaphore) -> FakeNode:
        return self


@pytest.fixture
async def fleet(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Fleet]:
    made = Fleet()

    async def capture(*_: Any) -> dict[str, Any]:
        made.taken.append(KEY[1])
        return {"nodes": made.names}

    monkeypatch.setattr(verdicts, "judge", made.judge)
    monkeypatch.setattr(watch, "ask_node", made.ask)
    monkeypatch.setattr(watch, "capture_job", capture)
    made.task = asyncio.create_task(StallWatch(made.parts, 60 * 10**9).run())
    yield made
    made.task.cancel()
    await asyncio.gather(made.task, return_exceptions=True)


def found(kind: Any, seconds: float = 10.0, push_after: float = 0.0) -> Verdict:
    """A verdict on the silence of the nodes."""
    return make_verdict(kind, FIRST_MS / 1000, seconds, push_after=push_after)


async def test_the_alert_of_a_job_whose_nodes_leave_ends_and_is_forgotten_though_nothing_is_judged(
    fleet: Fleet,
) -> None:
    fleet.verdict = found("node")
    await pause(5)
    assert [alert.job_id for alert in fleet.fired[-1][1]] == [KEY[1]]
    fleet.names = []
    await pause(2 * POLL_SECONDS)
    left = [time for time, alerts in fleet.fired if not alerts and time > 5]
    assert left
    await pause(10 * POLL_SECONDS)
    assert fleet.fired[-1][0] >= left[0] + 8 * POLL_SECONDS


async def test_each_kind_that_a_silence_is_given_counts_and_the_last_one_is_withdrawn(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    for kind in ("unknown", "together", "node", "together", "node"):
        fleet.verdict = found(kind)
        await pause(5)
    assert [fleet.verdicts.given[kind] for kind in ("unknown", "together", "node")] == [1, 1, 1]
    assert len(caplog.messages) == 3
    fleet.verdict, fleet.sent_ms = None, FIRST_MS + 4000
    await pause(5)
    assert (fleet.verdicts.withdrawn["unknown"], fleet.verdicts.withdrawn["node"]) == (0, 1)


async def test_the_node_that_is_asked_for_a_capture_of_the_silence_is_one_that_answers(fleet: Fleet) -> None:
    fleet.gone, fleet.notable = {"a"}, False
    await pause(3 * POLL_SECONDS)
    fleet.verdict, fleet.notable = found("node"), True
    await pause(3 * POLL_SECONDS)
    assert (fleet.asked_for_captures, fleet.taken) == (["b"], [])


async def test_a_job_is_first_judged_when_all_its_nodes_were_asked(fleet: Fleet) -> None:
    fleet.notable = False
    await pause(2.5)
    fleet.notable, fleet.slow_seconds["b"] = True, 0.5
    await pause(POLL_SECONDS)
    # b has said it at 3.5 s, and is asked once more after a
    assert fleet.judged[0] == pytest.approx(4.01)


@pytest.mark.parametrize("ends", ["the job", "the watch"])
async def test_a_judgement_that_was_planned_is_dropped_with_the_job_or_the_watch(fleet: Fleet, ends: str) -> None:
    push_after = now_ns() / 1e9 - FIRST_MS / 1000 + 4
    fleet.verdict = found("together", push_after=push_after)
    await pause(3.5)
    if ends == "the job":
        fleet.names = []
        await pause(0.6)
    else:
        fleet.task.cancel()
    count = len(fleet.judged)
    await pause(5 * POLL_SECONDS)
    assert len(fleet.judged) == count
