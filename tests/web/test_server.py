"""The application behind real sockets."""

from __future__ import annotations

import asyncio
import io
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import numpy as np
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from ibpulse.agent.web.app import create_app
from ibpulse.base.errors import ConfigError
from ibpulse.core.http import connection
from ibpulse.core.http import server as server_module
from ibpulse.core.http.server import WebServer, bind, serve
from tests.loop_clock import pause
from tests.names import forget_invalid_names
from tests.web.rings import EPOCH, Node


@pytest.fixture
async def server(node: Node) -> AsyncIterator[WebServer]:
    running = await serve(create_app(node.parts()), "127.0.0.1", 0)
    yield running
    await running.stop()


async def talk(server: WebServer, request: bytes) -> bytes:
    """All that the server says until it closes the connection."""
    reader, writer = await asyncio.open_connection(server.host, server.port)
    try:
        writer.write(request)
        await writer.drain()
        return await asyncio.wait_for(reader.read(), 20)
    finally:
        writer.close()


async def test_a_window_crosses_a_real_socket(server: WebServer) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as client:
        params = {"from": EPOCH * 10 + 10, "to": EPOCH * 10 + 3000, "format": "npy", "direction": "receive"}
        answer = await client.get("/api/v1/window", params=params)
        head = await client.head("/metrics")
    np.testing.assert_allclose(np.load(io.BytesIO(answer.content)), [[1e9] * 299, [2e9] * 299], rtol=1e-6)
    assert "server" not in answer.headers
    assert (head.status_code, head.content) == (200, b"")


async def test_a_connection_serves_many_requests(server: WebServer) -> None:
    asked = b"GET /-/ready HTTP/1.1\r\nHost: a\r\n\r\n"
    last = b"GET /-/ready HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    answer = await talk(server, asked * 3 + last)
    assert answer.count(b"HTTP/1.1 200 OK") == 4


async def test_many_clients_at_once_are_all_answered(server: WebServer) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as client:
        answers = await asyncio.gather(*(client.get("/api/v1/window?last=1s") for _ in range(20)))
    assert {answer.status_code for answer in answers} == {200}


async def test_a_head_without_end_is_refused(server: WebServer) -> None:
    answer = await talk(server, b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X-Filler: " + b"x" * 70_000)
    assert answer.startswith(b"HTTP/1.1 431 Request Header Fields Too Large")
    assert b'"detail":"The head of a request may be at most 65536 bytes long."' in answer


async def test_a_long_head_that_comes_at_once_is_refused(server: WebServer) -> None:
    answer = await talk(server, b"GET / HTTP/1.1\r\nHost: a\r\nX-Filler: " + b"x" * 70_000 + b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b"The head of a request may be at most 65536 bytes long." in answer


async def test_a_head_that_never_comes_is_given_up(node: Node) -> None:
    running = await serve(create_app(node.parts()), "127.0.0.1", 0)
    assert await talk(running, b"") == b""
    assert await talk(running, b"GET / HTTP/1.1\r\nHost:") == b""
    assert (await talk(running, b"GET /-/ready HTTP/1.1\r\nHost: a\r\n\r\nGET /")).startswith(b"HTTP/1.1 200 OK")
    await running.stop()


async def test_an_answer_may_take_longer_than_its_request() -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await pause(connection.HEAD_SECONDS + 1)
        await PlainTextResponse("late")(scope, receive, send)

    running = await serve(slow, "127.0.0.1", 0)
    answer = await talk(running, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert answer.endswith(b"late")
    await running.stop()


async def test_what_is_not_http_is_refused(server: WebServer) -> None:
    assert (await talk(server, b"\x16\x03\x01 hello\r\n\r\n")).startswith(b"HTTP/1.1 400 Bad Request")


async def test_signals_stay_with_the_command(node: Node) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    running = await serve(create_app(node.parts()), "127.0.0.1", 0)
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
    await running.stop()


async def test_stopping_closes_the_socket(node: Node) -> None:
    running = await serve(create_app(node.parts()), "127.0.0.1", 0)
    await running.stop()
    with pytest.raises(ConnectionRefusedError):
        await talk(running, b"")
    await running.wait()


async def test_stopping_does_not_wait_for_a_request_without_end(caplog: pytest.LogCaptureFixture) -> None:
    begun = asyncio.Event()

    async def endless(_scope: object, _receive: object, _send: Callable[[dict], Awaitable[None]]) -> None:
        begun.set()
        await asyncio.Event().wait()

    running = await serve(endless, "127.0.0.1", 0, shutdown_seconds=0)
    talking = asyncio.create_task(talk(running, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
    await begun.wait()
    await running.stop()
    assert b"200" not in await talking
    assert "Cancel 1 running task(s), timeout graceful shutdown exceeded" in caplog.text


async def test_an_address_in_use_is_a_fault_of_the_configuration(server: WebServer, node: Node) -> None:
    with pytest.raises(ConfigError) as caught:
        await serve(create_app(node.parts()), "127.0.0.1", server.port)
    assert caught.value.faults == (
        f"web.listen-address: cannot listen on 127.0.0.1:{server.port}: Address already in use; "
        "stop the process that uses it, or choose another --web.listen-address",
    )


# of an address in digits no name server is asked
@pytest.mark.real("network")
@pytest.mark.parametrize("host", ["no.such.host.invalid", "203.0.113.7", "x" * 70 + ".invalid"])
def test_an_address_that_is_not_ours_is_a_fault_of_the_configuration(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_invalid_names(monkeypatch)
    with pytest.raises(ConfigError, match=rf"web.listen-address: cannot listen on {host}:0: "):
        bind(host, 0)


def test_an_impossible_port_is_a_fault_of_the_configuration() -> None:
    with pytest.raises(ConfigError, match=r"cannot listen on 127\.0\.0\.1:70000: "):
        bind("127.0.0.1", 70_000)


@pytest.mark.parametrize("host", ["", "::"])
@pytest.mark.parametrize("dual", [True, False])
def test_no_host_is_every_address(monkeypatch: pytest.MonkeyPatch, dual: bool, host: str) -> None:
    if dual and not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6")
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: dual)
    with bind(host, 0) as listener, socket.create_connection(("127.0.0.1", listener.getsockname()[1]), 5):
        assert listener.family == (socket.AF_INET6 if dual else socket.AF_INET)


async def test_a_server_that_cannot_start_says_why(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no loop")

    monkeypatch.setattr(server_module, "Listener", fail)
    with pytest.raises(RuntimeError, match="no loop"):
        await serve(create_app(node.parts()), "127.0.0.1", 0)
