from __future__ import annotations

from pathlib import Path

import pytest

from tests.web.conftest import make_client
from tests.web.rings import Node, make_node


@pytest.mark.parametrize(
    ("age", "status", "sentence"),
    [
        (0.021, 200, "Healthy: the sampler's last heartbeat is 0.02 s old (limit: 5 s)."),
        (5.0, 200, "Healthy: the sampler's last heartbeat is 5.00 s old (limit: 5 s)."),
        (
            5.01,
            503,
            "Not healthy: the sampler's last heartbeat is 5.01 s old (limit: 5 s); see the log.",
        ),
        (None, 503, "Not healthy: no heartbeat from the sampler yet."),
    ],
)
async def test_health_is_a_young_heartbeat(node: Node, age: float | None, status: int, sentence: str) -> None:
    async with make_client(node.parts(heartbeat_age_seconds=lambda: age)) as client:
        answer = await client.get("/-/healthy")
    assert (answer.status_code, answer.text) == (status, sentence + "\n")


async def test_a_node_without_ports_is_healthy(tmp_path: Path) -> None:
    node = make_node(tmp_path, [])
    async with make_client(node.parts(heartbeat_age_seconds=lambda: None)) as client:
        answer = await client.get("/-/healthy")
    assert (answer.status_code, answer.text) == (200, "Healthy: no port to sample.\n")


@pytest.mark.parametrize("good", [True, False])
async def test_readiness_is_what_the_daemon_says(node: Node, good: bool) -> None:
    async with make_client(node.parts(ready=lambda: (good, "The sentence."))) as client:
        answer = await client.get("/-/ready")
    assert (answer.status_code, answer.text) == (200 if good else 503, "The sentence.\n")
