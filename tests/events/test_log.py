"""The event log: its bounds, a full file system, restarts, and other processes that read the file."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from ibpulse.core.events import KINDS, Event, EventLog, PortHistory
from ibpulse.core.events.log import MAX_PER_KIND, MAX_STARTED, EventFile, encode_event, read_events
from tests.events.making import DOWN, RING, SLOW, UP, moved, numbered, started

HEAD = b"ibpulse-events 1\n"
FLAPS = 1200


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events"


def opened(path: Path, ring: int = RING) -> EventLog:
    log = EventLog(EventFile(path))
    log.load(ring)
    return log


# bounds


def test_ten_thousand_events_take_bounded_memory_and_a_bounded_file(path: Path) -> None:
    kinds = [kind for kind in KINDS if kind != "started"]
    log = opened(path)

    def fill(first: int) -> tuple[int, int]:
        for number in range(first, first + 5_000):
            log.add(numbered(number, f"mlx5_{number % 7}:1", kinds[number % 3]))
        return tracemalloc.get_traced_memory()[0], path.stat().st_size

    tracemalloc.start()
    memory, size = fill(0)
    more_memory, more_size = fill(5_000)
    tracemalloc.stop()
    assert len(log.events()) == 3 * MAX_PER_KIND
    longest = len(encode_event(numbered(9_999, "mlx5_6:1", max(kinds[:3], key=len))))
    assert max(size, more_size) <= len(HEAD) + (2 * 3 * MAX_PER_KIND + MAX_STARTED + 1) * longest
    assert memory < 10_000_000
    assert more_memory < memory * 1.1
    assert read_events(path)[-3 * MAX_PER_KIND :] == list(log.events())
    log.close()


def test_every_kind_is_bounded_and_unknown_ones_together(path: Path) -> None:
    log = opened(path)
    for number in range(MAX_PER_KIND + 50):
        log.add(numbered(number, kind=f"later-{number}"))
        log.add(numbered(number, kind="capture"))
        log.add(numbered(number, kind="started"))
    kinds = [event.kind for event in log.events()]
    assert len([kind for kind in kinds if kind.startswith("later-")]) == MAX_PER_KIND
    assert (kinds.count("capture"), kinds.count("started")) == (MAX_PER_KIND, MAX_STARTED)
    assert kinds[-3:] == ["later-1049", "capture", "started"]
    log.close()


def flapping() -> Iterable[Event]:
    """A port with one event long ago, then another that flaps."""
    yield started(1, mlx5_0=UP, mlx5_1=UP)
    yield moved(2, "mlx5_1:1", UP, DOWN)
    for flap in range(FLAPS):
        yield moved(10 + 2 * flap, "mlx5_0:1", UP, DOWN)
        yield moved(11 + 2 * flap, "mlx5_0:1", DOWN, UP)


def test_a_flapping_port_evicts_only_its_own_events(path: Path) -> None:
    log = opened(path)
    for event in flapping():
        log.add(event)
    again = opened(path)
    for each in (log, again):
        assert [event.tick for event in each.between(0, 10**9, subject="mlx5_1:1")] == [2]
        downs = [event.tick for event in each.between(0, 10**9, kinds={"link-down"}, subject="mlx5_0:1")]
        assert downs == [10 + 2 * flap for flap in range(FLAPS - MAX_PER_KIND + 1, FLAPS)]
        assert (each.history.at("mlx5_1:1", 1), each.history.now("mlx5_1:1")) == (UP, DOWN)
        for tick in range(2 * FLAPS - 500, 2 * FLAPS + 10):
            assert each.history.at("mlx5_0:1", tick) == (UP if tick % 2 else DOWN)


def test_of_ports_with_equally_many_events_the_oldest_event_goes() -> None:
    log = EventLog()
    for number in range(MAX_PER_KIND + 3):
        log.add(numbered(number, f"mlx5_{number}:1"))
    assert [event.time_ns for event in log.events()] == list(range(3, MAX_PER_KIND + 3))


# questions


def test_events_are_chosen_by_time_kind_and_port() -> None:
    log = EventLog()
    for number, subject, kind in ((5, "a:1", "link-down"), (9, "a", "quarantined"), (7, "b:1", "link-down")):
        log.add(numbered(number, subject, kind))
    log.add(numbered(3, "", "clock-step"))  # the clock was set back
    assert [event.time_ns for event in log.events()] == [5, 9, 7, 3]
    assert [event.time_ns for event in log.between(3, 9)] == [3, 5, 7]
    assert [event.time_ns for event in log.between(0, 10, kinds={"link-down"})] == [5, 7]
    assert [event.time_ns for event in log.between(0, 10, subject="a:1")] == [5, 9]
    assert [event.time_ns for event in log.between(0, 10, ("link-down",), "b")] == [7]


def test_events_after_a_number_are_of_this_process(path: Path) -> None:
    old = opened(path)
    for number in range(30):
        old.add(numbered(number))
    old.close()
    log = opened(path)
    assert (log.added, list(log.after(0))) == (0, [])
    for number in range(100, 100 + MAX_PER_KIND + 50):
        log.add(numbered(number))
    assert log.added == MAX_PER_KIND + 50
    assert [event.time_ns for event in log.after(0)] == list(range(150, 150 + MAX_PER_KIND))
    assert [event.time_ns for event in log.after(log.added - 2)] == [1148, 1149]
    assert list(log.after(log.added)) == []
    log.close()


def test_counts_are_of_this_process_and_name_every_kind(path: Path) -> None:
    opened(path).add(numbered(1, kind="capture"))
    log = opened(path)
    log.add(numbered(2, kind="link-down"))
    assert dict(log.counts()) == {**dict.fromkeys(KINDS, 0), "link-down": 1}
    log.close()


# a full file system


@pytest.mark.real("process")
def test_events_wait_for_space_on_a_full_disk(tiny_tmpfs: Path) -> None:
    path, ballast = tiny_tmpfs / "events", tiny_tmpfs / "ballast"
    log = opened(path)
    for number in range(100):
        log.add(numbered(number))
    fill_up(ballast)
    for number in range(100, 600):
        log.add(numbered(number))
        log.retry()
    written = read_events(path)
    assert 100 <= len(written) < 600
    assert [event.time_ns for event in log.events()] == list(range(600))
    assert list(log.events())[: len(written)] == written
    os.truncate(ballast, ballast.stat().st_size - 8192)
    log.retry()
    assert len(written) < len(read_events(path)) < 600
    ballast.unlink()
    log.retry()
    log.add(numbered(600))
    assert read_events(path) == list(log.events()) == [numbered(number) for number in range(601)]
    log.close()


def fill_up(ballast: Path) -> None:
    """Write a file that takes all the space that is left."""
    with ballast.open("wb") as file:
        space = os.fstatvfs(file.fileno())
        os.posix_fallocate(file.fileno(), 0, space.f_bavail * space.f_frsize)


@pytest.mark.real("process")
def test_events_of_a_start_on_a_full_disk_come_later(tiny_tmpfs: Path) -> None:
    path, ballast = tiny_tmpfs / "events", tiny_tmpfs / "ballast"
    fill_up(ballast)
    log = opened(path)
    log.add(started(1, mlx5_0=UP))
    log.retry()
    assert log.events()
    assert read_events(path) == []
    ballast.unlink()
    log.retry()
    assert read_events(path) == list(log.events())
    log.close()


def test_a_file_that_cannot_be_shortened_is_still_appended_to(path: Path) -> None:
    log = opened(path)
    obstacle = path.with_name("events.new")
    (obstacle / "in the way").mkdir(parents=True)
    count = 3 * MAX_PER_KIND
    for number in range(count):
        log.add(numbered(number))
    assert len(read_events(path)) == count
    (obstacle / "in the way").rmdir()
    obstacle.rmdir()
    for number in range(count, count + 200):
        log.add(numbered(number))
    assert len(read_events(path)) < 2 * MAX_PER_KIND
    assert read_events(path)[-MAX_PER_KIND:] == list(log.events())
    log.close()


def test_a_file_that_was_deleted_comes_back_with_all_events(path: Path) -> None:
    log = opened(path)
    log.add(numbered(1))
    path.unlink()
    log.add(numbered(2))
    log.retry()
    assert read_events(path) == [numbered(1), numbered(2)]
    log.close()


# restarts

STORY = [
    started(100, mlx5_0=UP, mlx5_1=UP, mlx5_2=DOWN),
    moved(150, "mlx5_0:1", UP, DOWN),
    moved(180, "mlx5_0:1", DOWN, SLOW),
    moved(200, "mlx5_1:1", UP, None),
    moved(210, "mlx5_9:1", None, UP),
    numbered(220),
]
PORTS = ("mlx5_0:1", "mlx5_1:1", "mlx5_2:1", "mlx5_9:1")


def answers(history: PortHistory) -> dict[str, Any]:
    return {name: (history.spans(name, 0, 1000), history.now(name)) for name in history.names()}


def test_after_a_restart_the_history_is_as_before(path: Path) -> None:
    log = opened(path)
    for event in STORY:
        log.add(event)
    before = answers(log.history)
    assert tuple(before) == PORTS
    # the process is killed: nothing is closed
    again = opened(path)
    assert answers(again.history) == before
    assert again.events() == log.events() == tuple(STORY)


def test_a_new_ring_begins_with_the_last_states(path: Path) -> None:
    log = opened(path)
    for event in STORY:
        log.add(event)
    again = opened(path, ring=RING + 1)
    states = {"mlx5_0:1": SLOW, "mlx5_2:1": DOWN, "mlx5_9:1": UP}
    for tick in (0, 1, 199, 10**6):
        assert again.history.during(tick, tick + 1) == states
    assert again.history.names() == list(states)
    assert again.events() == tuple(STORY)
    # ticks of the new ring begin again, below those of the old one
    again.add(moved(3, "mlx5_0:1", SLOW, DOWN))
    assert (again.history.at("mlx5_0:1", 2), again.history.at("mlx5_0:1", 3)) == (SLOW, DOWN)
    again.add(started(5, mlx5_0=DOWN, mlx5_1=UP, mlx5_2=DOWN, mlx5_9=UP))
    assert (again.history.at("mlx5_1:1", 4), again.history.at("mlx5_1:1", 5)) == (None, UP)


def test_a_start_brings_the_history_up_to_date(path: Path) -> None:
    """The event of a change may be lost; the state at the next start is not."""
    log = opened(path)
    for event in (*STORY, started(300, mlx5_0=UP, mlx5_2=DOWN, mlx5_3=SLOW)):
        log.add(event)
    for history in (log.history, opened(path).history):
        assert (history.at("mlx5_0:1", 299), history.at("mlx5_0:1", 300)) == (SLOW, UP)
        assert (history.at("mlx5_9:1", 299), history.at("mlx5_9:1", 300)) == (UP, None)
        assert history.now("mlx5_2:1") == DOWN
        assert history.at("mlx5_3:1", 0) == SLOW


def test_an_event_that_names_no_states_leaves_the_history_alone() -> None:
    log = EventLog()
    log.add(numbered(1))
    log.add(Event(2, "started", "", "the daemon started", tick=2, ring=RING))
    assert log.history.names() == []


def test_hostile_events_do_not_keep_the_daemon_from_starting(path: Path) -> None:
    hostile = [
        Event(1, "started", "", "", details={"ports": 5}),
        Event(1, "started", "", "", details={"ports": {"a:1": {"rate_bytes_per_second": -1}}}),
        Event(2**63, "link-down", "a:1", "", before=UP, after=DOWN),
    ]
    path.write_bytes(HEAD + b"".join(map(encode_event, [*hostile, STORY[0]])))
    log = opened(path)
    assert log.events() == (STORY[0],)
    assert log.history.names() == ["mlx5_0:1", "mlx5_1:1", "mlx5_2:1"]
