"""Streams of nodes that viewers share: one request to the node, the same events for all, and places for everybody."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from ibpulse.core.http.problems import ProblemError
from ibpulse.core.http.stream import QUEUE_BYTES, Viewer
from ibpulse.core.metrics.web import WebCounts
from ibpulse.gateway.live import JobHub
from ibpulse.gateway.node_proxy import KEPT_BYTES, NodeHub, Recent
from ibpulse.gateway.parts import GatewayLimits
from tests.fleet.daemons import LOOP_CLOCK, Daemon
from tests.fleet.hostile import Hostile
from tests.gateway.gateways import Gateway
from tests.gateway.test_node_stream import HEAD
from tests.loop_clock import until

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


def ids(events: list[Event]) -> list[str]:
    return [identity for name, _, identity in events if name == "batch"]


async def test_viewers_who_ask_the_same_share_one_stream(gateway: Gateway, daemon: Daemon) -> None:
    await gateway.list(gpu=daemon.url)
    node = gateway.nodes.get("gpu")
    assert node is not None
    hub = NodeHub(gateway.parts)
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
    await gateway.list(gpu=daemon.url)
    node = gateway.nodes.get("gpu")
    assert node is not None
    hub = NodeHub(gateway.parts)
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
    await gateway.list(bad=server.url)
    node = gateway.nodes.get("bad")
    assert node is not None
    hub = NodeHub(gateway.parts)
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
    gateway = Gateway(tmp_path, clock=LOOP_CLOCK, limits=GatewayLimits(max_viewers=2))
    await gateway.list(gpu=daemon.url)
    node = gateway.nodes.get("gpu")
    assert node is not None
    nodes, jobs = NodeHub(gateway.parts), JobHub(gateway.parts)
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
