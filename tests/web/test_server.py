"""The application behind real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from ibpulse.agent.web.app import create_app
from ibpulse.base.errors import ConfigError
from ibpulse.core.http import access
from ibpulse.core.http import server as server_module
from ibpulse.core.http.access import AccessControl
from ibpulse.core.http.server import WebServer, bind, serve
from ibpulse.core.http.web_config import WebConfigReloader
from tests.loop_clock import pause, until
from tests.names import forget_invalid_names
from tests.running import HANG_SECONDS
from tests.tables import for_each
from tests.web.raw_client import Client, running
from tests.web.rings import Node


@pytest.fixture
async def node_server(node: Node) -> AsyncIterator[WebServer]:
    async with running(create_app(node.parts())) as made:
        yield made


async def talk(server: WebServer, request: bytes) -> bytes:
    """All that the server says until it closes the connection."""
    reader, writer = await asyncio.open_connection(server.host, server.port)
    try:
        writer.write(request)
        await writer.drain()
        return await asyncio.wait_for(reader.read(), HANG_SECONDS)
    finally:
        writer.close()


async def test_a_head_that_never_comes_is_given_up(node_server: WebServer) -> None:
    assert await talk(node_server, b"") == b""
    assert await talk(node_server, b"GET / HTTP/1.1\r\nHost:") == b""
    answer = await talk(node_server, b"GET /-/ready HTTP/1.1\r\nHost: a\r\n\r\nGET /")
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert b"\r\ndate: " in answer


async def test_an_answer_may_take_longer_than_its_request() -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await pause(server_module.HEAD_SECONDS + 1)
        await PlainTextResponse("late")(scope, receive, send)

    async with running(slow) as server:
        answer = await talk(server, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert answer.endswith(b"late")


# of an address in digits no name server is asked
@pytest.mark.real("network")
@for_each([("no.such.host.invalid", 0), ("203.0.113.7", 0), ("x" * 70 + ".invalid", 0), ("127.0.0.1", 70_000)])
def test_an_address_that_is_not_ours_is_a_fault_of_the_configuration(
    host: str, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_invalid_names(monkeypatch)
    with pytest.raises(ConfigError, match=rf"web.listen-address: cannot listen on {host}:{port}: "):
        bind(host, port)


async def test_an_address_in_use_is_a_fault_of_the_configuration(node_server: WebServer) -> None:
    with pytest.raises(ConfigError, match=f"127.0.0.1:{node_server.port}: Address already in use; stop the process"):
        bind("127.0.0.1", node_server.port)


@pytest.mark.parametrize("host", ["", "::"])
@pytest.mark.parametrize("dual", [True, False])
def test_no_host_is_every_address(monkeypatch: pytest.MonkeyPatch, dual: bool, host: str) -> None:
    if dual and not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6")
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: dual)
    with bind(host, 0) as listener, socket.create_connection(("127.0.0.1", listener.getsockname()[1]), 5):
        assert listener.family == (socket.AF_INET6 if dual else socket.AF_INET)


LIMIT = 100_000
HEAD = b"POST / HTTP/1.1\r\nHost: a\r\n"


async def test_a_failed_start_raises(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no loop")

    monkeypatch.setattr(server_module._Server, "startup", fail)
    with pytest.raises(RuntimeError, match="no loop"):
        await serve(create_app(node.parts()), "127.0.0.1", 0)


async def measure(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that answers with the length of the body."""
    length = len(await Request(scope, receive).body())
    await JSONResponse({"length": length})(scope, receive, send)


def serving(app: ASGIApp, web_config: WebConfigReloader | None = None) -> AbstractAsyncContextManager[WebServer]:
    return running(AccessControl(app, web_config, LIMIT))


@pytest.fixture
async def server() -> AsyncIterator[WebServer]:
    async with serving(measure) as running:
        yield running


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(content), content)


async def test_a_body_up_to_the_bound_arrives_whole(server: WebServer) -> None:
    client = await Client.open(server)
    for length in (0, 1, LIMIT):
        await client.send(HEAD, b"Content-Length: %d\r\n\r\n" % length, b"x" * length)
        assert (await client.answer())[2] == b'{"length":%d}' % length
    await client.send(HEAD, b"Transfer-Encoding: chunked\r\n\r\n", chunk(b"x" * (LIMIT - 1)), chunk(b"y"), chunk(b""))
    assert (await client.answer())[2] == b'{"length":%d}' % LIMIT


async def test_a_body_announced_too_long_is_refused_before_it_comes(server: WebServer) -> None:
    client = await Client.open(server)
    await client.send(HEAD, b"Content-Length: 1000000000\r\nExpect: 100-continue\r\n\r\n")
    status, headers, content = await client.answer()
    assert (status, headers["connection"]) == (413, "close")
    assert json.loads(content)["bound"] == {"name": "max_body_bytes", "limit": LIMIT}
    assert await client.ended()


async def test_a_chunked_body_is_refused_once_it_grows_too_long_and_broken_off(server: WebServer) -> None:
    client = await Client.open(server)
    await client.send(HEAD, b"Transfer-Encoding: chunked\r\n\r\n", *[chunk(b"x" * 1000)] * 101)
    assert (await client.answer())[0] == 413
    client = await Client.open(server)
    await client.send(HEAD, b"Transfer-Encoding: chunked\r\n\r\n")
    pieces = [chunk(b"x" * 10_000)] * 10_000
    with pytest.raises(ConnectionError):
        await client.send(*pieces)


async def test_a_body_that_comes_too_slowly_is_refused(server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "BODY_SECONDS", 0.1)
    client = await Client.open(server)
    await client.send(HEAD, b"Content-Length: 10\r\n\r\nx")
    status, headers, content = await client.answer()
    assert (status, headers["connection"]) == (408, "close")
    assert json.loads(content)["type"] == "/api/docs#body-too-slow"
    assert await client.ended()


async def test_a_refused_request_with_a_body_ends_the_connection(tmp_path: Path) -> None:
    (tmp_path / "web.yml").write_text(
        "basic_auth_users: {a: $2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG}\n"
    )
    async with serving(measure, WebConfigReloader(tmp_path / "web.yml")) as server:
        client = await Client.open(server)
        await client.send(HEAD, b"Content-Length: 5\r\n\r\nhello")
        status, headers, _ = await client.answer()
        assert (status, headers["connection"]) == (401, "close")
        assert await client.ended()


async def test_the_wait_for_hang_ups_goes_on_after_the_body() -> None:
    seen: list[str] = []
    read, done = asyncio.Event(), asyncio.Event()

    async def listen(_scope: Scope, receive: Receive, _send: Send) -> None:
        seen.append((await receive())["type"])
        read.set()
        seen.append((await receive())["type"])
        done.set()

    async with serving(listen) as server:
        client = await Client.open(server)
        await client.send(HEAD, b"Content-Length: 1\r\n\r\nx")
        await read.wait()
        client.writer.close()
        await done.wait()
    assert seen == ["http.request", "http.disconnect"]


def use_loop_clock(patch: pytest.MonkeyPatch) -> None:
    """Connections have the clock of the loop."""
    patch.setattr(server_module, "time", SimpleNamespace(monotonic=asyncio.get_running_loop().time))


def unread(length: int) -> Callable[[Scope, Receive, Send], object]:
    """An application with an answer of that length, in pieces."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(length // 65_536):
                yield bytes(65_536)

        await StreamingResponse(pieces())(scope, receive, send)

    return app


async def open_small(server: WebServer) -> Client:
    """A client whose system takes little that it does not read."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.setblocking(False)
    await asyncio.get_running_loop().sock_connect(made, (server.host, server.port))
    return Client(*await asyncio.open_connection(sock=made, limit=4096))


async def only_connection(server: WebServer) -> Any:
    """The protocol of the only client, once it is there."""
    await until(lambda: server._server.server_state.connections)
    (served,) = server._server.server_state.connections
    return served


async def test_a_client_that_never_reads_is_broken_off_and_costs_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    use_loop_clock(monkeypatch)
    async with serving(unread(1 << 30)) as server:
        client = await open_small(server)
        client.reader._transport.pause_reading()
        await client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        served, sizes = await only_connection(server), []
        while server._server.server_state.connections:
            sizes.append(served.transport.get_write_buffer_size())
            await pause(0.5)
    assert max(sizes) < 500_000


async def test_a_client_that_reads_slowly_gets_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    use_loop_clock(monkeypatch)
    length = 256 * 65_536
    most_seconds = server_module.UNREAD_SECONDS / 4
    async with serving(unread(length)) as server:
        client = await open_small(server)
        await client.send(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        got = 0
        while piece := await client.reader.read(65_536):
            got += len(piece)
            if got % 10 == 0:
                await pause(most_seconds)
        assert got > length


@pytest.mark.parametrize("length", [30_000, 30_000_000])
async def test_an_answer_that_is_left_unread_does_not_keep_a_closing_connection(
    monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        (served,) = server._server.server_state.connections
        served.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        await Response(bytes(length))(scope, receive, send)
        unread_bytes.append(served.transport.get_write_buffer_size())

    unread_bytes: list[int] = []
    use_loop_clock(monkeypatch)
    async with serving(answer) as server:
        client = await open_small(server)
        client.reader._transport.pause_reading()
        await client.send(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        await until(lambda: unread_bytes and not server._server.server_state.connections, 1.0)
    assert unread_bytes[0] > 0


async def test_when_descriptors_run_out_the_server_waits_and_goes_on(
    server: WebServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_module, "EXHAUSTED_SECONDS", 0.01)
    real, failing = socket.socket.accept, [True]

    def accept(listening: socket.socket) -> Any:
        if failing:
            failing.clear()
            raise OSError(24, "Too many open files")
        return real(listening)

    monkeypatch.setattr(socket.socket, "accept", accept)
    for _ in range(3):
        client = await Client.open(server)
        await client.send(HEAD, b"\r\n")
        assert (await client.answer())[0] == 200
    assert "cannot accept a connection: Too many open files" in caplog.text


async def test_stopping_is_quick_with_any_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "SHUTDOWN_SECONDS", 0)

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        async def pieces() -> AsyncIterator[bytes]:
            while True:
                yield b"x"
                await pause(0.01)

        await StreamingResponse(pieces())(scope, receive, send)

    server = await serve(AccessControl(endless, None, LIMIT), "127.0.0.1", 0)
    clients = [*[await Client.open(server) for _ in range(3)], await open_small(server)]
    # the last one never reads
    clients[-1].reader._transport.pause_reading()
    for client, sent in zip(
        clients, (b"", b"GET", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", HEAD + b"Content-Length: 9\r\n\r\n"), strict=True
    ):
        await client.send(sent)
    await until(lambda: len(server._server.server_state.connections) == len(clients))
    await asyncio.wait_for(server.stop(), HANG_SECONDS)
    for client in clients:
        client.writer.close()
    await until(lambda: not server._server.server_state.connections)
