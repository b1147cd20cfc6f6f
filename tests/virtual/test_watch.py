"""A job that falls silent while nobody looks: its verdict, captures and alert, and gateways that come and go."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pytest

from ibpulse.base.instants import parse_rfc3339
from ibpulse.core.statistics.lateness import ClockOffsets
from ibpulse.workbench.simulate.jobs import JOBS_FOLDER
from ibpulse.workbench.simulate.timeline import Step, Workload
from ibpulse.workbench.simulate.workloads import make_workload
from tests.virtual.fleet import Fleet

JOB = "1001"


@dataclass
class Alertmanager:
    """Takes alerts; `requests` have the time of each and its alerts."""

    fleet: Fleet
    requests: list[tuple[int, list[dict[str, Any]]]] = field(default_factory=list)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert scope["path"] == "/api/v2/alerts"
        self.requests.append((self.fleet.clock.time_ns(), json.loads((await receive())["body"])))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def firing(self) -> list[dict[str, Any]]:
        """The alerts that it shows now."""
        now_ns = self.fleet.clock.time_ns()
        return [alert for alert in (self.requests or [(0, [])])[-1][1] if parse_rfc3339(alert["endsAt"]) > now_ns]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Two nodes that share a job; the clock of the second is 40 ms ahead."""
    flags = ("--slow.interval=1s", "--capture.allow-unauthenticated=true")
    with Fleet(tmp_path, 2, *flags, straggler=1, rails=2, workload="dense", watched=True) as made:
        made.nodes[1].clock.step(0.04)
        made.others["alertmanager"] = Alertmanager(made)
        made.run(16)
        yield made


def alertmanager(fleet: Fleet) -> Alertmanager:
    found: Alertmanager = fleet.others["alertmanager"]
    return found


def stalls(fleet: Fleet) -> list[dict[str, Any]]:
    (job,) = fleet.get("/api/v1/verdicts")["jobs"]
    assert (job["job_id"], job["armed"]) == (JOB, True)
    found: list[dict[str, Any]] = job["stalls"]
    return found


def summary(fleet: Fleet, last: str = "10s") -> dict[str, Any]:
    return dict(fleet.get(f"/api/v1/jobs/{JOB}/summary", last=last)["job"])


def told(job: dict[str, Any]) -> dict[str, Any]:
    """The verdict on a job without what goes on."""
    return {name: each for name, each in job["verdict"].items() if name not in ("silent_ms", "pushed")}


def captures(fleet: Fleet, reason: str) -> list[set[str]]:
    """The nodes of each capture of the job with this reason."""
    listed = fleet.get(f"/api/v1/jobs/{JOB}/captures")["captures"]
    return [{each["node"] for each in capture["nodes"]} for capture in listed if capture["reason"] == reason]


def stop(fleet: Fleet, first: int | None = None, early: float = 1.0) -> int:
    """All nodes stop, one of them earlier; returns the time of the last byte, or a little later."""
    if first is not None:
        fleet.nodes[first].play("idle")
        fleet.run(early)
    for node in fleet.nodes:
        node.play("idle")
    return fleet.clock.time_ns()


def resume(fleet: Fleet) -> None:
    for node in fleet.nodes:
        node.fault({})
        node.play("dense")


def run_until_told(fleet: Fleet, stopped_ns: int, count: int = 1) -> float:
    """Seconds from the last byte until the alert is at Alertmanager."""
    for _ in range(400):
        if len(alertmanager(fleet).requests) >= count:
            return (alertmanager(fleet).requests[count - 1][0] - stopped_ns) / 1e9
        fleet.run(0.1)
    raise AssertionError("no alert")


def test_a_node_that_stops_first_is_named_within_seconds_and_the_alert_ends_with_the_silence(fleet: Fleet) -> None:
    assert (stalls(fleet), alertmanager(fleet).requests) == ([], [])
    stopped_ns = stop(fleet, first=1)
    assert run_until_told(fleet, stopped_ns) < 8
    (alert,) = alertmanager(fleet).firing()
    assert alert["labels"] == {"alertname": "IBPulseTrafficStalled", "severity": "warning", "job_id": JOB}
    assert (alert["annotations"]["verdict"], alert["annotations"]["node"]) == ("node", "node-1")
    assert parse_rfc3339(alert["startsAt"]) == pytest.approx(stopped_ns, abs=0.4e9)
    (stall,) = stalls(fleet)
    assert (stall["verdict"], stall["nodes"], stall["ended_ms"]) == ("node", ["node-1"], None)
    assert stall["sentence"] in alert["annotations"]["summary"]
    fleet.run(3)
    assert captures(fleet, "stall-node") == [{"node-0", "node-1"}]
    shown = summary(fleet)
    assert (shown["armed"], shown["verdict"]["verdict"], shown["step_period_seconds"]) == (True, "node", None)
    viewer = fleet.view(f"/api/v1/jobs/{JOB}/stream")
    fleet.run(30)
    later = [*(summary(fleet, last) for last in ("1s", "60s")), orjson.loads(viewer.events("summary")[-1])["job"]]
    # soon and later, with any window
    assert [told(each) for each in later] == [told(shown)] * 3
    assert later[0]["verdict"]["silent_ms"] == pytest.approx((fleet.clock.time_ns() - stopped_ns) / 1e6, abs=3500)
    viewer.leave()
    resume(fleet)
    fleet.run(6)
    assert alertmanager(fleet).firing() == []
    (stall,) = stalls(fleet)
    assert (stall["resumed"], stall["verdict"]) == (True, "node")
    text = fleet.ask("/metrics").text
    assert 'ibpulse_gateway_verdicts_total{verdict="node"} 1' in text
    assert 'ibpulse_gateway_verdicts_withdrawn_total{verdict="node"} 1' in text


def test_gateways_that_start_or_run_beside_each_other_say_the_same_and_take_one_capture(fleet: Fleet) -> None:
    other = fleet.start_gateway()
    fleet.run(8)
    stopped_ns = stop(fleet, first=0)
    run_until_told(fleet, stopped_ns)
    fleet.run(4)
    (mine,), ((others,),) = stalls(fleet), [each.describe().model_dump()["stalls"] for each in other.verdicts]
    (alert,) = alertmanager(fleet).firing()
    assert len(captures(fleet, "stall-node")) == 1
    fleet.restart_gateway()
    count = len(alertmanager(fleet).requests)
    assert run_until_told(fleet, stopped_ns, count + 1) < 25
    (again,) = alertmanager(fleet).firing()
    (mine_again,) = stalls(fleet)
    for name in ("verdict", "nodes", "rails", "pushed"):
        assert mine[name] == others[name] == mine_again[name]
    assert (again["labels"], again["annotations"]["verdict"]) == (alert["labels"], alert["annotations"]["verdict"])
    assert parse_rfc3339(again["startsAt"]) == pytest.approx(parse_rfc3339(alert["startsAt"]), abs=2e6)
    fleet.run(4)
    assert len(captures(fleet, "stall-node")) == 1
    resume(fleet)
    fleet.run(6)
    assert alertmanager(fleet).firing() == []
    for part in (other.nodes, other.discovery):
        fleet.loop.run_until_complete(part.close())


def test_a_hang_without_known_clocks_has_no_order(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClockOffsets, "offset", lambda *_: None)
    stopped_ns = stop(fleet, first=0, early=2)
    fleet.run(10)
    found = summary(fleet)["verdict"]
    assert (found["verdict"], found["nodes"]) == ("unknown", [])
    assert found["since_ms"] == pytest.approx(stopped_ns / 1e6, abs=250)


@dataclass(frozen=True)
class ReceiveOnly:
    """Another workload of which a node only receives its part."""

    workload: Workload
    name: str = "receive-only"

    def step(self, rng: np.random.Generator) -> Step:
        return self.workload.step(rng)

    def weights(self, rails: int) -> npt.NDArray[np.float64]:
        return self.workload.weights(rails) * np.array([0.0, 1.0])


def test_a_sender_that_stops_is_first_although_it_still_receives(fleet: Fleet) -> None:
    fleet.nodes[1].play(ReceiveOnly(make_workload("dense")))
    fleet.run(2)
    stop(fleet, first=0, early=0.5)
    fleet.run(10)
    assert summary(fleet)["verdict"]["nodes"] == ["node-1"]


def test_a_gateway_without_a_network_finds_no_stall_and_a_job_that_ends_has_no_alert(fleet: Fleet) -> None:
    fleet.unreachable.update(node.name for node in fleet.nodes)
    fleet.run(30)
    assert (stalls(fleet), alertmanager(fleet).requests) == ([], [])
    fleet.unreachable.clear()
    fleet.run(8)
    stopped_ns = stop(fleet, first=1)
    run_until_told(fleet, stopped_ns)
    for node in fleet.nodes:
        (node.tree / JOBS_FOLDER / f"{JOB}.json").unlink()
    fleet.run(12)
    assert alertmanager(fleet).firing() == []


def test_machines_that_were_suspended_take_no_verdict_back(fleet: Fleet) -> None:
    stopped_ns = stop(fleet, first=1)
    run_until_told(fleet, stopped_ns)
    (before,), (alert,) = stalls(fleet), alertmanager(fleet).firing()
    # the monotonic clocks stop, and the wall clocks jump
    fleet.nodes[0].suspend(60)
    for _ in range(10):
        fleet.run(1)
        (stall,) = stalls(fleet)
        assert [stall[name] for name in ("verdict", "sentence", "ended_ms")] == ["node", before["sentence"], None]
        (still,) = alertmanager(fleet).firing()
        assert still["startsAt"] == alert["startsAt"]
    assert not any(node.events("job-resumed") for node in fleet.nodes)
    resume(fleet)
    fleet.run(8)
    assert (stalls(fleet)[0]["resumed"], alertmanager(fleet).firing()) == (True, [])


@pytest.mark.parametrize("seconds", [-40, 40])
def test_a_clock_that_is_set_in_a_silence_blames_no_other_node(fleet: Fleet, seconds: int) -> None:
    stop(fleet)
    fleet.run(6)
    fleet.nodes[0].clock.step(seconds)
    for _ in range(12):
        fleet.run(1)
        (stall,) = stalls(fleet)
        assert (stall["verdict"], stall["nodes"], stall["ended_ms"]) == ("together", [], None)
