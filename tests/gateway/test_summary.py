"""Silent nodes of a job: since when, and the first to stop, from what their daemons say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ibpulse.core.answers.jobs import JobAnswer, JobTrafficAnswer
from ibpulse.core.answers.summary import NodeSummary, SummaryAnswer
from ibpulse.core.statistics.lateness import DRIFT, ClockOffset, MeasuredOffset
from ibpulse.gateway.jobs import JobNode
from ibpulse.gateway.nodes.table import NodeState
from ibpulse.gateway.nodes.targets import Target
from ibpulse.gateway.summary import JobNumbers, JobStall, SummarySpan, find_stall
from tests.fleet.small_answers import JOB

START = 1_763_683_200_000
STEP = 0.3
MOVING = 60.0
SAMPLE_MS = 10


def last(name: str, seconds: float | None, until: float, ahead_ms: float) -> dict[str, int | None]:
    """Members for traffic that stopped so many seconds after the start, on a clock that is ahead."""
    stopped_ms = None if seconds is None else round(START + 1000 * min(seconds, until) + ahead_ms)
    return {f"{name}_ms": stopped_ms, f"{name}_uncertainty_ms": 0 if seconds is None else SAMPLE_MS}


def node(
    sent: float | None,
    received: float | None = None,
    *,
    until: float = 20.0,
    ahead_ms: float = 0.0,
    bound_ms: float | None = 0.1,
    since: float = -100.0,
    answered: float = 1.0,
    step: float | None = STEP,
    problem: str = "",
) -> JobNode:
    """A node that sent and received for so long, `MOVING` for still; without `received`, as long as it sent.

    Its newest sample is that at `until`, and its answer came so much later.
    """
    received = sent if received is None else received
    either = max((each for each in (sent, received) if each is not None), default=None)
    traffic = JobTrafficAnswer(
        since_ms=round(START + 1000 * since + ahead_ms),
        known_until_ms=round(START + 1000 * until + ahead_ms),
        step_period_seconds=step,
        **last("last", either, until, ahead_ms),
        **last("last_transmit", sent, until, ahead_ms),
        **last("last_receive", received, until, ahead_ms),
    )
    job = JobAnswer(**{**JOB, "began": None, "began_ms": None, "traffic": traffic})
    seen_ns = round((START + 1000 * (until + answered)) * 1e6)
    clocks = {}
    if bound_ms is not None:
        offset = ClockOffset(round(ahead_ms * 1e6), round(bound_ms * 1e6))
        # measured at the moment itself, so that it has not drifted
        at_ns = round((START + 1000 * (MOVING if either is None else either)) * 1e6)
        clocks["slurm", "7"] = MeasuredOffset(offset, at_ns)
    state = NodeState(Target("a", "http://127.0.0.1:10055"), seen_ns=seen_ns, clocks_then=clocks)
    return JobNode(job, state, (problem, problem))


def stall_of(**nodes: JobNode) -> JobStall:
    found = find_stall(nodes)
    assert found is not None
    return found


def test_the_first_to_stop_is_named_on_the_clock_of_the_gateway() -> None:
    found = stall_of(a=node(5.15, ahead_ms=40.0), b=node(5.05, ahead_ms=-30.0), c=node(5.15))
    assert (found.first, found.direction, found.whole) == (("b",), "transmit", True)
    # 100 ms, less a sample and twice the bound of the clocks
    assert found.gap == pytest.approx(0.1 - 0.01 - 0.0002, abs=1e-4)
    assert found.before in ("a", "c")
    document = found.describe()
    assert document["rows"][0] == "b"
    assert document["since_ms"] == pytest.approx(START + 5150, abs=1)
    assert document["silent_ms"] == 14_850


@pytest.mark.parametrize("until", [9.0, 65.0, 605.0, 3605.0])
def test_the_answer_is_the_same_however_long_ago_it_was(until: float) -> None:
    early = stall_of(a=node(5.15), b=node(3.25))
    late = stall_of(a=node(5.15, until=until), b=node(3.25, until=until))
    assert replace(late, seconds=0.0) == replace(early, seconds=0.0)
    assert late.seconds == pytest.approx(until - 5.15)


def test_clocks_that_were_measured_long_after_tell_less() -> None:
    nodes = {"a": node(5.15), "b": node(5.05)}
    for each in nodes.values():
        assert each.state is not None
        clock = each.state.clocks_then["slurm", "7"]
        each.state = replace(
            each.state, clocks_then={("slurm", "7"): replace(clock, at_ns=clock.at_ns + round(3600e9))}
        )
    assert 2 * DRIFT * 3600 > 0.1
    assert stall_of(**nodes).first == ()


@pytest.mark.parametrize(
    "nodes",
    [
        {"a": node(5.15), "b": node(5.05, bound_ms=None)},
        {"a": node(5.152), "b": node(5.151)},
        {"a": node(5.15, bound_ms=60.0), "b": node(5.05, bound_ms=60.0)},
        # its daemon began to follow the job when all was silent
        {"a": node(5.15), "b": node(None, since=6.0)},
        # it may have been the first since its last answer
        {"a": node(5.15), "b": node(5.0, until=5.0, problem="no-answer")},
        # it may have moved bytes again
        {"a": node(8.0), "b": node(5.0, until=7.0, problem="no-answer")},
    ],
    ids=["unknown clock", "within a sample", "poor clocks", "restarted daemon", "no answer", "silent, then no answer"],
)
def test_no_order_is_claimed_where_it_is_not_known(nodes: dict[str, JobNode]) -> None:
    found = stall_of(**nodes)
    assert (found.first, found.direction, found.before, found.gap) == ((), "", "", None)
    assert found.describe()["direction"] is None


def test_who_stops_sending_is_first_although_it_still_receives() -> None:
    found = stall_of(a=node(6.0), b=node(5.0, 6.1), c=node(6.0))
    assert (found.first, found.direction, found.nodes[0]) == (("b",), "transmit", "b")


def test_receive_tells_the_order_only_if_transmit_does_not() -> None:
    found = stall_of(a=node(5.0, 5.0), b=node(5.0, 6.0))
    assert (found.first, found.direction, found.before) == (("a",), "receive", "b")


def test_a_node_that_only_receives_did_not_stop_sending() -> None:
    found = stall_of(a=node(5.0), b=node(6.0), receiver=node(None, 4.0))
    assert (found.first, found.before, found.direction) == (("a",), "b", "transmit")
    assert set(found.nodes) == {"a", "b", "receiver"}


@pytest.mark.parametrize(("since", "first"), [(6.0, ("a", "b")), (-100.0, ("a",))])
def test_a_node_followed_only_since_then_may_have_been_first(since: float, first: tuple[str, ...]) -> None:
    found = stall_of(a=node(5.0), b=node(None, since=since), c=node(7.0))
    assert tuple(sorted(found.first)) == first


def test_a_missing_node_that_sent_later_was_not_the_first() -> None:
    found = stall_of(a=node(5.0), b=node(7.0, until=7.0, problem="no-answer"))
    assert (found.nodes, found.first, found.whole) == (("a",), ("a",), True)


def test_nodes_that_move_bytes_leave_the_job_running() -> None:
    assert find_stall({"a": node(MOVING), "b": node(MOVING)}) is None
    found = stall_of(a=node(5.0), b=node(MOVING))
    assert (found.nodes, found.whole, found.first) == (("a",), False, ("a",))


def test_nothing_is_said_until_every_answer_is_new_enough() -> None:
    old = node(MOVING, until=5.0)
    assert find_stall({"a": node(5.0, until=8.0), "b": old}) is None


@pytest.mark.parametrize(("step", "shortest"), [(0.3, 1.0), (2.0, 6.0), (None, 3.0)])
def test_a_silence_is_longer_than_three_steps(step: float | None, shortest: float) -> None:
    assert find_stall({"a": node(5.0, until=5.0 + shortest, step=step)}) is None
    assert find_stall({"a": node(5.0, until=5.01 + shortest, step=step)}) is not None


def summarised(each: JobNode, step: float | None) -> JobNode:
    numbers: dict[str, Any] = dict.fromkeys(NodeSummary.model_fields)
    numbers |= {"active_rails": 1, "step_period_seconds": step}
    each.summary = SummaryAnswer(
        window_seconds=10, start_ms=0, end_ms=1, node=NodeSummary.model_construct(**numbers), ports=[]
    )
    return each


def test_the_step_of_a_silent_job_is_that_of_its_last_steps() -> None:
    nodes = {name: summarised(node(5.0), 0.15) for name in ("a", "b")}
    stall = stall_of(**nodes)
    during = JobNumbers(nodes, {}, SummarySpan(START + 15_000), stall)
    assert during.job["step_period_seconds"]["median"] == STEP
    assert during.whole["a"]["step_period_seconds"] == STEP
    before = JobNumbers(nodes, {}, SummarySpan(START + 4_000), stall)
    assert before.job["step_period_seconds"]["median"] == 0.15


def test_active_rails_are_those_that_carry_traffic() -> None:
    nodes = {"a": summarised(node(MOVING), None), "b": summarised(node(MOVING), None)}
    span = SummarySpan(START + 10_000)
    assert JobNumbers(nodes, {}, span).job["active_rails"] == 2
    nodes["b"].summary = None
    assert JobNumbers(nodes, {}, span).job["active_rails"] is None
