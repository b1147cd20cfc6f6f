"""The live view of a real daemon, and of one that is replaced by another in the meantime."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ibpulse.client import DaemonConnection
from ibpulse.errors import DaemonError
from ibpulse.terminal.view import View
from ibpulse.terminal.watchers import DaemonWatcher
from tests.fabrics import simulated
from tests.running import Running, eventually

RATE = 10e9


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with simulated(tmp_path_factory.mktemp("fabric"), "constant", ports=2, rate="10GB/s") as made:
        yield made


@pytest.fixture(scope="module")
def daemon(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tree, tmp_path_factory.mktemp("daemon") / "ring") as running:
        yield running


class Clock:
    """A clock that the test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_it_shows_what_the_daemon_samples(daemon: Running) -> None:
    def known() -> View | None:
        view = DaemonWatcher(DaemonConnection(daemon.url)).fetch(20, 100_000_000)
        # a simulator pauses on a busy machine
        steady = all(rail.means == pytest.approx((RATE, RATE), rel=0.2) for rail in view.rails)
        return view if view.sampler and view.sampler.ticks and steady else None

    view = eventually(known)
    assert view.place == daemon.url
    assert (view.interval_ns, view.bin_ns, view.others) == (10_000_000, 100_000_000, 0)
    assert [(rail.name, rail.active, rail.state) for rail in view.rails] == [
        ("mlx5_0:1", True, "ACTIVE"),
        ("mlx5_1:1", True, "ACTIVE"),
    ]
    for rail in view.rails:
        assert rail.rate_bytes_per_second == 50e9
        assert rail.peaks.shape == (2, 20)
        assert np.nanmax(rail.peaks) > 0
    assert view.summary is not None
    assert view.summary.node.rails == 2
    assert view.sampler is not None
    assert view.sampler.lateness_seconds is not None


def test_a_daemon_that_came_back_with_another_interval_is_taken_as_it_is(tree: Path, tmp_path: Path) -> None:
    clock = Clock()
    with Running(tree, tmp_path / "ring") as running:
        watcher = DaemonWatcher(DaemonConnection(running.url), clock)
        assert watcher.fetch(5, 100_000_000).interval_ns == 10_000_000
        address = running.url.removeprefix("http://")
    with pytest.raises(DaemonError, match="does not answer: Connection refused"):
        watcher.fetch(5, 100_000_000)
    with Running(tree, tmp_path / "other", f"--web.listen-address={address}", interval="250ms"):
        # no time has passed, and yet everything is requested again
        view = watcher.fetch(5, 100_000_000)
        assert (view.interval_ns, view.bin_ns) == (250_000_000, 250_000_000)
        assert view.rails[0].peaks.shape[0] == 2


def test_the_costly_questions_are_asked_now_and_then(daemon: Running) -> None:
    clock, asked = Clock(), []

    class Listening(DaemonConnection):
        def get(self, path: str, query: object = ()) -> object:
            asked.append(path)
            return super().get(path, query)

    watcher = DaemonWatcher(Listening(daemon.url), clock)
    for _ in range(20):
        watcher.fetch(5, 100_000_000)
        clock.now += 0.5
    assert {path: asked.count(path) for path in asked} == {
        "/api/v1/ports": 5,
        "/api/v1/jobs": 5,
        "/api/v1/events": 5,
        "/api/v1/summary": 5,
        "/metrics": 5,
        "/api/v1/window": 40,
    }


def test_rails_in_trouble_keep_their_past_and_the_events_are_shown(tmp_path: Path) -> None:
    with simulated(tmp_path / "tree", "constant", ports=3, rate="10GB/s") as tree, Running(tree, tmp_path) as running:

        def look() -> View:
            return DaemonWatcher(DaemonConnection(running.url)).fetch(100, 100_000_000)

        eventually(lambda: all(rail.means[0] for rail in look().rails))
        (tree / "faults.json").write_text('{"link-flap": ["mlx5_0"], "vanish": ["mlx5_1"], "einval": ["mlx5_2"]}')

        def troubled() -> View | None:
            view = look()
            found = [rail.trouble for rail in view.rails] == ["DOWN", "disappeared", "unreadable"]
            # the sampler closes the files of a device that disappeared a moment later
            seen = found and view.rails[0].down[-1] and np.isnan(view.rails[1].peaks[:, -1]).all()
            return view if seen else None

        view = eventually(troubled)
        for rail in view.rails:
            # a simulator that is held up catches up
            assert np.nanmax(rail.peaks) > RATE / 2
            assert rail.since_ns is not None
            assert abs(rail.since_ns - view.wall_ns) < 30 * 10**9
        down, gone, unreadable = view.rails
        assert down.rate_bytes_per_second == 50e9
        assert not gone.down.any()
        assert not unreadable.down.any()
        assert {event.kind for event in view.events} >= {"link-down", "disappeared", "unreadable"}
