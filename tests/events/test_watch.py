"""The watch records each change of the ports once, with the states before and after, and counts them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from ibpulse.core.events import Event, EventLog
from ibpulse.core.events.log import EventFile
from ibpulse.core.events.watch import CounterResets, PortWatch, SeenPort, find_last_sign, state_of
from ibpulse.core.model import ByteSource, Port, PortId, PortIdentity, PortState
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.layout import H_CREATED_WALL_NS, L_TICK, lane_at
from ibpulse.core.ring.reader import RingReader
from tests.clocks import GivenClock

SECOND_NS = 1_000_000_000
TICK_NS = 10_000_000
SOURCE = ByteSource("port_data", ("/t",), ("/r",), 4)
NDR = 50e9
BEGIN_NS = 1_763_683_200 * SECOND_NS
# the wall clock, which stands still
NOW_NS = BEGIN_NS + SECOND_NS // 2


def port(name: str, *, active: bool = True, rate: float | None = NDR, guid: str = "", rail: bool = True) -> Port:
    device, _, number = name.partition(":")
    return Port(
        PortId(device, int(number)),
        PortIdentity(guid=guid or f"guid of {device}"),
        active,
        "ACTIVE" if active else "DOWN",
        rate if active else None,
        SOURCE,
        rail,
    )


@dataclass
class Node:
    """A watch over a ring, with a clock that the test sets: `second` counts from the start of the node."""

    directory: Path
    second: float = 0.0
    begin_ns: int = BEGIN_NS

    def __post_init__(self) -> None:
        self.ring = RingFile.open_or_create(self.directory / "ring", TICK_NS, 30_000)
        if not self.ring.segments():
            self.ring.begin_segment(1, 0)
        self.reader = RingReader(self.ring)
        self.start()

    def start(self) -> None:
        """A new daemon."""
        self.log = EventLog(EventFile(self.directory / "events"))
        self.log.load(self.ring.words[H_CREATED_WALL_NS])
        self.watch = PortWatch(self.log, self.reader, GivenClock(lambda: self.second, lambda: NOW_NS))
        self.told = len(self.log.events())

    def see(self, *ports: Port | SeenPort, silent: tuple[str, ...] = ()) -> list[Event]:
        """The events of a look at the node one second after the last, without those of the start."""
        self.second += 1
        now_ns = self.begin_ns + round(self.second * SECOND_NS)
        seen = [each if isinstance(each, SeenPort) else SeenPort(each, 0) for each in ports]
        self.watch.update([replace(each, time_ns=now_ns) for each in seen], now_ns, silent)
        fresh = self.log.events()[self.told :]
        self.told = len(self.log.events())
        return [event for event in fresh if event.kind != "started"]


@pytest.fixture(autouse=True)
def wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: NOW_NS)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.ring.close()


def kinds(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.kind, event.subject) for event in events]


def test_looks_without_a_change_record_only_the_starts(node: Node) -> None:
    ports = port("mlx5_0:1"), port("mlx5_1:1", active=False)
    assert [node.see(*ports) for _ in range(3)] == [[]] * 3
    node.log.close()
    node.start()
    assert node.see(*ports) == []
    assert [event.kind for event in node.log.events()] == ["started", "started"]
    states = node.log.events()[0].details["ports"].items()
    assert {name: state["active"] for name, state in states} == {"mlx5_0:1": True, "mlx5_1:1": False}


def test_a_down_link_keeps_its_rate(node: Node) -> None:
    node.see(port("mlx5_0:1"))
    (down,) = node.see(SeenPort(port("mlx5_0:1", active=False), 0, physical="Polling"))
    (up,) = node.see(port("mlx5_0:1"))
    assert (down.kind, up.kind) == ("link-down", "link-up")
    assert down.before is not None
    assert down.after is not None
    assert (down.before.active, down.after.active, down.after.rate_bytes_per_second) == (True, False, NDR)
    assert down.text == "mlx5_0:1: link down (DOWN, Polling)"
    # noticed at second 2, one second after the reading before it
    assert (down.time_ns, down.uncertainty_ns) == (node.begin_ns + 2 * SECOND_NS, SECOND_NS)
    assert down.tick == down.time_ns // TICK_NS
    assert node.log.history.at("mlx5_0:1", down.tick - 1) == down.before
    assert node.log.history.at("mlx5_0:1", down.tick) == down.after


def test_simultaneous_changes_are_consecutive_events(node: Node) -> None:
    node.see(port("mlx5_0:1"))
    events = node.see(
        SeenPort(port("mlx5_0:1", rate=NDR / 2, rail=False), 0, stride=5, problem="unreadable", reason="EINVAL")
    )
    assert [event.kind for event in events] == ["rate-change", "role-change", "unreadable", "interval-change"]
    assert [event.before for event in events[1:]] == [event.after for event in events[:-1]]
    assert events[0].text == "mlx5_0:1: line rate is 25GB/s, was 50GB/s"
    assert events[2].text == "mlx5_0:1: EINVAL"
    assert events[3].text == "mlx5_0:1: sampled every 50 ms, was 10 ms"


def test_time_down_and_changes_of_the_link_are_counted(node: Node) -> None:
    up, down = port("mlx5_0:1"), port("mlx5_0:1", active=False)
    for each in (up, down, down, down, up, up, down):
        node.see(each)
    (known,) = node.watch.known_ports()
    # down from the second look to the fifth
    assert (known.down_seconds, known.state_changes) == (3.0, 3)


@pytest.mark.parametrize(
    ("looks", "flaps", "changes"),
    [
        ([(True, 3), (True, 4)], 1, 2),
        ([(True, 3), (True, 6)], 3, 6),
        # an ordinary way down and up, counted once by the kernel: when it goes down, or when it comes back
        ([(True, 3), (False, 4), (True, 4)], 0, 2),
        ([(True, 3), (False, 3), (True, 4)], 0, 2),
        # it went down once more while it was down
        ([(True, 3), (False, 5), (True, 5)], 1, 4),
        # a device that does not count
        ([(True, 0), (False, 0), (True, 0), (False, 0), (True, 0)], 0, 4),
        # a counter that was reset, and one that has reached its maximum
        ([(True, 200), (True, 0), (True, 1)], 1, 2),
        ([(True, 255), (False, 255), (True, 255)], 0, 2),
    ],
)
def test_a_flap_between_two_readings_is_found_by_link_downed(
    node: Node, looks: list[tuple[bool, int]], flaps: int, changes: int
) -> None:
    for active, downs in looks:
        node.see(SeenPort(port("mlx5_0:1", active=active), 0, downs=downs))
    found = [event for event in node.log.events() if event.kind == "link-flap"]
    assert sum(event.details["link_downed"] for event in found) == flaps
    assert node.watch.known_ports()[0].state_changes == changes


def test_a_renamed_device_disappears_and_then_appears_with_the_same_guid(node: Node) -> None:
    # its new name was read a while before anybody looks at what is missing
    node.begin_ns -= 60 * SECOND_NS
    node.see(port("mlx5_0:1", guid="b8ce:1"), port("mlx5_1:1", guid="b8ce:2"))
    events = node.see(port("mlx5_1:1", guid="b8ce:2"), port("gpu7:1", guid="b8ce:1"))
    assert kinds(events) == [("disappeared", "mlx5_0:1"), ("appeared", "gpu7:1")]
    assert {event.time_ns for event in events} == {node.begin_ns + 2 * SECOND_NS}
    assert {event.details["guid"] for event in events} == {"b8ce:1"}
    assert events[1].text == "gpu7:1 appeared; it has the GUID of mlx5_0:1"


def test_open_files_do_not_prove_a_name_exists(node: Node) -> None:
    node.begin_ns -= 100 * SECOND_NS
    node.see(port("mlx5_0:1"), port("mlx5_1:1"))
    listed_ns = node.begin_ns + 2 * SECOND_NS
    readings = [SeenPort(port(f"mlx5_{number}:1"), listed_ns + SECOND_NS // 2) for number in range(2)]
    node.watch.update(readings, listed_ns)
    node.watch.update(readings[1:], listed_ns + SECOND_NS)
    event = node.log.events()[-1]
    assert (event.kind, event.time_ns - event.uncertainty_ns) == ("disappeared", listed_ns)


def test_a_port_that_disappeared_stays_listed_and_says_since_when(node: Node) -> None:
    node.see(port("mlx5_0:1"), port("mlx5_1:1"))
    node.see(port("mlx5_1:1"))
    node.see(port("mlx5_1:1"))
    first, second = node.watch.known_ports()
    assert (first.word, first.state, first.since_ns) == ("disappeared", None, node.log.events()[-1].time_ns)
    assert "disappeared" in first.problem
    assert (second.word, second.problem) == ("ACTIVE", "")
    # until the history no longer has it
    node.log.history.forget_before(2**60)
    assert [str(known.port.id) for known in node.watch.known_ports()] == ["mlx5_1:1"]


def test_a_device_that_does_not_answer_has_not_disappeared(node: Node) -> None:
    node.see(port("mlx5_0:1"))
    (hung,) = node.see(silent=("mlx5_0",))
    assert (hung.kind, hung.after and hung.after.problem) == ("unreadable", "hung")
    assert node.see(silent=("mlx5_0",)) == []
    assert node.watch.known_ports()[0].word == "hung"
    (back,) = node.see(port("mlx5_0:1"))
    assert back.kind == "readable"


def test_a_role_change_names_both_roles(node: Node) -> None:
    node.see(port("mlx5_0:1"))
    (event,) = node.see(replace(port("mlx5_0:1", rail=False), role="storage"))
    assert (event.kind, event.text) == ("role-change", "mlx5_0:1: role is storage, was compute")
    states = [(each.role, each.rail) for each in (event.before, event.after) if each]
    assert states == [("compute", True), ("storage", False)]
    # of a port that was no rail before
    (event,) = node.see(replace(port("mlx5_0:1", rail=False), role="management"))
    assert event.kind == "role-change"


def test_a_link_whose_state_cannot_be_read_is_not_down(node: Node) -> None:
    node.see(port("mlx5_0:1"))
    unread = replace(port("mlx5_0:1", active=False), state="")
    (event,) = node.see(SeenPort(unread, 0, problem="unreadable", reason="state cannot be read", link_known=False))
    assert event.kind == "unreadable"
    assert event.after is not None
    assert (event.after.active, event.after.state, event.after.rate_bytes_per_second) == (True, "ACTIVE", NDR)


def test_a_problem_without_a_reading_is_dated_now(node: Node) -> None:
    """Its time is not that of the last reading, which a device that hangs keeps."""
    old_ns = NOW_NS - 60 * SECOND_NS
    # the one before it was 61 s ago
    healthy = SeenPort(port("mlx5_0:1"), old_ns, old_ns - SECOND_NS)
    node.watch.update([healthy], old_ns)
    for seen, kind, uncertainty_ns in (
        (replace(healthy, problem="hung", link_known=False), "unreadable", 61 * SECOND_NS),
        (healthy, "readable", 2 * SECOND_NS),
        (replace(healthy, port=port("mlx5_0:1", rail=False)), "role-change", 2 * SECOND_NS),
        (replace(healthy, port=port("mlx5_0:1", rail=False), stride=2), "interval-change", 2 * SECOND_NS),
    ):
        node.watch.update([seen], old_ns)
        event = node.log.events()[-1]
        assert event.kind == kind
        assert (event.time_ns, event.uncertainty_ns) == (NOW_NS, uncertainty_ns)
        assert node.watch.known_ports()[0].since_ns == event.time_ns


def test_changes_without_a_daemon_are_noticed_at_start(node: Node) -> None:
    node.see(port("mlx5_0:1"), port("mlx5_1:1"), port("mlx5_2:1"))
    node.log.close()
    node.second += 60
    node.start()
    events = node.see(port("mlx5_0:1", active=False), port("mlx5_1:1"), port("mlx5_3:1"))
    assert sorted(kinds(events)) == [
        ("appeared", "mlx5_3:1"),
        ("disappeared", "mlx5_2:1"),
        ("link-down", "mlx5_0:1"),
    ]
    # at most a minute and the two looks before: since the last event of the first daemon
    assert all(event.uncertainty_ns >= 60 * SECOND_NS for event in events if event.kind != "disappeared")
    assert node.watch.known_ports()[2].word == "disappeared"


def test_a_clock_step_is_recorded_once(node: Node) -> None:
    node.see(port("mlx5_0:1"))
    now = node.begin_ns // TICK_NS + 500
    node.ring.begin_segment(now, 300)
    (step,) = node.see(port("mlx5_0:1"))
    assert (step.kind, step.details, step.tick) == ("clock-step", {"seconds": -3.0}, now)
    assert step.text == "the wall clock was set back by 3 s"
    assert node.see(port("mlx5_0:1")) == []


def test_resets_and_jumps_of_counters_are_events_of_their_ports(node: Node) -> None:
    resets = CounterResets(node.log, node.reader)
    node.ring.begin_segment(NOW_NS // TICK_NS + 300, 300)
    for reset, jumped in ((0, 0), (2, 0), (2, 1), (2, 1)):
        resets.note({"mlx5_0:1": 0, "mlx5_1:1": reset}, {"mlx5_0:1": jumped, "mlx5_1:1": 0})
    assert kinds(list(node.log.events())) == [("counter-reset", "mlx5_1:1"), ("counter-jump", "mlx5_0:1")]
    places = {(event.time_ns, event.tick, event.ring) for event in node.log.events()}
    assert places == {(NOW_NS, NOW_NS // TICK_NS + 300, node.ring.words[H_CREATED_WALL_NS])}


def test_a_problem_never_ends_before_it_began(node: Node) -> None:
    """The newest reading of the link may be older than the hang: the event is then about now."""
    begin_ns = node.begin_ns - 100 * SECOND_NS
    healthy = SeenPort(port("mlx5_0:1"), begin_ns, previous_ns=begin_ns - SECOND_NS)
    hung = replace(healthy, time_ns=begin_ns + SECOND_NS, previous_ns=0, problem="hung", link_known=False)
    later = replace(hung, time_ns=begin_ns + 9 * SECOND_NS)
    for each in (healthy, hung, later, healthy):
        node.watch.update([each], each.time_ns)
    unreadable, readable = node.log.events()[1:]
    assert (unreadable.kind, readable.kind) == ("unreadable", "readable")
    assert unreadable.time_ns == readable.time_ns == NOW_NS
    # nobody knows how long the hang lasted before it was noticed: at most since the link was read
    assert unreadable.time_ns - unreadable.uncertainty_ns <= begin_ns
    state = node.log.history.now("mlx5_0:1")
    assert state is not None
    assert state.problem == ""


def test_the_end_of_a_problem_has_its_uncertainty(node: Node) -> None:
    begin_ns = node.begin_ns - 100 * SECOND_NS
    healthy = SeenPort(port("mlx5_0:1"), begin_ns, previous_ns=begin_ns - SECOND_NS)
    hung = replace(healthy, time_ns=begin_ns + SECOND_NS, previous_ns=0, problem="hung", link_known=False)
    later = replace(hung, time_ns=begin_ns + 9 * SECOND_NS)
    # the reading before was that before the hang
    back = SeenPort(port("mlx5_0:1", active=False), begin_ns + 10 * SECOND_NS, previous_ns=begin_ns)
    for each in (healthy, hung, later, back):
        node.watch.update([each], each.time_ns)
    unreadable, down, readable = node.log.events()[1:]
    assert (unreadable.kind, down.kind, readable.kind) == ("unreadable", "link-down", "readable")
    assert down.uncertainty_ns == 10 * SECOND_NS
    # the last look was just now, and an end shows after up to two seconds
    assert readable.uncertainty_ns == 2 * SECOND_NS


@pytest.mark.parametrize("subject", ["mlx5_0", "", "mlx5_0:x", ":1", "a:b:1"])
def test_invalid_port_names_do_not_stop_the_daemon(tmp_path: Path, subject: str) -> None:
    file = EventFile(tmp_path / "events")
    file.open()
    file.append(Event(1, "link-up", subject, "", after=PortState("ACTIVE", "", True)))
    file.append(Event(1, "started", "", "", details={"ports": {subject: {"state": "ACTIVE"}}}))
    file.close()
    node = Node(tmp_path)
    assert node.see(port("mlx5_1:1")) == []
    assert [str(known.port.id) for known in node.watch.known_ports()] == ["mlx5_1:1"]
    node.ring.close()


def test_the_last_sample_is_dated_by_its_segment(node: Node) -> None:
    node.ring.begin_segment(101, -50)  # set forward by 50 intervals
    node.ring.words[lane_at(0) + L_TICK] = 200
    assert find_last_sign(node.log, node.reader) == 250 * TICK_NS


def test_an_active_link_that_cannot_be_read_keeps_its_rate() -> None:
    before = state_of(SeenPort(port("mlx5_0:1"), 0), None)
    rateless = replace(port("mlx5_0:1"), rate_bytes_per_second=None)
    assert state_of(SeenPort(rateless, 0, link_known=False), before).rate_bytes_per_second == NDR
    # its driver was asked, and does not say
    assert state_of(SeenPort(rateless, 0), before).rate_bytes_per_second is None


def test_a_return_is_later_than_the_last_list_without_it(node: Node) -> None:
    node.see(port("mlx5_0:1"))
    for _ in range(3):
        node.see()
    (back,) = node.see(port("mlx5_0:1"))
    assert (back.kind, back.uncertainty_ns) == ("appeared", SECOND_NS)
