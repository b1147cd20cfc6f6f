"""SRV records of a name, from a name server of the test."""

from __future__ import annotations

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
from ibpulse.gateway.nodes import discovery
from ibpulse.gateway.nodes.discovery import parse_source
from tests.tables import for_each

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
            return [target.url for target in parse_source(f"dnssrv+{NAME}").read()]

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
        parse_source(f"dnssrv+{NAME}").read()


def isolate(script: str, conf: Path) -> str:
    """What a script prints that is its own name server, in a network and with a resolv.conf of its own."""
    command = ["unshare", "--mount", "--net", sys.executable, "-c", NETWORK + script, str(conf)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


# `answer` is called with each question, and returns the message or None for silence
NETWORK = """
import socket, subprocess, sys, threading
from tests.fleet.test_services import address, message, record
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
