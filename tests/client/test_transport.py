"""Requests to one server: bounded in bytes and time, whatever it answers, and a sentence for every failure."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import aclosing
from pathlib import Path

import pytest

from ibpulse.base.errors import DaemonError
from ibpulse.core.client import transport
from ibpulse.core.client.transport import HttpPeer, NodeAccess
from ibpulse.gateway.nodes.discovery import NodeConfigFile
from tests.clocks import GivenClock
from tests.fleet.hostile import (
    Handler,
    Hostile,
    drip,
    endless,
    endless_gzip,
    endless_head,
    hostile,
    informational,
    never,
)
from tests.loop_clock import until
from tests.names import forget_invalid_names
from tests.web.certificates import make_authority, sign


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tls")
    authority = make_authority(directory)
    sign(authority, directory, "server", "DNS:ibpulse.example")
    sign(authority, directory, "client", "DNS:gateway")
    make_authority(directory, "another")
    return directory


async def reason(url: str, path: str = "/x", access: NodeAccess | None = None, seconds: float = 0.5) -> str:
    peer = HttpPeer(url, access or NodeAccess())
    try:
        with pytest.raises(DaemonError) as caught:
            await peer.get(path, seconds=seconds, max_bytes=100_000)
    finally:
        await peer.close()
    return str(caught.value)


async def test_an_answer_has_its_headers_body_and_times(server: Hostile) -> None:
    server.answer("/x", b"[1]", "application/json; charset=utf-8")
    times = iter((5e-9, 7e-9))
    peer = HttpPeer(server.url, NodeAccess(), clock=GivenClock(lambda: next(times), lambda: 0))
    answer = await peer.get("/x", [("a", "b c"), ("a", "é")])
    assert (answer.media_type, answer.body) == ("application/json", b"[1]")
    assert (answer.sent_ns, answer.received_ns) == (5, 7)
    assert server.asked[0].startswith("GET /x?a=b+c&a=%C3%A9 HTTP/1.1\r\n")
    assert "accept-encoding: identity" in server.asked[0].lower()
    assert "authorization" not in server.asked[0].lower()
    await peer.close()


@pytest.mark.parametrize("handler", [never, drip, informational])
async def test_slow_answers_end_in_time(server: Hostile, handler: Handler) -> None:
    server.handlers["/x"] = handler
    assert await reason(server.url) == "no answer within 0.5 s"


@pytest.mark.parametrize(
    ("handler", "sentence"),
    [
        (endless, "its answer is longer than 100000 bytes"),
        # without reading any of it
        (endless_gzip, "its answer is compressed, which was not asked for"),
        (endless_head, "it broke off, or does not speak HTTP; does it use TLS? then use https"),
    ],
)
async def test_endless_answers_are_not_read_to_an_end(server: Hostile, handler: Handler, sentence: str) -> None:
    server.handlers["/x"] = handler
    assert await reason(server.url, seconds=60) == sentence


BROKEN = "it broke off, or does not speak HTTP; does it use TLS? then use https"
PASSWORD = "it asks for a password; is the one in the node configuration file of its source right?"
PROBLEM = b"HTTP/1.1 422 No\r\nContent-Type: application/problem+json\r\n"
OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", BROKEN),
        (b"\x15\x03\x01\x00\x02\x02\x28\r\n\r\n", BROKEN),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffffffff\r\n", BROKEN),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n", BROKEN),
        (
            b"HTTP/1.1 301 Moved\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n",
            "it redirects to another address (301), which is not followed; use that address instead",
        ),
        (b"HTTP/1.1 401 No\r\nWWW-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n", PASSWORD),
        # a refusal is one whatever its body is
        (b"HTTP/1.1 401 No\r\nContent-Encoding: br\r\nContent-Length: 1\r\n\r\nx", PASSWORD),
        (
            b"HTTP/1.1 421 No\r\nContent-Length: 0\r\n\r\n",
            "it does not serve this host name (421); use the name that it serves",
        ),
        (b"HTTP/1.1 500 <b>No</b>\r\nContent-Length: 4\r\n\r\n<b>x", "it refuses with 500"),
        (b"HTTP/1.1 500 No\r\nContent-Length: 50000\r\n\r\n" + b"x" * 50_000, "it refuses with 500"),
        (b"HTTP/1.1 206 Part\r\nContent-Length: 1\r\n\r\nx", "it refuses with 206"),
        (PROBLEM + b'Content-Length: 12\r\n\r\n{"detail":5}', "it refuses with 422"),
        (PROBLEM + b'Content-Length: 28\r\n\r\n{"detail":"too \\u001b[31m"}  ', r"it refuses with 422: too \u001b[31m"),
        (
            OK + b"Content-Encoding: br\r\nContent-Length: 1\r\n\r\nx",
            "its answer is compressed, which was not asked for",
        ),
    ],
)
async def test_no_answer_is_a_sentence(server: Hostile, raw: bytes, sentence: str) -> None:
    server.send("/x", raw)
    assert await reason(server.url) == sentence


@pytest.mark.parametrize("status", ["302 Found", "308 Permanent Redirect"])
async def test_no_request_and_no_password_follows_a_redirect_to_another_server(server: Hostile, status: str) -> None:
    async with hostile() as other:
        server.answer("/x", b"", "text/html", status, f"Location: {other.url}/x")
        peer = HttpPeer(server.url, NodeAccess(authorization="Basic eDp5"))
        with pytest.raises(DaemonError, match="redirects"):
            await peer.get("/x")
        with pytest.raises(DaemonError, match="redirects"):
            await peer.post("/x", b"{}")
        with pytest.raises(DaemonError, match="redirects"):
            await anext(peer.stream("/x", (), "text/event-stream"))
        await peer.close()
        assert (len(server.asked), other.connections) == (3, 0)


async def test_nothing_goes_through_a_proxy_of_the_environment(
    server: Hostile, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login other password secret\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    async with hostile() as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        server.answer("/x", b"1")
        for access in (NodeAccess(), NodeAccess(authorization="Basic eDp5")):
            peer = HttpPeer(server.url, access)
            assert (await peer.get("/x")).body == b"1"
            assert (await peer.post("/x", b"{}")).body == b"1"
            await peer.close()
        assert proxy.connections == 0
    assert ["uthorization" in head for head in server.asked] == [False, False, True, True]


async def test_a_connection_is_kept_and_made_again_when_the_server_closed_it(server: Hostile) -> None:
    server.answer("/x", b"1")
    peer = HttpPeer(server.url, NodeAccess())
    await peer.get("/x")
    await peer.get("/x")
    assert server.connections == 1

    async def close(writer: asyncio.StreamWriter) -> None:
        server.answer("/y", b"2")
        writer.close()

    server.handlers["/y"] = close
    assert (await peer.get("/y")).body == b"2"
    await peer.close()


async def test_a_peer_that_is_closed_keeps_the_connections_of_running_requests(server: Hostile) -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    async def wait(writer: asyncio.StreamWriter) -> None:
        asked.set()
        await answer.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1")

    server.handlers["/x"] = wait
    peer = HttpPeer(server.url, NodeAccess())
    running = asyncio.create_task(peer.get("/x", seconds=60))
    await asked.wait()
    closing = asyncio.create_task(peer.close())
    await asyncio.sleep(0)
    with pytest.raises(DaemonError, match="it is no longer listed at this address"):
        await peer.get("/x")
    assert not closing.done()
    answer.set()
    assert (await running).body == b"1"
    await closing
    await until(lambda: not server.open)
    assert server.connections == 1


async def test_a_post_request_has_its_body_and_is_sent_once(server: Hostile) -> None:
    server.answer("/x", b"1", "application/json", "202 Accepted")
    peer = HttpPeer(server.url, NodeAccess(authorization="Basic eDp5"))
    assert (await peer.post("/x", b'{"a":1}')).body == b"1"
    (head,) = server.asked
    assert head.startswith("POST /x HTTP/1.1\r\n")
    assert {"content-type: application/json", "content-length: 7"} <= set(head.lower().split("\r\n"))
    assert "Authorization: Basic eDp5" in head
    # unlike a GET request, which may be sent again
    server.send("/y", b"")

    async def close(writer: asyncio.StreamWriter) -> None:
        writer.close()

    server.handlers["/y"] = close
    with pytest.raises(DaemonError, match="it broke off") as caught:
        await peer.post("/y", b"{}")
    assert caught.value.kind == "no-answer"
    assert [one.split()[1] for one in server.asked] == ["/x", "/y"]
    for raw, kind in {
        b"Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx": "bad-answer",
        b"Nothing": "no-answer",
    }.items():
        server.send("/z", b"HTTP/1.1 200 OK\r\n" + raw + b"\r\n\r\n")
        with pytest.raises(DaemonError) as caught:
            await peer.post("/z", b"{}", seconds=0.5)
        assert caught.value.kind == kind
    await peer.close()


@pytest.mark.parametrize(
    ("raw", "sentence", "kind"),
    [
        (b"401 No\r\nContent-Length: 0\r\n\r\n", "it asks for a password; ", "refused"),
        (b"404 No\r\nContent-Length: 0\r\n\r\n", "it refuses with 404", "bad-answer"),
        (
            b"200 OK\r\nContent-Type: text/html\r\n\r\n<b>",
            "its answer is not a stream of text/event-stream",
            "bad-answer",
        ),
        (
            b"200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\n\r\nx",
            "its answer is not a stream of text/event-stream",
            "bad-answer",
        ),
    ],
)
async def test_an_answer_other_than_a_stream_is_refused(server: Hostile, raw: bytes, sentence: str, kind: str) -> None:
    server.send("/x", b"HTTP/1.1 " + raw)
    peer = HttpPeer(server.url, NodeAccess())
    with pytest.raises(DaemonError, match=sentence) as caught:
        await anext(peer.stream("/x", (), "text/event-stream"))
    assert caught.value.kind == kind
    await peer.close()


async def test_a_silent_or_broken_stream_has_a_reason(server: Hostile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "SILENCE_SECONDS", 0.3)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"

    async def silent(writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        await never(writer)

    async def broken(writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        writer.close()

    for handler, sentence in {silent: "silent for 0.3 s", broken: "it broke off"}.items():
        server.handlers["/x"] = handler
        peer = HttpPeer(server.url, NodeAccess())
        async with aclosing(peer.stream("/x", (), "a/b")) as parts:
            assert await anext(parts) == b"x"
            with pytest.raises(DaemonError, match=sentence):
                await anext(parts)
        await peer.close()


async def test_nobody_listens_and_no_such_host(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_invalid_names(monkeypatch)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert await reason(f"http://127.0.0.1:{port}") == "it refuses connections; is `ibpulse serve` running there?"
    assert await reason("http://no-such-host.invalid:1", seconds=5) == "its host name cannot be resolved"


def access(directory: Path, text: str) -> NodeAccess:
    path = directory / "nodes.yml"
    path.write_text(text)
    return NodeConfigFile(path).access


# openssl makes the certificates
@pytest.mark.real("process")
@pytest.mark.needs("openssl")
async def test_tls_with_an_authority_a_server_name_and_a_client_certificate(certificates: Path, tmp_path: Path) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificates / "authority.crt")
    tls.load_cert_chain(certificates / "server.crt", certificates / "server.key")
    tls.verify_mode = ssl.CERT_REQUIRED
    ours = f"cert_file: {certificates}/client.crt, key_file: {certificates}/client.key"
    async with hostile(tls) as server:
        server.answer("/x", b"1")
        text = f"tls_config: {{ca_file: {certificates}/authority.crt, server_name: ibpulse.example, {ours}}}"
        peer = HttpPeer(server.url, access(tmp_path, text))
        assert (await peer.get("/x")).body == b"1"
        await peer.close()

        untrusted = f"tls_config: {{ca_file: {certificates}/another.crt, server_name: ibpulse.example, {ours}}}"
        found = await reason(server.url, access=access(tmp_path, untrusted))
        assert found.startswith("its certificate is not trusted (")
        misnamed = f"tls_config: {{ca_file: {certificates}/authority.crt, {ours}}}"
        found = await reason(server.url, access=access(tmp_path, misnamed))
        assert "IP address mismatch" in found
        unknown = f"tls_config: {{ca_file: {certificates}/authority.crt, server_name: ibpulse.example}}"
        found = await reason(server.url, access=access(tmp_path, unknown))
        assert found.startswith("TLS failed (")
        found = await reason(server.url.replace("https", "http"))
        assert found == "it broke off, or does not speak HTTP; does it use TLS? then use https"


# openssl makes the certificates
@pytest.mark.real("process")
@pytest.mark.needs("openssl")
async def test_with_tls_settings_no_password_goes_to_a_server_that_a_list_names_with_http(
    server: Hostile, certificates: Path, tmp_path: Path
) -> None:
    server.answer("/x", b"1")
    tls = f"tls_config: {{ca_file: {certificates}/authority.crt}}\n"
    password = "basic_auth: {username: gateway, password: secret}\n"
    found = await reason(server.url, access=access(tmp_path, tls + password))
    assert found == "not asked, because its list says http, and with tls_config the password is for https only"
    assert server.asked == []
    # without a password there is nothing to lose, and without TLS settings nothing was asked for
    for text in (tls, password):
        peer = HttpPeer(server.url, access(tmp_path, text))
        assert (await peer.get("/x")).body == b"1"
        await peer.close()
