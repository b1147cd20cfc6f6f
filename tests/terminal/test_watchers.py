"""Views of a ring and of a daemon: constant bins, missing data, means of the last second, events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

from ibpulse.agent.aggregator import AggregatorOptions
from ibpulse.base.units import SECOND_NS
from ibpulse.core.answers.node import PortAnswer
from ibpulse.core.arrays import Singles
from ibpulse.core.client.connection import DaemonConnection
from ibpulse.core.events import Event, EventLog, PortHistory
from ibpulse.core.events.watch import KnownPort
from ibpulse.core.model import PortState
from ibpulse.core.ring.reader import RingReader
from ibpulse.workbench.top.daemon import LATE_NS, RecentEvents
from ibpulse.workbench.top.ring import RingWatcher
from ibpulse.workbench.top.view import EVENTS_NS, BinCache, View, down_bins
from tests.aggregator.rings import MS, RATE, Ring, constant, port, square
from tests.client.servers import Canned, canned
from tests.fleet.small_answers import events_of, port_of, read_ports
from tests.tables import for_each


def numbered(begin: int, end: int, age: int) -> Singles:
    """Bins that hold their own number in one direction, and the time of their computation in the other."""
    return np.array([np.arange(begin, end), np.full(end - begin, age)], dtype=np.float32)


def test_newest_bins_are_appended() -> None:
    bins = BinCache()
    assert bins.missing(10, ["a"], 100, 20, 3) == 20
    bins.add({"a": numbered(80, 100, 1)}, 100, 20)
    assert bins.missing(10, ["a"], 105, 20, 3) == 8
    found = bins.add({"a": numbered(97, 105, 2)}, 105, 20)["a"]
    assert found[0].tolist() == list(range(85, 105))
    assert found[1].tolist() == [1] * 12 + [2] * 8
    # fewer, as in a terminal that became narrower
    assert bins.missing(10, ["a"], 105, 10, 3) == 3
    found = bins.add({"a": numbered(102, 105, 3)}, 105, 10)["a"]
    assert found[0].tolist() == list(range(95, 105))
    assert found[1].tolist() == [1] * 2 + [2] * 5 + [3] * 3


@for_each(
    {
        "wider": (10, ("a",), 105, 30),
        "another rail": (10, ("a", "b"), 105, 20),
        "the clock was set back": (10, ("a",), 99, 20),
        "not fetched for long": (10, ("a",), 500, 20),
        "another time scale": (20, ("a",), 105, 20),
    }
)
def test_unusable_cache_computes_all_bins(width: int, names: tuple[str, ...], end: int, count: int) -> None:
    bins = BinCache()
    assert bins.missing(10, ["a"], 100, 20, 3) == 20
    bins.add({"a": numbered(80, 100, 1)}, 100, 20)
    assert bins.missing(width, names, end, count, 3) == count
    found = bins.add({name: numbered(end - count, end, 2) for name in names}, end, count)
    assert [values.shape for values in found.values()] == [(2, count)] * len(names)


TRAFFIC = (square(20e9, 30, 70), constant(4e9))


class Clocked(RingReader):
    """A reader whose clock the test sets, as a tick."""

    now_tick = 0

    def newest_tick(self, wall_ns: int | None = None) -> int:
        return super().newest_tick(self.now_tick * self.interval_ns)


class Watching:
    """A watcher of a ring, and its clock."""

    def __init__(self, ring: Ring) -> None:
        self.wanted_ns = 100 * MS
        self._reader = Clocked(ring.file)
        self.events = EventLog()
        self.gone: tuple[KnownPort, ...] = ()
        self._ring = ring
        self._watcher = RingWatcher(self._reader, self._known, lambda: 3, AggregatorOptions(), "here", self.events)

    def _known(self) -> tuple[KnownPort, ...]:
        there = (KnownPort(port, PortState(port.state, "", port.active, RATE)) for port in self._ring.fabric.ports)
        return (*there, *self.gone)

    def fetch(self, now_tick: int, points: int) -> View:
        self._reader.now_tick = now_tick
        self._watcher.prepare()
        return self._watcher.fetch(points, self.wanted_ns)


def fetch(ring: Ring, now_tick: int, points: int) -> View:
    return Watching(ring).fetch(now_tick, points)


@pytest.fixture
def ring(tmp_path: Path) -> Ring:
    made = Ring.create(tmp_path, port("mlx5_0"), port("mlx5_1", active=False), port("eth", rail=False))
    made.write("mlx5_0:1", TRAFFIC, 1, 1500, holes=range(1391, 1401))
    return made


def test_bins_are_peaks_and_means_cover_the_last_second(ring: Ring) -> None:
    seen = fetch(ring, 1505, 20)
    # ticks 1300 to 1499: the square is on from 1301 to 1330 and from 1401 to 1430
    expected = [20e9] * 3 + [20e9] + [0.0] * 5 + [0.0] + [20e9] * 4 + [0.0] * 6
    rail = seen.rails[0]
    np.testing.assert_allclose(rail.peaks[0], expected, rtol=1e-6)
    np.testing.assert_allclose(rail.peaks[1], 4e9, rtol=1e-6)
    assert (seen.bin_ns, seen.wall_ns, seen.interval_ns) == (100 * MS, 1500 * 10 * MS, 10 * MS)
    means = fetch(ring, 1505, 20).rails[0].means
    # ticks 1400 to 1499, of which 1400 and 1401 have no rate
    assert means == pytest.approx((20e9 * 29 / 98, 4e9), rel=1e-6)
    down = seen.rails[1]
    assert (down.name, down.active, down.means) == ("mlx5_1:1", False, (None, None))
    assert np.isnan(down.peaks).all()
    assert seen.others == 1
    assert np.isnan(fetch(ring, 1605, 30).rails[0].peaks[:, -9:]).all()


def test_later_view_equals_fresh_view(ring: Ring) -> None:
    watching = Watching(ring)
    looks = [(1105, 10, 100), (1150, 20, 100), (1402, 30, 100), (1450, 30, 20), (1451, 30, 20), (1505, 20, 100)]
    for now_tick, points, wanted_ms in [*looks, (1505, 12, 100), (1505, 25, 100)]:
        watching.wanted_ns = wanted_ms * MS
        other = Watching(ring)
        other.wanted_ns = watching.wanted_ns
        seen, fresh = watching.fetch(now_tick, points), other.fetch(now_tick, points)
        assert seen.bin_ns == wanted_ms * MS
        assert seen.wall_ns == fresh.wall_ns
        for rail, same in zip(seen.rails, fresh.rails, strict=True):
            np.testing.assert_array_equal(rail.peaks, same.peaks)
            assert rail.means == same.means


def test_bin_is_shown_when_complete(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port("mlx5_0"))
    counted = ring.write("mlx5_0:1", TRAFFIC, 1, 1000, stride=50)
    watching = Watching(ring)
    # the sample at 800 is the newest that no later one may still be merged with
    view = watching.fetch(1033, 8)
    assert view.wall_ns == 780 * 10 * MS
    assert not np.isnan(view.rails[0].peaks).any()
    ring.write("mlx5_0:1", TRAFFIC, 1001, 1100, stride=50, start=counted)
    peaks = watching.fetch(1102, 8).rails[0].peaks
    assert not np.isnan(peaks).any()
    np.testing.assert_array_equal(peaks, fetch(ring, 1102, 8).rails[0].peaks)


def test_the_summary_is_made_every_other_second(ring: Ring) -> None:
    watching = Watching(ring)
    ends = []
    for now_tick in range(1029, 1500, 50):
        summary = watching.fetch(now_tick, 10).summary
        ends.append(summary.end_ms)
    # seconds end at multiples of 100 ticks, and are whole 0.24 s later
    assert ends == [10000] * 4 + [12000] * 4 + [14000] * 2


UP, DOWN = PortState("ACTIVE", "", True, RATE, True), PortState("DOWN", "", False, RATE, True)


def change(tick: int, name: str, before: PortState | None, after: PortState | None) -> Event:
    return Event(tick * 10 * MS, "any", name, f"tick {tick}", 0, before, after, {}, tick)


def test_down_link_keeps_past_and_scale(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port("mlx5_0"), port("mlx5_1"))
    for name in ("mlx5_0:1", "mlx5_1:1"):
        ring.write(name, (lambda tick: 20e9 if tick <= 1250 else 0.0, constant(0.0)), 1, 1500)
    watching = Watching(ring)
    watching.fetch(1205, 20)
    ring.change(port("mlx5_0", active=False), port("mlx5_1"))
    # noticed late: traffic shows that the link was still up
    watching.events.add(change(1241, "mlx5_0:1", UP, DOWN))
    down, idle = watching.fetch(1505, 30).rails
    # the 30 bins are ticks 1200 to 1499; traffic ends within the sixth
    for rail in (down, idle):
        np.testing.assert_allclose(rail.peaks[0], [20e9] * 6 + [0.0] * 24, rtol=1e-6)
    assert down.down.tolist() == [False] * 6 + [True] * 24
    assert not idle.down.any()
    assert (down.trouble, down.rate_bytes_per_second, idle.trouble) == ("DOWN", RATE, "")


NOW_NS = 1_763_683_200 * SECOND_NS
PATH = "/api/v1/events"


@pytest.fixture
def server() -> Iterator[Canned]:
    with canned() as made:
        yield made


def answered(name: str, *, active: bool = True, state: str = "ACTIVE") -> PortAnswer:
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


def event_of(seconds_ago: int, before: PortState | None, after: PortState | None, subject: str = "mlx5_0:1") -> Event:
    return Event(NOW_NS - seconds_ago * SECOND_NS, "any", subject, f"{seconds_ago} s ago", 0, before, after)


def from_times(server: Canned) -> list[int]:
    return [int(parse_qs(urlsplit(path).query)["from"][0]) * 1_000_000 for path, _ in server.asked]


def test_only_the_first_question_covers_an_hour(server: Canned) -> None:
    recent, connection = RecentEvents(), DaemonConnection(server.url)
    old, newer, newest = (event_of(3599, UP, DOWN), event_of(50, DOWN, UP), event_of(1, UP, DOWN))
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


def test_past_states_follow_from_events(server: Canned) -> None:
    recent = RecentEvents()
    answer(server, event_of(20, UP, DOWN), event_of(10, DOWN, UP), event_of(5, UP, None, "mlx5_1:1"))
    recent.update(DaemonConnection(server.url), NOW_NS)
    ports = [
        answered("mlx5_0"),
        answered("mlx5_1", active=False, state="disappeared"),
        answered("mlx5_2", active=False, state="DOWN"),
        answered("mlx5_3", active=False, state="hung"),
    ]
    history = recent.history(ports)
    peaks = np.zeros((2, 30), dtype=np.float32)
    begin_ns = NOW_NS - 30 * SECOND_NS
    marked = [
        down_bins(history.spans(each.name, begin_ns, NOW_NS), begin_ns, SECOND_NS, peaks).nonzero()[0].tolist()
        for each in ports
    ]
    assert marked == [list(range(10, 20)), [], list(range(30)), []]


def test_unreadable_link_is_not_down() -> None:
    history = PortHistory()
    history.begin("a", replace(DOWN, problem="unreadable"))
    assert not down_bins(history.spans("a", 0, 60), 0, 10, np.zeros((2, 6), dtype=np.float32)).any()
