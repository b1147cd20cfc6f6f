"""A daemon followed over HTTP: each tick once, what is not certain yet waited for, refusals told, silence borne."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np
import pytest

from ibpulse.base.errors import DaemonError, FabricError
from ibpulse.core.client.connection import DaemonConnection
from ibpulse.core.recordings import RecordedPort, RecordingMeta
from ibpulse.workbench.recorder.from_daemon import DaemonFollower, ask_meta
from tests.client.servers import Canned, canned
from tests.fleet.small_answers import port_of, ports_of

INTERVAL_NS = 10_000_000
META = RecordingMeta("node7", INTERVAL_NS, (RecordedPort("mlx5_0", 1), RecordedPort("mlx5_1", 1)), "record")


@pytest.fixture
def server() -> Iterator[Canned]:
    with canned() as state:
        yield state


@pytest.fixture
def follower(server: Canned) -> Iterator[DaemonFollower]:
    """A follower that has asked once, when the newest tick was at 1.04 s: it begins after 0.8 s."""
    connection = DaemonConnection(server.url)
    follower = DaemonFollower(connection, META)
    answer(server, 500, 1040, 54)
    assert list(follower.read()) == []
    yield follower
    connection.close()


def answer(server: Canned, start_ms: int, newest_ms: int, points: int, interval_ms: int = 10) -> None:
    """From now on the daemon's window is this: the first port sends the number of its tick, the second is unknown."""
    ticks = start_ms // 10 + np.arange(points)
    history = {"oldest_ms": 0, "newest_ms": newest_ms}
    grid = {"interval_ms": interval_ms, "resolution_ms": interval_ms, "start_ms": start_ms, "history": history}
    server.answer_window(np.stack([ticks, np.where(ticks % 7, ticks, np.nan)]), **grid)


def test_what_is_not_certain_yet_is_waited_for(server: Canned, follower: DaemonFollower) -> None:
    answer(server, 810, 1140, 30)
    (piece,) = follower.read()
    assert server.asked[-1][0].startswith("/api/v1/window?statistic=mean&from=810&to=")
    # 0.2 s after a tick and the four samples after it, it is certain
    assert (piece.start_ns, piece.end_ns) == (810_000_000, 910_000_000)
    np.testing.assert_array_equal(piece.bytes_per_second[0, 0], np.arange(81, 91))
    assert np.flatnonzero(np.isnan(piece.bytes_per_second[0, 1])).tolist() == [3]
    assert np.isnan(piece.bytes_per_second[1]).all()
    assert piece.seconds[0, 1].tolist() == [0.01] * 3 + [0.0] + [0.01] * 6
    answer(server, 910, 1145, 20)
    assert list(follower.read()) == []
    answer(server, 910, 1150, 20)
    assert [piece.ticks for piece in follower.read()] == [1]


def test_whoever_is_far_behind_asks_until_it_is_not(server: Canned, follower: DaemonFollower) -> None:
    answer(server, 810, 4040, 100)
    pieces = follower.read()
    assert next(pieces).ticks == 100
    answer(server, 1810, 4040, 250)
    assert next(pieces).end_ns == 3_810_000_000
    assert next(pieces, None) is None
    assert "from=1810" in server.asked[-1][0]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_daemon_that_cannot_answer_now_is_asked_again(
    server: Canned, follower: DaemonFollower, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server.answer("/api/v1/window", b"", status)
    assert [*follower.read(), *follower.read()] == []
    answer(server, 810, 1140, 30)
    assert [piece.ticks for piece in follower.read()] == [10]
    assert caplog.text.count("; retrying") == 1
    assert caplog.text.count("answers again") == 1


def test_a_daemon_that_refuses_is_believed(server: Canned, follower: DaemonFollower) -> None:
    server.answer("/api/v1/window", b'{"detail": "no such user"}', 401)
    with pytest.raises(DaemonError, match="it asks for a password"):
        list(follower.read())


def test_a_daemon_that_never_answered_is_not_waited_for(server: Canned) -> None:
    connection = DaemonConnection(server.url)
    server.answer("/api/v1/window", b"", 503)
    with pytest.raises(DaemonError, match="it refuses with 503"):
        list(DaemonFollower(connection, META).read())
    connection.close()


def test_a_daemon_with_another_interval_ends_the_recording(server: Canned, follower: DaemonFollower) -> None:
    answer(server, 810, 1100, 30, interval_ms=1)
    sentence = "now samples every 1 ms, but the recording has 10 ms; begin another recording"
    with pytest.raises(DaemonError, match=sentence):
        list(follower.read())


def test_a_daemon_without_a_port_that_counts_is_refused(server: Canned) -> None:
    server.answer("/api/v1/ports", ports_of(port_of(source=None)))
    with pytest.raises(FabricError, match=f"the node at {server.url} has no ports with byte counters"):
        ask_meta(DaemonConnection(server.url))
