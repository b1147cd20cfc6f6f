"""The event log of a real kernel's devices: a link goes down and comes back, a device is renamed, deleted, created."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from tests.campaigns.vm.daemon import Daemon
from tests.campaigns.vm.link import RECEIVER, SENDER, Link, Traffic
from tests.campaigns.vm.machine import Machine

pytestmark = [pytest.mark.timeout(600)]

ENDLESS = Traffic(messages=100_000, message_bytes=65536)
RENAMED = "mlx5_0"
# a look at the devices takes seconds in an emulated machine whose host has other work
TOLERANCE_MS = 15_000
# the story, without what follows from it, such as resets of the counters of a new device
TOLD = ("link-down", "link-up", "link-flap", "appeared", "disappeared", "unreadable")


@dataclass(frozen=True, slots=True)
class Deed:
    """Something that the test did between two wall times of the machine in ms, and the events that must say it."""

    from_ms: int
    to_ms: int
    events: frozenset[tuple[str, str]]


def do(machine: Machine, command: str, **events: str) -> Deed:
    """Run a command; `events` are kinds by device, with the device's port 1."""
    begin_ms, *_, end_ms = machine.run(f"date +%s%3N && {command} && date +%s%3N").stdout.split()
    return Deed(int(begin_ms), int(end_ms), frozenset((kind, f"{device}:1") for device, kind in events.items()))


def tell_story(daemon: Daemon, link: Link) -> list[Deed]:
    """Change devices that carry traffic, one change after the other, each seen by the daemon before the next."""
    machine = daemon.machine
    programs = link.start(ENDLESS)
    machine.run("sleep 2")
    down = do(machine, "ip link set veth0 down", **{SENDER: "link-down", RECEIVER: "link-down"})
    machine.run("sleep 4")
    up = do(machine, "ip link set veth0 up", **{SENDER: "link-up", RECEIVER: "link-up"})
    machine.run("sleep 4")
    for program in programs:
        program.kill()
    gone = do(machine, f"rdma dev set {SENDER} name {RENAMED}", **{SENDER: "disappeared", RENAMED: "appeared"})
    daemon.wait_for_samples(RENAMED, RECEIVER)
    programs = link.start(ENDLESS, sender=RENAMED)
    machine.run("sleep 2")
    deleted = do(machine, f"rdma link delete {RENAMED}", **{RENAMED: "disappeared"})
    daemon.wait_for_samples(RECEIVER)
    for program in programs:
        program.kill()
    created = do(machine, f"rdma link add {SENDER} type rxe netdev veth0", **{SENDER: "appeared"})
    daemon.wait_for_samples(SENDER, RECEIVER)
    return [down, up, gone, deleted, created]


def test_the_event_log_tells_what_happened_to_real_devices(daemon: Daemon, link: Link) -> None:
    daemon.wait_for_samples(SENDER, RECEIVER)
    begin_ms = daemon.machine.run("date +%s%3N").stdout.strip()
    deeds = tell_story(daemon, link)
    events = daemon.fetch_json("/api/v1/events", **{"from": begin_ms})["events"]
    told = [event for event in events if event["kind"] in TOLD]
    rest = list(told)
    for deed in deeds:
        chapter, rest = rest[: len(deed.events)], rest[len(deed.events) :]
        assert {(event["kind"], event["subject"]) for event in chapter} == deed.events, told
        assert [event for event in chapter if not happened_within(event, deed)] == []
    assert rest == []


def happened_within(event: Mapping[str, Any], deed: Deed) -> bool:
    """Whether an event was noticed soon after the deed, and its uncertainty reaches back to it."""
    noticed_ms, uncertainty_ms = event["time_ms"], event["uncertainty_ms"]
    soon = deed.from_ms - 1 <= noticed_ms <= deed.to_ms + TOLERANCE_MS
    return soon and noticed_ms - uncertainty_ms <= deed.to_ms + 1


def test_a_renamed_device_disappears_and_appears_with_the_same_guid(daemon: Daemon, link: Link) -> None:
    daemon.wait_for_samples(SENDER, RECEIVER)
    guid = daemon.machine.run(f"cat /sys/class/infiniband/{SENDER}/node_guid").stdout.strip()
    begin_ms = daemon.machine.run("date +%s%3N").stdout.strip()
    daemon.machine.run(f"rdma dev set {SENDER} name {RENAMED}")
    daemon.wait_for_samples(RENAMED, RECEIVER)
    events = daemon.fetch_json("/api/v1/events", **{"from": begin_ms})["events"]
    events = [event for event in events if event["kind"] in TOLD]
    assert [(event["kind"], event["subject"]) for event in events] == [
        ("disappeared", f"{SENDER}:1"),
        ("appeared", f"{RENAMED}:1"),
    ]
    assert [event["details"]["guid"] for event in events] == [guid] * 2
    assert f"{SENDER}:1" in events[1]["text"]
