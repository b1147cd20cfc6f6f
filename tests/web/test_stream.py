from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from ibpulse.agent.web import stream
from ibpulse.agent.web.app import create_app
from ibpulse.agent.web.parts import WebLimits, WebParts
from ibpulse.agent.web.stream import Feed, describe_second
from ibpulse.core.http.server import serve
from ibpulse.core.http.stream import Viewer
from ibpulse.core.metrics.row import Histogram
from ibpulse.core.metrics.web import WebCounts
from ibpulse.core.model import Fabric
from tests.exposition.snapshots import node as snapshot_of_a_node
from tests.loop_clock import pause, until
from tests.running import HANG_SECONDS
from tests.web.events import Event, Listener, listening
from tests.web.rings import EPOCH, Node, fabric, make_node, port

MS = 10


@contextlib.asynccontextmanager
async def served(parts: WebParts) -> AsyncIterator[httpx.AsyncClient]:
    server = await serve(create_app(parts), "127.0.0.1", 0)
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=HANG_SECONDS) as client:
            yield client
    finally:
        parts.ending.set()
        await server.stop()


def last_tick(event: Event) -> int:
    return int(event.id)


def advance(node: Node, ticks: int, **how: Any) -> None:
    """So many more ticks are sampled, and the clock goes on to the last of them."""
    node.run(node.now_tick + 1, ticks, **how)
    node.now_tick += ticks


async def settle(listener: Listener) -> None:
    """The connection is greeted: the viewer waits for what is new."""
    assert (await listener.next()).name == "ports"


async def test_the_stream_begins_with_what_it_is_about(node: Node) -> None:
    async with served(node.parts()) as client, listening(client) as listener:
        first = await listener.next()
        assert listener.answer.headers["content-type"].startswith("text/event-stream")
        assert listener.answer.headers["cache-control"] == "no-store"
        assert listener.answer.headers["x-accel-buffering"] == "no"
        assert "content-length" not in listener.answer.headers
    assert first.name == "ports"
    assert first.data == {
        "version": "1.2.3",
        "interval_ms": 10,
        "history_ms": 40960,
        "simulated": False,
        "ports": [
            {
                "port": f"mlx5_{n}:1",
                "rail": True,
                "role": "compute",
                "active": True,
                "state": "ACTIVE",
                "rate_bytes_per_second": 50e9,
                "problem": "",
                "problem_text": "",
                "since_ms": None,
                "states": [],
            }
            for n in (0, 1)
        ],
        "jobs": [],
    }


async def test_a_batch_holds_the_new_ticks_in_megabytes_and_null_in_holes(node: Node) -> None:
    async with served(node.parts()) as client, listening(client) as listener:
        await settle(listener)
        begin = node.now_tick + 1
        advance(node, 20, missed=(begin + 3,))
        batch = await listener.next("batch")
    assert last_tick(batch) == begin + 19
    assert batch.data["start_ms"] == begin * MS
    rates = batch.data["megabytes_per_second"]
    assert len(rates) == 4
    for row, (name, way) in zip(rates, [(n, w) for n in node.slots for w in (0, 1)], strict=True):
        wanted = node.expected(name, way, begin, 20, 1, max)
        assert row == [None if rate is None else round(rate / 1e6) for rate in wanted]
    assert rates[1][3:5] == [None, None]


async def test_batches_follow_each_other_without_a_seam(node: Node) -> None:
    async with served(node.parts()) as client, listening(client, "?every=100ms") as listener:
        await settle(listener)
        ends = [node.now_tick]
        for _ in range(3):
            advance(node, 7)
            batch = await listener.next("batch")
            assert batch.data["start_ms"] == (ends[-1] + 1) * MS
            ends.append(last_tick(batch))
    assert ends[-1] == node.now_tick


async def test_a_viewer_that_comes_back_gets_what_it_missed(node: Node) -> None:
    seen = node.now_tick
    advance(node, 250)
    async with served(node.parts()) as client, listening(client, last=str(seen)) as listener:
        await settle(listener)
        batches = [await listener.next("batch") for _ in range(3)]
    assert [batch.data["start_ms"] for batch in batches] == [(seen + 1 + n * 100) * MS for n in range(3)]
    rates = [rate for batch in batches for rate in batch.data["megabytes_per_second"][1]]
    assert rates == [1000] * 250
    assert last_tick(batches[-1]) == node.now_tick


async def test_from_is_an_instant_of_the_window_api(node: Node) -> None:
    begin = node.now_tick - 49
    async with served(node.parts()) as client, listening(client, f"?from={begin * MS}") as listener:
        batch = await listener.next("batch")
    assert batch.data["start_ms"] == begin * MS
    assert len(batch.data["megabytes_per_second"][0]) == 50


async def test_a_break_that_is_too_long_is_told_as_a_gap(tmp_path: Path) -> None:
    node = make_node(tmp_path, ("mlx5_0:1",), capacity=8192)
    node.run(EPOCH, 7000)
    node.now_tick = EPOCH + 6999
    async with served(node.parts()) as client, listening(client, last=str(EPOCH + 99)) as listener:
        gap = await listener.next("gap")
        batch = await listener.next("batch")
    oldest = node.now_tick + 1 - 6000
    assert gap.data == {"start_ms": (EPOCH + 100) * MS, "end_ms": oldest * MS}
    assert batch.data["start_ms"] == oldest * MS


async def test_no_more_is_resumed_than_the_ring_holds(tmp_path: Path) -> None:
    node = make_node(tmp_path, ("mlx5_0:1",), capacity=512)
    node.run(EPOCH, 700)
    node.now_tick = EPOCH + 699
    async with served(node.parts()) as client, listening(client, last=str(EPOCH)) as listener:
        gap = await listener.next("gap")
    assert gap.data["end_ms"] == (node.now_tick + 1 - 508) * MS


async def test_an_id_of_the_future_begins_now(node: Node) -> None:
    async with served(node.parts()) as client, listening(client, last=str(EPOCH * 2)) as listener:
        await settle(listener)
        advance(node, 5)
        assert (await listener.next("batch")).data["start_ms"] == (node.now_tick - 4) * MS


@pytest.mark.parametrize(
    ("query", "last", "sentence"),
    [
        ("?every=50ms", "", "every: 50ms is out of bounds; choose 100ms to 250ms"),
        ("?every=1s", "", "every: 1s is out of bounds; choose 100ms to 250ms"),
        ("?every=x", "", "every: 'x' is not a duration; write it like 10ms, 5s or 1h30m"),
        ("?port=a", "", "port: no such name; use every, from or job"),
        ("", "abc", "Last-Event-ID: 'abc' is not an id of this stream; remove it"),
        ("?from=2999999999999", "", "from: 2999999999999 is in the future; check both clocks"),
    ],
)
async def test_what_cannot_be_used_is_refused(client: httpx.AsyncClient, query: str, last: str, sentence: str) -> None:
    answer = await client.get(f"/api/v1/stream{query}", headers={"Last-Event-ID": last} if last else {})
    assert (answer.status_code, answer.json()["detail"]) == (422, sentence)


async def test_one_viewer_more_than_may_is_refused_until_another_leaves(node: Node) -> None:
    parts = node.parts(limits=WebLimits(max_viewers=2))
    async with served(parts) as client, listening(client) as first:
        await settle(first)
        async with listening(client) as second:
            await settle(second)
            refused = await client.get("/api/v1/stream")
        await until(lambda: parts.counts.stream_viewers == 1)
        again = await _status(client)
    assert again == 200
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"
    assert refused.json()["type"] == "/api/docs#too-many-viewers"
    assert refused.json()["bound"] == {"name": "max_viewers", "limit": 2}
    assert refused.json()["detail"] == (
        "2 viewers are connected to the stream, which is the maximum. Close a page, or poll /api/v1/window instead."
    )


async def _status(client: httpx.AsyncClient) -> int:
    async with client.stream("GET", "/api/v1/stream") as answer:
        return answer.status_code


async def test_a_head_request_takes_no_place_and_ends(node: Node) -> None:
    async with served(node.parts(limits=WebLimits(max_viewers=1))) as client, listening(client) as listener:
        await settle(listener)
        answer = await client.head("/api/v1/stream")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"].startswith("text/event-stream")


async def test_nothing_runs_while_nobody_watches(node: Node) -> None:
    def tasks() -> list[str]:
        return [task.get_name() for task in asyncio.all_tasks() if task.get_name() == "stream"]

    parts = node.parts()
    async with served(parts) as client:
        assert tasks() == []
        async with listening(client) as listener:
            await settle(listener)
            assert tasks() == ["stream"]
            assert parts.counts.stream_viewers == 1
        await until(lambda: not tasks())
        assert parts.counts.stream_viewers == 0


async def test_the_stream_ends_when_the_server_does(node: Node) -> None:
    parts = node.parts()
    async with served(parts) as client, listening(client) as listener:
        await settle(listener)
        parts.ending.set()
        assert (await listener.next()).name == "end"
        assert await listener.ended()
        assert await _status(client) == 503


async def test_a_node_without_ports_has_a_stream_that_says_so(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT_SECONDS", 0.1)
    address = "/api/v1/stream?every=100ms"
    async with served(node.parts(fabric=Fabric)) as client, client.stream("GET", address) as answer:
        chunks = answer.aiter_text()
        assert '"ports":[]' in await anext(chunks)
        assert await anext(chunks) == ":\n\n"


async def test_simulated_ports_are_told(node: Node) -> None:
    shown = [replace(fabric(node.slots), simulated=True)]
    async with served(node.parts(fabric=lambda: shown[0])) as client:
        async with listening(client, "?every=100ms") as listener:
            assert (await listener.next("ports")).data["simulated"] is True
        assert (await client.get("/api/v1/ports")).json()["simulated"] is True
        assert 'hardware">SIMULATED' in (await client.get("/")).text


async def test_other_ports_are_told_before_their_batches(node: Node) -> None:
    shown: list[Any] = [fabric(node.slots)]
    async with served(node.parts(fabric=lambda: shown[0])) as client, listening(client, "?every=100ms") as listener:
        await settle(listener)
        shown[0] = Fabric((port("mlx5_1:1", rate=None),))
        told = await listener.next("ports")
        advance(node, 5)
        batch = await listener.next("batch")
    assert [row["rate_bytes_per_second"] for row in told.data["ports"]] == [None]
    assert len(batch.data["megabytes_per_second"]) == 2
    assert batch.data["megabytes_per_second"][1] == [2000] * 5


async def test_a_scan_that_finds_the_same_ports_says_nothing(node: Node) -> None:
    shown: list[Any] = [fabric(node.slots)]
    async with served(node.parts(fabric=lambda: shown[0])) as client, listening(client, "?every=100ms") as listener:
        await settle(listener)
        shown[0] = fabric(node.slots)
        advance(node, 5)
        assert (await listener.next()).name == "batch"


async def test_the_summary_of_a_second_comes_once(node: Node, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    snapshots = [snapshot_of_a_node(tmp_path / "other", 2)]
    async with (
        served(node.parts(snapshot=lambda: snapshots[0])) as client,
        listening(client, "?every=100ms") as listener,
    ):
        await settle(listener)
        summary = await listener.next()
        advance(node, 5)
        assert (await listener.next()).name == "batch"
        async with listening(client) as later:
            await settle(later)
            assert await later.next() == summary
    snapshot = snapshots[0]
    assert summary.name == "summary"
    assert summary.data["node"]["rails"] == 2
    assert summary.data["node"]["workload_signature"] == snapshot.traffic.concluded.workload_signature
    assert list(summary.data["node"]["windows"]) == list(snapshot.windows)
    window = summary.data["node"]["windows"]["10s"]
    assert window["bandwidth_peak_bytes_per_second"] == snapshot.node[0].bandwidth_peak_bytes_per_second
    assert window["burstiness_cv"] == snapshot.node[0].burstiness_cv
    assert [row["port"] for row in summary.data["ports"]] == ["mlx5_0:1", "mlx5_1:1"]
    peak = snapshot.ports[1].directions[0].windows[0].peak_bytes_per_second
    assert summary.data["ports"][1]["peak_bytes_per_second"]["transmit"] == peak
    assert summary.data["sampler"]["restarts"] == 3
    assert summary.data["sampler"]["lateness_p99_bound_seconds"] is None
    assert summary.data["notices"] == ["a", "b"]


class Slow:
    """The sending half of a connection that is stuck until `go` is set."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.sent: list[bytes] = []

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.body":
            await self.go.wait()
            self.sent.append(message["body"])


async def answer_slowly(node: Node, slow: Slow, counts: WebCounts, **changes: Any) -> asyncio.Task[None]:
    """A request whose client takes nothing yet."""
    scope = {"type": "http", "method": "GET", "scheme": "http", "path": "/api/v1/stream", "headers": []}
    scope["query_string"] = b"every=100ms"

    async def receive() -> Any:
        await asyncio.Event().wait()

    app = create_app(node.parts(counts=counts, **changes))
    return asyncio.create_task(app({**scope, "asgi": {"version": "3.0"}}, receive, slow.send))


async def test_the_oldest_events_are_dropped_for_a_slow_viewer_and_it_is_told(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ibpulse.core.http.stream.QUEUE_EVENTS", 2)
    slow, counts = Slow(), WebCounts()
    task = await answer_slowly(node, slow, counts)
    while counts.stream_dropped_events < 3:
        advance(node, 5)
        await pause(0.1)
    slow.go.set()
    await until(lambda: len(slow.sent) >= 2)
    task.cancel()
    lost, *kept = slow.sent[1].decode().split("\n\n")
    assert lost.startswith('event: dropped\ndata: {"events":')
    assert [text.split("\n")[1] for text in kept if text] == ["event: batch", "event: batch"]


async def test_a_failure_of_the_stream_is_logged_and_lets_its_viewers_go(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_self: Feed) -> list[bytes]:
        raise RuntimeError("no ring")

    async with served(node.parts()) as client:
        with monkeypatch.context() as broken:
            broken.setattr(Feed, "advance", fail)
            async with listening(client) as listener:
                assert (await listener.next("end")).data == {}
        assert "the stream failed; disconnecting its viewers" in caplog.text
        async with listening(client) as listener:
            await settle(listener)
            advance(node, 5)
            assert (await listener.next()).name == "batch"


async def test_what_a_viewer_has_not_taken_when_the_ports_change_is_dropped_and_told() -> None:
    counts = WebCounts()
    viewer = Viewer(iter(()), counts)
    viewer.offer([b"one", b"two"])
    viewer.restart(b"ports")
    assert await viewer.take() == b'event: dropped\ndata: {"events":2}\n\nports'
    assert counts.stream_dropped_events == 2


@pytest.mark.parametrize(
    ("cumulative", "bound"),
    [((990, 999, 1000), 0.001), ((989, 999, 1000), 0.002), ((0, 0, 5), None), ((0, 0, 0), None)],
)
def test_lateness_is_told_as_the_bound_that_99_of_100_samples_keep(
    tmp_path: Path, cumulative: tuple[int, ...], bound: float | None
) -> None:
    snapshot = snapshot_of_a_node(tmp_path, 1)
    lateness = Histogram((0.001, 0.002), cumulative, 1.0)
    found = describe_second(replace(snapshot, sampler=replace(snapshot.sampler, lateness=lateness)))
    assert found.sampler.lateness_p99_bound_seconds == bound


def test_a_wall_clock_that_jumped_does_not_lead_the_feed_astray(node: Node) -> None:
    clock = [0]
    feed = Feed(node.parts(monotonic_ns=lambda: clock[0]))
    begin = feed.next_tick
    node.now_tick += 360_000
    clock[0] = 200_000_000
    feed.advance()
    assert feed.next_tick == begin + 20 + 100
    node.now_tick = begin - 1
    assert feed.advance() == []


def test_ticks_around_a_step_of_the_clock_are_batches_of_their_own(node: Node) -> None:
    feed = Feed(node.parts())
    begin = feed.next_tick
    node.ring.begin_segment(begin + 5, -1000)
    node.run(begin, 10)
    starts = [event.split(b'"start_ms":')[1].split(b",")[0] for event in feed.batches(begin, begin + 10)]
    assert starts == [b"%d" % (begin * MS), b"%d" % ((begin + 5 + 1000) * MS)]


def test_a_source_that_is_read_every_few_ticks_waits_for_the_end_of_its_stride(tmp_path: Path) -> None:
    node = make_node(tmp_path)
    node.ring.assign("mlx5_1:1", 4, 5)
    node.run(EPOCH, 200)
    node.now_tick = EPOCH + 199
    # the clock is where a port of stride 1 is complete
    assert Feed(node.parts()).next_tick == EPOCH + 204 - 24
