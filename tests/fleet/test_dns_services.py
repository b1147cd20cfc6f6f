"""SRV records: messages of DNS, and a real lookup by the resolver of the system from a name server of the test."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from ibpulse.base.errors import DiscoveryError
from ibpulse.gateway.nodes.dns_services import ServiceRecord, find_services, read_services

QUESTION = b"\x05_http\x04_tcp\x07ibpulse\x04test\x00" + struct.pack("!HH", 33, 1)


def record(target: bytes, port: int, kind: int = 33) -> bytes:
    """A record of the name in the question, which begins at the 13th byte."""
    data = struct.pack("!HHH", 0, 0, port) + target
    return b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, 30, len(data)) + data


def message(*records: bytes, answers: int | None = None) -> bytes:
    count = len(records) if answers is None else answers
    return struct.pack("!HHHHHH", 1, 0x8180, 1, count, 0, 0) + QUESTION + b"".join(records)


def test_records_are_read_with_names_that_point_back() -> None:
    # \xc0\x1f points to "test"
    assert message()[0x1F:0x24] == b"\x04test"
    found = read_services(
        message(record(b"\x05node2\xc0\x1f", 2), record(b"\x05node1\x00", 1), record(b"\x01a\x00", 9, 1))
    )
    assert found == (ServiceRecord("node1", 1), ServiceRecord("node2.test", 2))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 11,
        message(answers=5),
        message(record(b"\x3fshort", 1)),
        message(record(b"\xc0\x3b", 1)),
        message(record(b"\xc0", 1)),
        message(record(b"\x02\xff\xff\x00", 1)),
    ],
)
def test_what_is_no_message_is_refused(content: bytes) -> None:
    with pytest.raises((ValueError, struct.error, IndexError)):
        read_services(content)


def test_a_name_without_records_is_a_sentence() -> None:
    with pytest.raises(DiscoveryError, match=r"^_http\._tcp\.no-such-host\.invalid cannot be resolved: "):
        find_services("_http._tcp.no-such-host.invalid")


def isolate(script: str, conf: Path) -> str:
    """What a script prints that is its own name server, in a network and with a resolv.conf of its own."""
    command = ["unshare", "--mount", "--net", sys.executable, "-c", NETWORK + script, str(conf)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


# `answer` is called with each question, and returns the message or None for silence
NETWORK = """
import socket, subprocess, sys, threading
from tests.fleet.test_dns_services import address, message, record
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
from ibpulse.gateway.nodes.target_sources import parse_source
print([target.url for target in parse_source("dnssrv+_http._tcp.ibpulse.test").read()])
"""


# the resolver of the system has but one file that names its servers
@pytest.mark.real("process")
@pytest.mark.needs("root", "ip")
def test_the_resolver_of_the_system_asks_its_name_server(tmp_path: Path) -> None:
    conf = tmp_path / "resolv.conf"
    conf.write_text("nameserver 127.0.0.1\n")
    assert isolate(SERVICES, conf) == "['http://node1:1', 'http://node2:2']"


def address(question: bytes, *hosts: str, code: int = 0) -> bytes:
    """The answer to a question for addresses of the fourth version, with none for others."""
    end = question.index(b"\x00", 12) + 5
    wanted = struct.unpack_from("!H", question, end - 4)[0] == 1
    records = [b"\xc0\x0c" + struct.pack("!HHIH4s", 1, 1, 30, 4, socket.inet_aton(host)) for host in hosts if wanted]
    return struct.pack("!HHHHHH", 1, 0x8180 | code, 1, len(records), 0, 0) + question[12:end] + b"".join(records)
