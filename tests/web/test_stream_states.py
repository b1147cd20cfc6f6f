"""The states of ports and the events of the log in the stream."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from ibpulse.agent.web import stream
from ibpulse.agent.web.parts import WebParts
from ibpulse.agent.web.stream import Feed
from ibpulse.core.events import Event, EventLog
from ibpulse.core.events.watch import KnownPort
from ibpulse.core.http.stream import Viewer
from ibpulse.core.metrics.web import WebCounts
from ibpulse.core.model import PortState
from tests.web.events import listening
from tests.web.rings import EPOCH, INTERVAL_NS, Node, port
from tests.web.test_stream import advance, served, settle

MS = 10
NAMES = ("mlx5_0:1", "mlx5_1:1")
UP = PortState("ACTIVE", "LinkUp", True, 50e9, True)
DOWN = replace(UP, state="DOWN", physical="Polling", active=False)


class Ports:
    """Two ports with a log, whose states a test changes."""

    def __init__(self, node: Node) -> None:
        self.log = EventLog()
        self.now: dict[str, PortState | None] = dict.fromkeys(NAMES, UP)
        self.parts: WebParts = node.parts(events=self.log, known_ports=self.known)

    def known(self) -> tuple[KnownPort, ...]:
        return tuple(
            KnownPort(port(name), state, None if state == UP else 1_000_000, "" if state == UP else "gone")
            for name, state in self.now.items()
        )

    def change(self, name: str, tick: int, after: PortState | None, kind: str = "link-down") -> None:
        before, self.now[name] = self.now[name], after
        self.log.add(event(tick, kind, name, before=before, after=after))


def event(tick: int, kind: str, subject: str, **members: Any) -> Event:
    return Event(tick * INTERVAL_NS, kind, subject, f"{kind} of {subject}", 10**9, tick=tick, **members)


def decode(messages: bytes) -> list[tuple[str, Any]]:
    """Names and data of messages."""
    fields = [
        dict(line.split(": ", 1) for line in text.split("\n")) for text in messages.decode().split("\n\n") if text
    ]
    return [(each["event"], orjson.loads(each["data"])) for each in fields]


def ports_of(message: bytes) -> list[dict[str, Any]]:
    [(name, data)] = decode(message)
    assert name == "ports"
    return list(data["ports"])


def test_each_port_has_its_states_over_the_history_and_the_last_active_rate(node: Node) -> None:
    ports = Ports(node)
    ports.change("mlx5_0:1", EPOCH + 400, DOWN)
    ports.change("mlx5_0:1", EPOCH + 700, replace(UP, rate_bytes_per_second=25e9))
    ports.change("mlx5_1:1", EPOCH + 900, replace(DOWN, problem="hung"))
    first, second = ports_of(Feed(ports.parts).ports)
    members = {"physical": "LinkUp", "active": True, "rail": True, "role": "compute", "problem": ""}
    assert first["states"][1:] == [
        {**members, "from_ms": (EPOCH + 400) * MS, "state": "DOWN", "physical": "Polling", "active": False}
        | {"rate_bytes_per_second": 50e9},
        {**members, "from_ms": (EPOCH + 700) * MS, "state": "ACTIVE", "rate_bytes_per_second": 25e9},
    ]
    assert first["states"][0]["state"] == "ACTIVE"
    assert first["states"][0]["from_ms"] <= (node.now_tick - 4000) * MS
    assert [state["active"] for state in second["states"]] == [True, False]
    assert {name: second[name] for name in ("active", "state", "rate_bytes_per_second", "problem", "since_ms")} == {
        "active": False,
        "state": "DOWN",
        "rate_bytes_per_second": 50e9,
        "problem": "hung",
        "since_ms": 1,
    }


def test_a_port_that_disappeared_stays_as_long_as_it_has_a_slot(node: Node) -> None:
    ports = Ports(node)
    ports.change("mlx5_1:1", EPOCH + 900, None, "disappeared")
    _, gone = ports_of(Feed(ports.parts).ports)
    assert gone["states"][-1] == {"from_ms": (EPOCH + 900) * MS, "state": "disappeared"}
    assert (gone["active"], gone["state"], gone["problem"], gone["problem_text"]) == (
        False,
        "disappeared",
        "disappeared",
        "gone",
    )
    assert gone["rail"]
    stranger = replace(ports.known()[0], port=port("mlx5_7:1"))
    other = node.parts(events=ports.log, known_ports=lambda: (*ports.known(), stranger))
    assert [each["port"] for each in ports_of(Feed(other).ports)] == list(NAMES)


def test_the_states_of_a_flapping_port_are_bounded_to_the_newest(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_STATES", 3)
    ports = Ports(node)
    for number in range(8):
        ports.change("mlx5_0:1", EPOCH + 100 + number, DOWN if number % 2 == 0 else UP)
    states = ports_of(Feed(ports.parts).ports)[0]["states"]
    assert [state["from_ms"] for state in states] == [(EPOCH + 105 + n) * MS for n in range(3)]


def test_nothing_is_encoded_again_while_nothing_changes(node: Node) -> None:
    ports = Ports(node)
    found = Feed(ports.parts)
    encoded = found.ports
    advance(node, 50)
    assert found.refresh_ports() == (False, False)
    assert found.ports is encoded


async def test_another_state_comes_before_the_next_batch_and_drops_nothing(node: Node) -> None:
    ports = Ports(node)
    async with served(ports.parts) as client, listening(client, "?every=100ms") as listener:
        await settle(listener)
        advance(node, 5)
        assert (await listener.next()).name == "batch"
        ports.change("mlx5_0:1", node.now_tick, DOWN)
        told = await listener.next()
        assert told.name == "ports"
        assert [each["state"] for each in told.data["ports"]] == ["DOWN", "ACTIVE"]
        happened = await listener.next()
        advance(node, 5)
        batch = await listener.next()
    assert happened.name == "events"
    assert happened.data["events"] == [
        {
            "time_ms": (node.now_tick - 5) * MS,
            "uncertainty_ms": 1000,
            "kind": "link-down",
            "subject": "mlx5_0:1",
            "text": "link-down of mlx5_0:1",
            "details": {},
        }
    ]
    assert (batch.name, batch.data["start_ms"]) == ("batch", (node.now_tick - 4) * MS)
    assert ports.parts.counts.stream_dropped_events == 0


async def test_queued_batches_survive_another_state_but_not_other_ports() -> None:
    counts = WebCounts()
    viewer = Viewer(iter(()), counts)
    viewer.offer([b"one", b"two"])
    viewer.update(b"old")
    viewer.update(b"states")
    assert await viewer.take() == b"statesonetwo"
    viewer.offer([b"three"])
    viewer.restart(b"ports")
    viewer.offer([b"four"])
    assert [text[:20] for text in (await viewer.take()).split(b"\n\n")] == [b"event: dropped\ndata:", b"portsfour"]
    assert counts.stream_dropped_events == 1


async def test_a_viewer_gets_the_events_of_the_history_and_then_each_new_one_once(node: Node) -> None:
    ports = Ports(node)
    ports.log.add(event(EPOCH - 100_000, "clock-step", ""))
    ports.log.add(event(EPOCH + 100, "capture", "", details={"name": "a.parquet", "origin": "api"}))
    async with served(ports.parts) as client, listening(client, "?every=100ms") as listener:
        await settle(listener)
        [first] = (await listener.next("events")).data["events"]
        async with listening(client, "?every=100ms") as second:
            await settle(second)
            ports.log.add(event(EPOCH + 990, "role-change", NAMES[0]))
            assert [each["kind"] for each in (await second.next("events")).data["events"]] == ["capture"]
            for each in (listener, second):
                assert [one["kind"] for one in (await each.next("events")).data["events"]] == ["role-change"]
            async with listening(client) as third:
                kinds = [each["kind"] for each in (await third.next("events")).data["events"]]
    assert (first["kind"], first["details"]) == ("capture", {"name": "a.parquet"})
    assert kinds == ["capture", "role-change"]


def test_no_more_events_are_sent_than_the_newest(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_LOG_EVENTS", 2)
    ports = Ports(node)
    for tick in (100, 200, 300):
        ports.log.add(event(EPOCH + tick, "clock-step", ""))
    [(_, data)] = decode(Feed(ports.parts).log_events())
    assert [each["time_ms"] for each in data["events"]] == [(EPOCH + 200) * MS, (EPOCH + 300) * MS]
