"""Sources of nodes: files, DNS with its SRV records, and HTTP. What fails keeps its last good answer and says so."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from dns.resolver import Resolver

from ibpulse.base.errors import DiscoveryError
from ibpulse.base.internal_errors import GATEWAY_PARTS, InternalErrors
from ibpulse.gateway.nodes import discovery
from ibpulse.gateway.nodes.requests import Nodes
from ibpulse.gateway.nodes.targets import Target
from tests.fleet.hostile import Hostile, never
from tests.loop_clock import until
from tests.names import forget_invalid_names
from tests.tables import for_each

NODES = [{"targets": ["node1:1"], "labels": {"rack": "r1"}}]


def discover(*texts: str) -> discovery.Discovery:
    return discovery.Discovery([discovery.parse_source(text) for text in texts])


def urls(found: discovery.Discovery) -> dict[str, str]:
    return {target.name: target.url for target in found.targets}


async def test_a_file_is_read_again_when_it_changes_and_stays_when_it_is_broken(tmp_path: Path) -> None:
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps(NODES))
    found = discover(str(path))
    await found.refresh()
    assert found.targets == (Target("node1", "http://node1:1", {"rack": "r1"}),)
    assert found.problems == ()
    path.write_text('[{"targets": ["node1:1", "node2:1"]}]')
    await found.refresh()
    assert urls(found) == {"node1": "http://node1:1", "node2": "http://node2:1"}
    path.write_text('[{"targets": ["node3:1"]}')
    await found.refresh()
    assert [*urls(found)] == ["node1", "node2"]
    (problem,) = found.problems
    assert problem.startswith(f"{path}: {path}: not JSON: ")
    assert problem.endswith("; the nodes of its last good answer stay")
    path.unlink()
    await found.refresh()
    assert [*urls(found)] == ["node1", "node2"]
    assert "cannot be read: No such file or directory" in found.problems[0]
    path.write_text("[]")
    await found.refresh()
    assert (found.targets, found.problems) == ((), ())
    found = discover(str(tmp_path / "none.yml"))
    await found.refresh()
    assert found.targets == ()
    assert not found.problems[0].endswith("stay")


@pytest.mark.parametrize(
    ("name", "good", "half"),
    [
        ("nodes.json", '[{"targets": ["node1:1"]}]', ""),
        ("nodes.json", '[{"targets": ["node1:1"]}]', '[{"targets": ["node2:1"'),
        ("nodes.yml", "- targets: [node1:1]\n", ""),
        ("nodes.yml", "- targets: [node1:1]\n", "# nodes\n"),
        ("nodes.yml", "- targets: [node1:1]\n", "- targets: [node2:1, nod"),
        ("nodes.yml", "- targets: [node1:1]\n", "- targ"),
    ],
)
async def test_a_file_that_is_being_written_keeps_the_nodes_of_the_whole_one(
    tmp_path: Path, name: str, good: str, half: str
) -> None:
    path = tmp_path / name
    path.write_text(good)
    found = discover(str(path))
    await found.refresh()
    path.write_text(half)
    await found.refresh()
    assert [*urls(found)] == ["node1"]
    assert found.problems[0].endswith("; the nodes of its last good answer stay")
    # as a ConfigMap is replaced
    (tmp_path / "new").write_text(good.replace("node1", "node3"))
    (tmp_path / "new").replace(path)
    await found.refresh()
    assert ([*urls(found)], found.problems) == (["node3"], ())


async def test_a_file_that_grows_too_large_keeps_its_nodes(tmp_path: Path) -> None:
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps(NODES))
    found = discover(str(path))
    await found.refresh()
    for text in ("[" + " " * 8_000_000 + "]", json.dumps([{"targets": [f"n{number}" for number in range(5001)]}])):
        path.write_text(text)
        await found.refresh()
        assert [*urls(found)] == ["node1"]
        assert found.problems[0].endswith("list fewer nodes; the nodes of its last good answer stay") or (
            "more than 5000 nodes; list fewer" in found.problems[0]
        )
    assert found.failures() == {str(path): 2}


def test_a_file_of_a_terabyte_a_pipe_and_a_directory_are_refused_at_once(tmp_path: Path) -> None:
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.truncate(10**12)
    os.mkfifo(tmp_path / "pipe.yml")
    (tmp_path / "directory.json").mkdir()
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    with (tmp_path / "huge.yml").open("wb") as file:
        file.truncate(10**12)
    for name, reason in {
        "huge.json": "is larger than 8 MB; list fewer nodes",
        "huge.yml": "is larger than 1 MB",
        "pipe.yml": "is not a regular file",
        "directory.json": "cannot be read: Is a directory",
        "zero.json": "is not a regular file",
    }.items():
        with pytest.raises(DiscoveryError, match=reason):
            discovery.FileSource("s", tmp_path / name).read()


async def test_a_list_over_http(server: Hostile) -> None:
    server.answer("/list", json.dumps(NODES).encode())
    found = discover(f"{server.url}/list?a=b")
    await found.refresh()
    assert urls(found) == {"node1": "http://node1:1"}
    assert server.asked[0].startswith("GET /list?a=b HTTP/1.1")


async def test_the_server_of_a_list_gets_no_password_and_its_nodes_do(server: Hostile, tmp_path: Path) -> None:
    server.answer("/list", json.dumps([{"targets": [server.url], "labels": {"node": "a"}}]).encode())
    server.answer("/x", b"1")
    (tmp_path / "nodes.yml").write_text("basic_auth: {username: ops, password: x}")
    found = discovery.Discovery(
        [discovery.parse_source(f"{server.url}/list")], discovery.NodeConfigFile(tmp_path / "nodes.yml")
    )
    await found.refresh()
    nodes = Nodes()
    nodes.update(found.targets, found.access)
    await nodes.all()[0].get("/x")
    await nodes.close()
    await found.close()
    assert [(head.split()[1], "uthorization" in head) for head in server.asked] == [("/list", False), ("/x", True)]


@pytest.mark.parametrize(
    ("body", "kind", "status", "reason"),
    [
        (b"<html>", "text/html", "200 OK", "its answer is 'text/html', not application/json"),
        (b"[", "application/json", "200 OK", "answer: not JSON"),
        (b"[]", "application/json", "503 No", "it refuses with 503"),
        (b"[]", "application/json", "302 Found", "it redirects to another address (302)"),
        (b" " * 9_000_000, "application/json", "200 OK", "its answer is longer than 8000000 bytes"),
        (b'[{"targets": ["file:///x"]}]', "application/json", "200 OK", "'file' is not a scheme"),
        (json.dumps([{"targets": ["a"] * 1_000_000}]).encode(), "application/json", "200 OK", "a second node"),
        (b"[" * 100_000, "application/json", "200 OK", "answer: not JSON"),
        (b'[{"targets": ["a"], "labels": {"x": "\\u202e"}}]', "application/json", "200 OK", "has control characters"),
        (b'[{"targets": ["a"], "labels": {"x": NaN}}]', "application/json", "200 OK", "answer: not JSON"),
    ],
)
async def test_a_bad_list_over_http_keeps_the_last_good_one(
    server: Hostile, body: bytes, kind: str, status: str, reason: str
) -> None:
    server.answer("/list", json.dumps(NODES).encode())
    found = discover(f"{server.url}/list")
    await found.refresh()
    server.answer("/list", body, kind, status, "Location: /other")
    await found.refresh()
    assert [*urls(found)] == ["node1"]
    assert reason in found.problems[0]
    assert found.problems[0].endswith("; the nodes of its last good answer stay")


async def test_a_source_that_hangs_holds_up_no_other(
    server: Hostile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "SOURCE_SECONDS", 1.0)
    server.handlers["/list"] = never
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps(NODES))
    found = discover(f"{server.url}/list", str(path))
    refreshing = asyncio.create_task(found.refresh())
    await found.asked.wait()
    assert [*urls(found)] == ["node1"]
    assert not refreshing.done()
    await refreshing
    assert "no answer within 1 s" in found.problems[0]
    assert found.failures() == {f"{server.url}/list": 1, str(path): 0}
    await found.close()


async def test_a_name_leads_to_all_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_invalid_names(monkeypatch)
    found = discover("dns+localhost:7", "dns+https://localhost:8")
    await found.refresh()
    assert set(urls(found).values()) <= {"http://127.0.0.1:7", "http://[::1]:7"}
    assert urls(found)
    # the second source has the same names
    assert "is a node of an earlier source, which counts" in found.problems[0]
    with pytest.raises(DiscoveryError, match=r"no-such-host\.invalid cannot be resolved: "):
        discovery.DnsSource("s", "no-such-host.invalid", 1).read()


async def test_of_two_nodes_with_one_name_that_of_the_first_source_counts(tmp_path: Path) -> None:
    for name, port in (("one.json", 1), ("two.json", 2)):
        (tmp_path / name).write_text(json.dumps([{"targets": [f"node1:{port}", f"only{port}:1"]}]))
    found = discover(str(tmp_path / "one.json"), str(tmp_path / "two.json"))
    await found.refresh()
    assert urls(found) == {"node1": "http://node1:1", "only1": "http://only1:1", "only2": "http://only2:1"}
    assert found.problems == (f"{tmp_path}/two.json: 'node1' is a node of an earlier source, which counts",)


async def test_a_fault_of_ours_is_logged_once_and_keeps_the_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps(NODES))
    found = discover(str(path))
    await found.refresh()
    path.write_text("[]")
    monkeypatch.setattr(discovery, "read_json", lambda *_: 1 // 0)
    await found.refresh()
    await found.refresh()
    assert [*urls(found)] == ["node1"]
    kept = "internal error of the gateway; see its log; the nodes of its last good answer stay"
    assert found.problems == (f"{path}: {kept}",)
    assert caplog.text.count(f"internal error in discovery ({path}): ZeroDivisionError") == 1
    assert found.failures() == {str(path): 2}


async def test_a_fault_of_ours_does_not_end_the_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "nodes.json"
    path.write_text("[")
    monkeypatch.setattr(discovery, "REFRESH_SECONDS", 0.05)
    errors = InternalErrors(parts=GATEWAY_PARTS)
    found = discovery.Discovery([discovery.parse_source(str(path))], errors=errors)
    merge = found._merge

    def break_twice() -> None:
        if errors.counts()["discovery"] < 2:
            raise ZeroDivisionError
        merge()

    monkeypatch.setattr(found, "_merge", break_twice)
    task = asyncio.create_task(found.run())
    await asyncio.wait([task, asyncio.ensure_future(found.asked.wait())], return_when=asyncio.FIRST_COMPLETED)
    await until(lambda: errors.counts()["discovery"] >= 2 or task.done())
    path.write_text(json.dumps(NODES))
    await until(lambda: found.targets or task.done())
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert caplog.text.count("internal error in discovery: ZeroDivisionError; retrying") == 1
    # a problem is logged when it is new
    assert caplog.text.count(f"{path}: {path}: not JSON") == 1
    assert not errors.counts()["nodes"]


async def test_nothing_is_left_after_closing(server: Hostile) -> None:
    server.handlers["/list"] = never
    found = discover(f"{server.url}/list")
    task = asyncio.create_task(found.run())
    await until(lambda: server.asked)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await found.close()
    assert [task for task in asyncio.all_tasks() if "_read" in repr(task.get_coro())] == []


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("dns+ibpulse.monitoring.svc:10055", discovery.DnsSource),
        ("dns+https://ibpulse:1", discovery.DnsSource),
        ("dnssrv+_http._tcp.ibpulse.monitoring.svc", discovery.ServiceSource),
        ("/etc/nodes.json", discovery.FileSource),
        ("nodes.yaml", discovery.FileSource),
        ("https://sd.example/nodes?x=y", discovery.HttpSource),
    ],
)
async def test_sources_are_told_by_their_form(text: str, kind: type) -> None:
    assert type(discovery.parse_source(text)) is kind


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "'' is not a source of nodes; use dns+NAME:PORT, "),
        ("node1:10055", "'node1:10055' is not a source of nodes"),
        ("nodes.txt", "'nodes.txt' is not a source of nodes"),
        ("dns+", "'' is not an address"),
        ("dns+a b:1", "'a b:1' is not an address"),
        ("dns+ftp://a:1", "'ftp' is not a scheme"),
        ("dns+a:1/b", "has more than a name and a port"),
        ("dnssrv+a:1", "'dnssrv+a:1' has more than a name; write it like dnssrv+_http._tcp.NAME"),
        ("dnssrv+a/b", "has more than a name"),
        ("dnssrv+ftp://a", "'ftp' is not a scheme"),
        ("http://a:b@c/d", "has a user name"),
        ("http://a/b#c", "has more than a host, a port and a plain path"),
        ("http://a/b?x#c", "is not a URL for a list of nodes"),
        ("http://a/b?\n", "is not a URL for a list of nodes"),
    ],
)
def test_what_is_no_source_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        discovery.parse_source(text)
    assert reason in str(caught.value)


NAME = "_http._tcp.ibpulse.test"
QUESTION = b"\x05_http\x04_tcp\x07ibpulse\x04test\x00" + struct.pack("!HH", 33, 1)


def record(target: bytes, port: int) -> bytes:
    """A record of the name in the question, which begins at the 13th byte."""
    data = struct.pack("!HHH", 0, 0, port) + target
    return b"\xc0\x0c" + struct.pack("!HHIH", 33, 1, 30, len(data)) + data


def message(*records: bytes, code: int = 0) -> bytes:
    return struct.pack("!HHHHHH", 1, 0x8180 | code, 1, len(records), 0, 0) + QUESTION + b"".join(records)


@contextmanager
def name_server(answer: bytes) -> Iterator[int]:
    """The port of a server that answers each question with this, under the number of the question."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))

        def serve() -> None:
            while (received := server.recvfrom(1000))[0] != b"end":
                server.sendto(received[0][:2] + answer[2:], received[1])

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.sendto(b"end", server.getsockname())
            thread.join()


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], list[str]]:
    """The addresses that a lookup gives while the name server answers with a message."""

    def asked(answer: bytes) -> list[str]:
        with name_server(answer) as port:
            resolver = Resolver(configure=False)
            resolver.nameservers, resolver.port, resolver.lifetime = ["127.0.0.1"], port, 5
            monkeypatch.setattr(discovery, "Resolver", lambda: resolver)
            return [target.url for target in discovery.parse_source(f"dnssrv+{NAME}").read()]

    return asked


def test_hosts_and_ports_are_those_of_the_records(ask: Callable[[bytes], list[str]]) -> None:
    # \xc0\x1f points to "test"
    assert message()[0x1F:0x24] == b"\x04test"
    answer = message(record(b"\x05node2\xc0\x1f", 2), record(b"\x05node1\x00", 1), record(b"\x05node1\x00", 1))
    assert ask(answer) == ["http://node1:1", "http://node2.test:2"]


@for_each(
    [
        (message(), "the name has no SRV records"),
        (message(code=2), "the name server fails or refuses"),
        (message(code=3), "there is no such name"),
        (message(code=5), "the name server fails or refuses"),
    ]
)
def test_a_lookup_without_records_gives_its_reason(
    answer: bytes, reason: str, ask: Callable[[bytes], list[str]]
) -> None:
    with pytest.raises(DiscoveryError, match=rf"^{NAME} cannot be resolved: {reason}$"):
        ask(answer)


def test_a_silent_name_server_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = Resolver(configure=False)
    resolver.nameservers, resolver.lifetime = ["127.0.0.1"], 0
    monkeypatch.setattr(discovery, "Resolver", lambda: resolver)
    with pytest.raises(DiscoveryError, match="the name server does not answer"):
        discovery.parse_source(f"dnssrv+{NAME}").read()


def isolate(script: str, conf: Path) -> str:
    """What a script prints that is its own name server, in a network and with a resolv.conf of its own."""
    command = ["unshare", "--mount", "--net", sys.executable, "-c", NETWORK + script, str(conf)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


# `answer` is called with each question, and returns the message or None for silence
NETWORK = """
import socket, subprocess, sys, threading
from tests.fleet.test_discovery import address, message, record
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
subprocess.run(["mount", "--bind", sys.argv[1], "/etc/resolv.conf"], check=True)
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
def serve():
    while True:
        question, client = server.recvfrom(1000)
        found = answer(question)
        if found is not None:
            server.sendto(question[:2] + found[2:], client)
threading.Thread(target=serve, daemon=True).start()
"""
SERVICES = """
def answer(question):
    return message(record(b"\\x05node2\\x00", 2), record(b"\\x05node1\\x00", 1))
from ibpulse.gateway.nodes.discovery import parse_source
print([target.url for target in parse_source("dnssrv+_http._tcp.ibpulse.test").read()])
"""


# the servers of the system are named in one file
@pytest.mark.real("process")
@pytest.mark.needs("root", "ip")
def test_the_name_server_is_the_one_of_the_system(tmp_path: Path) -> None:
    conf = tmp_path / "resolv.conf"
    conf.write_text("nameserver 127.0.0.1\n")
    assert isolate(SERVICES, conf) == "['http://node1:1', 'http://node2:2']"


def address(question: bytes, *hosts: str, code: int = 0) -> bytes:
    """The answer to a question for addresses of the fourth version, with none for others."""
    end = question.index(b"\x00", 12) + 5
    wanted = struct.unpack_from("!H", question, end - 4)[0] == 1
    records = [b"\xc0\x0c" + struct.pack("!HHIH4s", 1, 1, 30, 4, socket.inet_aton(host)) for host in hosts if wanted]
    return struct.pack("!HHHHHH", 1, 0x8180 | code, 1, len(records), 0, 0) + question[12:end] + b"".join(records)
