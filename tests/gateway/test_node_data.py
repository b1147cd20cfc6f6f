"""The data of a node through the gateway: nothing that is not data, and no node that hangs costs others their time.

That it is the same as at the node is tested in tests/virtual/test_gateway_data.py.
"""

from __future__ import annotations

import asyncio

import httpx
import pytest

from ibpulse.gateway import node_proxy
from ibpulse.gateway.node_proxy import MAX_LARGE
from tests.fleet.daemons import Daemon
from tests.fleet.hostile import Hostile, drip, endless, hostile, never
from tests.gateway.gateways import Gateway
from tests.loop_clock import until

HTML = b"<script>alert(1)</script>"
RESOURCES = ("ports", "topology", "jobs", "events", "summary", "captures", "window", "stream")


async def test_a_parameter_that_the_node_refuses_is_refused_with_its_words(gateway: Gateway, daemon: Daemon) -> None:
    await gateway.list(gpu=daemon.url)
    found = await gateway.client.get("/node/gpu/api/v1/window?port=mlx5_9")
    assert (found.status_code, found.headers["content-type"]) == (404, "application/problem+json")
    assert "No such port: 'mlx5_9'" in found.json()["detail"]
    twice = await gateway.client.get("/node/gpu/api/v1/window?last=1s&last=2s")
    assert twice.status_code == 422


async def test_a_node_that_no_source_lists_is_not_there(gateway: Gateway, daemon: Daemon) -> None:
    await gateway.list(gpu=daemon.url)
    for path in ("ports", "stream"):
        found = await gateway.client.get(f"/node/other/api/v1/{path}")
        assert (found.status_code, found.json()["title"]) == (404, "No such node")


async def test_nothing_of_a_page_of_a_node_reaches_a_browser(gateway: Gateway, server: Hostile) -> None:
    for path in RESOURCES:
        server.answer(f"/api/v1/{path}", HTML, "text/html")
    await gateway.list(bad=server.url)
    for path in RESOURCES:
        for query in ("", "?format=npy", "?format=grafana"):
            found = await gateway.client.get(f"/node/bad/api/v1/{path}{query}")
            assert (found.status_code, found.headers["content-type"]) == (502, "application/problem+json"), path
            assert b"<script>" not in found.content


async def test_a_file_that_is_no_capture_is_not_passed_on(gateway: Gateway, server: Hostile) -> None:
    await gateway.list(bad=server.url)
    name = "20261123T053000.123Z-request-0123abcd.parquet"
    server.answer(f"/api/v1/captures/{name}", HTML, "application/vnd.apache.parquet")
    found = await gateway.client.get(f"/node/bad/api/v1/captures/{name}")
    assert b"<script>" not in found.content
    assert found.status_code == 502


async def test_the_password_of_a_viewer_is_not_sent_to_nodes(gateway: Gateway, server: Hostile) -> None:
    await gateway.list(bad=server.url)
    await gateway.client.get("/node/bad/api/v1/ports", auth=("ops", "secret"), headers={"Cookie": "a=b"})
    assert server.asked
    assert [head for head in server.asked if "uthorization" in head or "ookie" in head] == []


async def test_a_node_that_hangs_or_never_ends_costs_two_seconds(gateway: Gateway, server: Hostile) -> None:
    await gateway.list(bad=server.url)
    loop = asyncio.get_running_loop()
    for handler, status, least in ((never, 504, 2.0), (drip, 504, 2.0), (endless, 502, 0.0)):
        server.handlers["/api/v1/ports"] = handler
        begin = loop.time()
        found = await gateway.client.get("/node/bad/api/v1/ports")
        assert (found.status_code, handler) == (status, handler)
        assert found.json()["detail"].startswith("bad: ")
        # the clock goes on to the next timer while bytes are on their way, so it may show more
        assert least - 0.001 <= loop.time() - begin < least + 10


async def test_downloads_from_a_node_that_hangs_keep_no_other_client_waiting(
    gateway: Gateway, server: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    # less than a request waits for a place
    monkeypatch.setattr(node_proxy, "CAPTURE_SECONDS", 1.0)
    path = "/api/v1/captures/20261123T053000.123Z-request-0123abcd.parquet"
    server.handlers[path] = never
    content = b"PAR1 PAR1"
    async with hostile() as good:
        good.answer(path, content, "application/vnd.apache.parquet")
        await gateway.list(bad=server.url, good=good.url)
        transport = httpx.ASGITransport(app=gateway.app, client=("192.0.2.7", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as other:
            waiting = [asyncio.create_task(gateway.client.get(f"/node/bad{path}")) for _ in range(16)]
            await until(lambda: len([head for head in server.asked if "captures" in head]) == MAX_LARGE)
            # the next place is that of another client, although all others asked before it
            found = await other.get(f"/node/good{path}")
            assert (found.status_code, found.content) == (200, content)
            running = [task for task in waiting if not task.done()]
            assert len(running) >= 16 - 2 * MAX_LARGE
            for task in running:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
