"""Which nodes of a job fell silent, from their newest samples, with the code of a report."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ibpulse.fleet.clock_offsets import ClockOffset
from ibpulse.fleet.node_answers import NodeJob
from ibpulse.fleet.node_table import NodeState
from ibpulse.fleet.span_answers import NodeRailTraffic, NodeSpanSummary
from ibpulse.fleet.targets import Target
from ibpulse.gateway.job_node import JobNode, find_stall
from ibpulse.gateway.job_summary import SummarySpan, describe_job
from ibpulse.gateway.node_samples import NodeSamples
from tests.gateway.test_node_samples import START, window

SAMPLES = 1000
JOB = NodeJob(
    job_id="7", scheduler="slurm", source="file", ports=["mlx5_0:1"], running=True, began_ms=None, ended_ms=None
)


def node(silent_from: float, ahead_ms: float = 0.0, bound_ms: float | None = 0.1) -> JobNode:
    """A node with steps of 0.3 s that falls silent so many seconds after the start, by the true time."""
    times = np.arange(SAMPLES) / 100 - ahead_ms / 1000
    busy = ((times % 0.3) < 0.2) & (times < silent_from)
    values = np.where(busy, 5e9, 0.0) * np.ones((1, 2, 1))
    samples = NodeSamples(10, 61_000).add(window(values, START, ["mlx5_0:1"]))
    offset = None if bound_ms is None else ClockOffset(round(ahead_ms * 1e6), round(bound_ms * 1e6))
    target = Target("a", "http://127.0.0.1:10055")
    return JobNode(JOB, NodeState(target, offset=offset), samples=samples)


def test_the_first_node_to_fall_silent_is_named_on_the_clock_of_the_gateway() -> None:
    nodes = {"a": node(5.15, 40.0), "b": node(5.05, -30.0), "c": node(5.15)}
    stall = find_stall(nodes, 10_000)
    assert stall is not None
    assert (stall.first, stall.whole) == (("b",), True)
    # b has a silence between steps from 5.0 s on
    assert 0.13 <= stall.sending.gap <= 0.15
    job = describe_job(nodes, {}, SummarySpan(START + 10_000), stall).job["stall"]
    assert job["rows"][0] == "b"
    assert job["first"] == ["b"]
    assert job["since_ms"] == pytest.approx(START + 5160, abs=15)


def test_the_order_is_not_known_without_clocks_or_within_a_sample() -> None:
    for nodes in (
        {"a": node(5.15), "b": node(5.05, bound_ms=None)},
        {"a": node(5.152), "b": node(5.151)},
        {"a": node(-1.0), "b": node(-2.0)},
    ):
        stall = find_stall(nodes, 10_000)
        assert stall is not None
        assert describe_job(nodes, {}, SummarySpan(START + 10_000), stall).job["stall"]["first"] == []


def test_nodes_with_traffic_have_no_stall_and_did_not_stop_first() -> None:
    assert find_stall({"a": node(99.0), "b": node(99.0)}, 10_000) is None
    stall = find_stall({"a": node(5.0), "b": node(99.0)}, 10_000)
    assert stall is not None
    assert (stall.silent, stall.moving) == (("a",), ("b",))
    assert describe_job({"a": node(99.0)}, {}, SummarySpan(START + 10_000)).job["stall"] is None


def test_active_rails_are_those_that_carry_traffic() -> None:
    nodes = {"a": node(99.0), "b": node(99.0)}
    for each, active in zip(nodes.values(), (1, 0), strict=True):
        numbers: dict[str, Any] = dict.fromkeys(NodeRailTraffic.model_fields) | {"active_rails": active}
        each.summary = NodeSpanSummary(
            window_seconds=10, start_ms=0, end_ms=1, node=NodeRailTraffic.model_construct(**numbers), ports=[]
        )
    span = SummarySpan(START + 10_000)
    assert describe_job(nodes, {}, span).job["active_rails"] == 1
    nodes["b"].summary = None
    assert describe_job(nodes, {}, span).job["active_rails"] is None
