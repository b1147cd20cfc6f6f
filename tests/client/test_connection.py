"""Requests to a daemon: kept connections, names and passwords, and every way in which nobody answers."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator

import orjson
import pytest

from ibpulse.base.errors import DaemonError
from ibpulse.core.answers.node import ClockAnswer
from ibpulse.core.client import MAX_WAIT_SECONDS, wait_for_daemon
from ibpulse.core.client import connection as module
from ibpulse.core.client.connection import DaemonConnection
from ibpulse.core.client.transport import KEY_USAGE, silence
from tests.client.servers import Canned, canned
from tests.fleet.small_answers import clock_of
from tests.tables import for_each


@pytest.fixture
def server() -> Iterator[Canned]:
    with canned() as state:
        yield state


def test_one_connection_serves_many_requests_and_is_reopened_when_it_was_closed(server: Canned) -> None:
    server.answer("/base/a", b"one", X_Thing="two")
    connection = DaemonConnection(server.url.replace("//", "//me:a%40b@") + "/base/")
    for connections in (1, 4):
        answers = [connection.get("/a", [("last", "1s"), ("port", "mlx5_0:1")]) for _ in range(3)]
        assert [(answer.body, answer.headers["x-thing"]) for answer in answers] == [(b"one", "two")] * 3
        assert len(server.connections) == connections
        server.hang_up = True
        connection.get("/a")
    connection.close()
    path, headers = server.asked[0]
    assert (path, headers["Authorization"]) == ("/base/a?last=1s&port=mlx5_0%3A1", "Basic bWU6YUBi")
    assert connection.place == server.url


def test_a_refusal_has_its_reason(server: Canned) -> None:
    server.answer("/a", orjson.dumps({"title": "Bad", "detail": "last: 1x is not a duration"}), 422)
    connection = DaemonConnection(server.url)
    with pytest.raises(DaemonError, match=r"/a: it refuses with 422: last: 1x is not a duration$") as refused:
        connection.get("/a", [("last", "1x")])
    assert refused.value.status == 422
    with pytest.raises(DaemonError, match=rf"^{server.url}/c: it refuses with 404$"):
        connection.get("/c")
    server.answer("/b", b'{"detail": "A user is needed."}', 401)
    way = server.url.replace("://", "://NAME:PASSWORD@")
    with pytest.raises(DaemonError, match=rf"/b: it asks for a password; pass the user name and .*, such as {way}$"):
        connection.get("/b")
    connection.close()


def test_an_answer_without_end_is_not_read_to_its_end(server: Canned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ANSWER_BYTES", 10)
    server.answer("/a", b"0123456789a")
    connection = DaemonConnection(server.url)
    with pytest.raises(DaemonError, match="/a: its answer is longer than 10 bytes") as refused:
        connection.get("/a")
    # which is final, as a refusal is
    assert refused.value.status == 413
    server.answer("/b", b"1", Content_Encoding="gzip")
    with pytest.raises(DaemonError, match="/b: its answer is compressed, which was not asked for"):
        connection.get("/b")
    connection.close()


def test_no_proxy_is_used_and_no_redirect_followed(server: Canned, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    server.answer("/a", b"one")
    server.answer("/b", b"", 302, Location=f"{server.url}/a")
    connection = DaemonConnection(server.url.replace("//", "//me:secret@"))
    assert connection.get("/a").body == b"one"
    with pytest.raises(DaemonError, match=r"/b: it redirects to another address \(302\), which is not followed"):
        connection.get("/b")
    assert len(server.asked) == 2
    connection.close()


async def test_a_connection_is_used_where_an_event_loop_runs(server: Canned) -> None:
    server.answer("/a", clock_of(5), 202)
    connection = DaemonConnection(server.url)
    assert connection.ask(ClockAnswer, "/a").time_ns == 5
    assert connection.post(ClockAnswer, "/a", {"reason": "a"}).time_ns == 5
    assert server.asked[1][1]["Content-Length"] == "14"
    connection.close()


def test_a_port_is_the_daemons_unless_it_is_given_and_an_invalid_address_is_refused() -> None:
    assert DaemonConnection("http://node7").place == "http://node7:10055"
    assert DaemonConnection("https://[::1]:443/").place == "https://[::1]:443"
    for url in ("node7:x", "ftp://node7", "http://", "http://node7/?a=1", "http://[::1", ""):
        with pytest.raises(DaemonError, match="is not the address of a daemon; write it like http://node7:10055"):
            DaemonConnection(url)


def test_silence_has_a_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        place = f"http://127.0.0.1:{listening.getsockname()[1]}"
        hanging = DaemonConnection(place, timeout_seconds=0.05)
        with pytest.raises(DaemonError, match=rf"{place} does not answer: no answer within 0.05 s"):
            hanging.get("/a")
        hanging.close()


UNTRUSTED = "its certificate is not trusted (self-signed certificate); name the file of its authority in the "


@for_each({"self-signed certificate": UNTRUSTED, "CA cert does not include key usage extension": KEY_USAGE}.items())
def test_a_certificate_that_is_not_trusted_has_advice(reason: str, advice: str) -> None:
    error = ssl.SSLCertVerificationError(1, "")
    error.verify_message = reason
    assert advice in str(silence(error, DaemonConnection("https://node7")._access.advice, encrypted=True))


def test_an_address_that_refuses_is_waited_for_and_then_left_to_the_request() -> None:
    said: list[str] = []
    slept: list[float] = []
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{listener.getsockname()[1]}"
        wait_for_daemon(place, said.append, lambda: sum(slept), slept.append)
        assert sum(slept) == MAX_WAIT_SECONDS
        with pytest.raises(DaemonError, match="does not answer: it refuses connections"):
            DaemonConnection(place).get("/")
        slept.clear()

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            if len(slept) == 3:
                listener.listen()

        wait_for_daemon(place, said.append, lambda: sum(slept), sleep)
        assert said == [f"waiting up to 15 s for http://{place}, which refuses connections"] * 2
        assert len(slept) == 3
