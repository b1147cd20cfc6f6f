"""The stream of a job has its ports and its numbers, and leaves the stream of the node as it is."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from ibpulse.agent.web import stream
from ibpulse.agent.web.app import create_app
from ibpulse.agent.web.parts import WebLimits, WebParts
from ibpulse.agent.web.stream import Feed, describe_second
from ibpulse.core.events import EventLog
from ibpulse.core.metrics.row import Histogram
from ibpulse.core.metrics.web import WebCounts
from ibpulse.core.model import Fabric
from tests.exposition.snapshots import node as snapshot_of_a_node
from tests.loop_clock import pause, until
from tests.ring.writing import put_signals
from tests.running import HANG_SECONDS
from tests.web.event_logs import job_event, placed, view_jobs
from tests.web.events import Event, Listener, listening
from tests.web.raw_client import running
from tests.web.rings import EPOCH, Node, fabric, full_node, instant_ns, make_node, port

MS = 10


@contextlib.asynccontextmanager
async def served(parts: WebParts) -> AsyncIterator[httpx.AsyncClient]:
    async with running(create_app(parts)) as server:
        try:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=HANG_SECONDS) as client:
                yield client
        finally:
            parts.ending.set()


def last_tick(event: Event) -> int:
    return int(event.id)


def advance(node: Node, ticks: int, **how: Any) -> None:
    """So many more ticks are sampled, and the clock goes on to the last of them."""
    node.run(node.now_tick + 1, ticks, **how)
    node.now_tick += ticks


async def settle(listener: Listener) -> None:
    """The connection is greeted: the viewer waits for what is new."""
    assert (await listener.next()).name == "ports"


async def test_a_batch_has_new_ticks_in_megabytes(node: Node) -> None:
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


async def test_a_reconnecting_viewer_gets_missed_batches(node: Node) -> None:
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


async def test_a_long_interruption_is_a_gap(tmp_path: Path) -> None:
    node = make_node(tmp_path, ("mlx5_0:1",), capacity=8192)
    node.run(EPOCH, 7000)
    node.now_tick = EPOCH + 6999
    async with served(node.parts()) as client, listening(client, last=str(EPOCH + 99)) as listener:
        gap = await listener.next("gap")
        batch = await listener.next("batch")
    oldest = node.now_tick + 1 - 6000
    assert gap.data == {"start_ms": (EPOCH + 100) * MS, "end_ms": oldest * MS}
    assert batch.data["start_ms"] == oldest * MS


@pytest.mark.parametrize(
    ("query", "last", "sentence"),
    [
        ("?every=50ms", "", "every: 50ms is out of bounds; choose 100ms to 250ms"),
        ("?every=1s", "", "every: 1s is out of bounds; choose 100ms to 250ms"),
        ("?every=x", "", "every: 'x' is not a duration; write it like 10ms, 5s or 1h30m"),
        ("?port=a", "", "port: no such name; use every, from, job or signals"),
        ("", "abc", "Last-Event-ID: 'abc' is not an id of this stream; remove it"),
        ("?from=2999999999999", "", "from: 2999999999999 is in the future; check both clocks"),
    ],
)
async def test_invalid_parameters_are_refused(client: httpx.AsyncClient, query: str, last: str, sentence: str) -> None:
    answer = await client.get(f"/api/v1/stream{query}", headers={"Last-Event-ID": last} if last else {})
    assert (answer.status_code, answer.json()["detail"]) == (422, sentence)


async def _status(client: httpx.AsyncClient) -> int:
    async with client.stream("GET", "/api/v1/stream") as answer:
        return answer.status_code


async def test_a_head_request_takes_no_place_and_ends(node: Node) -> None:
    async with served(node.parts(limits=WebLimits(max_viewers=1))) as client, listening(client) as listener:
        await settle(listener)
        answer = await client.head("/api/v1/stream")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"].startswith("text/event-stream")


async def test_nothing_runs_without_viewers(node: Node) -> None:
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


async def test_a_node_without_ports_has_an_empty_stream(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT_SECONDS", 0.1)
    address = "/api/v1/stream?every=100ms"
    async with served(node.parts(fabric=Fabric)) as client, client.stream("GET", address) as answer:
        chunks = answer.aiter_text()
        assert '"ports":[]' in await anext(chunks)
        assert await anext(chunks) == ":\n\n"


async def test_other_ports_come_before_their_batches(node: Node) -> None:
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
    assert summary.name == "summary"
    peak = snapshots[0].ports[1].directions[0].windows[0].peak_bytes_per_second
    assert summary.data["ports"][1]["peak_bytes_per_second"]["transmit"] == peak
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


async def test_a_slow_viewer_loses_the_oldest_events(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize(
    ("cumulative", "bound"),
    [((990, 999, 1000), 0.001), ((989, 999, 1000), 0.002), ((0, 0, 5), None), ((0, 0, 0), None)],
)
def test_lateness_is_the_bound_of_99_percent(tmp_path: Path, cumulative: tuple[int, ...], bound: float | None) -> None:
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


FIRST, SECOND = "mlx5_0:1", "mlx5_1:1"
A, B = placed("a", "mlx5_0"), placed("b", "mlx5_1")


class Shared:
    """A node with job a on its first port and job b on its second."""

    def __init__(self, directory: Path) -> None:
        self.node: Node = full_node(directory)
        self.log = EventLog()
        self.running = (A, B)
        for tick, job in ((200, A), (300, B)):
            self.log.add(job_event(self.node, EPOCH + tick, "job-began", job))

    def parts(self, **changes: object) -> WebParts:
        return self.node.parts(events=self.log, jobs=lambda: view_jobs(self.log, *self.running), **changes)

    def end(self) -> None:
        """Job a ends now."""
        self.running = (B,)
        self.log.add(job_event(self.node, self.node.now_tick + 1, "job-ended", A))


@pytest.fixture
def shared(tmp_path: Path) -> Shared:
    return Shared(tmp_path)


async def test_the_stream_of_a_job_has_only_its_ports(shared: Shared) -> None:
    parts = shared.parts()
    async with served(parts) as client, listening(client, "?job=a") as mine, listening(client) as every:
        first, whole = await mine.next("ports"), await every.next("ports")
        assert [each["port"] for each in first.data["ports"]] == [FIRST]
        assert [each["port"] for each in whole.data["ports"]] == [FIRST, SECOND]
        assert (first.data["job"]["job_id"], first.data["job"]["had"][0]["ports"]) == ("a", [FIRST])
        assert "job" not in whole.data
        advance(shared.node, 20)
        batch, all_of_it = await mine.next("batch"), await every.next("batch")
        assert batch.data["megabytes_per_second"] == all_of_it.data["megabytes_per_second"][:2]
        assert parts.counts.stream_viewers == 2


async def test_samples_after_the_end_of_a_job_are_missing(shared: Shared) -> None:
    async with served(shared.parts()) as client, listening(client, "?job=a&every=100ms") as mine:
        await mine.next("ports")
        shared.end()
        ended = await mine.next("ports")
        assert ended.data["job"]["had"][0]["to_ms"] == (shared.node.now_tick + 1) * 10
        advance(shared.node, 20)
        batch = await mine.next("batch")
        assert batch.data["megabytes_per_second"] == [[None] * 20] * 2


def jobs_of(feed: Feed) -> Any:
    return json.loads(feed.ports.partition(b"data: ")[2])["jobs"]


def test_ports_of_running_jobs_are_always_listed(shared: Shared) -> None:
    moved = placed("a", "mlx5_1")
    for number in range(520):
        shared.log.add(job_event(shared.node, EPOCH + 310 + number, "job-change", (A, moved)[number % 2]))
    shared.running = (moved, B)
    found = jobs_of(Feed(shared.parts()))
    newest = [(each["job_id"], each["to_ms"]) for each in found[:3]]
    assert newest == [("a", None), ("b", None), ("a", found[0]["from_ms"])]
    assert len(found) == 500


def test_events_of_jobs_are_sent_without_their_details(shared: Shared) -> None:
    feed = Feed(shared.parts())
    shared.end()
    (message,) = (each for each in feed.advance() if each.startswith(b"event: events"))
    assert b'"kind":"job-ended"' in message
    # which have the name of the job
    assert b'"details":{}' in message


def test_the_second_of_a_job_has_its_own_numbers(tmp_path: Path) -> None:
    snapshot = snapshot_of_a_node(tmp_path, 2)
    (job, *_) = [
        job for job in snapshot.jobs or () if any(each.job_id == job.claim.id for each in snapshot.job_statistics)
    ]
    names = [str(port) for port in job.ports]
    found = describe_second(snapshot, job.claim.key, names)
    statistics = next(each for each in snapshot.job_statistics if each.job_id == job.claim.id)
    assert "node" not in found.given()
    assert found.job is not None
    assert found.job.job_id == job.claim.id
    assert found.job.duty_cycle_ratio == statistics.duty_cycle_ratio
    assert [port.port for port in found.ports] == names
    other = describe_second(snapshot, ("flux", job.claim.id), names)
    assert other.given()["job"] is None


def put_reading(node: Node, tick: int, waited: int) -> None:
    """The signals of the first port are read at a tick; its readings so far end with a wait of 297."""
    put_signals(node.ring, 0, tick, (7, waited), [instant_ns(tick)] * 3)


def times_of(messages: Iterable[bytes]) -> list[list[int]]:
    """The ticks of the readings in each batch."""
    batches = [json.loads(each.partition(b"data: ")[2]) for each in messages if b"event: batch" in each]
    return [[ms // MS for port in batch["signals"] for ms in port["time_ms"]] for batch in batches]


async def test_batches_have_the_signals_of_a_window_if_asked(node: Node) -> None:
    begin, parts = node.now_tick + 1, node.parts()
    async with served(parts) as client, listening(client) as plain:
        await settle(plain)
        async with listening(client, "?signals=true") as mine:
            await settle(mine)
            for number, tick in enumerate(range(begin + 5, begin + 30, 10)):
                put_reading(node, tick, 300 + number)
            advance(node, 30)
            batch, without = await mine.next("batch"), await plain.next("batch")
            span = {"from": begin * MS, "to": (begin + 30) * MS, "signals": "true"}
            window = (await client.get("/api/v1/window", params=span)).json()
        await until(lambda: parts.counts.stream_viewers == 1)
        advance(node, 5)
        assert last_tick(await plain.next("batch")) == begin + 34
    (port,) = batch.data["signals"]
    assert (port["port"], [each["gained"] for each in port["series"]]) == (FIRST, [[0, 0, 0], [3, 1, 1]])
    assert "signals" not in without.data
    assert batch.data == {**without.data, "signals": window["signals"]}


def test_each_reading_comes_once_and_one_that_took_long_comes_late(node: Node) -> None:
    feed = Feed(node.parts(), signals=True)
    begin = feed.next_tick
    advance(node, 20)
    assert times_of(feed.advance()) == [[]]
    put_reading(node, begin + 15, 300)
    advance(node, 10)
    assert times_of(feed.advance()) == [[begin + 15]]
    put_reading(node, begin + 30, 301)
    put_reading(node, begin + 41, 302)
    advance(node, 10)
    assert times_of(feed.advance()) == [[begin + 30]]
    advance(node, 10)
    assert times_of(feed.advance()) == [[begin + 41]]


def test_signals_of_a_job_are_those_of_its_ports_while_it_had_them(shared: Shared) -> None:
    feed = Feed(shared.parts(), A.claim.key, signals=True)
    assert times_of(feed.batches(EPOCH + 180, EPOCH + 230)) == [[EPOCH + 205, EPOCH + 215, EPOCH + 225]]
    assert times_of(Feed(shared.parts(), B.claim.key, signals=True).batches(EPOCH + 300, EPOCH + 350)) == [[]]
