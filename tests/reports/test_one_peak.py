"""One peak: the metric, the summary, a window, the stream, recordings, reports and pictures give the same."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from ibpulse.agent.aggregator import Aggregator, AggregatorOptions, Snapshot
from ibpulse.agent.web.app import create_app
from ibpulse.agent.web.parts import WebParts
from ibpulse.agent.web.stream import Feed
from ibpulse.base.units import SECOND_NS
from ibpulse.core.answers.samples import WindowHead
from ibpulse.core.client.transport import NodeArray
from ibpulse.core.events import EventLog
from ibpulse.core.events.watch import KnownPort
from ibpulse.core.model import PortState
from ibpulse.core.recordings import RecordedPort, Recording, RecordingMeta, concatenate, load, save
from ibpulse.core.recordings.from_ring import line_rates, read_pieces
from ibpulse.core.ring import layout as at
from ibpulse.core.statistics.span import find_lines
from ibpulse.workbench.pictures.options import PictureOptions
from ibpulse.workbench.pictures.run import PictureNode, choose_scale, take_run
from ibpulse.workbench.reports.span import ReportOptions, choose_window
from tests.aggregator.rings import MS, RATE, Ring, port
from tests.reports.recordings import run_of
from tests.web.rings import given_parts

NAMES = ["mlx5_0:1", "mlx5_1:1", "mlx5_2:1", "mlx5_3:1"]
SECONDS = 10
FIRST, LAST = 201, 1200
HIGH = 0.98 * RATE
# of the single precision of windows
CLOSE = 1e-6


def fill(ring: Ring) -> None:
    """A square wave near the line rate; reads of 20 us to 0.9 ms, with the counter taken at any moment of them.

    One read in forty shows its counter 4 ms late, so that the next sample is above the line rate.
    """
    rng, ticks = np.random.default_rng(7), np.arange(1, LAST + 60)
    for number, name in enumerate(NAMES):
        slot = ring.file.assign(name, 4, 1)
        before = ticks * 10 * MS + rng.integers(0, 200_000, len(ticks)) + number * 1000
        widths = rng.integers(20_000, 900_000, (2, len(ticks)))
        stamps = np.stack([before, before + widths[0], before + widths.sum(axis=0)])
        late = np.where(rng.random((2, len(ticks))) < 0.025, 4 * MS, 0)
        taken = stamps[:2] + rng.random(widths.shape) * widths - late
        # 200 ms on, 300 ms off
        whole, part = np.divmod(taken, 500 * MS)
        counters = HIGH / 1e9 * (whole * 200 * MS + np.minimum(part, 200 * MS)) / 4
        words = np.stack([*stamps, *counters, ticks | 1 << at.STRIDE_SHIFT], axis=1).astype(np.uint64)
        begin = at.records_at(slot, ring.file.capacity)
        view = np.frombuffer(ring.file.words, dtype=np.uint64)[begin : begin + ring.file.capacity * at.RECORD_WORDS]
        view.reshape(ring.file.capacity, at.RECORD_WORDS)[ticks] = words
    ring.file.words[at.lane_at(0) + at.L_TICK] = int(ticks[-1])


@dataclass(frozen=True)
class Node:
    ring: Ring
    log: EventLog
    parts: WebParts
    snapshot: Snapshot
    end_ns: int


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    ring = Ring.create(tmp_path_factory.mktemp("ring"), *map(port, NAMES), seconds=30)
    log = EventLog(interval_ns=10 * MS)
    for name in NAMES:
        log.history.begin(name, PortState("ACTIVE", "LinkUp", True, RATE, True))
    options = AggregatorOptions(windows_ns=(SECONDS * SECOND_NS,))
    aggregator = Aggregator(ring.reader, options, log.history)
    fill(ring)
    snapshot = aggregator.update(ring.fabric, ring.now_after(LAST // 100))
    assert snapshot.end_tick == LAST
    known = tuple(KnownPort(one, PortState("ACTIVE", "LinkUp", True, RATE, True)) for one in ring.fabric.ports)
    parts = given_parts(
        reader=ring.reader,
        fabric=lambda: ring.fabric,
        slots=ring.file.slots,
        summarize=lambda seconds, end_ns, had: aggregator.summarize(ring.fabric.ports, seconds, end_ns, had=had),
        version="1.2.3",
        wall_clock_ns=lambda: (LAST + 30) * 10 * MS,
        snapshot=lambda: snapshot,
        events=log,
        known_ports=lambda: known,
    )
    return Node(ring, log, parts, snapshot, LAST * 10 * MS)


@pytest.fixture(scope="module")
def recording(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """The same ten seconds, written to a file and read again."""
    path = tmp_path_factory.mktemp("file") / "a.parquet"
    ports = tuple(RecordedPort.of(one, "counters", 1) for one in node.ring.fabric.ports)
    meta = RecordingMeta("node7", 10 * MS, ports, "record")
    lines = line_rates(node.log.history, ports)
    pieces = read_pieces(node.ring.reader, meta, FIRST, LAST, FIRST * 10 * MS, 300, lines)
    save(path, concatenate(list(pieces)))
    return load(path)


def port_peaks(node: Node) -> np.ndarray:
    """The peaks of the metrics: (ports, 2)."""
    return np.array(
        [[way.windows[0].peak_bytes_per_second for way in one.directions] for one in node.snapshot.ports], dtype=float
    )


def test_metric_and_summary_have_one_certain_peak(node: Node) -> None:
    peaks = port_peaks(node)
    # a late counter can only be told from traffic above the line rate
    assert (peaks <= 1.01 * RATE).all()
    assert (peaks >= 0.97 * HIGH).all()
    peak = node.snapshot.node[0].bandwidth_peak_bytes_per_second
    assert 0.95 * 8 * HIGH <= peak <= 1.01 * 8 * RATE
    assert sum(one.implausible_samples for one in node.snapshot.ports) > 50
    summary = node.parts.node.summarize(SECONDS, node.end_ns, None)
    found = [[way.peak_bytes_per_second for way in (one.transmit, one.receive)] for one in summary.ports]
    assert found == port_peaks(node).tolist()
    assert summary.node.bandwidth_peak_bytes_per_second == node.snapshot.node[0].bandwidth_peak_bytes_per_second


async def window(node: Node, **query: object) -> tuple[dict[str, Any], np.ndarray]:
    span = {"from": f"{FIRST / 100:.2f}", "to": f"{(LAST + 1) / 100:.2f}", "format": "npy", **query}
    transport = httpx.ASGITransport(app=create_app(node.parts))
    async with httpx.AsyncClient(transport=transport, base_url="http://node") as client:
        answer = await client.get("/api/v1/window", params=span)
    assert answer.status_code == 200, answer.text
    return json.loads(answer.headers["X-Ibpulse-Window"]), np.load(io.BytesIO(answer.content))


async def test_window_maximum_is_the_metric_peak(node: Node) -> None:
    about, values = await window(node)
    assert about["points"] == LAST - FIRST + 1
    assert about["implausible"]["merged"] > 20
    np.testing.assert_allclose(values.max(axis=1), port_peaks(node).ravel(), rtol=CLOSE)
    # bins that begin where the span does
    wide, values = await window(node, resolution="30ms")
    assert (wide["start_ms"], wide["points"]) == (FIRST * 10, 334)
    np.testing.assert_allclose(values[:, :333].max(axis=1), port_peaks(node).ravel(), rtol=CLOSE)


def test_the_stream_has_the_metric_peak(node: Node) -> None:
    events = list(Feed(node.parts).batches(FIRST, LAST + 1))
    rows = np.concatenate(
        [json.loads(event.split(b"data: ")[1])["megabytes_per_second"] for event in events], axis=1, dtype=float
    )
    np.testing.assert_array_equal(rows.max(axis=1), np.rint(port_peaks(node).ravel() / 1e6))


def test_recording_and_report_have_the_metric_peak(node: Node, recording: Recording) -> None:
    np.testing.assert_array_equal(recording.peaks.max(axis=2), port_peaks(node))
    values = run_of(recording).values
    assert values["peak_bytes_per_second"] == pytest.approx(
        node.snapshot.node[0].bandwidth_peak_bytes_per_second, rel=1e-12
    )
    assert run_of(recording).merged_samples > 40


async def test_recording_from_daemon_has_the_metric_peak(node: Node, recording: Recording) -> None:
    about, values = await window(node, statistic="mean", uncertainty="true")
    remote = NodeArray(WindowHead(**about), values)
    rates = np.stack([remote.both(name) for name in NAMES]).astype(np.float64)
    steps = np.stack([np.rint(remote.both(name, "uncertainty") * 1000) for name in NAMES]).astype(np.uint16)
    np.testing.assert_array_equal(steps, recording.steps)
    np.testing.assert_array_equal(np.stack([remote.merged(name) for name in NAMES]), recording.merged)
    other = Recording(recording.meta, recording.start_ns, rates, np.full(rates.shape, 0.01), steps)
    np.testing.assert_allclose(other.peaks.max(axis=2), port_peaks(node), rtol=CLOSE)


def test_a_picture_has_the_peaks_of_the_metrics(node: Node, recording: Recording) -> None:
    series = choose_window(Path("a"), recording, ReportOptions()).series
    span = slice(series.lead, series.lead + series.ticks)
    certain = series.certain_bandwidth[span]
    whole = PictureNode(series.bandwidth[span], series.measured[span], find_lines(series), peaks=certain)
    run = take_run("a", recording, NAMES, whole)
    scale = choose_scale([run], PictureOptions(1000, 100))
    assert np.nanmax(scale.of_node(run, peaks=True)) * 1e9 == pytest.approx(
        node.snapshot.node[0].bandwidth_peak_bytes_per_second, rel=1e-12
    )
    # a rail is drawn as the sum of both directions
    expected = recording.peaks.sum(axis=1).max(axis=1)
    np.testing.assert_allclose(scale.of_ports(run, peaks=True).max(axis=1) * 1e9, expected)
    assert run.merged_samples == np.count_nonzero(recording.merged)
