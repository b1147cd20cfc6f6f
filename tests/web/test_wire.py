"""Requests as bytes on real sockets: each gets its answer, at the end of the server too, and none a line in the log."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import socket
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from ibpulse.agent.web.app import create_app
from ibpulse.core.events.watch import KnownPort
from ibpulse.core.http import connection
from ibpulse.core.http.host_names import HostCheck
from ibpulse.core.http.middleware import OuterMiddleware
from ibpulse.core.http.server import WebServer, serve
from ibpulse.core.metrics.web import WebCounts
from tests.turns import until
from tests.web.raw_client import Client, on_uvloop
from tests.web.rings import Node
from tests.web.test_crowd import LOGIN, running, with_users
from tests.web.test_stream import advance

READY = b"GET /-/ready HTTP/1.1\r\nHost: a\r\n\r\n"
MALFORMED = [
    b"\x16\x03\x01 hello\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost a\r\n\r\n",
    b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
]


@pytest.mark.parametrize(
    "sent", [*MALFORMED, b"GET / HTTP/1.1\r\nX-Filler: " + b"x" * 70_000, b"GET / HTTP/1.1\r\nX: "]
)
@pytest.mark.parametrize("before", [b"", READY * 2])
@on_uvloop
async def test_what_cannot_be_read_is_refused_and_ends_the_connection(
    node: Node, tmp_path: Path, caplog: pytest.LogCaptureFixture, sent: bytes, before: bytes
) -> None:
    async with running(create_app(node.parts(web_config=with_users(tmp_path)))) as server:
        client = await Client.open(server)
        long = b"X" in sent
        await client.send(before if long else before + sent)
        for _ in range(before.count(READY)):
            assert (await client.answer())[0] == 200
        if long:
            pieces = 7 if sent.endswith(b": ") else 0
            await client.send(sent, *[b"x" * 10_000] * pieces)
        if long or not before:
            status, headers, content = await client.answer()
            assert status == (431 if long else 400)
            assert headers["content-type"] == "application/problem+json"
            assert headers["connection"] == "close"
            assert json.loads(content)["status"] == status
        else:
            # of a request whose head was read, but not its body
            await asyncio.wait_for(client.reader.read(), 10)
        assert await client.ended()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("protocol", ["h2c", "websocket"])
@on_uvloop
async def test_a_request_for_an_upgrade_is_like_any_other(
    node: Node, caplog: pytest.LogCaptureFixture, protocol: str
) -> None:
    asked = f"GET /first HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: {protocol}\r\n\r\n"
    async with running(create_app(node.parts())) as server:
        client = await Client.open(server)
        for cut in (0, 30, len(asked), len(asked) + 5):
            whole = asked.encode() + READY + asked.encode() + READY
            await client.send(whole[:cut])
            await asyncio.sleep(0)
            await client.send(whole[cut:])
            assert [(await client.answer())[0] for _ in range(4)] == [404, 200, 404, 200]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@on_uvloop
async def test_data_that_begins_no_request_does_not_keep_a_connection(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.05)
    async with running(create_app(node.parts())) as server:
        client = await Client.open(server)
        await client.send(READY)
        assert (await client.answer())[0] == 200
        await client.send(b"\r\n")
        assert await client.ended()


@on_uvloop
async def test_who_hangs_up_amid_an_answer_leaves_no_trace(caplog: pytest.LogCaptureFixture) -> None:
    go, ended, requests = asyncio.Event(), asyncio.Event(), []

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        requests.append(scope["path"])
        await go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(20):
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b""})
        ended.set()

    async with running(OuterMiddleware(app, WebCounts(), 1000)) as server:
        client = socket.create_connection((server.host, server.port))
        client.sendall(b"GET /first HTTP/1.1\r\nHost: a\r\n\r\nGET /second HTTP/1.1\r\nHost: a\r\n\r\n")
        await until(lambda: requests)
        # closes by a reset
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        go.set()
        await asyncio.wait_for(ended.wait(), 20)
        await until(lambda: not server._server.server_state.tasks and not connections(server))
    assert requests == ["/first"]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@on_uvloop
async def test_requests_that_are_sent_before_the_end_are_answered(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    server = await serve(create_app(node.parts()), "127.0.0.1", 0)
    used = [socket.socket() for _ in range(8)]
    for each in used:
        each.setblocking(False)
        await loop.sock_connect(each, (server.host, server.port))
        await loop.sock_sendall(each, READY)
        assert b"200 OK" in await loop.sock_recv(each, 65_536)
    # the server reads nothing until it is told to stop: this test does not give way
    fresh = [socket.create_connection((server.host, server.port)) for _ in range(8)]
    for number, each in enumerate((*used, *fresh)):
        each.setblocking(False)
        each.sendall(READY * (1 + number % 2))
    answers = asyncio.gather(*(read_all(each) for each in (*used, *fresh)))
    # begins before the event loop reads anything
    await server._server.shutdown()
    await asyncio.wait_for(server.stop(), 20)
    for number, answer in enumerate(await answers):
        assert answer.count(b"HTTP/1.1 200 OK") == 1 + number % 2
    with pytest.raises(ConnectionRefusedError):
        await Client.open(server)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@on_uvloop
async def test_connections_with_no_request_do_not_hold_up_the_end(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    server = await serve(create_app(node.parts()), "127.0.0.1", 0, shutdown_seconds=60)
    clients = [await Client.open(server) for _ in range(4)]
    await clients[0].send(b"GET / HT")
    await clients[1].send(READY)
    assert (await clients[1].answer())[0] == 200
    await asyncio.wait_for(server.stop(), 20)
    assert [await client.ended() for client in clients] == [True] * 4
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@on_uvloop
async def test_a_viewer_that_reads_nothing_is_disconnected(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    # five seconds from one look at the clock to the next
    times = itertools.count(step=5)
    monkeypatch.setattr(connection, "time", SimpleNamespace(monotonic=lambda: float(next(times))))
    counts, loop = WebCounts(), asyncio.get_running_loop()
    known, rounds = node.parts().node.supervisor.known_ports, 0

    def know() -> tuple[KnownPort, ...]:
        nonlocal rounds
        rounds += 1
        return known()

    parts = node.parts(counts=counts, known_ports=know)
    async with running(create_app(parts)) as server:
        deaf = socket.socket()
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.setblocking(False)
        await loop.sock_connect(deaf, (server.host, server.port))
        await loop.sock_sendall(deaf, b"GET /api/v1/stream?every=100ms HTTP/1.1\r\nHost: a\r\n\r\n")
        await until(lambda: counts.stream_viewers)
        while counts.stream_viewers:
            begin = rounds
            advance(node, 10)
            await until(lambda begin=begin: rounds > begin or not counts.stream_viewers)
            for each in connections(server):
                each.check_reading()
        parts.ending.set()
        deaf.close()


@on_uvloop
async def test_no_refused_request_writes_to_the_log_and_each_is_counted(
    node: Node, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    refused = [
        ("GET /metrics", "Host: localhost", 401),
        ("GET /metrics", "Host: localhost\r\nAuthorization: Basic eDp5", 401),
        ("POST /metrics", f"Host: localhost\r\n{LOGIN}\r\nSec-Fetch-Site: cross-site", 403),
        ("GET /nowhere", f"Host: localhost\r\n{LOGIN}", 404),
        ("PUT /metrics", f"Host: localhost\r\n{LOGIN}", 405),
        ("POST /metrics", f"Host: localhost\r\n{LOGIN}\r\nContent-Length: 2000000\r\nExpect: 100-continue", 413),
        ("GET /metrics?" + "x" * 20_000, f"Host: localhost\r\n{LOGIN}", 414),
        ("GET /metrics", f"Host: evil.example\r\n{LOGIN}", 421),
        ("GET /api/v1/window?last=x", f"Host: localhost\r\n{LOGIN}", 422),
    ]
    counts = WebCounts()
    parts = node.parts(web_config=with_users(tmp_path), counts=counts, hosts=HostCheck("127.0.0.1"))
    async with running(create_app(parts)) as server:
        caplog.set_level(logging.INFO)
        for line, headers, status in refused:
            client = await Client.open(server)
            await client.send(f"{line} HTTP/1.1\r\n{headers}\r\n\r\n".encode())
            assert (await client.answer())[0] == status, line
        assert not caplog.records
    for status in {status for *_, status in refused}:
        counted = sum(count for (_, code), count in counts.requests.items() if code == status)
        assert counted == sum(status == each for *_, each in refused), status


def connections(server: WebServer) -> list[Any]:
    return list(server._server.server_state.connections)


async def read_all(connected: socket.socket) -> bytes:
    """All that comes until the server closes the connection."""
    loop, content = asyncio.get_running_loop(), b""
    while piece := await asyncio.wait_for(loop.sock_recv(connected, 65_536), 20):
        content += piece
    connected.close()
    return content
