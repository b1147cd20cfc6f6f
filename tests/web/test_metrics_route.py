from __future__ import annotations

import gzip
from types import SimpleNamespace

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from ibpulse.core.metrics import web
from ibpulse.core.metrics.text import TextFormat, table_text
from tests.web.conftest import make_client
from tests.web.rings import Node


def server_text(counts: web.WebCounts, *names: str) -> str:
    """The families of the server, all or some, as they stand on the page."""
    return table_text(web.ROWS, counts, TextFormat.PROMETHEUS, names)


@pytest.mark.parametrize("path", ["/metrics", "/metrics/"])
async def test_metrics_come_without_a_redirect(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path, headers={"Accept": "application/openmetrics-text", "Accept-Encoding": "identity"})
    assert answer.status_code == 200
    assert answer.text.endswith("# EOF\n")
    assert answer.headers["content-type"] == TextFormat.OPENMETRICS.value
    assert answer.headers["vary"] == "Accept, Accept-Encoding"
    assert "content-encoding" not in answer.headers


async def test_names_reach_the_exposition(client: httpx.AsyncClient) -> None:
    names = ("ibpulse_http_stream_viewers", "ibpulse_http_stream_dropped_events_total")
    answer = await client.get("/metrics", params={"name[]": names})
    assert answer.text == server_text(web.WebCounts(), *names)


async def test_gzip_comes_where_it_is_taken(client: httpx.AsyncClient) -> None:
    address = "/metrics?name[]=ibpulse_http_stream_viewers"
    async with client.stream("GET", address, headers={"Accept-Encoding": "gzip"}) as answer:
        raw = b"".join([part async for part in answer.aiter_raw()])
    assert answer.headers["content-encoding"] == "gzip"
    assert int(answer.headers["content-length"]) == len(raw)
    assert gzip.decompress(raw).decode() == server_text(web.WebCounts(), "ibpulse_http_stream_viewers")


async def test_head_gives_the_headers_alone(client: httpx.AsyncClient) -> None:
    full = await client.get("/metrics?name[]=ibpulse_http_stream_viewers")
    answer = await client.head("/metrics?name[]=ibpulse_http_stream_viewers")
    assert (answer.status_code, answer.content) == (200, b"")
    assert {**full.headers} == {**answer.headers}


async def test_the_metrics_route_touches_nothing_but_the_exposition(node: Node) -> None:
    def forbidden(*_: object) -> object:
        raise AssertionError("a scrape must format what is there")

    parts = node.parts(
        fabric=forbidden,
        slots=forbidden,
        known_ports=forbidden,
        reader=SimpleNamespace(capacity=1),
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


async def test_the_server_metrics_can_be_asked_for_by_name(node: Node) -> None:
    parts = node.parts()
    async with make_client(parts) as client:
        await client.get("/-/ready")
    families = text_string_to_metric_families(server_text(parts.counts, "ibpulse_http_requests_total"))
    assert [family.name for family in families] == ["ibpulse_http_requests"]
