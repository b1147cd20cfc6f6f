"""Many clients on real sockets, from several addresses: none of them takes what others need."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import socket
import struct
from pathlib import Path
from typing import Any

import bcrypt
import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ibpulse.agent.web.app import create_app
from ibpulse.core.http import admission
from ibpulse.core.http import server as server_module
from ibpulse.core.http.access import PROBES, AccessControl, HostCheck
from ibpulse.core.http.application import OuterMiddleware
from ibpulse.core.http.server import WebServer, serve
from ibpulse.core.http.web_config import WebConfigReloader
from ibpulse.core.metrics.web import WebCounts
from tests.running import HANG_SECONDS
from tests.turns import until
from tests.web.raw_client import Client, on_uvloop, running
from tests.web.rings import Node

LOGIN = "Authorization: Basic " + base64.b64encode(b"alice:secret").decode()


def with_users(directory: Path) -> WebConfigReloader:
    stored = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    (directory / "web.yml").write_text(
        f"basic_auth_users: {{alice: '{stored}'}}\nhttp_server_config: {{headers: {{X-Frame-Options: deny}}}}\n"
    )
    return WebConfigReloader(directory / "web.yml")


class Slow:
    """An application that answers probes at once and other requests when `go` is set."""

    def __init__(self) -> None:
        self.go, self.requests = asyncio.Event(), 0
        self.app = OuterMiddleware(AccessControl(self.answer, None, 1000), WebCounts(), 1000)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] not in PROBES:
            self.requests += 1
            await self.go.wait()
        await Response(b"done")(scope, receive, send)

    async def hold(self, server: WebServer, *sources: str) -> list[Client]:
        """Clients with a request that is being answered."""
        clients = [await Client.open(server, source) for source in sources]
        for client in clients:
            await client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await until(lambda: self.requests >= len(sources))
        return clients


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"])
@on_uvloop
async def test_idle_connections_of_strangers_hold_up_neither_probes_nor_users(
    node: Node, tmp_path: Path, sent: bytes
) -> None:
    async with running(create_app(node.parts(web_config=with_users(tmp_path)))) as server:
        strangers = []
        for address in range(2, 13):
            for _ in range(admission.MAX_CONNECTIONS_PER_CLIENT):
                strangers.append(await Client.open(server, f"127.0.0.{address}"))
                await strangers[-1].send(sent)
                if sent.endswith(b"\r\n\r\n"):
                    assert (await strangers[-1].answer())[0] == 401
        for path in PROBES:
            assert (await (await Client.open(server)).get(path))[0] == 200
        assert (await (await Client.open(server)).get("/metrics", LOGIN))[0] == 200


@on_uvloop
async def test_a_body_that_does_not_come_keeps_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MAX_CONNECTIONS", 2)
    slow = Slow()
    slow.go.set()
    async with running(slow.app) as server:
        bodies = [await Client.open(server, "127.0.0.2") for _ in range(2)]
        for client in bodies:
            await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nx")
        assert (await (await Client.open(server)).get("/"))[0] == 200
        assert await bodies[0].ended()


@pytest.mark.parametrize("bound", ["MAX_CONNECTIONS", "MAX_CONNECTIONS_PER_CLIENT"])
@on_uvloop
async def test_while_all_connections_are_in_use_only_probes_are_answered(
    monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(admission, bound, 2)
    slow = Slow()
    async with running(slow.app) as server:
        busy = await slow.hold(server, "127.0.0.1", "127.0.0.1")
        refused = await Client.open(server)
        status, headers, content = await refused.get("/")
        assert (status, headers["retry-after"], headers["connection"]) == (503, "1", "close")
        assert headers["content-type"] == "application/problem+json"
        assert headers["x-content-type-options"] == "nosniff"
        assert json.loads(content)["type"] == "/api/docs#too-many-connections"
        assert await refused.ended()
        waiting = await Client.open(server)
        for path in PROBES:
            assert (await waiting.get(path))[0] == 200
        slow.go.set()
        for client in busy:
            assert (await client.answer())[2] == b"done"
        assert (await waiting.get("/"))[0] == 200


@on_uvloop
async def test_after_a_refusal_and_in_a_crowd_a_connection_is_kept_only_shortly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node: Node
) -> None:
    monkeypatch.setattr(server_module, "SHORT_KEEP_ALIVE_SECONDS", 0.05)
    async with running(create_app(node.parts(web_config=with_users(tmp_path)))) as server:
        trusted, stranger = await Client.open(server), await Client.open(server)
        assert (await trusted.get("/metrics", LOGIN))[0] == 200
        assert (await stranger.get("/metrics"))[0] == 401
        assert await stranger.ended()
        assert (await trusted.get("/metrics", LOGIN))[0] == 200
        monkeypatch.setattr(admission, "CROWD", 0)
        assert (await trusted.get("/metrics", LOGIN))[0] == 200
        assert await trusted.ended()


@on_uvloop
async def test_forwarding_headers_do_not_change_the_client() -> None:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(scope["client"][0])(scope, receive, send)

    async with running(answer) as server:
        # many programs believe these from 127.0.0.1
        client = await Client.open(server, "127.0.0.1")
        headers = [f"{name}: 10.0.0.9" for name in ("X-Forwarded-For", "X-Real-IP", "Forwarded")]
        assert (await client.get("/", *headers))[2] == b"127.0.0.1"


@on_uvloop
async def test_a_right_password_gets_in_while_others_guess(node: Node, tmp_path: Path) -> None:
    async def guess(client: Client, number: int) -> None:
        guessed = base64.b64encode(b"alice:%d" % number).decode()
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await client.get("/metrics", f"Authorization: Basic {guessed}")

    async with running(create_app(node.parts(web_config=with_users(tmp_path)))) as server:
        clients = [await Client.open(server, f"127.0.0.{2 + number % 4}") for number in range(24)]
        guessing = [asyncio.create_task(guess(client, number)) for number, client in enumerate(clients)]
        first = await Client.open(server, "127.0.0.2")
        assert (await first.get("/metrics", "Authorization: Basic eDp5"))[0] in (401, 503)
        right = await Client.open(server, "127.0.0.9")
        assert (await right.get("/metrics", LOGIN))[0] == 200
        for task in guessing:
            task.cancel()
        await asyncio.gather(*guessing, return_exceptions=True)


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
async def test_malformed_requests_get_a_problem(
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
            await asyncio.wait_for(client.reader.read(), HANG_SECONDS)
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
async def test_a_client_that_disconnects_leaves_no_trace(caplog: pytest.LogCaptureFixture) -> None:
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
        await asyncio.wait_for(ended.wait(), HANG_SECONDS)
        await until(lambda: not server._server.server_state.tasks and not connections(server))
    assert requests == ["/first"]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@on_uvloop
async def test_requests_that_are_sent_before_the_end_are_answered(
    node: Node, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ibpulse.core.http.server.SHUTDOWN_SECONDS", 120)
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
    await server.stop()
    for number, answer in enumerate(await answers):
        assert answer.count(b"HTTP/1.1 200 OK") == 1 + number % 2
    with pytest.raises(ConnectionRefusedError):
        await Client.open(server)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


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
    while piece := await asyncio.wait_for(loop.sock_recv(connected, 65_536), HANG_SECONDS):
        content += piece
    connected.close()
    return content
