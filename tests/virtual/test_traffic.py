"""What is done to the traffic of a node is in its metrics, and how soon, in the time of the samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ibpulse.workbench.simulate.workloads import Stretched, make_workload
from tests.running import Metrics
from tests.virtual.node import Node

WINDOW_SECONDS = 20
STEP_SECONDS = 0.315
UNTIL = "ibpulse_aggregated_until_timestamp_seconds"


@pytest.fixture
def node(folder: Path, request: pytest.FixtureRequest) -> Iterator[Node]:
    with Node(folder, f"--analysis.traffic-window={WINDOW_SECONDS}s", workload=request.param) as node:
        # the metrics of a second are there half a second after it
        node.run(2 * WINDOW_SECONDS + 0.5)
        yield node


def seconds_until(node: Node, seen: Callable[[Metrics], bool], limit: int = 4 * WINDOW_SECONDS) -> int:
    """Whole seconds of samples until the metrics say something."""
    for second in range(1, limit):
        node.run(1)
        if seen(node.metrics()):
            return second
    raise AssertionError(f"not seen within {limit} s")


def fairness(metrics: Metrics) -> float:
    return sum(metrics.find("ibpulse_node_rail_fairness_ratio").values())


def named(metrics: Metrics, state: str) -> set[str]:
    found = metrics.find(f"ibpulse_port_rail_{state}")
    return {dict(key)["device"] for key, value in found.items() if value == 1}


def signature(metrics: Metrics) -> str:
    found = metrics.find("ibpulse_node_workload_signature")
    return next(dict(key)["signature"] for key, value in found.items() if value == 1)


def step(metrics: Metrics) -> float:
    return sum(metrics.find("ibpulse_node_step_period_seconds").values())


@pytest.mark.parametrize("node", ["expert-parallel"], indirect=True)
@pytest.mark.parametrize("death", ["idle-rail", "link-flap"])
def test_a_rail_that_dies_is_named_within_five_seconds(node: Node, death: str) -> None:
    assert fairness(node.metrics()) > 0.999
    node.fault({death: ["mlx5_3"]})
    assert seconds_until(node, lambda metrics: named(metrics, "idle") == {"mlx5_3"}) <= 5
    # Jain's index of seven equal rates and a zero
    node.run(5)
    assert fairness(node.metrics()) == pytest.approx(7 / 8, abs=1e-3)


@pytest.mark.parametrize("node", ["expert-parallel"], indirect=True)
def test_a_slow_rail_is_named_within_fifteen_seconds(node: Node) -> None:
    assert fairness(node.metrics()) > 0.999
    node.fault({"slow-rail": {"mlx5_2": 0.5}})
    assert seconds_until(node, lambda metrics: named(metrics, "slow") == {"mlx5_2"}) <= 15


@pytest.mark.parametrize("node", ["dense"], indirect=True)
def test_a_longer_step_and_another_workload_are_seen_within_a_few_windows(node: Node) -> None:
    assert signature(node.metrics()) == "dense_like"
    assert step(node.metrics()) == pytest.approx(STEP_SECONDS, rel=0.002)
    node.play(Stretched(make_workload("dense"), 1.1))
    longer = pytest.approx(1.1 * STEP_SECONDS, rel=0.002)
    assert seconds_until(node, lambda metrics: step(metrics) == longer) <= 2 * WINDOW_SECONDS
    node.play("moe")
    assert seconds_until(node, lambda metrics: signature(metrics) == "moe_like") <= WINDOW_SECONDS
    node.play("idle")
    assert seconds_until(node, lambda metrics: signature(metrics) == "idle") <= WINDOW_SECONDS + 1
