"""The flight recorder of a node in virtual time: requests, rules and alerts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ibpulse.core.recordings import load
from ibpulse.workbench.simulate.workloads import Constant
from tests.virtual.node import Node
from tests.virtual.rates import RATE, WORD_RATE
from tests.virtual.world import SECOND

PATH = "/api/v1/captures"
OPEN = "--capture.allow-unauthenticated=true"
TICK_NS = 10_000_000


def captures(node: Node) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = node.get(PATH)["captures"]
    return found


def test_what_happens_to_the_traffic_is_captured_by_the_rules(folder: Path) -> None:
    flags = ("--analysis.traffic-window=20s", "--capture.after=1s", "--capture.rules=rail-lost,traffic-stalled")
    with Node(folder, *flags, workload="dense") as node:
        node.run(25)
        assert captures(node) == []
        node.fault({"link-flap": ["mlx5_2"]})
        node.run(15)
        (lost,) = captures(node)
        node.fault()
        node.run(40)
        node.play("idle")
        node.run(15)
        stalled, _ = captures(node)
        assert (lost["reason"], stalled["reason"]) == ("rail-lost", "traffic-stalled")
        meta = load(node.captures / stalled["name"]).meta
        metrics = node.metrics()
    assert float(meta.labels["step_seconds"]) == pytest.approx(0.315, rel=0.002)
    for reason in ("rail-lost", "traffic-stalled"):
        assert metrics.value("ibpulse_captures_total", reason=reason) == 1
    assert metrics.value("ibpulse_captures_stored") == 2
    assert metrics.value("ibpulse_capture_errors_total") == 0


def test_the_cooldown_of_an_alert_outlasts_a_step_of_the_clock(folder: Path) -> None:
    with Node(folder, OPEN, rails=1, workload=Constant(RATE), interval="500ms") as node:
        node.run(5)
        message = {"version": "4", "alerts": [{"status": "firing", "labels": {"alertname": "Lost"}}]}
        assert node.post(f"{PATH}/alertmanager", message)["alerts"] == 1
        for seconds in (3600, -7200):
            node.clock.step(seconds)
            assert node.post(f"{PATH}/alertmanager", message)["alerts"] == 0
        node.run(601)
        assert node.post(f"{PATH}/alertmanager", message)["alerts"] == 1


def test_a_capture_in_flight_is_whole_at_the_end(folder: Path) -> None:
    with Node(folder, OPEN, rails=2, workload=Constant(RATE)) as node:
        node.run(5)
        trigger_ns = node.clock.time_ns()
        name = node.post(PATH, {"before": "2s", "after": "1m"})["name"]
        node.run(2)
        node.stop()
        recording = load(node.captures / name)
    assert recording.start_ns == trigger_ns - 2 * SECOND + TICK_NS
    # what is certain to be complete
    assert trigger_ns + 1.9 * SECOND <= recording.end_ns <= trigger_ns + 2 * SECOND
    assert np.abs(recording.bytes_per_second - RATE).max() <= WORD_RATE
