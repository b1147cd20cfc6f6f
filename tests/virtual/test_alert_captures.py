"""Alertmanager's notifications to a gateway: one capture of each alert, on the nodes that it names."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.test_alerts import PATH, alert
from tests.tables import for_each
from tests.virtual.fleet import Fleet, share

NODES = ("node-0", "node-1", "node-2")
JOB = "7"


@pytest.fixture(scope="module")
def fleet(shared_folder: Path) -> Iterator[Fleet]:
    """Three nodes with one job."""
    flags = (share(shared_folder), "--slow.interval=1s", "--capture.allow-unauthenticated=true")
    with Fleet(shared_folder, 3, *flags, workload="dense") as made:
        made.run(8)
        yield made


def notify(fleet: Fleet, *alerts: dict[str, Any]) -> dict[str, Any]:
    answer = fleet.post(PATH, {"version": "4", "alerts": alerts})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@for_each(
    [
        ("node-0", {"instance": "node-0:80"}),
        ("node-1", {"node": "node-1", "instance": "10.255.255.254:9100"}),
        ("node-2", {"hostname": "NODE-2.cluster.example.org"}),
    ]
)
def test_an_alert_without_a_job_takes_a_capture_on_the_node_that_it_names(
    node: str, labels: dict[str, str], fleet: Fleet
) -> None:
    found = notify(fleet, alert("Alone", **labels))
    assert [each["node"] for each in found["nodes"]] == [node]
    assert (found["captures"], found["repeated"], found["problems"]) == ([], 0, [])
    # the capture ends ten seconds later
    fleet.run(12)
    names = {each["name"] for each in fleet.get(f"/node/{node}/api/v1/captures")["captures"]}
    assert found["nodes"][0]["name"] in names


@for_each(
    [
        ({}, "it names neither a job (job_id) nor a node (instance, node, nodename, hostname)"),
        ({"instance": "gpu-9:10055"}, "no node is called 'gpu-9:10055'; see /api/v1/nodes for those that exist"),
        ({"job_id": "9", "node": "node-1"}, f"No such job: '9'. Known jobs: {JOB}."),
    ]
)
def test_an_alert_without_one_node_or_job_is_told_by_a_sentence(
    labels: dict[str, str], reason: str, fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    found = notify(fleet, alert("Vague", **labels))
    assert found["problems"] == [{"alert": "Vague", "reason": reason}]
    assert (found["captures"], found["nodes"]) == ([], [])
    assert reason in caplog.text


def test_a_resolved_alert_does_nothing(fleet: Fleet) -> None:
    resolved = [alert("Over", "resolved", job_id=JOB), alert("Over", "resolved", node="node-1")]
    assert notify(fleet, *resolved) == {"captures": [], "nodes": [], "repeated": 0, "problems": []}


def test_the_same_alert_is_captured_once_even_if_it_comes_twice_at_the_same_time(fleet: Fleet) -> None:
    # of each node, as rules by instance have it
    alerts = [alert("Twice", job_id=JOB, instance=f"{node}:80") for node in NODES]
    body = {"version": "4", "alerts": alerts}

    async def twice() -> list[Any]:
        answers = await asyncio.gather(*(fleet.request("POST", PATH, json=body) for _ in range(2)))
        return [answer.json() for answer in answers]

    found = [*fleet.loop.run_until_complete(twice()), notify(fleet, alert("Twice", job_id=f"slurm:{JOB}"))]
    assert sorted(len(each["captures"]) for each in found) == [0, 0, 1]
    assert sorted(each["repeated"] for each in found) == [0, 1, 3]
    for seconds in (3600, -3600):
        fleet.clock.step(seconds)
        assert notify(fleet, alert("Twice", job_id=JOB))["repeated"] == 1
    other = notify(fleet, alert("Another", job_id=JOB))
    assert [each["node"] for each in other["captures"][0]["nodes"]] == list(NODES)
