"""A job that hangs, as a gateway shows it on its home page and on the page of the job, soon and long afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pytest

from ibpulse.core.statistics.lateness import ClockOffsets
from ibpulse.workbench.simulate.timeline import Step, Workload
from ibpulse.workbench.simulate.workloads import make_workload
from tests.virtual.fleet import Fleet

JOB = "1001"
AFTER_SECONDS = (10.0, 60.0, 600.0, 3600.0)
STEP_SECONDS = 0.357


@dataclass(frozen=True)
class ReceiveOnly:
    """Another workload of which a node only receives its part."""

    workload: Workload
    name: str = "receive-only"

    def step(self, rng: np.random.Generator) -> Step:
        return self.workload.step(rng)

    def weights(self, rails: int) -> npt.NDArray[np.float64]:
        return self.workload.weights(rails) * np.array([0.0, 1.0])


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Two nodes of few ports with one job; the clock of the second is 40 ms ahead."""
    with Fleet(tmp_path, 2, "--slow.interval=1s", straggler=1, rails=2, workload="dense") as made:
        made.nodes[1].clock.step(0.04)
        made.run(24)
        yield made


def home(fleet: Fleet) -> dict[str, Any]:
    (job,) = fleet.get("/api/v1/jobs")["jobs"]
    return dict(job["stall"] or {})


def summary(fleet: Fleet, last: str = "10s") -> dict[str, Any]:
    return dict(fleet.get(f"/api/v1/jobs/{JOB}/summary", last=last)["job"])


def wait_until(fleet: Fleet, seconds: float, since_ns: int) -> None:
    """Let time pass up to so many seconds after a moment, most of it with all machines suspended."""
    left = seconds - (fleet.clock.time_ns() - since_ns) / 1e9
    if left > 20:
        fleet.nodes[0].suspend(left - 8)
        left = 8
    fleet.run(left)


def hang(fleet: Fleet) -> int:
    """Both nodes fall silent, the first one two seconds earlier; returns when the second does."""
    fleet.nodes[0].play("idle")
    fleet.run(2)
    fleet.nodes[1].play("idle")
    return fleet.clock.time_ns()


def test_a_hang_is_seen_alike_after_seconds_and_after_an_hour(fleet: Fleet) -> None:
    assert (home(fleet), summary(fleet)["stall"]) == ({}, None)
    stopped_ns = hang(fleet)
    viewer = fleet.view(f"/api/v1/jobs/{JOB}/stream")
    fleet.run(4)
    first = summary(fleet)["stall"]
    assert (first["rows"], first["first"], first["direction"]) == (["node-0", "node-1"], ["node-0"], "transmit")
    assert (first["before"], first["whole"]) == ("node-1", True)
    # a pause between collectives may come before the hang
    assert 1900 <= first["gap_ms"] <= 2010
    assert -200 <= first["since_ms"] - stopped_ns / 1e6 <= 11
    for seconds in AFTER_SECONDS:
        wait_until(fleet, seconds, stopped_ns)
        for last in ("1s", "10s", "60s") if seconds > 60 else ("1s", "10s"):
            found = summary(fleet, last)
            assert found["stall"] | {"silent_ms": 0} == first | {"silent_ms": 0}
            assert found["step_period_seconds"]["median"] == pytest.approx(STEP_SECONDS, rel=0.01)
        # the home page is up to one poll older
        shown = home(fleet)
        assert shown | {"silent_ms": 0} == first | {"silent_ms": 0}
        assert found["stall"]["silent_ms"] == pytest.approx(1000 * seconds, abs=2500)
        assert shown["silent_ms"] == pytest.approx(1000 * seconds, abs=8000)
    streamed = orjson.loads(viewer.events("summary")[-1])["job"]["stall"]
    assert streamed | {"silent_ms": 0} == first | {"silent_ms": 0}
    viewer.leave()
    for node in fleet.nodes:
        node.play("dense")
    fleet.run(10)
    assert (home(fleet), summary(fleet)["stall"]) == ({}, None)


def test_a_hang_without_known_clocks_has_no_order(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClockOffsets, "offset", lambda *_: None)
    stopped_ns = hang(fleet)
    for seconds in AFTER_SECONDS:
        wait_until(fleet, seconds, stopped_ns)
        for found in (home(fleet), summary(fleet)["stall"]):
            assert (sorted(found["rows"]), found["whole"]) == (["node-0", "node-1"], True)
            assert (found["first"], found["direction"], found["before"]) == ([], None, None)
            assert found["since_ms"] == pytest.approx(stopped_ns / 1e6, abs=250)


def test_a_sender_that_stops_is_first_although_it_still_receives(fleet: Fleet) -> None:
    fleet.nodes[1].play(ReceiveOnly(make_workload("dense")))
    fleet.run(2)
    fleet.nodes[0].play("idle")
    fleet.run(0.5)
    fleet.nodes[1].play("idle")
    stopped_ns = fleet.clock.time_ns()
    for seconds in (10.0, 3600.0):
        wait_until(fleet, seconds, stopped_ns)
        for found in (home(fleet), summary(fleet)["stall"]):
            assert (found["first"], found["direction"], found["before"]) == (["node-1"], "transmit", "node-0")


def test_a_restarted_daemon_leaves_the_order_unknown(fleet: Fleet) -> None:
    stopped_ns = hang(fleet)
    wait_until(fleet, 10.0, stopped_ns)
    fleet.nodes[0].restart(after=2)
    fleet.run(15)
    found = summary(fleet)["stall"]
    assert (found["rows"], found["first"], found["whole"]) == (["node-1"], [], True)
