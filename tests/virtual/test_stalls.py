"""A job that hangs, as a gateway shows it on the page of the job, soon and later."""

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
    with Fleet(tmp_path, 2, "--slow.interval=1s", straggler=1, rails=2, workload="dense", watched=True) as made:
        made.nodes[1].clock.step(0.04)
        made.run(24)
        yield made


def told(job: dict[str, Any]) -> dict[str, Any]:
    """The verdict on a job without what goes on."""
    return {name: each for name, each in (job["verdict"] or {}).items() if name not in ("silent_ms", "pushed")}


def summary(fleet: Fleet, last: str = "10s") -> dict[str, Any]:
    return dict(fleet.get(f"/api/v1/jobs/{JOB}/summary", last=last)["job"])


def hang(fleet: Fleet) -> int:
    """Both nodes fall silent, the first one two seconds earlier; returns when the second does."""
    fleet.nodes[0].play("idle")
    fleet.run(2)
    fleet.nodes[1].play("idle")
    return fleet.clock.time_ns()


def test_a_hang_is_seen_alike_after_seconds_and_later(fleet: Fleet) -> None:
    assert summary(fleet)["verdict"] is None
    stopped_ns = hang(fleet)
    viewer = fleet.view(f"/api/v1/jobs/{JOB}/stream")
    fleet.run(4)
    first = told(summary(fleet))
    assert (first["verdict"], first["nodes"], first["ended_ms"]) == ("node", ["node-0"], None)
    assert -200 <= first["since_ms"] - stopped_ns / 1e6 <= 20
    for seconds in (10.0, 40.0):
        fleet.run(seconds - (fleet.clock.time_ns() - stopped_ns) / 1e9)
        for last in ("1s", "60s"):
            found = summary(fleet, last)
            assert (told(found), found["step_period_seconds"]) == (first, None)
        assert found["verdict"]["silent_ms"] == pytest.approx(1000 * seconds, abs=3500)
    assert told(orjson.loads(viewer.events("summary")[-1])["job"]) == first
    viewer.leave()
    for node in fleet.nodes:
        node.play("dense")
    fleet.run(10)
    assert summary(fleet)["verdict"]["resumed"] is True


def test_a_hang_without_known_clocks_has_no_order(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClockOffsets, "offset", lambda *_: None)
    stopped_ns = hang(fleet)
    fleet.run(10)
    found = summary(fleet)["verdict"]
    assert (found["verdict"], found["nodes"]) == ("unknown", [])
    assert found["since_ms"] == pytest.approx(stopped_ns / 1e6, abs=250)


def test_a_sender_that_stops_is_first_although_it_still_receives(fleet: Fleet) -> None:
    fleet.nodes[1].play(ReceiveOnly(make_workload("dense")))
    fleet.run(2)
    fleet.nodes[0].play("idle")
    fleet.run(0.5)
    fleet.nodes[1].play("idle")
    fleet.run(10)
    assert summary(fleet)["verdict"]["nodes"] == ["node-1"]
