"""Lookups of names by the resolver of the system, whose name server answers, fails or is silent."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

QUESTION = b"\x05_http\x04_tcp\x07ibpulse\x04test\x00" + struct.pack("!HH", 33, 1)


def record(target: bytes, port: int) -> bytes:
    """A record of the name in the question, which begins at the 13th byte."""
    data = struct.pack("!HHH", 0, 0, port) + target
    return b"\xc0\x0c" + struct.pack("!HHIH", 33, 1, 30, len(data)) + data


def message(*records: bytes) -> bytes:
    return struct.pack("!HHHHHH", 1, 0x8180, 1, len(records), 0, 0) + QUESTION + b"".join(records)


def address(question: bytes, *hosts: str, code: int = 0) -> bytes:
    """The answer to a question for addresses of the fourth version, with none for others."""
    end = question.index(b"\x00", 12) + 5
    wanted = struct.unpack_from("!H", question, end - 4)[0] == 1
    records = [b"\xc0\x0c" + struct.pack("!HHIH4s", 1, 1, 30, 4, socket.inet_aton(host)) for host in hosts if wanted]
    return struct.pack("!HHHHHH", 1, 0x8180 | code, 1, len(records), 0, 0) + question[12:end] + b"".join(records)


def isolate(script: str, conf: Path) -> str:
    """What a script prints that is its own name server, in a network and with a resolv.conf of its own."""
    command = ["unshare", "--mount", "--net", sys.executable, "-c", NETWORK + script, str(conf)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


# `answer` is called with each question, and returns the message or None for silence
NETWORK = """
import socket, subprocess, sys, threading
from tests.campaigns.live.fleet.test_flapping_names import address, message, record
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
FLAPPING = """
import asyncio
from ibpulse.gateway.nodes import discovery
from ibpulse.gateway.nodes.discovery import parse_source
state = "two"
def answer(question):
    if question[12:].startswith(b"\\x06steady"):
        return address(question, "127.0.0.9")
    return {
        "two": lambda: address(question, "127.0.0.1", "127.0.0.2"),
        "one": lambda: address(question, "127.0.0.2"),
        "none": lambda: address(question),
        "no name": lambda: address(question, code=3),
        "failing": lambda: address(question, code=2),
        "garbage": lambda: b"\\xff" * 40,
        "silent": lambda: None,
    }[state]()
async def main():
    global state
    found = discovery.Discovery([parse_source(f"dns+{name}.test:1") for name in ("flap", "steady")])
    for state in ("none", "two", "none", "one", "no name", "failing", "garbage", "silent", "silent", "two"):
        # a lookup that is silent takes two seconds
        discovery.SOURCE_SECONDS = 0.5 if state == "silent" else 30
        await found.refresh()
        while state == "two" and found.problems:
            # a lookup that was silent goes on, and counts the next time
            await found.refresh()
        print(state, [target.name[-1] for target in found.targets], *found.problems, sep="; ")
asyncio.run(main())
"""


@pytest.mark.needs("root")
def test_a_name_that_flaps_hangs_or_has_no_address_keeps_its_last_nodes_and_harms_no_other(tmp_path: Path) -> None:
    conf = tmp_path / "resolv.conf"
    conf.write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:2\n")
    lines = isolate(FLAPPING, conf).splitlines()
    states = [line.split("; ")[:2] for line in lines]
    assert states == [
        ["none", "['9']"],
        ["two", "['1', '2', '9']"],
        ["none", "['1', '2', '9']"],
        ["one", "['2', '9']"],
        *([state, "['2', '9']"] for state in ("no name", "failing", "garbage", "silent", "silent")),
        ["two", "['1', '2', '9']"],
    ]
    assert lines[0].endswith("dns+flap.test:1: flap.test cannot be resolved: No address associated with hostname")
    for line in lines[2], *lines[4:-1]:
        assert "; dns+flap.test:1: " in line
        assert line.endswith("the nodes of its last good answer stay")
        assert "steady" not in line
    assert lines[-2].split("; ")[2] == "dns+flap.test:1: no answer within 0.5 s"


@pytest.mark.needs("root", "ip")
def test_service_records_come_from_the_name_server_of_the_system(tmp_path: Path) -> None:
    conf = tmp_path / "resolv.conf"
    conf.write_text("nameserver 127.0.0.1\n")
    assert isolate(SERVICES, conf) == "['http://node1:1', 'http://node2:2']"
