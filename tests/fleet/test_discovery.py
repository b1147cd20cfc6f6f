"""Sources of nodes: files, DNS with its SRV records, and HTTP. What fails keeps its last good answer and says so."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from pathlib import Path

import pytest
from dns.exception import DNSException
from dns.resolver import NXDOMAIN, LifetimeTimeout, NoAnswer, NoNameservers
from dns.rrset import RRset, from_text

from ibpulse.base.errors import DiscoveryError
from ibpulse.gateway.nodes import discovery
from ibpulse.gateway.nodes.requests import Nodes
from ibpulse.gateway.nodes.targets import Target
from tests.fleet.hostile import Hostile, never
from tests.loop_clock import until

NODES = [{"targets": ["node1:1"], "labels": {"rack": "r1"}}]


def discover(*texts: str) -> discovery.Discovery:
    return discovery.Discovery([discovery.parse_source(text) for text in texts])


def urls(found: discovery.Discovery) -> dict[str, str]:
    return {target.name: target.url for target in found.targets}


async def test_a_file_is_read_again_when_it_changes_and_its_nodes_stay_when_it_is_broken(tmp_path: Path) -> None:
    path = tmp_path / "nodes.json"
    found = discover(str(path))
    await found.refresh()
    assert found.targets == ()
    assert not found.problems[0].endswith("stay")
    path.write_text(json.dumps(NODES))
    await found.refresh()
    assert (found.targets, found.problems) == ((Target("node1", "http://node1:1", {"rack": "r1"}),), ())
    # as while it is being written
    path.write_text('[{"targets": ["node3:1"]}')
    await found.refresh()
    assert [*urls(found)] == ["node1"]
    assert found.problems[0].startswith(f"{path}: {path}: not JSON: ")
    assert found.problems[0].endswith("; the nodes of its last good answer stay")
    path.unlink()
    await found.refresh()
    assert [*urls(found)] == ["node1"]
    assert "cannot be read: No such file or directory" in found.problems[0]
    # as a ConfigMap is replaced
    (tmp_path / "new").write_text("[]")
    (tmp_path / "new").replace(path)
    await found.refresh()
    assert (found.targets, found.problems) == ((), ())


def test_a_file_of_a_terabyte_and_a_pipe_are_refused_at_once(tmp_path: Path) -> None:
    huge, pipe = tmp_path / "huge.json", tmp_path / "pipe.yml"
    with huge.open("wb") as file:
        file.truncate(10**12)
    os.mkfifo(pipe)
    for path, reason in ((huge, "is larger than 8 MB; list fewer nodes"), (pipe, "is not a regular file")):
        with pytest.raises(DiscoveryError, match=reason):
            discovery.FileSource("s", path).read()


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
        (b"[]", "application/json", "302 Found", "it redirects to another address (302)"),
        (b" " * 9_000_000, "application/json", "200 OK", "its answer is longer than 8000000 bytes"),
        (b'[{"targets": ["a"], "labels": {"x": NaN}}]', "application/json", "200 OK", "answer: not JSON"),
    ],
)
async def test_a_bad_list_over_http_keeps_the_last_good_one(
    server: Hostile, body: bytes, kind: str, status: str, reason: str
) -> None:
    server.answer("/list", json.dumps(NODES).encode())
    found = discover(f"{server.url}/list?a=b")
    await found.refresh()
    assert server.asked[0].startswith("GET /list?a=b HTTP/1.1")
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


def test_a_name_leads_to_all_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = ("10.0.0.2", "fd00::1", "10.0.0.1", "10.0.0.2")
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", (host, 7)) for host in hosts])
    found = [target.url for target in discovery.parse_source("dns+https://nodes:7").read()]
    assert found == ["https://10.0.0.1:7", "https://10.0.0.2:7", "https://[fd00::1]:7"]


async def test_of_two_nodes_with_one_name_that_of_the_first_source_counts(tmp_path: Path) -> None:
    for name, port in (("one.json", 1), ("two.json", 2)):
        (tmp_path / name).write_text(json.dumps([{"targets": [f"node1:{port}", f"only{port}:1"]}]))
    found = discover(str(tmp_path / "one.json"), str(tmp_path / "two.json"))
    await found.refresh()
    assert urls(found) == {"node1": "http://node1:1", "only1": "http://only1:1", "only2": "http://only2:1"}
    assert found.problems == (f"{tmp_path}/two.json: 'node1' is a node of an earlier source, which counts",)


async def test_a_fault_of_ours_keeps_the_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps(NODES))
    found = discover(str(path))
    await found.refresh()
    path.write_text("[]")
    monkeypatch.setattr(discovery, "read_json", lambda *_: 1 // 0)
    await found.refresh()
    assert [*urls(found)] == ["node1"]
    kept = "internal error of the gateway; see its log; the nodes of its last good answer stay"
    assert found.problems == (f"{path}: {kept}",)
    assert found.failures() == {str(path): 1}


async def test_a_problem_is_logged_when_it_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(discovery, "REFRESH_SECONDS", 0.05)
    path = tmp_path / "nodes.json"
    path.write_text("[")
    found = discover(str(path))
    task = asyncio.create_task(found.run())
    await until(lambda: found.failures()[str(path)] >= 3)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert caplog.text.count(f"{path}: {path}: not JSON") == 1


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("dns+ibpulse.monitoring.svc:10055", discovery.DnsSource),
        ("dns+https://ibpulse:1", discovery.DnsSource),
        ("dnssrv+_http._tcp.ibpulse.monitoring.svc", discovery.ServiceSource),
        ("/etc/nodes.json", discovery.FileSource),
        ("https://sd.example/nodes?x=y", discovery.HttpSource),
    ],
)
async def test_sources_are_told_by_their_form(text: str, kind: type) -> None:
    assert type(discovery.parse_source(text)) is kind


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "'' is not a source of nodes; use dns+NAME:PORT, "),
        ("nodes.txt", "'nodes.txt' is not a source of nodes"),
        ("dns+a b:1", "'a b:1' is not an address"),
        ("dns+ftp://a:1", "'ftp' is not a scheme"),
        ("dns+a:1/b", "has more than a name and a port"),
        ("dnssrv+a:1", "'dnssrv+a:1' has more than a name; write it like dnssrv+_http._tcp.NAME"),
        ("http://a:b@c/d", "has a user name"),
        ("http://a/b?x#c", "is not a URL for a list of nodes"),
        ("http://a/b?\n", "is not a URL for a list of nodes"),
    ],
)
def test_what_is_no_source_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        discovery.parse_source(text)
    assert reason in str(caught.value)


NAME = "_http._tcp.ibpulse.test"


def look_up(monkeypatch: pytest.MonkeyPatch, *records: str, fault: type[DNSException] | None = None) -> list[str]:
    """The addresses that a lookup gives when the resolver finds these SRV records, or fails."""

    class FixedResolver:
        def resolve(self, name: str, kind: str, **_: object) -> RRset:
            if fault:
                raise fault
            return from_text(f"{name}.", 30, "IN", kind, *records)

    monkeypatch.setattr(discovery, "Resolver", FixedResolver)
    return [target.url for target in discovery.parse_source(f"dnssrv+{NAME}").read()]


def test_hosts_and_ports_are_those_of_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    found = look_up(monkeypatch, "0 0 2 node2.test.", "0 0 1 node1.", "1 0 1 node1.")
    assert found == ["http://node1:1", "http://node2.test:2"]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (NoAnswer, "the name has no SRV records"),
        (NXDOMAIN, "there is no such name"),
        (NoNameservers, "the name server fails or refuses"),
        (LifetimeTimeout, "the name server does not answer"),
    ],
)
def test_a_lookup_without_records_gives_its_reason(
    fault: type[DNSException], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DiscoveryError, match=rf"^{NAME} cannot be resolved: {reason}$"):
        look_up(monkeypatch, fault=fault)
