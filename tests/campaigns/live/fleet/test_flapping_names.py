"""Lookups of names by the resolver of the system, whose name server answers, fails or is silent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fleet.test_discovery import isolate

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
