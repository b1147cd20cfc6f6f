"""The stream of a node through the gateway, over real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.fleet.daemons import Daemon
from tests.fleet.hostile import Hostile, endless
from tests.gateway.gateways import VERSION, Gateway
from tests.loop_clock import until
from tests.running import HANG_SECONDS

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


async def events(answer: httpx.Response) -> AsyncIterator[tuple[str, Any, str]]:
    """Name, data and id of each event."""
    fields: dict[str, str] = {}
    async for line in answer.aiter_lines():
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "event" in fields:
            yield fields["event"], json.loads(fields["data"]), fields.get("id", "")
            fields = {}


async def test_events_are_those_of_the_node_and_a_viewer_that_leaves_ends_the_request(
    gateway: Gateway, daemon: Daemon
) -> None:
    await gateway.list(gpu=daemon.url)
    seen: dict[str, Any] = {}
    async with gateway.served() as url, httpx.AsyncClient(timeout=HANG_SECONDS) as client:
        async with client.stream("GET", f"{url}/node/gpu/api/v1/stream?every=100ms") as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            async for name, data, identity in events(answer):
                seen[name] = data, identity
                if {"ports", "batch", "summary"} <= seen.keys():
                    assert daemon.counts.stream_viewers == 1
                    break
        ports, _ = seen["ports"]
        assert ports["gateway_version"] == VERSION
        assert [port["port"] for port in ports["ports"]] == ["mlx5_0:1", "mlx5_1:1"]
        assert len(seen["batch"][0]["megabytes_per_second"]) == 4
        assert seen["batch"][1].isdigit()
        assert seen["summary"][0]["node"]["rails"] == 2
        await until(lambda: not daemon.counts.stream_viewers)
        assert gateway.parts.counts.stream_viewers == 0


async def test_a_refusal_of_the_node_is_one_of_the_gateway(gateway: Gateway, daemon: Daemon) -> None:
    await gateway.list(gpu=daemon.url)
    found = await gateway.client.get("/node/gpu/api/v1/stream?every=1h")
    assert found.status_code == 422
    assert "every: 1h is out of bounds" in found.json()["detail"]


@pytest.mark.parametrize(
    "body",
    [
        b"event: ports\ndata: <script>\n\n",
        b'event: batch\nid: 7\ndata: {"start_ms": "x"}\n\n',
        b'event: dropped\nid: <b>\ndata: {"events": 1}\n\n',
    ],
)
async def test_an_event_that_is_not_as_expected_is_not_passed_on(
    gateway: Gateway, server: Hostile, body: bytes
) -> None:
    server.send("/api/v1/stream", HEAD + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
    await gateway.list(bad=server.url)
    found = await gateway.client.get("/node/bad/api/v1/stream")
    assert found.status_code == 502
    assert b"<script>" not in found.content


async def test_an_event_without_an_end_is_cut_off(gateway: Gateway, server: Hostile) -> None:
    async def send(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        while True:
            writer.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            await writer.drain()

    server.handlers["/api/v1/stream"] = send
    await gateway.list(bad=server.url)
    found = await gateway.client.get("/node/bad/api/v1/stream")
    assert found.status_code == 502
    assert "longer than 4000000 bytes" in found.json()["detail"]
    server.handlers["/api/v1/stream"] = endless
    assert (await gateway.client.get("/node/bad/api/v1/stream")).status_code == 502


async def test_a_bad_event_later_ends_the_stream_and_unknown_ones_are_dropped(
    gateway: Gateway, server: Hostile
) -> None:
    body = b'event: gap\ndata: {"start_ms": 1, "end_ms": 2, "more": "<b>"}\n\n'
    body += b"event: x\ndata: 1\n\nevent: gap\ndata: 1\n\n"
    server.send("/api/v1/stream", HEAD + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
    await gateway.list(bad=server.url)
    async with (
        gateway.served() as url,
        httpx.AsyncClient(timeout=HANG_SECONDS) as client,
        client.stream("GET", f"{url}/node/bad/api/v1/stream") as answer,
    ):
        found = [(name, data) async for name, data, _ in events(answer)]
    assert found == [("gap", {"start_ms": 1, "end_ms": 2}), ("end", {})]
