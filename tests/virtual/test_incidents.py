"""Every incident at once on a node: its past stays the same, the present says so, and the events tell it.

The fabric is healthy, then each device but the first has a trouble of its own, then all are healthy again, and then the
daemon is killed and started. The story asks the same questions in each phase, and the tests compare the answers.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
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


def events_of(story: Story, device: str) -> list[dict[str, Any]]:
    return [event for event in story.events["after"] if event["device"] == device]


def the_event(story: Story, device: str, kind: str) -> dict[str, Any]:
    """The only event of this kind and device."""
    (event,) = (event for event in events_of(story, device) if event["kind"] == kind)
    return event


def assert_time(event: dict[str, Any], true_ms: float, within_ms: float = 1000.0) -> None:
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


def test_every_port_keeps_its_past_as_ratio(story: Story) -> None:
    for device in WORDS:
        assert column(story.past["after"]["window"], device) == [RATE] * 60
        assert column(story.past["after"]["ratio"], device) == [pytest.approx(RATE / NDR, rel=1e-6)] * 60


def test_the_ratio_of_a_port_that_is_down_is_that_of_its_last_active_rate(story: Story) -> None:
    assert column(story.incident["during"]["ratio"], DOWN) == [0.0] * 60


def test_the_ratio_after_a_change_of_the_rate_is_that_of_the_new_one(story: Story) -> None:
    assert column(story.incident["after"]["ratio"], SLOWER) == [pytest.approx(RATE / HDR, rel=1e-6)] * 60


@pytest.mark.parametrize("device", [COUNTERS_FAIL, HUNG, VANISHED])
def test_a_port_that_could_not_be_read_has_missing_data_and_no_zero(story: Story, device: str) -> None:
    assert column(story.incident["after"]["window"], device) == [None] * 60


@pytest.mark.parametrize("device", [HEALTHY, STATE_FAILS])
def test_a_state_that_cannot_be_read_costs_no_sample(story: Story, device: str) -> None:
    assert column(story.incident["during"]["window"], device) == [RATE] * 60


def test_the_ports_say_what_is_wrong_with_them(story: Story) -> None:
    ports = story.ports["during"]
    assert {device: port["state"] for device, port in ports.items()} == WORDS
    assert [device for device, port in ports.items() if port["problem"]] == list(PROBLEMS)
    assert not ports[DOWN]["active"]
    assert not ports[VANISHED]["active"]
    assert ports[SLOWER]["rate_bytes_per_second"] == HDR
    assert [device for device, port in story.ports["after"].items() if port["problem"]] == [COUNTERS_FAIL]
    assert [device for device, port in story.ports["restarted"].items() if port["problem"]] == []


@pytest.mark.parametrize("device", [DOWN, SLOWER, STATE_FAILS, COUNTERS_FAIL, HUNG, VANISHED])
def test_the_ports_say_since_when(story: Story, device: str) -> None:
    first, *_ = (event for event in events_of(story, device) if event["kind"] != "quarantined")
    since_ms = datetime.fromisoformat(story.ports["during"][device]["since"]).timestamp() * 1000
    assert since_ms == pytest.approx(first["time_ms"], abs=1)


def test_a_healthy_port_has_no_event(story: Story) -> None:
    assert events_of(story, HEALTHY) == []


@pytest.mark.parametrize(
    ("device", "began", "ended"),
    [
        (DOWN, "link-down", "link-up"),
        (STATE_FAILS, "unreadable", "readable"),
        (VANISHED, "disappeared", "appeared"),
    ],
)
def test_the_events_tell_an_incident_and_its_end(story: Story, device: str, began: str, ended: str) -> None:
    assert [event["kind"] for event in events_of(story, device) if event["kind"] != "counter-reset"] == [began, ended]
    # the scan that misses a device waits a second for the one that hangs
    assert_time(the_event(story, device, began), story.begun_ms, 2000 if device == VANISHED else 1000)
    assert_time(the_event(story, device, ended), story.ended_ms, 2000 if device == VANISHED else 1000)


def test_the_events_tell_a_change_of_the_rate_and_back(story: Story) -> None:
    first, second = events_of(story, SLOWER)
    assert (first["kind"], second["kind"]) == ("rate-change", "rate-change")
    assert (first["before"]["rate_bytes_per_second"], first["after"]["rate_bytes_per_second"]) == (NDR, HDR)
    assert second["after"]["rate_bytes_per_second"] == NDR
    assert_time(first, story.begun_ms)
    assert_time(second, story.ended_ms)


def test_the_events_tell_reads_that_hang(story: Story) -> None:
    kinds = [event["kind"] for event in events_of(story, HUNG) if event["subject"] != HUNG]
    assert kinds == ["unreadable", "readable"]
    # a read hangs after a second, and the next read may begin after another one
    assert_time(the_event(story, HUNG, "unreadable"), story.begun_ms, 2500)
    assert_time(the_event(story, HUNG, "readable"), story.ended_ms, 2500)


def test_the_events_tell_counters_that_fail(story: Story) -> None:
    (event,) = events_of(story, COUNTERS_FAIL)
    assert event["kind"] == "unreadable"
    assert_time(event, story.begun_ms, 2000)


def test_a_flap_between_two_readings_is_told_by_link_downed(story: Story) -> None:
    (event,) = events_of(story, FLAPPED)
    assert (event["kind"], event["details"]) == ("link-flap", {"link_downed": 1})
    # the device that hangs holds up the first reading
    assert_time(event, story.begun_ms, 2000)


def test_the_states_of_the_events_are_those_before_and_after(story: Story) -> None:
    event = the_event(story, DOWN, "link-down")
    assert (event["before"]["state"], event["after"]["state"]) == ("ACTIVE", "DOWN")
    assert (event["before"]["physical"], event["after"]["physical"]) == ("LinkUp", "Polling")
    # the last rate of the link, not the one that the kernel shows for a port that is down
    assert event["after"]["rate_bytes_per_second"] == NDR
    assert the_event(story, VANISHED, "disappeared")["after"] is None
    assert the_event(story, VANISHED, "appeared")["after"]["active"]


def test_the_device_that_hung_was_isolated_and_joined_the_others_again(story: Story) -> None:
    kinds = [event["kind"] for event in events_of(story, HUNG) if event["subject"] == HUNG]
    assert kinds == ["quarantined", "released"]


def test_the_events_survive_a_kill(story: Story) -> None:
    before, after = story.events["after"], story.events["restarted"]
    assert after[: len(before)] == before
    assert [event["kind"] for event in after[len(before) :]] == ["readable", "started"]


def test_the_daemon_is_ready_and_names_what_is_wrong(story: Story) -> None:
    for device in PROBLEMS:
        assert f"{device}:1" in story.ready["during"]
    assert [device for device in WORDS if device in story.ready["after"]] == [COUNTERS_FAIL]
    assert story.ready["restarted"] == "Ready: sampling 8 ports.\n"


def test_metrics_count_the_time_down_the_changes_and_the_events(story: Story) -> None:
    metrics = story.metrics["after"]
    down, up = (the_event(story, DOWN, kind) for kind in ("link-down", "link-up"))
    assert metrics.port("down_seconds_total", DOWN) == pytest.approx((up["time_ms"] - down["time_ms"]) / 1000, abs=0.25)
    assert metrics.port("down_seconds_total", HEALTHY) == 0
    assert metrics.port("state_changes_total", DOWN) == 2
    assert metrics.port("state_changes_total", FLAPPED) == 2
    assert metrics.port("state_changes_total", HEALTHY) == 0
    assert metrics.value("ibpulse_events_total", kind="link-down") == 1
    assert metrics.value("ibpulse_events_total", kind="rate-change") == 2
    found = story.metrics["during"].find("ibpulse_port_problem")
    assert {dict(labels)["device"]: dict(labels)["problem"] for labels in found} == {
        STATE_FAILS: "unreadable",
        COUNTERS_FAIL: "unreadable",
        HUNG: "hung",
        VANISHED: "disappeared",
    }
