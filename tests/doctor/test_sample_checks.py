"""What doctor says of samples, benchmark results and the events of a running daemon."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ibpulse.agent.doctor import Level, examine
from ibpulse.agent.doctor.facts import Counts, EventFacts, Facts, Folders, Reads
from ibpulse.agent.doctor.sample_checks import find_shortest_interval
from ibpulse.agent.doctor.samples import read_event_facts
from ibpulse.base.units import SECOND_NS
from ibpulse.core.answers.summary import RailStatistics
from ibpulse.core.events import Event
from ibpulse.core.events.event import state_to_json
from ibpulse.core.events.log import EventFile
from ibpulse.core.model import ByteSource, Fabric, Port, PortState
from ibpulse.core.signals import Signal, SignalSource
from tests.doctor.making import (
    MS,
    assert_only,
    make_card,
    make_facts,
    make_port,
    make_port_samples,
    only_trouble,
    sentences,
    troubles,
)
from tests.tables import for_each

RAILS = (make_port("mlx5_0"), make_port("mlx5_1"))
HW_FOLDER = "/sys/class/infiniband/rdmap0/ports/1/hw_counters"
HW_SOURCE = ByteSource("hw_bytes", (f"{HW_FOLDER}/tx_bytes",), (f"{HW_FOLDER}/rx_bytes",), 1, refresh_seconds=0.014)
EFA = make_port("rdmap0", identity={"driver": "efa", "link_layer": "Unknown"}, source=HW_SOURCE)
SIGNALS = SignalSource((Signal("rp_cnp_packets_handled", 64),), ("/rx_cnp_pkts",), 1)
NOT_ASKED: dict[str, Any] = {"no_sampling": "sampling was not requested", "options": {"sample": False}}
REQUESTS = "hw_counters/rx_write_requests"


# samples


@for_each(
    [
        (1e-6, 16e-6, MS),
        # a read of 150 µs fits a tenth of 2 ms
        (150e-6, 300e-6, 2 * MS),
        # eight ports of two reads each: half of the interval
        (150e-6, 2.4e-3, 5 * MS),
        (0.9e-3, 7e-3, 20 * MS),
        (0.2, 0.2, None),
    ]
)
def test_the_shortest_reliable_interval_holds_every_read(read: float, tick: float, expected: int | None) -> None:
    assert find_shortest_interval(read, tick) == expected


def sampled(*, rail: str = "mlx5_1", counts: Counts | None = None, **changes: Any) -> Facts:
    """Two rails, with the samples and the counts of one of them changed."""
    return make_facts(samples={rail: make_port_samples(**changes)}, counts={rail: counts} if counts else None)


def slow_reads(factor: float) -> dict[str, Any]:
    return {"reads": Reads(1e-6 * factor, 10e-6 * factor, 50e-6 * factor, 20e-6 * factor)}


def all_slow(factor: float) -> Facts:
    slow = make_port_samples(**slow_reads(factor))
    return make_facts(samples={"mlx5_0": slow, "mlx5_1": slow})


def flapping() -> Facts:
    facts, down = make_facts(), replace(RAILS[1], active=False, state="DOWN")
    assert facts.sampling is not None
    fabrics = tuple(Fabric((RAILS[0], port), topology=facts.fabric.topology) for port in (RAILS[1], down, RAILS[1]))
    return replace(facts, sampling=replace(facts.sampling, fabrics=fabrics))


def two_jobs() -> Facts:
    """A slow rail, and two rails of another job that carry little."""
    little = make_port_samples(rates=(1e9, 1e9))
    ports = tuple(make_port(f"mlx5_{number}") for number in range(4))
    owners = dict.fromkeys((port.id for port in ports[2:]), frozenset({("slurm", "7")}))
    samples = {"mlx5_1": make_port_samples(**SLOW), "mlx5_2": little, "mlx5_3": little}
    return make_facts(ports, samples=samples, sampling={"owners": owners})


NOTHING: dict[str, Any] = dict.fromkeys(("reads", "rates", "standing", "resolution_seconds")) | {"samples": 0}
IDLE: dict[str, Any] = {
    "rates": (0.0, 0.0),
    "standing": RailStatistics(rail_share_ratio=0.0, rail_idle=True, rail_slow=False),
    "resolution_seconds": None,
}
SLOW: dict[str, Any] = {
    "rates": (10e9, 10e9),
    "standing": RailStatistics(rail_share_ratio=0.3, rail_idle=False, rail_slow=True),
}
MANY = [make_port(f"mlx5_{number}") for number in range(4)]
OF_RAILS = "the median of the other rails is 40.0 GB/s."


# what the pages of the families of hardware show is not repeated here
@for_each(
    [
        ("FAIL counting : Sampling failed: ring /x has no room.", make_facts(no_sampling="ring /x has no room")),
        ("WARN counting mlx5_1:1: was reset: its counters dropped 3 times in the last 4 s.", sampled(resets=3)),
        (
            "FAIL counting mlx5_1:1: has failing reads: EINVAL",
            sampled(errors=6, last_errno=errno.EINVAL, left_alone=True),
        ),
        ("FAIL counting mlx5_1:1: produced no sample in 3.5 s.", sampled(**NOTHING)),
        ("WARN resolution mlx5_1:1: is sampled every 10 ms, but", sampled(resolution_seconds=0.1)),
        ("WARN links mlx5_1:1: flapped while doctor was running: ACTIVE then DOWN then ACTIVE.", flapping()),
        (
            "WARN links mlx5_1:1: flapped while doctor was running: counters/link_downed rose.",
            sampled(counts=Counts({"counters/link_downed": 3}, {"counters/link_downed": 4})),
        ),
        (f"WARN balance mlx5_1:1: is idle: it carries 0 GB/s; {OF_RAILS}", sampled(**IDLE)),
        (
            f"WARN balance mlx5_1:1: is idle: it carries 0 GB/s; {OF_RAILS} Its counters may also be stuck",
            sampled(counts=Counts({}, {"counters/symbol_error": 0}), **IDLE),
        ),
        (
            "FAIL balance mlx5_1:1: has stuck byte counters: they do not change, although it received 5000 requests.",
            sampled(counts=Counts({REQUESTS: 100}, {REQUESTS: 5100}), **IDLE),
        ),
        (f"WARN balance mlx5_1:1: is slow: it carries 20.0 GB/s; {OF_RAILS}", sampled(**SLOW)),
        (f"WARN balance mlx5_1:1: is slow: it carries 20.0 GB/s; {OF_RAILS}", two_jobs()),
        ("WARN reads : One read takes 120 µs (median), 1.2 ms (p99, on mlx5_0:1) ~ interval to 20ms.", all_slow(120)),
        (
            "WARN reads mlx5_2:1: has slow reads: 300 µs at p99, compared with 10 µs on the other ports.",
            make_facts(MANY, samples={"mlx5_2": make_port_samples(**slow_reads(30))}),
        ),
        ("WARN reads mlx5_1:1: is sampled only every 20 ms", sampled(stride=2, resolution_seconds=0.02)),
        ("WARN reads mlx5_1:1: had 1,200 readings of its congestion counters", sampled(slow_signals=1200)),
        ("WARN ticks : 350 of 400 samples captured;", make_facts(sampling={"missed_ticks": 50})),
    ]
)
def test_a_fault_of_the_samples_is_the_only_finding(line: str, facts: Facts) -> None:
    assert_only(facts, line)


def test_reads_too_slow_for_any_interval_are_named() -> None:
    assert "longer than 1s" in only_trouble(all_slow(20_000)).sentence


STILL = make_port_samples(rates=(0.0, 0.0), standing=None, resolution_seconds=None)


@for_each(
    [
        ("reads", None, make_facts([RAILS[0]], samples={"mlx5_0": make_port_samples(reads=None)})),
        (
            "ticks",
            ": 350 of 350 samples captured.",
            make_facts(sampling={"lateness_p50": None, "lateness_p99": None}),
        ),
        ("ticks", None, make_facts(sampling={"ticks": 0})),
        (
            "resolution",
            "mlx5_0:1: carries too little traffic to measure how often its counters change.",
            make_facts([RAILS[0]], samples={"mlx5_0": make_port_samples(resolution_seconds=None)}),
        ),
        (
            "resolution",
            "mlx5_0:1: was not sampled; how often its counters change is unknown.",
            make_facts([RAILS[0]], **NOT_ASKED),
        ),
        (
            "counting",
            ": 2 ports had no counter reset and no failed read in 3.5 s, sampled every 10ms by the running daemon.",
            make_facts(sampling={"by_daemon": True}),
        ),
        (
            "balance",
            ": The rails carry no traffic, so their balance is unknown.",
            make_facts(samples={"mlx5_0": STILL, "mlx5_1": STILL}),
        ),
        (
            "balance",
            ": 2 rails carry 40.0 GB/s to 41.0 GB/s each (both directions).",
            sampled(rates=(21e9, 20e9)),
        ),
        ("balance", None, make_facts([RAILS[0]], samples={"mlx5_0": make_port_samples(rates=None)})),
    ]
)
def test_samples_without_a_fault_are_described(check: str, sentence: str | None, facts: Facts) -> None:
    assert sentences(facts, check) == ([] if sentence is None else [sentence])
    assert troubles(facts) == []


def test_checks_of_samples_are_silent_without_samples() -> None:
    assert examine(make_facts(**NOT_ASKED), ["reads", "ticks", "counting", "links", "balance"]) == ()


# events


# 2025-11-21 00:00:00 UTC
NOW_NS = 1_763_683_200 * SECOND_NS
ACTIVE = PortState("ACTIVE", "LinkUp", True, 50e9, True)
DOWN = replace(ACTIVE, state="DOWN", physical="Polling", active=False)
HUNG = replace(ACTIVE, problem="hung")
UNREADABLE = replace(ACTIVE, problem="unreadable")
GUID = "b8ce:f603:00aa:bb02"
AT = "2025-11-20 23:59:00 UTC"


def event(kind: str, seconds_ago: float, subject: str = "mlx5_2:1", **members: Any) -> Event:
    return Event(NOW_NS - int(seconds_ago * SECOND_NS), kind, subject, f"{subject}: because", **members)


def gone(seconds_ago: float, subject: str = "mlx5_2:1") -> Event:
    return event("disappeared", seconds_ago, subject, before=ACTIVE, details={"guid": GUID})


def facts_with(*events: Event, **changes: Any) -> Facts:
    return replace(make_facts(**changes), events=EventFacts(tuple(events), NOW_NS))


def bare_card() -> Facts:
    facts = facts_with(gone(60))
    return replace(facts, tree=replace(facts.tree, cards=(*(facts.tree.cards or ()), make_card("0000:3d:00.0"))))


def replaced(seconds: float, new: str, old: str) -> Event:
    return replace(
        event("replaced", seconds, "mlx5_1"), text=f"mlx5_1 is another device now: GUID {new} instead of {old}"
    )


GONE = "FAIL devices mlx5_2:1: disappeared at"
RENAMED = (make_port("mlx5_0"), make_port("mlx5_9", identity={"guid": GUID}))
UNREADABLE_EVENTS = (
    event("unreadable", 60, "mlx5_1:1", before=ACTIVE, after=UNREADABLE),
    event("rate-change", 30, "mlx5_1:1", before=UNREADABLE, after=UNREADABLE),
)
STARTED = {"ports": {"mlx5_1:1": state_to_json(UNREADABLE), "mlx5_0:1": state_to_json(ACTIVE)}}
STEPS = (event("clock-step", 3601, ""), event("clock-step", 60, "", details={"seconds": -3.5}))


@for_each(
    {
        f"{GONE} {AT} and has not come back; the daemon sampled it earlier.": facts_with(gone(60)),
        f"{GONE} {AT}": facts_with(gone(60), sampling={"by_daemon": True, "remembered": ("mlx5_2:1",)}),
        # forgotten after a day, except by the ring
        f"{GONE} 2025-11-19 23:59:59 UTC": facts_with(gone(86_401), sampling={"remembered": ("mlx5_2:1",)}),
        (
            "FAIL devices 0000:3d:00.0: is a card of the rails' model, but it has no RDMA device. "
            f"The daemon sampled mlx5_2:1 until {AT}."
        ): bare_card(),
        f"WARN events mlx5_2:1: was renamed at {AT}: its GUID is now that of mlx5_9:1.": facts_with(
            gone(60),
            event("appeared", 60, "mlx5_9:1", after=ACTIVE, details={"guid": GUID}),
            ports=RENAMED,
            sampling={"remembered": ("mlx5_2:1",)},
        ),
        # another port of the same card is no new name
        GONE: facts_with(gone(60), ports=(make_port("mlx5_0"), make_port("mlx5_9", 2, identity={"guid": GUID}))),
        f"WARN events mlx5_1: is another device since {AT}: GUID c instead of b.": facts_with(
            replaced(90, "b", "a"), replaced(60, "c", "b")
        ),
        f"WARN events mlx5_1:1: cannot be read by the daemon since {AT}: because.": facts_with(*UNREADABLE_EVENTS),
        "WARN events mlx5_1:1: cannot be read": facts_with(event("started", 60, "", details=STARTED)),
        f"FAIL devices mlx5_1: has not answered since {AT}: reading one of its files timed out.": facts_with(
            event("unreadable", 60, "mlx5_1:1", before=ACTIVE, after=HUNG), tree={"silent": ("mlx5_1",)}
        ),
        f"WARN events : The wall clock was stepped 1 time in the last hour, last at {AT}.": facts_with(*STEPS),
    }.items()
)
def test_a_fault_in_the_events_is_the_only_finding(line: str, facts: Facts) -> None:
    assert_only(facts, line)


@for_each(
    [
        facts_with(gone(60), event("appeared", 30, after=ACTIVE)),
        facts_with(gone(60), event("appeared", 30, after=DOWN), event("link-up", 20, before=DOWN, after=ACTIVE)),
        # there again for doctor, forgotten, excluded
        facts_with(gone(60, "mlx5_1:1")),
        facts_with(gone(86_401)),
        facts_with(gone(60), options={"exclude": ("mlx5_2",)}),
        facts_with(*UNREADABLE_EVENTS, event("readable", 10, "mlx5_1:1", before=UNREADABLE, after=ACTIVE)),
        facts_with(STEPS[0]),
    ]
)
def test_events_that_are_over_are_no_finding(facts: Facts) -> None:
    assert troubles(facts) == []


def downs(number: int, flaps: object = 0) -> list[Event]:
    found = []
    for each in range(number):
        found.append(event("link-down", 600 - each * 60, "mlx5_1:1", before=ACTIVE, after=DOWN))
        found.append(event("link-up", 590 - each * 60, "mlx5_1:1", before=DOWN, after=ACTIVE))
    return found + [event("link-flap", 10, "mlx5_1:1", details={"link_downed": flaps})] * bool(flaps)


@for_each(
    [
        (downs(1), "1 time", Level.OK),
        (downs(2), "2 times", Level.OK),
        (downs(3), "3 times", Level.WARN),
        (downs(1, 2), "3 times", Level.WARN),
        (downs(1, "many"), "2 times", Level.OK),
        (downs(1, -5), "2 times", Level.OK),
    ]
)
def test_links_that_went_down_are_counted(events: Sequence[Event], times: str, level: Level) -> None:
    facts = facts_with(event("link-down", 3601, "mlx5_1:1", before=ACTIVE, after=DOWN), *events)
    (sentence, *_) = sentences(facts, "events")
    assert sentence.startswith(f"mlx5_1:1: went down {times} in the last hour, last at 2025-11-20 23:5")
    assert [finding.level for finding in troubles(facts)] == [level] * (level is not Level.OK)


def test_a_log_without_trouble_is_one_line(tmp_path: Path) -> None:
    assert sentences(facts_with(event("started", 60, ""), event("capture", 5, "")), "events") == [
        f": 2 events since {AT}."
    ]
    assert sentences(replace(make_facts(), events=read_event_facts(tmp_path)), "events") == [
        ": The event log is empty."
    ]
    assert sentences(make_facts(), "events") == []


def write(ring_dir: Path, *events: Event) -> None:
    file = EventFile(ring_dir / "events")
    file.open()
    for each in events:
        file.append(each)
    file.close()


def test_events_are_read_next_to_the_ring(tmp_path: Path) -> None:
    events = (gone(60), event("appeared", 30, after=ACTIVE), gone(60, "mlx5_2"), gone(60, ""))
    write(tmp_path, *events)
    found = read_event_facts(tmp_path)
    assert found.events == events
    # subjects that are no port do not disappear
    assert found.gone_ports() == {}


def test_events_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    escape = "\033[2J\n"
    write(tmp_path, gone(60, f"mlx5{escape}:1"), replace(gone(60), text=f"a{escape}b"), gone(60, "mlx5_3:x"))
    (found,) = read_event_facts(tmp_path).events
    assert (found.subject, found.text) == ("mlx5_2:1", "a?[2J?b")


@for_each([lambda path: path.write_bytes(b"ibpulse-events 99\n"), os.mkfifo, os.mkdir])
def test_a_log_that_cannot_be_read_is_a_warning(make: Any, tmp_path: Path) -> None:
    path = tmp_path / "events"
    make(path)
    assert_only(replace(make_facts(), events=read_event_facts(tmp_path)), f"WARN events : The event log {path} ")
    path.rmdir() if path.is_dir() else path.unlink()


@for_each({"every 100 ms": (10, False), "every 200 ms": (20, True)})
def test_signals_that_are_too_seldom_are_told(stride: int, told: bool) -> None:
    samples = make_port_samples(stride=stride, resolution_seconds=stride / 100)
    for signals in (SIGNALS, None):
        facts = make_facts([make_port(signals=signals)], samples={"mlx5_0": samples})
        (sentence,) = sentences(facts, "resolution")
        assert sentence.endswith("for signs of what limits it.") == (told and signals is not None)


def test_the_source_of_cached_counters_is_named_with_its_cost() -> None:
    def said(port: Port, stride: int = 1, **changes: Any) -> str:
        samples = make_port_samples(stride=stride, resolution_seconds=stride / 100)
        (sentence,) = sentences(make_facts([port], samples={"rdmap0": samples}, **changes), "resolution")
        return sentence

    asked = replace(EFA, source=replace(HW_SOURCE, refresh_seconds=0.0, netlink=True))
    assert "by netlink, which asks the device at each request. A reading takes 1 µs, 10 µs at p99. They" in said(asked)
    assert said(asked, **NOT_ASKED).endswith("which asks the device at each request.")
    many = replace(asked, source=replace(asked.source, pause_seconds=0.02))
    assert "has many such ports" in said(many, stride=2)
    refused = replace(EFA, source=replace(HW_SOURCE, refusal="the kernel has no RDMA netlink"))
    assert said(refused, stride=5).endswith("They are not read by netlink: the kernel has no RDMA netlink.")
    itself = make_port("bnxt_re0", identity={"driver": "bnxt_en"}, source=replace(HW_SOURCE, refresh_seconds=1.0))
    assert sentences(make_facts([itself], tree={"folders": {}}, **NOT_ASKED), "resolution") == [
        "bnxt_re0:1: The device itself updates its counters every 1 s."
    ]
    slow = replace(EFA, source=replace(HW_SOURCE, refresh_seconds=1.004))
    lifespan = said(slow, stride=100, tree={"folders": {EFA.id: Folders(False, True, 1000)}})
    assert lifespan.startswith("rdmap0:1: is sampled every 1 s. Its byte counters are in hw_counters")
