"""The flight recorder of a node in virtual time: requests, rules and alerts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ibpulse.base.instants import format_rfc3339
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


def test_a_capture_has_the_samples_around_its_trigger(folder: Path) -> None:
    with Node(folder, OPEN, rails=2, workload=Constant(RATE)) as node:
        node.run(5)
        trigger_ns = node.clock.time_ns()
        taken = node.post(PATH, {"reason": "by hand", "before": "2s", "after": "1s"})
        assert captures(node) == []
        node.run(2)
        (listed,) = captures(node)
        assert (listed["name"], listed["reason"]) == (taken["name"], "by-hand")
        recording = load(node.captures / listed["name"])
        assert node.metrics().value("ibpulse_captures_stored") == 1
    assert recording.meta.trigger_ns == trigger_ns // 1_000_000 * 1_000_000
    # the sample of the trigger is the last one before it
    assert (recording.start_ns, recording.end_ns) == (trigger_ns - 2 * SECOND + TICK_NS, trigger_ns + SECOND + TICK_NS)
    assert recording.bytes_per_second.shape == (2, 2, 300)
    assert np.abs(recording.bytes_per_second - RATE).max() <= WORD_RATE


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


def test_an_alert_freezes_the_seconds_before_it_once(folder: Path) -> None:
    flags = (OPEN, "--capture.before=5s", "--capture.after=1s")
    with Node(folder, *flags, rails=2, workload=Constant(RATE)) as node:
        node.run(10)
        lost_ns = node.clock.time_ns()
        node.fault({"idle-rail": ["mlx5_1"]})
        node.run(3)
        alert = {
            "status": "firing",
            "labels": {"alertname": "Lost", "device": "mlx5_1", "instance": "node-0", "severity": "page"},
            "annotations": {},
            "startsAt": format_rfc3339(lost_ns),
            "endsAt": "0001-01-01T00:00:00Z",
            "fingerprint": "1",
        }
        message = {"version": "4", "status": "firing", "receiver": "ibpulse", "alerts": [alert]}
        for _ in range(5):
            # Alertmanager repeats itself
            node.post(f"{PATH}/alertmanager", message)
            node.run(1)
        (listed,) = captures(node)
        recording = load(node.captures / listed["name"])
    labels = recording.meta.labels
    assert {name: labels[name] for name in ("alertname", "device", "severity", "trigger")} == {
        "alertname": "Lost",
        "device": "mlx5_1",
        "severity": "page",
        "trigger": "alertmanager",
    }
    assert recording.meta.trigger_ns == lost_ns // 1_000_000 * 1_000_000
    before, after = recording.bytes_per_second[1, 0, :499], recording.bytes_per_second[1, 0, 500:]
    assert np.abs(before - RATE).max() <= WORD_RATE
    assert after.max() == 0


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


def test_nobody_writes_to_a_daemon_that_was_not_opened(folder: Path) -> None:
    with Node(folder, rails=1) as node:
        node.run(2)
        for method, path in (("POST", PATH), ("POST", f"{PATH}/alertmanager"), ("DELETE", f"{PATH}/x")):
            given = {"json": {}} if method == "POST" else {}
            assert node.send(method, path, **given).status_code == 403
        assert captures(node) == []
