"""Watched jobs: a silence keeps its verdict until traffic, another silence or the end of the job ends it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ibpulse.core.answers.jobs import MomentAnswer, RailSilenceAnswer, SilenceAnswer
from ibpulse.core.statistics.lateness import ClockOffset, MeasuredOffset
from ibpulse.core.statistics.verdict import NodeSilence, Verdict
from ibpulse.gateway import verdicts
from ibpulse.gateway.verdicts import Verdicts, WatchedJob
from tests.tables import for_each

KEY = ("slurm", "42")
FIRST_MS = 1_763_683_200_000


def answer(sent_ms: int | None, until_ms: int, *, notable: bool = False, since_ms: int = 0) -> SilenceAnswer:
    """A node with one rail that sent its last byte at a time."""
    sent = None if sent_ms is None else MomentAnswer(ms=sent_ms, uncertainty_ms=10)
    rail = RailSilenceAnswer.model_construct(
        port="mlx5_0:1",
        active=True,
        sent=sent,
        received=None,
        lost=None,
        retried=None,
        counted_until_ms=None,
        connected_until_ms=None,
        closed=None,
    )
    return SilenceAnswer.model_construct(
        job_id=KEY[1], scheduler=KEY[0], since_ms=since_ms, known_until_ms=until_ms, notable=notable, regular_ms=None,
        longest_ms=0, storage=None, pauses=[], rails=[rail],
    )  # fmt: skip


def clock(offset_ms: float, at_ms: int) -> MeasuredOffset:
    return MeasuredOffset(ClockOffset(round(offset_ms * 1e6), 1_000_000), at_ms * 10**6)


class Judge:
    """Stands for the judgement; `verdict` is what it finds, `silences` what it was given last."""

    verdict: Verdict | None = None
    silences: dict[str, NodeSilence]

    def __call__(self, silences: Any, unexplained_seconds: float) -> Verdict | None:
        self.silences = dict(silences)
        return self.verdict


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Judge:
    made = Judge()
    monkeypatch.setattr(verdicts, "judge", made)
    return made


def verdict(kind: Any, since: float = 100.0, seconds: float = 2.0, **changes: Any) -> Verdict:
    made = Verdict(kind, ("a",), (), (since - 0.01, since), seconds, 0.0, evidence=(f"{kind} after {seconds}",))
    return replace(made, **changes)


def watched(*nodes: str) -> WatchedJob:
    job = WatchedJob(KEY)
    for name in nodes:
        job.hear(name, answer(FIRST_MS, FIRST_MS + 5000, notable=True), None)
    return job


def test_a_job_is_armed_by_its_first_traffic() -> None:
    job = WatchedJob(KEY)
    assert not job.armed
    job.hear("a", answer(None, FIRST_MS), None)
    assert not job.armed
    job.hear("b", answer(FIRST_MS, FIRST_MS), None)
    assert job.armed


def test_times_of_nodes_are_on_one_clock_and_stay_while_they_are_silent(judge: Judge) -> None:
    job = WatchedJob(KEY)
    for offset_ms, later_ms in ((40.0, 0), (700.0, 60_000)):
        job.hear("a", answer(FIRST_MS, FIRST_MS + later_ms), clock(offset_ms, FIRST_MS + later_ms))
        job.hear("b", answer(FIRST_MS, FIRST_MS + later_ms), None)
        job.review(0, 60.0)
        low, high = judge.silences["a"].rails["mlx5_0:1"].sent or (0.0, 0.0)
        assert (low, high) == pytest.approx((FIRST_MS / 1000 - 0.051, FIRST_MS / 1000 - 0.039), abs=1e-4)
        assert [judge.silences[name].ordered for name in "ab"] == [True, False]
    # other traffic, another clock
    job.hear("a", answer(FIRST_MS + 61_000, FIRST_MS + 62_000), clock(700.0, FIRST_MS + 62_000))
    job.review(0, 60.0)
    assert (judge.silences["a"].sent or (0.0, 0.0))[1] == pytest.approx((FIRST_MS + 61_000) / 1000 - 0.699, abs=1e-4)


@for_each({"suspended": (0.0,), "set, and measured later": (3600e3,)})
def test_last_bytes_stay_when_a_node_moves_all_its_times(offset_ms: float, judge: Judge) -> None:
    job, hour_ms = WatchedJob(KEY), 3_600_000
    for moved_ms, known_ms in ((0, 0.0), (hour_ms, 0.0), (hour_ms, offset_ms)):
        at_ms = FIRST_MS + moved_ms
        job.hear("a", answer(at_ms, at_ms + 5000, since_ms=at_ms - 9000), clock(known_ms, FIRST_MS))
        job.review(0, 60.0)
        assert judge.silences["a"].sent == pytest.approx((FIRST_MS / 1000 - 0.011, FIRST_MS / 1000 + 0.001), abs=1e-4)
    # new traffic, which only the new clock knows
    job.hear("a", answer(at_ms + 7000, at_ms + 7000, since_ms=at_ms - 9000), clock(offset_ms, at_ms + 7000))
    job.review(0, 60.0)
    until = (at_ms + 7000 - offset_ms) / 1000
    assert (judge.silences["a"].sent or (0.0, 0.0))[1] == pytest.approx(until, abs=0.2)


def test_an_hour_for_which_one_machine_was_suspended_makes_no_other_the_first() -> None:
    job, hour_ms = WatchedJob(KEY), 3_600_000
    for moved_ms, later_ms in ((0, 70_000), (hour_ms, 75_000), (hour_ms, 80_000)):
        job.hear("a", answer(FIRST_MS, FIRST_MS + moved_ms + later_ms, notable=True), clock(0.0, FIRST_MS))
        moved = answer(FIRST_MS + moved_ms, FIRST_MS + moved_ms + later_ms, notable=True, since_ms=moved_ms)
        job.hear("b", moved, clock(0.0, FIRST_MS + moved_ms))
        job.review(0, 60.0)
        (stall,) = job.stalls
        assert (stall.verdict.kind, stall.verdict.nodes, stall.ended_ns) == ("together", (), None)


def test_a_silence_has_one_stall_whose_words_change_only_with_what_they_name(judge: Judge) -> None:
    job = watched("a", "b")
    judge.verdict = verdict("together")
    begun, ended = job.review(0, 60.0)
    assert (begun, ended) == (job.stall, None)
    for seconds, kind, evidence in (
        (4.0, "together", "together after 2.0"),
        (6.0, "node", "node after 6.0"),
        (8.0, "node", "node after 6.0"),
        # a node has forgotten what it knew
        (10.0, "unknown", "node after 6.0"),
        (12.0, "link", "link after 12.0"),
    ):
        judge.verdict = verdict(kind, seconds=seconds)
        assert job.review(0, 60.0) == (None, None)
        found = job.stalls[0].verdict
        assert (found.evidence, found.seconds) == ((evidence,), seconds)
    assert len(job.stalls) == 1


@pytest.mark.parametrize("left", [["a", "b"], []])
def test_traffic_refutes_a_verdict_and_the_end_of_the_job_does_not(judge: Judge, left: list[str]) -> None:
    job = watched("a", "b")
    judge.verdict = verdict("node")
    job.review(0, 60.0)
    judge.verdict = None
    job.nodes = {name: job.nodes[name] for name in left}
    begun, ended = job.review(7, 60.0)
    assert (begun, job.stall) == (None, None)
    assert ended is job.stalls[0]
    assert (ended.ended_ns, ended.resumed) == (7, bool(left))
    assert job.review(8, 60.0) == (None, None)
    assert job.describe().stalls[0].model_dump() | {"sentence": ""} == {
        "verdict": "node", "sentence": "", "nodes": ["a"], "rails": [], "since_ms": 100_000,
        "since_uncertainty_ms": 10, "silent_ms": 2000, "push_after_ms": 0, "pushed": True, "ended_ms": 0,
        "resumed": bool(left), "evidence": ["node after 2.0"], "against": [], "not_known": [],
    }  # fmt: skip


@for_each(
    {
        "no node answers": ([],),
        "new samples, the same last byte": ([("a", FIRST_MS)],),
        "a daemon without samples": ([("a", None)],),
    }
)
def test_a_silence_in_which_no_byte_was_seen_keeps_its_verdict(
    said: list[tuple[str, int | None]], judge: Judge
) -> None:
    job = watched("a")
    judge.verdict = verdict("together", FIRST_MS / 1000)
    job.review(0, 60.0)
    judge.verdict = None
    job.nodes["a"].problem = "no answer"
    for name, sent_ms in said:
        job.hear(name, answer(sent_ms, FIRST_MS + 9000), None)
    assert job.review(7, 60.0) == (None, None)
    assert job.stall is job.stalls[0]
    job.hear("a", answer(FIRST_MS + 9000, FIRST_MS + 9000), None)
    assert job.review(8, 60.0) == (None, job.stalls[0])
    assert job.stalls[0].resumed


def test_traffic_between_two_judgements_makes_two_stalls_of_a_silence(judge: Judge) -> None:
    job = watched("a")
    for since, stalls in ((100.0, 1), (100.9, 1), (103.0, 2)):
        judge.verdict = verdict("node", since)
        job.review(5, 60.0)
        assert len(job.stalls) == stalls
    assert [stall.ended_ns for stall in job.stalls] == [None, 5]


def test_only_stalls_that_last_long_enough_are_pushed_until_they_end(judge: Judge) -> None:
    book = Verdicts()
    job = book.job(KEY)
    job.hear("a", answer(FIRST_MS, FIRST_MS + 5000, notable=True), None)
    for seconds, push_after, alerts in ((2.0, 60.0, 0), (59.0, 60.0, 0), (61.0, 60.0, 1), (63.0, 120.0, 1)):
        judge.verdict = verdict("together", seconds=seconds, push_after=push_after)
        job.review(0, 60.0)
        assert len(book.alerts()) == alerts
    (alert,) = book.alerts()
    assert (alert.job_id, alert.started_ns, alert.ended_ns) == ("42", 100 * 10**9, None)
    assert (alert.annotations["verdict"], alert.annotations["node"]) == ("together", "a")
    judge.verdict = None
    job.review(1, 60.0)
    assert book.alerts() == []
    book.keep([])
    assert book.of(KEY) == {"armed": False, "verdict": None}
