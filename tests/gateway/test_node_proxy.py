"""The data of a node through the gateway: nothing that is not data, no node that costs others time, shared streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from ibpulse.core.http.application import RequestLimits
from ibpulse.core.http.problems import ProblemError
from ibpulse.core.http.stream import QUEUE_BYTES, Viewer
from ibpulse.core.metrics.web import WebCounts
from ibpulse.gateway import node_proxy
from ibpulse.gateway.live import JobHub
from ibpulse.gateway.node_proxy import KEPT_BYTES, MAX_LARGE, NodeHub, Recent
from tests.fleet.daemons import LOOP_CLOCK, Daemon
from tests.fleet.hostile import Hostile, drip, endless, hostile, never
from tests.gateway.gateways import Gateway
from tests.loop_clock import until
from tests.running import HANG_SECONDS

HTML = b"<script>alert(1)</script>"
RESOURCES = ("ports", "topology", "jobs", "events", "summary", "captures", "window", "stream")


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


Event = tuple[str, dict[str, Any], str]
ALL = {"ports", "events", "batch", "summary"}


async def take(viewer: Viewer, *names: str) -> list[Event]:
    """The events of a viewer until it has one of each of these names."""
    found: list[Event] = []
    async with asyncio.timeout(20):
        while not set(names) <= {name for name, _, _ in found}:
            for text in (await viewer.take()).split(b"\n\n"):
                fields = dict(line.partition(": ")[::2] for line in text.decode().split("\n"))
                if "event" in fields:
                    found.append((fields["event"], json.loads(fields["data"]), fields.get("id", "")))
    return found


async def hub_of(gateway: Gateway, url: str) -> tuple[NodeHub, Any]:
    """The hub of a gateway that lists one node, and the node."""
    await gateway.list(node=url)
    return NodeHub(gateway.parts), gateway.nodes.get("node")


def ids(events: list[Event]) -> list[str]:
    return [identity for name, _, identity in events if name == "batch"]


async def test_viewers_who_ask_the_same_share_one_stream(gateway: Gateway, daemon: Daemon) -> None:
    hub, node = await hub_of(gateway, daemon.url)
    first = await hub.join("a", node, (), "")
    events = await take(first, *ALL)
    # who comes later begins with what they all know, and goes on with what they all get
    second = await hub.join("b", node, (), "")
    begin = await take(second, "batch")
    assert [name for name, _, _ in begin][:3] == ["ports", "events", "summary"]
    more = ids(await take(first, "batch"))
    assert ids(begin)[0] in more
    # and who was interrupted goes on behind the last batch that it got
    again = await hub.join("c", node, (), ids(events)[0])
    rest = ids(await take(again, "batch"))
    while rest[-1] not in ids(events) + more:
        more += ids(await take(first, "batch"))
    whole = ids(events) + more
    assert rest == whole[1 : whole.index(rest[-1]) + 1]
    other = await hub.join("d", node, (("every", "250ms"),), "")
    assert daemon.counts.stream_viewers == 2
    assert gateway.parts.counts.stream_viewers == 4
    for viewer in (first, second, again, other):
        hub.leave(viewer)
    await until(lambda: not daemon.counts.stream_viewers)
    assert gateway.parts.counts.stream_viewers == 0


async def test_who_asks_for_a_past_that_others_do_not_have_gets_a_stream_of_its_own(
    gateway: Gateway, daemon: Daemon
) -> None:
    hub, node = await hub_of(gateway, daemon.url)
    first = await hub.join("a", node, (), "")
    (batch, *_) = [data for name, data, _ in await take(first, "batch") if name == "batch"]
    begin_ms = int(str(batch["start_ms"])) - 1000
    second = await hub.join("b", node, (("from", str(begin_ms)),), "")
    (earlier, *_) = [data for name, data, _ in await take(second, "batch") if name == "batch"]
    assert int(str(earlier["start_ms"])) <= begin_ms + 20
    assert daemon.counts.stream_viewers == 2
    for viewer in (first, second):
        hub.leave(viewer)


async def test_the_end_of_a_stream_ends_all_its_viewers_and_the_next_one_is_told_why(
    gateway: Gateway, server: Hostile
) -> None:
    body = b'event: gap\ndata: {"start_ms": 1, "end_ms": 2}\n\n'
    first, going_on = HEAD + b"%x\r\n%b\r\n" % (len(body), body), asyncio.Event()

    async def send(writer: asyncio.StreamWriter) -> None:
        writer.write(first)
        await writer.drain()
        await going_on.wait()
        writer.close()

    server.handlers["/api/v1/stream"] = send
    hub, node = await hub_of(gateway, server.url)
    two = [await hub.join(client, node, (), "") for client in ("a", "b")]
    going_on.set()
    for viewer in two:
        assert (await take(viewer, "end"))[-1][0] == "end"
        hub.leave(viewer)
    server.answer("/api/v1/stream", b"", status="401 Unauthorized")
    with pytest.raises(ProblemError, match="it asks for a password"):
        await hub.join("a", node, (), "")
    assert gateway.parts.counts.stream_viewers == 0


async def test_viewers_of_nodes_and_jobs_share_the_places(tmp_path: Path, daemon: Daemon) -> None:
    gateway = Gateway(tmp_path, clock=LOOP_CLOCK, limits=RequestLimits(max_viewers=2))
    (nodes, node), jobs = await hub_of(gateway, daemon.url), JobHub(gateway.parts)
    oldest, newest = [await nodes.join("a", node, (("every", every),), "") for every in ("100ms", "200ms")]
    # the newest of who has most gives its place away
    other = jobs.join("b", ("slurm", "4711"), (False, ()), None)
    assert (await take(newest, "end"))[-1][0] == "end"
    with pytest.raises(ProblemError, match="2 viewers are connected"):
        jobs.join("c", ("slurm", "4711"), (False, ()), None)
    with pytest.raises(ProblemError, match="2 viewers are connected"):
        await nodes.join("c", node, (), "")
    for viewer in (oldest, newest):
        nodes.leave(viewer)
    jobs.leave(other)
    await gateway.close()


def test_a_viewer_that_does_not_read_has_a_few_megabytes_at_most() -> None:
    counts = WebCounts()
    viewer = Viewer(iter(()), counts)
    viewer.offer([bytes(QUEUE_BYTES // 3)] * 10)
    assert counts.stream_dropped_events == 7
    # one that is longer than that is alone
    viewer.offer([bytes(2 * QUEUE_BYTES)])
    assert counts.stream_dropped_events == 10


def test_what_is_kept_for_later_viewers_is_bounded() -> None:
    recent = Recent(10)
    for identity in range(20):
        recent.add(b"x", identity)
    assert [identity for identity, _ in recent.items] == list(range(10, 20))
    assert not recent.complete
    recent.add(bytes(KEPT_BYTES - 1), 20)
    assert [identity for identity, _ in recent.items] == [19, 20]
