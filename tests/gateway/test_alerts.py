"""Captures for alerts, whatever Alertmanager says and however often it says it."""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import Any

import pytest

from ibpulse.base.internal_errors import Occurrences
from ibpulse.core.captures import Alert
from ibpulse.gateway.alerts import LOGGED_PROBLEMS, AlertGroup
from ibpulse.gateway.jobs import FleetJob
from ibpulse.gateway.parts import GatewayCaptures
from tests.fleet.hostile import Hostile, hostile
from tests.gateway.gateways import Gateway
from tests.tables import for_each

PATH = "/api/v1/captures/alertmanager"
SECOND_NS = 10**9


def alert(name: str, status: str = "firing", **labels: str) -> dict[str, Any]:
    return {"status": status, "labels": {"alertname": name, **labels}}


@for_each(
    [
        (60, 0, (60, 10)),
        (60, 4, (64, 6)),
        (60, 120, (180, 0.1)),
        (60, 121, (60, 10)),
        (240, 50, (290, 0.1)),
        # with a history of five minutes, a node would refuse
        (240, 51, (240, 10)),
        (60, -5, (60, 10)),
    ]
)
def test_a_capture_lies_around_the_start_of_its_alert(before: int, age: int, expected: tuple[float, float]) -> None:
    now_ns = 1_763_683_200 * SECOND_NS
    group = AlertGroup(FleetJob(("slurm", "7")))
    group.alerts.append(Alert("f", True, {"alertname": "Stalled"}, now_ns - age * SECOND_NS))
    group.news.add(group.key(group.alerts[0]))
    wanted = group.plan(GatewayCaptures(before_ns=before * SECOND_NS), now_ns)
    assert (wanted.before_ns / SECOND_NS, wanted.after_ns / SECOND_NS) == expected


async def test_a_capture_that_failed_is_taken_when_alertmanager_tries_again(writable: Gateway, server: Hostile) -> None:
    body = {"version": "4", "alerts": [alert("Stalled", node="gpu-1")]}
    await writable.list(**{"gpu-1": server.url})
    refused = await writable.client.post(PATH, json=body)
    assert (refused.status_code, refused.json()["type"]) == (503, "/api/docs#no-captures")
    assert refused.json()["detail"].startswith("gpu-1 takes no capture: ")
    name = "20261123T053000.123Z-stalled-0123abcd.parquet"
    pending = {"name": name, "trigger_ms": 1, "reason": "stalled", "ready_ms": 2, "url": "/"}
    server.answer("/api/v1/captures", json.dumps(pending).encode(), status="202 Accepted")
    assert [each["name"] for each in (await writable.client.post(PATH, json=body)).json()["nodes"]] == [name]
    assert (await writable.client.post(PATH, json=body)).json()["repeated"] == 1


async def test_problems_beyond_those_that_are_logged_are_not_remembered(
    writable: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    remembered: list[Hashable] = []
    monkeypatch.setattr(Occurrences, "is_news", lambda _, key: remembered.append(key) is None)
    body = {"version": "4", "alerts": [alert("Stalled", node=f"unknown-{number}") for number in range(500)]}
    assert len((await writable.client.post(PATH, json=body)).json()["problems"]) == 500
    assert len(remembered) == LOGGED_PROBLEMS


async def test_an_address_that_several_nodes_have_names_none(writable: Gateway, server: Hostile) -> None:
    async with hostile() as other:
        await writable.list(node1=server.url, node2=other.url)
        body = {"version": "4", "alerts": [alert("Vague", instance="127.0.0.1:9100")]}
        (problem,) = (await writable.client.post(PATH, json=body)).json()["problems"]
    assert problem["reason"] == "'127.0.0.1:9100' could be node1, node2; name one of them in the label node"
