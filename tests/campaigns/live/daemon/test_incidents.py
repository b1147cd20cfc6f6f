"""Every incident at once on a running daemon: the past stays as it was, the present says so, the events tell it.

The fabric is healthy, then each device but the first has a trouble of its own, then all are healthy again, and then the
daemon is killed and started. The fixture asks the same questions in each phase, and the tests compare the answers.
Counters that were refused are tried again within a minute; here, that is when the daemon is started again.
"""

from __future__ import annotations

import errno
import math
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest

from tests.fusefabric import EVERY_FILE, FuseFabric, why_not
from tests.running import Running

pytestmark = [pytest.mark.skipif(why_not() != "", reason=why_not())]

RATE = 20e9
NDR = 50e9
HDR = 25e9
WINDOW_SECONDS = 3
# a healthy device, and devices by what happens to them
HEALTHY, DOWN, SLOWER, STATE_FAILS, COUNTERS_FAIL, HUNG, VANISHED, FLAPPED = (f"mlx5_{index}" for index in range(8))
INCIDENTS: Mapping[str, Mapping[str, Any]] = {
    DOWN: {"down": True},
    SLOWER: {"texts": {"rate": "200 Gb/sec (4X HDR)\n"}},
    STATE_FAILS: {"errno": errno.EINVAL, "files": ("state",)},
    COUNTERS_FAIL: {"errno": errno.EINVAL},
    HUNG: {"hang_seconds": 120, "files": EVERY_FILE},
    VANISHED: {"vanished": True},
    FLAPPED: {"flapped": True},
}
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
LONGEST_WAIT_SECONDS = 60
# what a machine with other work may take longer to notice something
BUSY_SECONDS = 2.0
PROBLEMS = (STATE_FAILS, COUNTERS_FAIL, HUNG, VANISHED)


@dataclass
class Story:
    """What happened when, and the answers by phase: `healthy`, `during`, `after`, `restarted`.

    A deed is known to have happened between two wall times (in ns): before it, and after it was confirmed.
    """

    past_ms: int = 0
    during_ms: int = 0
    begun_ns: dict[str, tuple[int, int]] = field(default_factory=dict)
    ended_ns: tuple[int, int] = (0, 0)
    past: dict[str, dict[str, bytes]] = field(default_factory=dict)
    incident: dict[str, dict[str, bytes]] = field(default_factory=dict)
    ports: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    events: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    ready: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)


def ask_span(daemon: Running, end_ms: int) -> dict[str, bytes]:
    """All that can be asked of the three seconds before an instant, byte for byte."""
    begin_ms = end_ms - WINDOW_SECONDS * 1000
    answers = {}
    for name, path, params in (
        ("summary", "/api/v1/summary", {"window": f"{WINDOW_SECONDS}s", "to": end_ms}),
        ("summary from", "/api/v1/summary", {"from": begin_ms, "to": end_ms}),
        ("window", "/api/v1/window", {"from": begin_ms, "to": end_ms, "format": "csv"}),
        ("ratio", "/api/v1/window", {"from": begin_ms, "to": end_ms, "format": "csv", "unit": "ratio"}),
        ("bins", "/api/v1/window", {"from": begin_ms, "to": end_ms, "format": "csv", "resolution": "1s"}),
    ):
        answer = daemon.ask(path, **params)
        assert answer.status_code == 200, answer.text
        answers[name] = answer.content
    return answers


def ask_ports(daemon: Running) -> dict[str, dict[str, Any]]:
    return {port["device"]: port for port in daemon.ask("/api/v1/ports").json()["ports"]}


def note(story: Story, daemon: Running, phase: str) -> None:
    """Ask everything, as it is in this phase."""
    story.past[phase] = ask_span(daemon, story.past_ms)
    if story.during_ms:
        story.incident[phase] = ask_span(daemon, story.during_ms)
    story.ports[phase] = ask_ports(daemon)
    story.events[phase] = daemon.ask("/api/v1/events").json()["events"]
    story.ready[phase] = daemon.ask("/-/ready").text
    story.metrics[phase] = daemon.metrics()


def wait_for_words(daemon: Running, wanted: Mapping[str, str]) -> None:
    """Wait until the ports have these states, but not for ever: the tests tell which one does not."""
    deadline = time.monotonic() + LONGEST_WAIT_SECONDS
    while time.monotonic() < deadline:
        if {device: port["state"] for device, port in ask_ports(daemon).items()} == wanted:
            return
        time.sleep(0.1)


def wait_for_events(daemon: Running, count: int, *kinds: str) -> None:
    """Wait until there are so many events of these kinds, but not for ever."""
    deadline = time.monotonic() + LONGEST_WAIT_SECONDS
    while time.monotonic() < deadline and len(daemon.ask("/api/v1/events", kind=kinds).json()["events"]) < count:
        time.sleep(0.1)


def finish_seconds(count: int) -> int:
    """Wait until so many whole seconds from now are over and complete in the ring; their end in epoch ms."""
    end = math.ceil(time.time()) + count
    time.sleep(end + 0.7 - time.time())
    return end * 1000


def cause_incidents(story: Story, fabric: FuseFabric) -> None:
    for device, rule in INCIDENTS.items():
        before_ns = time.time_ns()
        fabric.set(device, **rule)
        story.begun_ns[device] = before_ns, time.time_ns()


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("incidents")
    found = Story()
    options = {"rate_bytes_per_second": RATE}
    with (
        FuseFabric(folder / "sys", "constant", options, ports=8) as fabric,
        Running(fabric.root, folder / "ring", interval="50ms") as daemon,
    ):
        found.past_ms = finish_seconds(WINDOW_SECONDS)
        note(found, daemon, "healthy")
        cause_incidents(found, fabric)
        wait_for_words(daemon, WORDS)
        wait_for_events(daemon, 2, "rate-change", "link-flap")
        found.during_ms = finish_seconds(WINDOW_SECONDS)
        note(found, daemon, "during")
        before_ns = time.time_ns()
        fabric.clear()
        found.ended_ns = before_ns, time.time_ns()
        wait_for_words(daemon, {**dict.fromkeys(WORDS, "ACTIVE"), COUNTERS_FAIL: "unreadable"})
        # a device that hung has to answer for some seconds before it joins the others
        wait_for_events(daemon, 1, "released")
        wait_for_events(daemon, 2, "rate-change")
        note(found, daemon, "after")
        daemon.stop(signal.SIGKILL)
        daemon.start()
        note(found, daemon, "restarted")
        yield found
        fabric.clear()


def told(story: Story, phase: str) -> list[dict[str, Any]]:
    """The events, without those of reads that take long because the machine has other work."""
    return [event for event in story.events[phase] if event["kind"] != "interval-change"]


def events_of(story: Story, device: str) -> list[dict[str, Any]]:
    return [event for event in told(story, "after") if event["device"] == device]


def the_event(story: Story, device: str, kind: str) -> dict[str, Any]:
    """The only event of this kind and device."""
    (event,) = (event for event in events_of(story, device) if event["kind"] == kind)
    return event


def assert_time(event: dict[str, Any], true_ns: tuple[int, int], within_seconds: float = 2.0) -> None:
    """The event says when it happened: not before the truth, soon after it, and its uncertainty reaches back to it."""
    from_ms, to_ms = (instant_ns / 1e6 for instant_ns in true_ns)
    assert from_ms - 1 <= event["time_ms"] <= to_ms + (within_seconds + BUSY_SECONDS) * 1000, event
    assert event["time_ms"] - event["uncertainty_ms"] <= to_ms, event


@pytest.mark.parametrize("phase", ["during", "after", "restarted"])
@pytest.mark.parametrize("question", ["summary", "summary from", "window", "ratio", "bins"])
def test_the_past_before_the_incidents_is_the_same_whenever_it_is_asked(
    story: Story, phase: str, question: str
) -> None:
    assert story.past[phase][question] == story.past["healthy"][question]


@pytest.mark.parametrize("phase", ["after", "restarted"])
@pytest.mark.parametrize("question", ["summary", "summary from", "window", "ratio", "bins"])
def test_the_incidents_are_the_same_after_them(story: Story, phase: str, question: str) -> None:
    assert story.incident[phase][question] == story.incident["during"][question]


def column(answer: bytes, device: str) -> list[float | None]:
    """The values that the device transmitted."""
    head, *rows = answer.decode().splitlines()
    (index,) = (index for index, name in enumerate(head.split(",")) if name.startswith(f"{device}:1 transmit"))
    values = [row.split(",")[index] for row in rows]
    return [float(value) if value else None for value in values]


@pytest.mark.parametrize("device", list(WORDS))
def test_every_port_keeps_its_past_as_ratio(story: Story, device: str) -> None:
    values, rates = (column(story.past["after"][question], device) for question in ("ratio", "window"))
    assert values == [rate if rate is None else pytest.approx(rate / NDR, rel=1e-6) for rate in rates]
    # on a machine with other work many reads come too late to count
    known = [value for value in values if value is not None]
    assert len(known) >= 0.2 * len(values)
    assert sum(known) / len(known) == pytest.approx(RATE / NDR, rel=0.03)


def test_the_ratio_of_a_port_that_is_down_is_that_of_its_last_active_rate(story: Story) -> None:
    values = column(story.incident["during"]["ratio"], DOWN)
    assert {value for value in values if value is not None} == {0.0}


def test_the_ratio_after_a_change_of_the_rate_is_that_of_the_new_one(story: Story) -> None:
    known = [value for value in column(story.incident["after"]["ratio"], SLOWER) if value is not None]
    assert sum(known) / len(known) == pytest.approx(RATE / HDR, rel=0.03)


@pytest.mark.parametrize("device", [COUNTERS_FAIL, HUNG, VANISHED])
def test_a_port_that_could_not_be_read_has_missing_data_and_no_zero(story: Story, device: str) -> None:
    assert set(column(story.incident["after"]["window"], device)) == {None}


def test_a_state_that_cannot_be_read_costs_no_sample(story: Story) -> None:
    samples = {
        device: sum(value is not None for value in column(story.incident["during"]["window"], device))
        for device in (HEALTHY, STATE_FAILS)
    }
    assert samples[STATE_FAILS] >= 0.5 * samples[HEALTHY] > 0


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
    since = story.ports["during"][device]["since"]
    from_seconds, to_seconds = (instant_ns / 1e9 for instant_ns in story.begun_ns[device])
    assert from_seconds - 0.002 <= datetime.fromisoformat(since).timestamp() <= to_seconds + 3.5 + BUSY_SECONDS


def test_a_healthy_port_has_no_event(story: Story) -> None:
    assert events_of(story, HEALTHY) == []


@pytest.mark.parametrize(
    ("device", "began", "ended", "seconds"),
    [
        (DOWN, "link-down", "link-up", 2.0),
        (STATE_FAILS, "unreadable", "readable", 2.0),
        # the scan that misses a device waits a second for the one that hangs
        (VANISHED, "disappeared", "appeared", 2.7),
    ],
)
def test_the_events_tell_an_incident_and_its_end(
    story: Story, device: str, began: str, ended: str, seconds: float
) -> None:
    assert [event["kind"] for event in events_of(story, device) if event["kind"] != "counter-reset"] == [began, ended]
    assert_time(the_event(story, device, began), story.begun_ns[device], seconds)
    assert_time(the_event(story, device, ended), story.ended_ns)


def test_the_events_tell_a_change_of_the_rate_and_back(story: Story) -> None:
    first, second = events_of(story, SLOWER)
    assert (first["kind"], second["kind"]) == ("rate-change", "rate-change")
    assert (first["before"]["rate_bytes_per_second"], first["after"]["rate_bytes_per_second"]) == (NDR, HDR)
    assert second["after"]["rate_bytes_per_second"] == NDR
    assert_time(first, story.begun_ns[SLOWER])
    assert_time(second, story.ended_ns)


def test_the_events_tell_reads_that_hang(story: Story) -> None:
    kinds = [event["kind"] for event in events_of(story, HUNG) if event["subject"] != HUNG]
    assert kinds == ["unreadable", "readable"]
    # a read hangs after a second, and the next read may begin after another one
    assert_time(the_event(story, HUNG, "unreadable"), story.begun_ns[HUNG], 2.5)
    assert_time(the_event(story, HUNG, "readable"), story.ended_ns, 5)


def test_the_events_tell_counters_that_fail(story: Story) -> None:
    (event,) = events_of(story, COUNTERS_FAIL)
    assert event["kind"] == "unreadable"
    assert_time(event, story.begun_ns[COUNTERS_FAIL])


def test_a_flap_between_two_readings_is_told_by_link_downed(story: Story) -> None:
    (event,) = events_of(story, FLAPPED)
    assert (event["kind"], event["details"]) == ("link-flap", {"link_downed": 1})
    assert_time(event, story.begun_ns[FLAPPED])


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
    before, after = told(story, "after"), told(story, "restarted")
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
    seconds, doubt = (up["time_ms"] - down["time_ms"]) / 1000, (up["uncertainty_ms"] + down["uncertainty_ms"]) / 1000
    assert metrics.port("down_seconds_total", DOWN) == pytest.approx(seconds, abs=doubt)
    assert metrics.port("down_seconds_total", HEALTHY) == 0
    assert metrics.port("state_changes_total", DOWN) == 2
    assert metrics.port("state_changes_total", FLAPPED) == 2
    assert metrics.port("state_changes_total", HEALTHY) == 0
    assert metrics.value("ibpulse_events_total", kind="link-down") == 1
    assert metrics.value("ibpulse_events_total", kind="rate-change") == 2
    during = story.metrics["during"]
    problems = {dict(labels)["device"]: dict(labels)["problem"] for labels in during.find("ibpulse_port_problem")}
    assert problems == {
        STATE_FAILS: "unreadable",
        COUNTERS_FAIL: "unreadable",
        HUNG: "hung",
        VANISHED: "disappeared",
    }
