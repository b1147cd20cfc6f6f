"""`/api/v1/clock`: the wall clock of the node, from which clients measure its offset."""

from __future__ import annotations

import gzip
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from ibpulse.base.clocks import ClockState
from ibpulse.core.answers.node import ClockAnswer
from ibpulse.core.metrics import web
from ibpulse.core.metrics.text import TextFormat, table_text
from tests.web.conftest import make_client
from tests.web.rings import Node, make_node


async def ask(node: Node, /, **parts: object) -> dict:
    async with make_client(node.parts(**parts)) as client:
        answer = await client.get("/api/v1/clock")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    ClockAnswer.model_validate(answer.json(), strict=True)
    return answer.json()


@pytest.mark.parametrize(
    ("state", "synchronised"), [(ClockState(True, 0.01), True), (ClockState(False, 16.0), False), (None, None)]
)
async def test_the_state_of_the_clock_is_the_kernels(
    node: Node, state: ClockState | None, synchronised: bool | None
) -> None:
    assert await ask(node, wall_clock_ns=lambda: 1763683203030123456, clock_state=lambda: state, name="gpu-1") == {
        "node": "gpu-1",
        "synchronised": synchronised,
        "time_ns": 1763683203030123456,
    }


@pytest.mark.parametrize(
    ("age", "status", "sentence"),
    [
        (0.021, 200, "Healthy: the sampler's last heartbeat is 0.02 s old (limit: 5 s)."),
        (5.0, 200, "Healthy: the sampler's last heartbeat is 5.00 s old (limit: 5 s)."),
        (5.01, 503, "Not healthy: the sampler's last heartbeat is 5.01 s old (limit: 5 s); see the log."),
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


def server_text(counts: web.WebCounts, *names: str) -> str:
    """The families of the server, all or some, as they stand on the page."""
    return table_text(web.ROWS, counts, TextFormat.PROMETHEUS, names)


async def test_gzip_comes_where_it_is_taken(client: httpx.AsyncClient) -> None:
    address = "/metrics?name[]=ibpulse_http_stream_viewers"
    async with client.stream("GET", address, headers={"Accept-Encoding": "gzip"}) as answer:
        raw = b"".join([part async for part in answer.aiter_raw()])
    assert answer.headers["content-encoding"] == "gzip"
    assert int(answer.headers["content-length"]) == len(raw)
    assert gzip.decompress(raw).decode() == server_text(web.WebCounts(), "ibpulse_http_stream_viewers")


async def test_the_metrics_route_touches_nothing_but_the_exposition(node: Node) -> None:
    def forbidden(*_: object) -> object:
        raise AssertionError("a scrape must format what is there")

    parts = node.parts(
        fabric=forbidden,
        slots=forbidden,
        known_ports=forbidden,
        reader=SimpleNamespace(capacity=1, interval_ns=10_000_000),
        heartbeat_age_seconds=forbidden,
        ready=forbidden,
    )
    async with make_client(parts) as client:
        assert (await client.get("/metrics")).status_code == 200


async def test_requests_are_counted_by_route_and_status(node: Node) -> None:
    parts = node.parts()
    async with make_client(parts) as client:
        for path in ("/", "/metrics", "/metrics/", "/api/v1/window", "/api/v1/window?last=x", "/a", "/b", "/c"):
            await client.get(path)
        await client.head("/-/ready")
        await client.post("/metrics")
    text = server_text(parts.counts)
    assert len([line for line in text.splitlines() if not line.startswith("#")]) < 60
    families = {family.name: family for family in text_string_to_metric_families(text)}
    counted = {
        (sample.labels["path"], sample.labels["code"]): sample.value
        for sample in families["ibpulse_http_requests"].samples
    }
    assert counted == {
        ("/", "200"): 1,
        ("/metrics", "200"): 2,
        ("/metrics", "405"): 1,
        ("/api/v1/window", "200"): 1,
        ("/api/v1/window", "422"): 1,
        ("/-/ready", "200"): 1,
        ("other", "404"): 3,
    }
    durations = families["ibpulse_http_request_duration_seconds"].samples
    spent = {sample.labels["path"]: sample.value for sample in durations if sample.name.endswith("_sum")}
    assert all(seconds > 0 for seconds in spent.values())
    assert {path for path, _ in counted} == set(spent)
