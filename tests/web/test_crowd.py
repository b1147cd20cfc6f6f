"""Many clients on real sockets, from several addresses: none of them takes what others need."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import bcrypt
import pytest
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ibpulse.agent.web.app import create_app
from ibpulse.agent.web.parts import WebLimits
from ibpulse.core.http import admission, connection
from ibpulse.core.http.access import PROBES, AccessControl
from ibpulse.core.http.application import OuterMiddleware
from ibpulse.core.http.reload import WebConfigReloader
from ibpulse.core.http.server import WebServer, serve
from ibpulse.core.metrics.web import WebCounts
from tests.running import HANG_SECONDS
from tests.turns import until
from tests.web.raw_client import Client, on_uvloop
from tests.web.rings import Node
from tests.web.test_admission import Held

LOGIN = "Authorization: Basic " + base64.b64encode(b"alice:secret").decode()


@contextlib.asynccontextmanager
async def running(app: ASGIApp) -> AsyncIterator[WebServer]:
    server = await serve(app, "127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.stop()


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


def limit(monkeypatch: pytest.MonkeyPatch, **bounds: int) -> None:
    for name, bound in bounds.items():
        monkeypatch.setattr(admission, name.upper(), bound)


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
async def test_beyond_the_bound_the_busiest_client_loses_what_is_idle_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, max_connections=3)
    slow = Slow()
    slow.go.set()
    async with running(slow.app) as server:
        other, first, second = [await Client.open(server, source) for source in ("127.0.0.3", "127.0.0.2", "127.0.0.2")]
        for client in (other, second, first):
            assert (await client.get("/"))[0] == 200
        assert (await (await Client.open(server)).get("/"))[0] == 200
        assert await second.ended()
        for client in (other, first):
            assert (await client.get("/"))[0] == 200


@on_uvloop
async def test_beyond_its_own_bound_a_client_loses_what_is_idle_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, max_connections_per_client=2)
    slow = Slow()
    async with running(slow.app) as server:
        (busy,) = await slow.hold(server, "127.0.0.2")
        other, idle = await Client.open(server), await Client.open(server, "127.0.0.2")
        newcomer = await Client.open(server, "127.0.0.2")
        assert await idle.ended()
        slow.go.set()
        assert (await busy.answer())[2] == b"done"
        for client in (other, newcomer):
            assert (await client.get("/"))[0] == 200


@on_uvloop
async def test_a_body_that_does_not_come_keeps_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, max_connections=2)
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
async def test_the_spare_connections_are_not_held_either(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, max_connections=1, spare_connections=2)
    slow = Slow()
    async with running(slow.app) as server:
        (busy,) = await slow.hold(server, "127.0.0.2")
        spare = [await Client.open(server, "127.0.0.2") for _ in range(2)]
        for client in spare:
            await client.send(b"GET /-/healthy HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nx")
        for _ in range(3):
            assert (await (await Client.open(server)).get("/-/healthy"))[0] == 200
        assert await spare[0].ended()
        slow.go.set()
        assert (await busy.answer())[2] == b"done"


@on_uvloop
async def test_after_a_refusal_and_in_a_crowd_a_connection_is_kept_only_shortly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node: Node
) -> None:
    monkeypatch.setattr(connection, "SHORT_KEEP_ALIVE_SECONDS", 0.05)
    async with running(create_app(node.parts(web_config=with_users(tmp_path)))) as server:
        trusted, stranger = await Client.open(server), await Client.open(server)
        assert (await trusted.get("/metrics", LOGIN))[0] == 200
        assert (await stranger.get("/metrics"))[0] == 401
        assert await stranger.ended()
        assert (await trusted.get("/metrics", LOGIN))[0] == 200
        limit(monkeypatch, crowd=0)
        assert (await trusted.get("/metrics", LOGIN))[0] == 200
        assert await trusted.ended()


@on_uvloop
async def test_the_address_of_a_client_is_that_of_its_connection_whatever_a_header_says() -> None:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(scope["client"][0])(scope, receive, send)

    async with running(answer) as server:
        # many programs believe these from 127.0.0.1
        client = await Client.open(server, "127.0.0.1")
        headers = [f"{name}: 10.0.0.9" for name in ("X-Forwarded-For", "X-Real-IP", "Forwarded")]
        assert (await client.get("/", *headers))[2] == b"127.0.0.1"


@on_uvloop
async def test_a_viewer_of_another_address_takes_a_place_of_the_client_with_most(node: Node) -> None:
    parts = node.parts(limits=WebLimits(max_viewers=4))
    async with running(create_app(parts)) as server:
        viewers = [await Client.open(server, "127.0.0.2") for _ in range(5)]
        found = []
        for client in viewers:
            await client.send(b"GET /api/v1/stream HTTP/1.1\r\nHost: a\r\n\r\n")
            found.append(await client.reader.readuntil(b"\r\n"))
        assert [b" 200 " in line for line in found] == [True] * 4 + [False]
        newcomers = [await Client.open(server) for _ in range(3)]
        statuses = [(await client.get("/api/v1/stream"))[0] for client in newcomers]
        assert statuses == [200, 200, 503]
        for client in viewers[2:4]:
            assert b"event: end" in await asyncio.wait_for(client.reader.readuntil(b"0\r\n\r\n"), 20)
        parts.ending.set()


@on_uvloop
async def test_wide_requests_of_another_address_have_their_turn(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "WAIT_SECONDS", 60.0)
    held = Held(node.now_ns)
    limits = WebLimits(max_wide_requests=2, wide_values=100)
    wide = b"GET /api/v1/window?last=1s HTTP/1.1\r\nHost: a\r\n\r\n"
    async with running(create_app(node.parts(limits=limits, wall_clock_ns=held))) as server:
        greedy = [await Client.open(server, f"127.0.0.{2 + number % 2}") for number in range(40)]
        for client in greedy:
            await client.send(wide)
        await held.until_waiting(2)
        # the queue is full once some are refused
        statuses = [asyncio.create_task(client.answer()) for client in greedy]
        done, _ = await asyncio.wait(statuses, return_when=asyncio.FIRST_COMPLETED, timeout=HANG_SECONDS)
        assert {task.result()[0] for task in done} == {503}
        modest = await Client.open(server)
        answer = asyncio.create_task(modest.get("/api/v1/window?last=1s"))
        # a request that does not wait for its turn is refused by now
        await asyncio.wait([answer], timeout=0.5)
        held.go.set()
        assert (await answer)[0] == 200
        await asyncio.gather(*statuses)


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
