"""Requests to one server: bounded in bytes and time, whatever it answers, and a sentence for every failure."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ibpulse.errors import DaemonError
from ibpulse.fleet.http_peer import HttpPeer
from ibpulse.fleet.node_config import NodeAccess, NodeConfigFile
from tests.fleet.hostile import Handler, Hostile, bomb, drip, endless, endless_head, hostile, informational, never
from tests.web.certificates import make_authority, sign


@pytest.fixture
async def server() -> AsyncIterator[Hostile]:
    async with hostile() as state:
        yield state


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
    peer = HttpPeer(server.url, NodeAccess())
    before = time.monotonic_ns()
    answer = await peer.get("/x", [("a", "b c"), ("a", "é")])
    assert (answer.media_type, answer.body) == ("application/json", b"[1]")
    assert before <= answer.sent_ns <= answer.received_ns <= time.monotonic_ns()
    assert server.asked[0].startswith("GET /x?a=b+c&a=%C3%A9 HTTP/1.1\r\n")
    assert "accept-encoding: identity" in server.asked[0].lower()
    assert "authorization" not in server.asked[0].lower()
    await peer.close()


@pytest.mark.parametrize(
    ("handler", "sentence"),
    [
        (never, "no answer within 0.5 s"),
        (drip, "no answer within 0.5 s"),
        (endless, "its answer is longer than 100000 bytes"),
        (endless_head, "it broke off, or does not speak HTTP; does it use TLS? then use https"),
        (informational, "no answer within 0.5 s"),
    ],
)
async def test_slow_and_endless_answers_end_in_time(server: Hostile, handler: Handler, sentence: str) -> None:
    server.handlers["/x"] = handler
    begin = time.monotonic()
    assert await reason(server.url) == sentence
    assert time.monotonic() - begin < 1.5


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "it broke off, or does not speak HTTP; does it use TLS? then use https"),
        (
            b"\x15\x03\x01\x00\x02\x02\x28\r\n\r\n",
            "it broke off, or does not speak HTTP; does it use TLS? then use https",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
            "it broke off, or does not speak HTTP; does it use TLS? then use https",
        ),
        (
            b"HTTP/1.1 301 Moved\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n",
            "it redirects to another address (301), which is not followed; list that address instead",
        ),
        (
            b"HTTP/1.1 401 No\r\nWWW-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n",
            "it asks for a password; is the one in the node configuration file of its source right?",
        ),
        (
            b"HTTP/1.1 421 No\r\nContent-Length: 0\r\n\r\n",
            "it does not serve this host name (421); list the name that it serves",
        ),
        (b"HTTP/1.1 500 <b>No</b>\r\nContent-Length: 4\r\n\r\n<b>x", "it refuses with 500"),
        (
            b"HTTP/1.1 422 No\r\nContent-Type: application/problem+json\r\nContent-Length: 28\r\n\r\n"
            b'{"detail":"too \\u001b[31m"}  ',
            r"it refuses with 422: too \u001b[31m",
        ),
        (
            b'HTTP/1.1 422 No\r\nContent-Type: application/problem+json\r\nContent-Length: 12\r\n\r\n{"detail":5}',
            "it refuses with 422",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 1\r\n\r\nx",
            "its answer is compressed, which was not asked for",
        ),
    ],
)
async def test_what_is_no_answer_is_a_sentence(server: Hostile, raw: bytes, sentence: str) -> None:
    server.send("/x", raw)
    assert await reason(server.url) == sentence


async def test_a_gzip_bomb_is_not_unpacked(server: Hostile) -> None:
    server.answer("/x", bomb(), "application/json", "200 OK", "Content-Encoding: gzip")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert await reason(server.url) == "its answer is compressed, which was not asked for"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000


async def test_cookies_are_not_kept_and_redirects_not_followed(server: Hostile) -> None:
    server.answer("/x", b"1", "application/json", "200 OK", "Set-Cookie: a=b; Path=/")
    server.answer("/y", b"", "text/html", "302 Found", "Location: /x")
    peer = HttpPeer(server.url, NodeAccess(authorization="Basic eDp5"))
    await peer.get("/x")
    with pytest.raises(DaemonError, match="redirects"):
        await peer.get("/y")
    await peer.get("/x")
    await peer.close()
    assert [head.split()[1] for head in server.asked] == ["/x", "/y", "/x"]
    assert all("Authorization: Basic eDp5" in head and "ookie" not in head for head in server.asked)


async def test_proxies_of_the_environment_are_not_used(server: Hostile, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    server.answer("/x", b"1")
    peer = HttpPeer(server.url, NodeAccess())
    assert (await peer.get("/x")).body == b"1"
    await peer.close()


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


async def test_a_closed_peer_opens_no_connection(server: Hostile) -> None:
    server.answer("/x", b"1")
    peer = HttpPeer(server.url, NodeAccess())
    await peer.close()
    with pytest.raises(DaemonError, match="it is no longer listed at this address"):
        await peer.get("/x")
    assert server.connections == 0


async def test_nobody_listens_and_no_such_host() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert await reason(f"http://127.0.0.1:{port}") == "it refuses connections; is `ibpulse serve` running there?"
    assert await reason("http://no-such-host.invalid:1", seconds=5) == "its host name cannot be resolved"


def access(directory: Path, text: str) -> NodeAccess:
    path = directory / "nodes.yml"
    path.write_text(text)
    return NodeConfigFile(path).access


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


async def test_https_to_a_server_without_tls(server: Hostile) -> None:
    found = await reason(server.url.replace("http", "https"))
    assert found.startswith(("TLS failed (", "no answer within"))
