"""What doctor takes from the event log of a running daemon."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ibpulse.agent.doctor import Level
from ibpulse.agent.doctor.facts import EventFacts, Facts
from ibpulse.agent.doctor.samples import read_event_facts
from ibpulse.base.units import SECOND_NS
from ibpulse.core.events import Event
from ibpulse.core.events.event import state_to_json
from ibpulse.core.events.log import EventFile
from ibpulse.core.model import PortState
from tests.doctor.making import make_card, make_facts, make_port, only_trouble, sentences, troubles

# 2025-11-21 00:00:00 UTC
NOW_NS = 1_763_683_200 * SECOND_NS
ACTIVE = PortState("ACTIVE", "LinkUp", True, 50e9, True)
DOWN = replace(ACTIVE, state="DOWN", physical="Polling", active=False)
HUNG = replace(ACTIVE, problem="hung")
UNREADABLE = replace(ACTIVE, problem="unreadable")
GUID = "b8ce:f603:00aa:bb02"


def event(kind: str, seconds_ago: float, subject: str = "mlx5_2:1", **members: Any) -> Event:
    return Event(NOW_NS - int(seconds_ago * SECOND_NS), kind, subject, f"{subject}: because", **members)


def gone(seconds_ago: float, subject: str = "mlx5_2:1") -> Event:
    return event("disappeared", seconds_ago, subject, before=ACTIVE, details={"guid": GUID})


def facts_with(events: Sequence[Event], **changes: Any) -> Facts:
    return replace(make_facts(**changes), events=EventFacts(tuple(events), NOW_NS))


def test_a_port_that_disappeared_is_a_failure_with_its_time() -> None:
    finding = only_trouble(facts_with([gone(60)]))
    assert (finding.topic, finding.level, finding.subject) == ("devices", Level.FAIL, "mlx5_2:1")
    assert finding.sentence == (
        "disappeared at 2025-11-20 23:59:00 UTC and has not come back; the daemon sampled it earlier."
    )


def test_the_ring_and_the_log_name_a_port_once() -> None:
    finding = only_trouble(facts_with([gone(60)], sampling={"by_daemon": True, "remembered": ("mlx5_2:1",)}))
    assert finding.sentence.startswith("disappeared at 2025-11-20 23:59:00 UTC")


def test_a_card_without_a_device_has_the_time_of_its_port() -> None:
    facts = facts_with([gone(60)])
    cards = (*(facts.tree.cards or ()), make_card("0000:3d:00.0"))
    finding = only_trouble(replace(facts, tree=replace(facts.tree, cards=cards)))
    assert finding.sentence.endswith("no RDMA device. The daemon sampled mlx5_2:1 until 2025-11-20 23:59:00 UTC.")


@pytest.mark.parametrize(
    "later",
    [
        [event("appeared", 30, after=ACTIVE)],
        [event("appeared", 30, after=DOWN), event("link-up", 20, before=DOWN, after=ACTIVE)],
    ],
)
def test_a_port_that_came_back_is_no_trouble(later: list[Event]) -> None:
    assert troubles(facts_with([gone(60), *later])) == []


def test_a_port_that_is_there_again_for_doctor_is_no_trouble() -> None:
    assert troubles(facts_with([gone(60, "mlx5_1:1")])) == []


def test_a_port_that_disappeared_long_ago_is_forgotten_unless_the_ring_has_it() -> None:
    facts = facts_with([gone(24 * 3600 + 1)])
    assert troubles(facts) == []
    assert facts.sampling is not None
    sampling = replace(facts.sampling, remembered=("mlx5_2:1",))
    assert only_trouble(replace(facts, sampling=sampling)).sentence.startswith("disappeared at 2025-11-19 23:59:59 UTC")


def test_an_excluded_port_may_disappear() -> None:
    assert troubles(facts_with([gone(60)], options={"exclude": ("mlx5_2",)})) == []


def test_a_renamed_device_is_a_warning_and_has_not_disappeared() -> None:
    ports = (make_port("mlx5_0"), make_port("mlx5_9", identity={"guid": GUID}))
    events = [gone(60), event("appeared", 60, "mlx5_9:1", after=ACTIVE, details={"guid": GUID})]
    facts = facts_with(events, ports=ports, sampling={"remembered": ("mlx5_2:1",)})
    finding = only_trouble(facts)
    assert (finding.topic, finding.level, finding.subject) == ("events", Level.WARN, "mlx5_2:1")
    assert finding.sentence == "was renamed at 2025-11-20 23:59:00 UTC: its GUID is now that of mlx5_9:1."


def test_another_device_under_a_name_is_a_warning() -> None:
    events = [
        replace(event("replaced", seconds, "mlx5_1"), text=f"mlx5_1 is another device now: GUID {new} instead of {old}")
        for seconds, new, old in ((90, "b", "a"), (60, "c", "b"))
    ]
    finding = only_trouble(facts_with(events))
    assert (finding.topic, finding.level, finding.subject) == ("events", Level.WARN, "mlx5_1")
    assert finding.sentence == "is another device since 2025-11-20 23:59:00 UTC: GUID c instead of b."


def test_another_port_of_the_same_card_is_no_new_name() -> None:
    ports = (make_port("mlx5_0"), make_port("mlx5_9", 2, identity={"guid": GUID}))
    assert only_trouble(facts_with([gone(60)], ports=ports)).topic == "devices"


def test_an_unreadable_port_is_a_warning_with_its_time() -> None:
    events = [
        event("unreadable", 60, "mlx5_1:1", before=ACTIVE, after=UNREADABLE),
        event("rate-change", 30, "mlx5_1:1", before=UNREADABLE, after=UNREADABLE),
    ]
    finding = only_trouble(facts_with(events))
    assert (finding.level, finding.subject) == (Level.WARN, "mlx5_1:1")
    assert finding.sentence == "cannot be read by the daemon since 2025-11-20 23:59:00 UTC: because."
    events.append(event("readable", 10, "mlx5_1:1", before=UNREADABLE, after=ACTIVE))
    assert troubles(facts_with(events)) == []


def test_a_port_that_was_unreadable_when_the_daemon_started_is_found() -> None:
    ports = {"mlx5_1:1": state_to_json(UNREADABLE), "mlx5_0:1": state_to_json(ACTIVE)}
    finding = only_trouble(facts_with([event("started", 60, "", details={"ports": ports})]))
    assert (finding.subject, finding.level) == ("mlx5_1:1", Level.WARN)


def test_a_hung_device_is_reported_once_with_its_time() -> None:
    events = [event("unreadable", 60, "mlx5_1:1", before=ACTIVE, after=HUNG)]
    finding = only_trouble(facts_with(events, tree={"silent": ("mlx5_1",)}))
    assert (finding.topic, finding.level, finding.subject) == ("devices", Level.FAIL, "mlx5_1")
    assert finding.sentence == ("has not answered since 2025-11-20 23:59:00 UTC: reading one of its files timed out.")


def downs(number: int, flaps: object = 0) -> list[Event]:
    found = []
    for each in range(number):
        found.append(event("link-down", 600 - each * 60, "mlx5_1:1", before=ACTIVE, after=DOWN))
        found.append(event("link-up", 590 - each * 60, "mlx5_1:1", before=DOWN, after=ACTIVE))
    return found + [event("link-flap", 10, "mlx5_1:1", details={"link_downed": flaps})] * bool(flaps)


@pytest.mark.parametrize(
    ("events", "times", "level"),
    [
        (downs(1), "1 time ", Level.OK),
        (downs(2), "2 times", Level.OK),
        (downs(3), "3 times", Level.WARN),
        (downs(1, 2), "3 times", Level.WARN),
        (downs(1, "many"), "2 times", Level.OK),
        (downs(1, -5), "2 times", Level.OK),
    ],
)
def test_links_that_went_down_are_counted(events: list[Event], times: str, level: Level) -> None:
    facts = facts_with([event("link-down", 3601, "mlx5_1:1", before=ACTIVE, after=DOWN), *events])
    (sentence, *_) = sentences(facts, "events")
    assert sentence.startswith(f"mlx5_1:1: went down {times.strip()} in the last hour, last at 2025-11-20 23:5")
    assert [finding.level for finding in troubles(facts)] == [level] * (level is not Level.OK)


def test_clock_steps_of_the_last_hour_are_a_warning() -> None:
    old, new = event("clock-step", 3601, ""), event("clock-step", 60, "", details={"seconds": -3.5})
    assert troubles(facts_with([old])) == []
    assert only_trouble(facts_with([old, new])).sentence == (
        "The wall clock was stepped 1 time in the last hour, last at 2025-11-20 23:59:00 UTC."
    )


def test_a_log_without_trouble_is_one_line() -> None:
    events = [event("started", 60, ""), event("capture", 5, "")]
    assert sentences(facts_with(events), "events") == [": 2 events since 2025-11-20 23:59:00 UTC."]


def test_without_a_daemon_nothing_is_said_of_events() -> None:
    assert sentences(make_facts(), "events") == []


def test_an_empty_event_log_is_no_trouble(tmp_path: Path) -> None:
    facts = replace(make_facts(), events=read_event_facts(tmp_path))
    assert sentences(facts, "events") == [": The event log is empty."]
    assert troubles(facts) == []


def write(ring_dir: Path, *events: Event) -> None:
    file = EventFile(ring_dir / "events")
    file.open()
    for each in events:
        file.append(each)
    file.close()


def test_events_are_read_next_to_the_ring(tmp_path: Path) -> None:
    events = (gone(60), event("appeared", 30, after=ACTIVE))
    write(tmp_path, *events)
    assert read_event_facts(tmp_path).events == events


def test_events_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    escape = "\033[2J\n"
    write(tmp_path, gone(60, f"mlx5{escape}:1"), replace(gone(60), text=f"a{escape}b"), gone(60, "mlx5_3:x"))
    (found,) = read_event_facts(tmp_path).events
    assert (found.subject, found.text) == ("mlx5_2:1", "a?[2J?b")


def test_subjects_that_are_no_port_do_not_disappear(tmp_path: Path) -> None:
    write(tmp_path, gone(60, "mlx5_2"), gone(60, ""))
    found = read_event_facts(tmp_path)
    assert len(found.events) == 2
    assert found.gone_ports() == {}


@pytest.mark.parametrize("kind", ["other version", "pipe", "directory"])
def test_a_log_that_cannot_be_read_is_a_warning(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "events"
    if kind == "other version":
        path.write_bytes(b"ibpulse-events 99\n")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    finding = only_trouble(replace(make_facts(), events=read_event_facts(tmp_path)))
    assert (finding.topic, finding.level) == ("events", Level.WARN)
    assert finding.sentence.startswith(f"The event log {path} ")
