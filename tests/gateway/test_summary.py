"""The numbers of a job from what its daemons say."""

from __future__ import annotations

from typing import Any

from ibpulse.core.answers.jobs import JobAnswer
from ibpulse.core.answers.summary import NodeSummary, SummaryAnswer
from ibpulse.gateway.jobs import JobNode, JobNumbers, SummarySpan
from ibpulse.gateway.nodes.table import NodeState
from ibpulse.gateway.nodes.targets import Target
from tests.fleet.small_answers import JOB
from tests.tables import for_each

START = 1_763_683_200_000
STEP = 0.15


def node() -> JobNode:
    job = JobAnswer(**{**JOB, "began": None, "began_ms": None})
    numbers: dict[str, Any] = dict.fromkeys(NodeSummary.model_fields)
    numbers |= {"active_rails": 1, "step_period_seconds": STEP}
    found = JobNode(job, NodeState(Target("a", "http://127.0.0.1:10055")), ("", ""))
    found.summary = SummaryAnswer(
        window_seconds=10, start_ms=0, end_ms=1, node=NodeSummary.model_construct(**numbers), ports=[]
    )
    return found


@for_each(
    [
        (15_000, None, False),
        # a view that ended before the stall
        (4000, None, True),
        (15_000, START + 12_000, True),
    ]
)
def test_a_silent_job_has_no_step(end_ms: int, ended_ms: int | None, stepping: bool) -> None:
    nodes, verdict = {"a": node(), "b": node()}, {"ended_ms": ended_ms, "since_ms": START + 5000}
    found = JobNumbers(nodes, {}, SummarySpan(START + end_ms), {"armed": True, "verdict": verdict})
    assert found.job["verdict"] == verdict
    assert (found.job["step_period_seconds"] is not None) == stepping
    assert found.whole["a"]["step_period_seconds"] == (STEP if stepping else None)


def test_active_rails_are_those_that_carry_traffic() -> None:
    nodes, span = {"a": node(), "b": node()}, SummarySpan(START + 10_000)
    assert JobNumbers(nodes, {}, span).job["active_rails"] == 2
    nodes["b"].summary = None
    assert JobNumbers(nodes, {}, span).job["active_rails"] is None
