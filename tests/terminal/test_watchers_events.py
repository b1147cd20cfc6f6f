"""The events that `ibpulse top` asks a daemon for, and the bins in which a link was down."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

from ibpulse.answers.ports import PortAnswer
from ibpulse.client.connection import DaemonConnection
from ibpulse.events import Event, PortHistory
from ibpulse.model import PortState
from ibpulse.terminal.daemon_watcher import LATE_NS, RecentEvents
from ibpulse.terminal.view import EVENTS_NS, clock_text, down_bins
from ibpulse.units import SECOND_NS
from tests.client.servers import Canned, canned
from tests.fleet.small_answers import events_of, port_of, read_ports

NOW_NS = 1_763_683_200 * SECOND_NS
UP = PortState("ACTIVE", "LinkUp", True, 50e9, True)
DOWN = PortState("DOWN", "Polling", False, 50e9, True)
PATH = "/api/v1/events"


@pytest.fixture
def server() -> Iterator[Canned]:
    with canned() as made:
        yield made


def port(name: str, *, active: bool = True, state: str = "ACTIVE") -> PortAnswer:
    return read_ports(port_of(name, active=active, state=state)).ports[0]


def answer(server: Canned, *events: Event) -> None:
    """The events as a daemon describes them."""
    entries = [
        {
            "time_ms": event.time_ns // 1_000_000,
            "uncertainty_ms": 0,
            "kind": event.kind,
            "subject": event.subject,
            "text": event.text,
            "before": event.before and asdict(event.before),
            "after": event.after and asdict(event.after),
        }
        for event in events
    ]
    server.answer(PATH, events_of(*entries))


def change(seconds_ago: int, before: PortState | None, after: PortState | None, subject: str = "mlx5_0:1") -> Event:
    return Event(NOW_NS - seconds_ago * SECOND_NS, "any", subject, f"{seconds_ago} s ago", 0, before, after)


def from_times(server: Canned) -> list[int]:
    return [int(parse_qs(urlsplit(path).query)["from"][0]) * 1_000_000 for path, _ in server.asked]


def test_only_the_first_question_covers_an_hour(server: Canned) -> None:
    recent, connection = RecentEvents(), DaemonConnection(server.url)
    old, newer, newest = change(3599, UP, DOWN), change(50, DOWN, UP), change(1, UP, DOWN)
    answer(server, old, newer)
    recent.update(connection, NOW_NS)
    recent.update(connection, NOW_NS)
    # events that are noticed late are not missed
    answer(server, newer, newest)
    recent.due = True
    recent.update(connection, NOW_NS + SECOND_NS)
    assert from_times(server) == [NOW_NS - EVENTS_NS, NOW_NS - LATE_NS]
    assert recent.events == (old, newer, newest)
    answer(server)
    recent.due = True
    recent.update(connection, NOW_NS + 3600 * SECOND_NS)
    assert recent.events == ()


def test_the_past_follows_from_the_events_and_from_the_state_of_now(server: Canned) -> None:
    recent = RecentEvents()
    answer(server, change(20, UP, DOWN), change(10, DOWN, UP), change(5, UP, None, "mlx5_1:1"))
    recent.update(DaemonConnection(server.url), NOW_NS)
    ports = [
        port("mlx5_0"),
        port("mlx5_1", active=False, state="disappeared"),
        port("mlx5_2", active=False, state="DOWN"),
        port("mlx5_3", active=False, state="hung"),
    ]
    history = recent.history(ports)
    peaks = np.zeros((2, 30), dtype=np.float32)
    begin_ns = NOW_NS - 30 * SECOND_NS
    marked = [
        down_bins(history.spans(each.name, begin_ns, NOW_NS), begin_ns, SECOND_NS, peaks).nonzero()[0].tolist()
        for each in ports
    ]
    assert marked == [list(range(10, 20)), [], list(range(30)), []]


def test_a_bin_is_down_if_it_has_no_traffic_and_the_link_was_down_in_it() -> None:
    history = PortHistory()
    history.change("a", 15, UP, DOWN)
    history.change("a", 41, DOWN, UP)
    peaks = np.zeros((2, 6), dtype=np.float32)
    peaks[0, 1], peaks[:, 2] = 1.0, np.nan
    assert down_bins(history.spans("a", 0, 60), 0, 10, peaks).tolist() == [False, False, True, True, True, False]


@pytest.mark.parametrize("problem", ["unreadable", "hung", "disappeared"])
def test_a_link_of_which_nothing_is_known_is_not_down(problem: str) -> None:
    history = PortHistory()
    history.begin("a", replace(DOWN, problem=problem))
    assert not down_bins(history.spans("a", 0, 60), 0, 10, np.zeros((2, 6), dtype=np.float32)).any()


def test_a_time_of_another_day_is_a_date() -> None:
    assert clock_text(NOW_NS - 90 * SECOND_NS, NOW_NS) == "23:58:30"
    assert clock_text(NOW_NS - 86_400 * SECOND_NS, NOW_NS) == "2025-11-20"
