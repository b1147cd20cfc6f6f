"""The stream of a job has its ports and its numbers, and leaves the stream of the node as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ibpulse.agent.web.parts import WebLimits, WebParts
from ibpulse.agent.web.stream import Feed, describe_second
from ibpulse.core.events import EventLog
from tests.exposition.snapshots import node as snapshot_of_a_node
from tests.loop_clock import until
from tests.web.event_logs import job_event, placed, view_jobs
from tests.web.events import listening
from tests.web.rings import EPOCH, Node, full_node
from tests.web.test_stream import advance, served

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


async def test_the_stream_of_a_job_has_its_ports_alone(shared: Shared) -> None:
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


async def test_what_comes_after_the_end_of_a_job_is_missing(shared: Shared) -> None:
    async with served(shared.parts()) as client, listening(client, "?job=a&every=100ms") as mine:
        await mine.next("ports")
        shared.end()
        ended = await mine.next("ports")
        assert ended.data["job"]["had"][0]["to_ms"] == (shared.node.now_tick + 1) * 10
        advance(shared.node, 20)
        batch = await mine.next("batch")
        assert batch.data["megabytes_per_second"] == [[None] * 20] * 2


def test_a_replay_has_the_samples_of_the_job_alone(shared: Shared) -> None:
    feed = Feed(shared.parts(), job=B.claim.key)
    (message,) = feed.batches(EPOCH + 250, EPOCH + 300)
    assert message.count(b"null") == 2 * 50
    (message,) = feed.batches(EPOCH + 320, EPOCH + 370)
    assert b"null" not in message


def jobs_of(feed: Feed) -> Any:
    return json.loads(feed.ports.partition(b"data: ")[2])["jobs"]


def test_what_jobs_have_now_is_listed_however_often_one_of_them_changed(shared: Shared) -> None:
    moved = placed("a", "mlx5_1")
    for number in range(520):
        shared.log.add(job_event(shared.node, EPOCH + 310 + number, "job-change", (A, moved)[number % 2]))
    shared.running = (moved, B)
    found = jobs_of(Feed(shared.parts()))
    newest = [(each["job_id"], each["to_ms"]) for each in found[:3]]
    assert newest == [("a", None), ("b", None), ("a", found[0]["from_ms"])]
    assert len(found) == 500


def test_what_jobs_had_before_the_history_is_not_listed(shared: Shared) -> None:
    log = EventLog()
    for tick, kind, job in ((-5000, "job-began", placed("a", "mlx5_1")), (-4500, "job-change", A)):
        log.add(job_event(shared.node, EPOCH + tick, kind, job))
    (only,) = jobs_of(Feed(shared.node.parts(events=log, jobs=lambda: view_jobs(log, A))))
    assert (only["ports"], only["from_ms"], only["to_ms"]) == ([FIRST], (EPOCH - 4500) * 10, None)


def test_events_of_jobs_are_sent_without_their_details(shared: Shared) -> None:
    feed = Feed(shared.parts())
    shared.end()
    (message,) = (each for each in feed.advance() if each.startswith(b"event: events"))
    assert b'"kind":"job-ended"' in message
    # which have the name of the job
    assert b'"details":{}' in message


def test_the_ports_are_sent_again_only_after_a_change(shared: Shared) -> None:
    feed = Feed(shared.parts(), job=A.claim.key)
    for _ in range(5):
        assert feed.refresh_ports() == (False, False)
    shared.end()
    assert feed.refresh_ports() == (False, True)


async def test_a_failed_or_finished_stream_of_one_job_ends_no_other(shared: Shared) -> None:
    parts = shared.parts()
    async with served(parts) as client, listening(client) as every:
        await every.next("ports")
        async with listening(client, "?job=a") as mine:
            await mine.next("ports")
        await until(lambda: parts.counts.stream_viewers == 1)
        advance(shared.node, 20)
        assert len((await every.next("batch")).data["megabytes_per_second"]) == 4
        async with listening(client, "?job=a") as again:
            await again.next("ports")
            advance(shared.node, 20)
            assert len((await again.next("batch")).data["megabytes_per_second"]) == 2


async def test_viewers_of_jobs_count_as_viewers(shared: Shared) -> None:
    parts = shared.parts(limits=WebLimits(max_viewers=2))
    async with served(parts) as client, listening(client, "?job=a") as one, listening(client, "?job=b") as other:
        await one.next("ports")
        await other.next("ports")
        answer = await client.get("/api/v1/stream", params={"job": "a"})
    assert (answer.status_code, answer.json()["type"]) == (503, "/api/docs#too-many-viewers")


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
