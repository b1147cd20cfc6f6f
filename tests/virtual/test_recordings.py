"""Recordings of a virtual node, by itself and through its daemon, against the truth; and their replay."""

from __future__ import annotations

import asyncio
import logging
import platform
import signal
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ibpulse.core.recordings import Recording, load
from ibpulse.core.recordings.from_ring import SampleSource
from ibpulse.workbench.recorder import from_daemon
from ibpulse.workbench.recorder.from_daemon import daemon_source
from ibpulse.workbench.recorder.sampler_source import node_source
from ibpulse.workbench.recorder.session import RecorderOptions, record
from ibpulse.workbench.reports.run import Run, describe_run
from ibpulse.workbench.reports.span import ReportOptions
from ibpulse.workbench.simulate.replay import Player, Replay
from tests.truth import Truth
from tests.virtual.clock import WAKE_NS
from tests.virtual.node import Node
from tests.virtual.samplers import Samplers
from tests.virtual.world import SECOND, START_NS

TICK_NS = 10_000_000
RAILS = 3
URL = "http://node-0:10055"
KEYS = ("transmit_bytes_per_second", "receive_bytes_per_second", "duty_cycle_ratio", "fairness_ratio")


def make_node(folder: Path, **options: Any) -> Node:
    return Node(folder, rails=RAILS, management=True, workload="dense", **options)


def own(node: Node) -> AbstractAsyncContextManager[SampleSource]:
    """The samples that `ibpulse record` takes itself."""
    return node_source(node._settings, node.clock, Samplers(node.world, node.clock).start)


def remote(node: Node) -> AbstractAsyncContextManager[SampleSource]:
    """The samples of the daemon."""
    node.world.patch(from_daemon, "DaemonConnection", node.connect)
    return daemon_source(URL)


def start(
    node: Node,
    path: Path,
    opening: AbstractAsyncContextManager[SampleSource],
    seconds: float | None = None,
    until_idle: float | None = None,
) -> asyncio.Task[str]:
    spans = (None if each is None else round(each * SECOND) for each in (seconds, until_idle))
    return node.loop.create_task(record(path, opening, RecorderOptions(*spans), until_idle is not None))


def finish(node: Node, recording: asyncio.Task[str]) -> str:
    """What is said at the end of a recording."""
    return node.loop.run_until_complete(recording)


def moved(recording: Recording) -> np.ndarray:
    """Bytes per port, direction and tick."""
    return recording.bytes_per_second * recording.seconds


def report(recording: Recording, **options: Any) -> Run:
    return describe_run(Path("a.parquet"), recording, ReportOptions(timescales_ns=(TICK_NS,), **options))


def assert_same_as_window(recording: Recording, node: Node) -> None:
    """The recording has, and lacks, the samples of the daemon's window."""
    span = {"from": recording.start_ns // 10**6, "to": recording.end_ns // 10**6}
    window = node.window(None, **span)
    for row, port in enumerate(recording.meta.ports):
        for way, direction in enumerate(("transmit", "receive")):
            told = np.array(window[f"{port.id} {direction}"], dtype=float)
            np.testing.assert_allclose(recording.bytes_per_second[row, way], told, rtol=1e-6, equal_nan=True)


@pytest.fixture(scope="module")
def recorded(shared_folder: Path) -> Iterator[tuple[Node, Path, str]]:
    """Eight seconds of a node, the file, and what was said at the end."""
    with make_node(shared_folder / "first") as node:
        node.stop()
        path = shared_folder / "node.parquet"
        said = finish(node, start(node, path, own(node), seconds=8))
        yield node, path, said


def test_a_node_is_recorded_with_its_ports(recorded: tuple[Node, Path, str]) -> None:
    node, path, said = recorded
    recording = load(path)
    assert said.startswith(f"{path}: 8.0s of 4 ports, 800 samples per port, 100 % captured, ")
    assert [*path.parent.glob("node.parquet*")] == [path]
    assert (recording.ticks, recording.meta.interval_ns, recording.meta.complete) == (800, TICK_NS, True)
    assert (recording.meta.source, recording.meta.host) == ("record", platform.node())
    ports = recording.meta.ports
    assert [str(port.id) for port in ports] == ["mlx5_0:1", "mlx5_1:1", "mlx5_2:1", "mlx5_an0:1"]
    assert [port.rail for port in ports] == [True, True, True, False]
    assert ports[0].rate_bytes_per_second == 50e9
    assert (ports[0].identity.hca_type, ports[0].source, ports[0].state) == ("MT4129", "port_data", "ACTIVE")
    # it ends with the last sample that was certain
    assert 0 < node.clock.time_ns() - recording.end_ns < 1.5 * SECOND


def test_a_recording_and_its_report_agree_with_the_schedule(recorded: tuple[Node, Path, str]) -> None:
    node, path, _ = recorded
    recording = load(path)
    # a sampler wakes this much after the multiple of the interval
    read_ns = recording.start_ns + TICK_NS * np.arange(-1, recording.ticks) + WAKE_NS
    sent = np.diff(node.fabric.schedule.cumulative_bytes(read_ns), axis=0).transpose(1, 2, 0)
    np.testing.assert_allclose(moved(recording)[:RAILS], sent, rtol=1e-9, atol=8)
    truth = Truth(sent.sum(axis=(0, 1)) * (SECOND / TICK_NS), TICK_NS / SECOND)
    told = {
        "mean_bytes_per_second": truth.mean,
        "active_mean_bytes_per_second": truth.active_mean,
        "peak_bytes_per_second": truth.peak,
        "duty_cycle_ratio": truth.duty,
        "burstiness_cv_10ms": truth.cv,
    }
    values = report(recording).values
    assert {key: values[key] for key in told} == pytest.approx(told, rel=1e-6)


def test_a_daemon_that_restarts_leaves_no_gap_that_its_ring_holds(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = folder / "restarted.parquet"
    with make_node(folder) as node:
        node.run(2)
        recording = start(node, path, remote(node), seconds=8)
        node.run(3)
        stopped_ns = node.clock.time_ns()
        node.restart(after=1)
        finish(node, recording)
        found = load(path)
        assert_same_as_window(found, node)
    missing = np.flatnonzero(np.isnan(found.bytes_per_second[0, 0]))
    instants = found.start_ns + TICK_NS * missing
    assert (np.diff(missing) == 1).all()
    assert 0 < instants[0] - stopped_ns <= TICK_NS
    assert SECOND <= instants[-1] - instants[0] < 1.2 * SECOND
    assert [caplog.text.count(text) for text in ("does not answer", "answers again")] == [1, 1]
    assert (found.meta.reason, found.meta.source) == (f"from {URL}", "record")
    # the API has no times of its samples
    assert set(found.seconds[~np.isnan(found.bytes_per_second)]) == {TICK_NS / SECOND}


def links_of(path: Path) -> list[str]:
    """The states of the link that flapped, one after the other; the other one had none."""
    recording = load(path)
    assert recording.states.edges(["mlx5_0:1"], 0, recording.ticks) == []
    changes = [event.kind for event in recording.meta.events if event.kind in ("link-down", "link-up")]
    assert changes == ["link-down", "link-up"]
    return [span.state.state for span in recording.states.spans("mlx5_1:1", 0, recording.ticks) if span.state]


def test_a_flap_is_in_recordings_and_in_their_replay(folder: Path) -> None:
    ours, daemons, again = (folder / f"{name}.parquet" for name in ("own", "daemon", "again"))
    with make_node(folder / "node") as node:
        node.run(2)
        both = [start(node, path, opening, 12) for path, opening in ((ours, own(node)), (daemons, remote(node)))]
        node.run(4)
        node.fault({"link-flap": ["mlx5_1"]})
        node.run(4)
        node.fault()
        for recording in both:
            finish(node, recording)
    first = load(ours)
    player = Player(lambda: iter([first]), len(first.meta.ports), 1.0)
    replay = Replay(folder / "tree", first.meta, player, TICK_NS, START_NS + 2 * SECOND)
    replay.build()
    with Node(folder / "second", tree=replay) as node:
        node.stop()
        finish(node, start(node, again, own(node), 13))
    for path in (ours, daemons, again):
        assert [state for state, _ in groupby(links_of(path))] == ["ACTIVE", "DOWN", "ACTIVE"]


def test_a_growing_file_lacks_at_most_a_second(folder: Path) -> None:
    path = folder / "growing.parquet"
    with make_node(folder / "node") as node:
        node.stop()
        recording = start(node, path, own(node))
        for _ in range(5):
            node.run(1.03)
            assert not path.exists()
            found = load(path)
            assert not found.meta.complete
            assert node.clock.time_ns() - found.end_ns < SECOND
        recording.cancel()
        node.loop.run_until_complete(asyncio.wait([recording]))


def test_a_signal_finishes_the_file(folder: Path) -> None:
    path = folder / "node.parquet"
    with make_node(folder / "node") as node:
        node.stop()
        node.loop.call_later(3.0, signal.raise_signal, signal.SIGTERM)
        finish(node, start(node, path, own(node)))
        recording = load(path)
    assert recording.meta.complete
    assert recording.ticks > 200


@pytest.fixture(scope="module")
def replayed(recorded: tuple[Node, Path, str], shared_folder: Path) -> tuple[Path, Path, dict[str, Any]]:
    """The recording replayed and recorded again: by the node, by its daemon, and six seconds of its summary."""
    first = load(recorded[1])
    ours, daemons = (shared_folder / f"{name}-again.parquet" for name in ("node", "daemon"))
    player = Player(lambda: iter([first]), len(first.meta.ports), 1.0)
    replay = Replay(shared_folder / "tree", first.meta, player, TICK_NS, START_NS + 3 * SECOND)
    replay.build()
    with Node(shared_folder / "second", tree=replay) as node:
        node.run(1)
        both = [
            start(node, path, opening, until_idle=1) for path, opening in ((ours, own(node)), (daemons, remote(node)))
        ]
        for recording in both:
            finish(node, recording)
        end_ns = load(daemons).end_ns // SECOND * SECOND
        summary = node.get("/api/v1/summary", **{"from": end_ns // 10**6 - 6000, "to": end_ns // 10**6})
    return ours, daemons, summary


def active_part(recording: Recording) -> Recording:
    """From the first tick at which the rails moved something to the last."""
    rails = [row for row, port in enumerate(recording.meta.ports) if port.rail]
    active = np.flatnonzero(np.nan_to_num(recording.bytes_per_second[rails]).sum(axis=(0, 1)) > 0.1e9)
    return recording.cut(active[0], active[-1] + 1)


def test_a_replay_gives_the_same_report(
    recorded: tuple[Node, Path, str], replayed: tuple[Path, Path, dict[str, Any]]
) -> None:
    before, after = active_part(load(recorded[1])), load(replayed[0])
    for first, second in zip(before.meta.ports, after.meta.ports, strict=True):
        # where the GPUs are, only the machine knows
        assert second.identity == replace(first.identity, gpu="", gpu_distance="")
        assert (second.id, second.rail) == (first.id, first.rail)
    np.testing.assert_allclose(moved(after), moved(before), rtol=1e-9, atol=8)
    # bins of several ticks begin with whole seconds
    same, again = (report(replace(each, start_ns=SECOND)).values for each in (before, after))
    numbers = {key for key, value in same.items() if isinstance(value, float)}
    assert len(numbers) > 20
    assert {key: again[key] for key in numbers} == pytest.approx({key: same[key] for key in numbers}, rel=1e-6)
    assert all(again[key] == same[key] for key in same.keys() - numbers)
