"""The data of a node through the gateway: the same as at the node, and nothing that is not data."""

from __future__ import annotations

import asyncio
import io
import json
import time

import httpx
import numpy as np
import pytest

from ibpulse.gateway import node_data
from ibpulse.gateway.node_data import MAX_LARGE
from tests.fleet.hostile import Hostile, drip, endless, hostile, never
from tests.gateway.gateways import Gateway
from tests.running import Running

HTML = b"<script>alert(1)</script>"


def past_second() -> str:
    """Parameters of a second that is over, so that every answer about it is the same."""
    end = int(time.time()) - 1
    return f"from={end - 1}.0&to={end}.0"


def ask(daemon: Running, path: str) -> httpx.Response:
    """The answer of the node itself."""
    return httpx.get(daemon.url + path, timeout=20)


@pytest.mark.parametrize("path", ["ports", "topology", "jobs", "captures"])
async def test_what_the_node_says_is_what_the_gateway_says(gateway: Gateway, daemon: Running, path: str) -> None:
    await gateway.list(gpu=daemon.url)
    found = await gateway.client.get(f"/node/gpu/api/v1/{path}")
    assert (found.status_code, found.headers["content-type"]) == (200, "application/json")
    assert found.json() == daemon.ask(f"/api/v1/{path}").json()


@pytest.mark.parametrize("wanted", ["json", "grafana"])
async def test_a_window_is_that_of_the_node(gateway: Gateway, daemon: Running, wanted: str) -> None:
    await gateway.list(gpu=daemon.url)
    time.sleep(3)
    query = f"/api/v1/window?{past_second()}&port=mlx5_0&port=mlx5_1:1&format={wanted}"
    found = (await gateway.client.get(f"/node/gpu{query}")).json()
    direct = ask(daemon, query).json()
    for each in (found, direct):
        # the ring goes on
        (each["schema"]["meta"]["custom"] if wanted == "grafana" else each).pop("history")
    assert found == direct


async def test_an_array_of_a_window_is_that_of_the_node(gateway: Gateway, daemon: Running) -> None:
    await gateway.list(gpu=daemon.url)
    time.sleep(3)
    query = f"/api/v1/window?{past_second()}"
    array = await gateway.client.get(f"/node/gpu{query}&format=npy")
    assert json.loads(array.headers["x-ibpulse-window"])["points"] == 100
    direct = np.load(io.BytesIO(ask(daemon, f"{query}&format=npy").content))
    np.testing.assert_array_equal(np.load(io.BytesIO(array.content)), direct)


async def test_events_summary_and_clock_are_served(gateway: Gateway, daemon: Running) -> None:
    await gateway.list(gpu=daemon.url)
    events = (await gateway.client.get("/node/gpu/api/v1/events?kind=started&kind=link-up")).json()
    assert {event["kind"] for event in events["events"]} == {"started"}
    assert (await gateway.client.get("/node/gpu/api/v1/summary?last=1s")).json()["node"]["rails"] == 2
    assert (await gateway.client.get("/node/gpu/api/v1/clock")).json()["node"] == "gpu-7"


async def test_a_parameter_that_the_node_refuses_is_refused_with_its_words(gateway: Gateway, daemon: Running) -> None:
    await gateway.list(gpu=daemon.url)
    found = await gateway.client.get("/node/gpu/api/v1/window?port=mlx5_9")
    assert (found.status_code, found.headers["content-type"]) == (404, "application/problem+json")
    assert "No such port: 'mlx5_9'" in found.json()["detail"]
    twice = await gateway.client.get("/node/gpu/api/v1/window?last=1s&last=2s")
    assert twice.status_code == 422


async def test_a_node_that_no_source_lists_is_not_there(gateway: Gateway, daemon: Running) -> None:
    await gateway.list(gpu=daemon.url)
    for path in ("ports", "stream"):
        found = await gateway.client.get(f"/node/other/api/v1/{path}")
        assert (found.status_code, found.json()["title"]) == (404, "No such node")


@pytest.mark.parametrize("path", ["ports", "topology", "jobs", "events", "summary", "captures", "window", "stream"])
async def test_nothing_of_a_page_of_a_node_reaches_a_browser(gateway: Gateway, server: Hostile, path: str) -> None:
    server.answer(f"/api/v1/{path}", HTML, "text/html")
    await gateway.list(bad=server.url)
    for query in ("", "?format=npy", "?format=grafana"):
        found = await gateway.client.get(f"/node/bad/api/v1/{path}{query}")
        assert (found.status_code, found.headers["content-type"]) == (502, "application/problem+json")
        assert b"<script>" not in found.content


async def test_a_file_that_is_no_capture_is_not_passed_on(gateway: Gateway, server: Hostile) -> None:
    await gateway.list(bad=server.url)
    name = "20261123T053000.123Z-request.parquet"
    server.answer(f"/api/v1/captures/{name}", HTML, "application/vnd.apache.parquet")
    found = await gateway.client.get(f"/node/bad/api/v1/captures/{name}")
    assert b"<script>" not in found.content
    assert found.status_code in (404, 502)


@pytest.mark.parametrize(("handler", "status"), [(never, 504), (drip, 504), (endless, 502)])
async def test_a_node_that_hangs_or_never_ends_costs_two_seconds(
    gateway: Gateway, server: Hostile, handler: object, status: int
) -> None:
    await gateway.list(bad=server.url)
    server.handlers["/api/v1/ports"] = handler
    begin = time.monotonic()
    found = await gateway.client.get("/node/bad/api/v1/ports")
    assert found.status_code == status
    assert found.json()["detail"].startswith("bad: ")
    assert time.monotonic() - begin < 3


async def test_downloads_from_a_node_that_hangs_keep_no_other_client_waiting(
    gateway: Gateway, server: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_data, "CAPTURE_SECONDS", 1.0)
    name = "20261123T053000.123Z-request-0123abcd.parquet"
    server.handlers[f"/api/v1/captures/{name}"] = never
    content = b"PAR1 PAR1"
    async with hostile() as good, asyncio.timeout(60):
        good.answer(f"/api/v1/captures/{name}", content, "application/vnd.apache.parquet")
        await gateway.list(bad=server.url, good=good.url)
        transport = httpx.ASGITransport(app=gateway.app, client=("192.0.2.7", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as other:
            path = f"/node/bad/api/v1/captures/{name}"
            waiting = [asyncio.create_task(gateway.client.get(path)) for _ in range(16)]
            while len([head for head in server.asked if "captures" in head]) < MAX_LARGE:
                await asyncio.sleep(0.01)
            # the next place is that of another client, although all others asked before it
            found = await other.get(f"/node/good/api/v1/captures/{name}")
            assert (found.status_code, found.content) == (200, content)
            running = [task for task in waiting if not task.done()]
            assert len(running) >= 16 - 2 * MAX_LARGE
            for task in running:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
