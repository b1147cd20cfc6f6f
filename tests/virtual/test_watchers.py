"""The live view of a daemon: what it shows, what it asks how often, and a daemon that another one replaces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ibpulse.base.errors import DaemonError
from ibpulse.core.client.connection import DaemonConnection
from ibpulse.workbench.simulate.workloads import Constant
from ibpulse.workbench.top.daemon import DaemonWatcher
from ibpulse.workbench.top.view import View
from tests.virtual.node import Node
from tests.virtual.rates import RATE, WORD_RATE

URL = "http://node-0:10055"
BIN_NS = 100_000_000


def fetch(node: Node, watcher: DaemonWatcher, points: int = 20) -> View:
    return node.loop.run_until_complete(asyncio.to_thread(watcher.fetch, points, BIN_NS))


def watch(node: Node, clock: Callable[[], float] | None = None) -> DaemonWatcher:
    return DaemonWatcher(node.connect(URL), clock or node.clock.monotonic)


def test_a_daemon_that_came_back_with_another_interval_is_taken_as_it_is(folder: Path) -> None:
    with Node(folder / "old", rails=2, workload=Constant(RATE)) as node:
        node.run(5)
        watcher = watch(node, lambda: 0.0)
        assert fetch(node, watcher, 5).interval_ns == 10_000_000
        node.stop()
        with pytest.raises(DaemonError, match="does not answer: it refuses connections"):
            fetch(node, watcher, 5)
        options: Any = {"rails": 2, "workload": Constant(RATE), "interval": "250ms", "world": node.world}
        with Node(folder / "new", **options) as other:
            other.run(5)
            watcher._connection = other.connect(URL)
            # no time has passed for it, and yet everything is requested again
            view = fetch(other, watcher, 5)
    assert (view.interval_ns, view.bin_ns) == (250_000_000, 250_000_000)
    assert view.rails[0].peaks.shape[0] == 2


def test_the_costly_questions_are_asked_now_and_then(folder: Path) -> None:
    times, asked = [0.0], []

    with Node(folder, rails=2, workload=Constant(RATE)) as node:
        node.run(5)
        connection = node.connect(URL)

        def get(path: str, query: object = ()) -> object:
            asked.append(path)
            return DaemonConnection.get(connection, path, query)  # type: ignore[arg-type]

        connection.get = get  # type: ignore[method-assign, assignment]
        watcher = DaemonWatcher(connection, lambda: times[0])
        for _ in range(20):
            fetch(node, watcher, 5)
            times[0] += 0.5
    assert {path: asked.count(path) for path in asked} == {
        "/api/v1/ports": 5,
        "/api/v1/jobs": 5,
        "/api/v1/events": 5,
        "/api/v1/summary": 5,
        "/api/v1/limits": 5,
        "/metrics": 5,
        "/api/v1/window": 40,
    }


def test_rails_in_trouble_keep_their_past_and_the_events_are_shown(folder: Path) -> None:
    with Node(folder, rails=3, workload=Constant(RATE)) as node:
        node.run(8)
        node.fault({"link-flap": ["mlx5_0"], "vanish": ["mlx5_1"], "einval": ["mlx5_2"]})
        since_ns = node.clock.time_ns()
        node.run(4)
        view = fetch(node, watch(node), 100)
    assert [rail.trouble for rail in view.rails] == ["DOWN", "disappeared", "unreadable"]
    for rail in view.rails:
        assert np.nanmax(rail.peaks) == pytest.approx(RATE, abs=WORD_RATE)
        assert rail.since_ns is not None
        assert 0 <= rail.since_ns - since_ns < 2 * 10**9
    down, gone, unreadable = view.rails
    assert down.rate_bytes_per_second == 50e9
    assert down.down[-1]
    assert np.isnan(gone.peaks[:, -1]).all()
    assert not gone.down.any()
    assert not unreadable.down.any()
    assert {event.kind for event in view.events} >= {"link-down", "disappeared", "unreadable"}
