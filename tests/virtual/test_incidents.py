"""Every incident at once on a node: its past stays the same, the present says so, and the events tell it.

The fabric is healthy, then each device but the first has a trouble of its own, then all are healthy again, and then the
daemon is killed and started. The story asks the same questions in each phase, and the tests compare the answers.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ibpulse.workbench.simulate.workloads import Constant
from tests.running import Metrics
from tests.virtual.node import Node
from tests.virtual.rates import RATE

NDR, HDR = 50e9, 25e9
NDR_TEXT, HDR_TEXT = "400 Gb/sec (4X NDR)", "200 Gb/sec (4X HDR)"
# a healthy device, and devices by what happens to them
HEALTHY, DOWN, SLOWER, STATE_FAILS, COUNTERS_FAIL, HUNG, VANISHED, FLAPPED = (f"mlx5_{index}" for index in range(8))
WORDS = {
    HEALTHY: "ACTIVE",
    DOWN: "DOWN",
    SLOWER: "ACTIVE",
    STATE_FAILS: "unreadable",
    COUNTERS_FAIL: "unreadable",
    HUNG: "hung",
    VANISHED: "disappeared",
    FLAPPED: "ACTIVE",
}
PROBLEMS = (STATE_FAILS, COUNTERS_FAIL, HUNG, VANISHED)
QUESTIONS = {
    "summary": ("/api/v1/summary", {}),
    "window": ("/api/v1/window", {"format": "csv"}),
    "ratio": ("/api/v1/window", {"format": "csv", "unit": "ratio"}),
    "bins": ("/api/v1/window", {"format": "csv", "resolution": "1s"}),
}


@dataclass
class Story:
    """When things happened (in ms), and the answers by phase: `healthy`, `during`, `after`, `restarted`."""

    begun_ms: float = 0.0
    ended_ms: float = 0.0
    past: dict[str, dict[str, bytes]] = field(default_factory=dict)
    incident: dict[str, dict[str, bytes]] = field(default_factory=dict)
    ports: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    events: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    ready: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, Metrics] = field(default_factory=dict)

    def note(self, node: Node, phase: str) -> None:
        """Ask everything, as it is in this phase."""
        begun_ms = self.begun_ms or now_ms(node)
        self.past[phase] = ask_span(node, begun_ms - 4000)
        if self.begun_ms:
            self.incident[phase] = ask_span(node, begun_ms + 2000)
        self.ports[phase] = {port["device"]: port for port in node.get("/api/v1/ports")["ports"]}
        self.events[phase] = node.get("/api/v1/events")["events"]
        self.ready[phase] = node.ask("/-/ready").text
        self.metrics[phase] = node.metrics()


def now_ms(node: Node) -> float:
    return node.clock.time_ns() / 1e6


def ask_span(node: Node, begin_ms: float) -> dict[str, bytes]:
    """All that can be asked of three whole seconds, byte for byte."""
    begin_ms = begin_ms // 1000 * 1000
    span = {"from": int(begin_ms), "to": int(begin_ms) + 3000}
    answers = {name: node.ask(path, **span, **params) for name, (path, params) in QUESTIONS.items()}
    assert {answer.status_code for answer in answers.values()} == {200}
    return {name: answer.content for name, answer in answers.items()}


def cause_incidents(node: Node) -> None:
    node.fault({"link-flap": [DOWN], "vanish": [VANISHED]})
    node.put(SLOWER, "rate", HDR_TEXT)
    node.fail(STATE_FAILS, errno.EINVAL, "state")
    node.fail(COUNTERS_FAIL, errno.EINVAL, "port_xmit_data", "port_rcv_data")
    node.hang(HUNG)
    node.put(FLAPPED, "link_downed", "1")


@pytest.fixture(scope="module")
def story(shared_folder: Path) -> Iterator[Story]:
    found = Story()
    with Node(shared_folder, rails=8, workload=Constant(RATE), interval="50ms") as node:
        node.run(8.45)
        found.note(node, "healthy")
        found.begun_ms = now_ms(node)
        cause_incidents(node)
        node.run(8)
        found.note(node, "during")
        found.ended_ms = now_ms(node)
        node.fault()
        node.put(SLOWER, "rate", NDR_TEXT)
        node.answer()
        # a device that hung has to answer for ten seconds
        node.run(14)
        found.note(node, "after")
        node.kill()
        node.start()
        node.run(4)
        found.note(node, "restarted")
        yield found


# of the devices that hung and came back, in addition to their states
OTHERS = ("quarantined", "released", "counter-reset")


def events_of(story: Story, device: str) -> list[dict[str, Any]]:
    return [event for event in story.events["after"] if event["device"] == device]


def assert_time(event: dict[str, Any], true_ms: float, within_ms: float) -> None:
    """The truth lies in the uncertainty of the event, which is at most the time between two looks."""
    assert 0 <= event["time_ms"] - true_ms <= within_ms, event
    assert event["time_ms"] - event["uncertainty_ms"] <= true_ms + 1, event


@pytest.mark.parametrize("phase", ["during", "after", "restarted"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_the_past_before_the_incidents_is_the_same_whenever_it_is_asked(
    story: Story, phase: str, question: str
) -> None:
    assert story.past[phase][question] == story.past["healthy"][question]


@pytest.mark.parametrize("phase", ["after", "restarted"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_the_incidents_are_the_same_after_them(story: Story, phase: str, question: str) -> None:
    assert story.incident[phase][question] == story.incident["during"][question]


def column(answer: bytes, device: str) -> list[float | None]:
    """The values that the device transmitted."""
    head, *rows = answer.decode().splitlines()
    (index,) = (index for index, name in enumerate(head.split(",")) if name.startswith(f"{device}:1 transmit"))
    values = [row.split(",")[index] for row in rows]
    return [float(value) if value else None for value in values]


@pytest.mark.parametrize(
    ("device", "question", "value"),
    [
        # the ratio to the last rate of an active link, and to a new rate
        (DOWN, "ratio", 0.0),
        (SLOWER, "ratio", pytest.approx(RATE / HDR, rel=1e-6)),
        # missing data is no zero, and a state that cannot be read costs no sample
        *((device, "window", None) for device in (COUNTERS_FAIL, HUNG, VANISHED)),
        *((device, "window", RATE) for device in (HEALTHY, STATE_FAILS)),
    ],
)
def test_the_samples_of_the_incidents(story: Story, device: str, question: str, value: object) -> None:
    assert column(story.incident["after"][question], device) == [value] * 60


def test_the_ports_say_what_is_wrong_with_them(story: Story) -> None:
    ports = story.ports["during"]
    assert {device: port["state"] for device, port in ports.items()} == WORDS
    assert [device for device, port in ports.items() if port["problem"]] == list(PROBLEMS)
    assert not ports[DOWN]["active"]
    assert not ports[VANISHED]["active"]
    assert ports[SLOWER]["rate_bytes_per_second"] == HDR
    assert [device for device, port in story.ports["after"].items() if port["problem"]] == [COUNTERS_FAIL]
    assert [device for device, port in story.ports["restarted"].items() if port["problem"]] == []


# the events of each device, with the most milliseconds between an incident or its end and the event
EVENTS: dict[str, tuple[tuple[str, str, float], ...]] = {
    HEALTHY: (),
    DOWN: (("link-down", "begun_ms", 1000), ("link-up", "ended_ms", 1000)),
    SLOWER: (("rate-change", "begun_ms", 1000), ("rate-change", "ended_ms", 1000)),
    STATE_FAILS: (("unreadable", "begun_ms", 1000), ("readable", "ended_ms", 1000)),
    COUNTERS_FAIL: (("unreadable", "begun_ms", 2000),),
    # a read hangs after a second, and the next read may begin after another one
    HUNG: (("unreadable", "begun_ms", 2500), ("readable", "ended_ms", 2500)),
    # the scan that misses a device, and the first reading of `link_downed`, wait a second for the device that hangs
    VANISHED: (("disappeared", "begun_ms", 2000), ("appeared", "ended_ms", 2000)),
    FLAPPED: (("link-flap", "begun_ms", 2000),),
}


@pytest.mark.parametrize("device", EVENTS)
def test_the_events_tell_an_incident_and_its_end(story: Story, device: str) -> None:
    found = [event for event in events_of(story, device) if event["kind"] not in OTHERS]
    assert [event["kind"] for event in found] == [kind for kind, _, _ in EVENTS[device]]
    for event, (_, when, within_ms) in zip(found, EVENTS[device], strict=True):
        assert_time(event, getattr(story, when), within_ms)


def test_the_events_survive_a_kill(story: Story) -> None:
    before, after = story.events["after"], story.events["restarted"]
    assert after[: len(before)] == before
    assert [event["kind"] for event in after[len(before) :]] == ["readable", "started"]


def test_the_daemon_is_ready_and_names_what_is_wrong(story: Story) -> None:
    for device in PROBLEMS:
        assert f"{device}:1" in story.ready["during"]
    assert [device for device in WORDS if device in story.ready["after"]] == [COUNTERS_FAIL]
    assert story.ready["restarted"] == "Ready: sampling 8 ports.\n"
