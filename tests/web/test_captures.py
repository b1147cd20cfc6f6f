"""`/api/v1/captures`: who may write, what is asked for, what is answered."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from starlette.types import Receive, Scope, Send

from ibpulse.agent.aggregator import Aggregator, AggregatorOptions
from ibpulse.agent.flightrecorder import recorder as recorder_module
from ibpulse.agent.flightrecorder.recorder import DISK_THREADS, FlightRecorder
from ibpulse.agent.flightrecorder.store import CaptureOptions, Stored
from ibpulse.agent.flightrecorder.writer import Job, parse_job, write_capture
from ibpulse.agent.jobs.watch import JobsView
from ibpulse.agent.web.app import create_app
from ibpulse.agent.web.captures import find_name
from ibpulse.core.captures import make_name
from ibpulse.core.events import EventLog
from ibpulse.core.recordings import load
from ibpulse.core.ring.reader import RingReader
from tests.clocks import GivenClock
from tests.perfetto_reader import read_trace
from tests.running import HANG_SECONDS
from tests.web.event_logs import job_event, placed
from tests.web.rings import EPOCH, INTERVAL_NS, GivenJobs, Node, fabric, given_captures

PATH = "/api/v1/captures"
ALERTS = f"{PATH}/alertmanager"
MISSING = f"{PATH}/19700101T000000.000Z-missing-00000000.parquet"
SECOND_NS = 10**9
WRITES = [("POST", PATH), ("POST", ALERTS), ("DELETE", MISSING)]


async def write_in_thread(job: Job, _seconds: float) -> None:
    """Write a capture in this process."""
    await asyncio.to_thread(write_capture, parse_job(job.dump()))


@pytest.fixture(autouse=True)
def writer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "run_writer", write_in_thread)


@asynccontextmanager
async def recorder_of(node: Node, directory: Path, **given: Any) -> AsyncIterator[FlightRecorder]:
    reader = RingReader(node.ring)
    options = CaptureOptions(directory, "node7", min_free_bytes=0)
    made = FlightRecorder(reader, options, GivenClock(time.monotonic, node.now_ns), **given)
    made.note(Aggregator(reader, AggregatorOptions()).update(fabric(node.slots), node.now_tick))
    await made.start()
    yield made
    await made.close()


@pytest.fixture
async def recorder(node: Node, tmp_path: Path) -> AsyncIterator[FlightRecorder]:
    async with recorder_of(node, tmp_path / "captures") as made:
        yield made


def client_of(
    node: Node, recorder: FlightRecorder, *, allow_unauthenticated: bool = True, user: str = ""
) -> httpx.AsyncClient:
    captures = given_captures(
        recorder, "node7", allow_unauthenticated=allow_unauthenticated, cooldown_ns=60 * SECOND_NS
    )
    app = create_app(node.parts(captures=captures))

    async def known(scope: Scope, receive: Receive, send: Send) -> None:
        """What access control does with a request whose password was right."""
        await app({**scope, "ibpulse.user": user} if user else scope, receive, send)

    return httpx.AsyncClient(transport=httpx.ASGITransport(app=known), base_url="http://node")


@pytest.fixture
async def client(node: Node, recorder: FlightRecorder) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(node, recorder) as made:
        yield made


async def taken(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    """The entry of a capture in the list, once it is there."""
    answer = await client.post(PATH, json={"after": "10ms", "before": "1s", **body})
    assert answer.status_code == 202, answer.text
    async with asyncio.timeout(HANG_SECONDS):
        while (listing := (await client.get(PATH)).json())["pending"]:
            await asyncio.sleep(0)
    found: dict[str, Any] = next(each for each in listing["captures"] if each["name"] == answer.json()["name"])
    return found


def alert(**changes: Any) -> dict[str, Any]:
    made = {"status": "firing", "labels": {"alertname": "Stalled", "instance": "node7:10055"}, "fingerprint": "f"}
    return {**made, "startsAt": "2025-11-21T00:00:05Z", "generatorURL": "http://prometheus", **changes}


def problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = answer.json()
    return found


async def test_a_capture_is_taken_listed_downloaded_and_deleted(client: httpx.AsyncClient, tmp_path: Path) -> None:
    entry = await taken(client, reason="Before the update", labels={"job": "llama"})
    assert (entry["reason"], entry["jobs"]) == ("Before-the-update", None)
    answer = await client.get(entry["url"])
    assert answer.headers["content-type"] == "application/vnd.apache.parquet"
    assert answer.headers["content-disposition"] == f'attachment; filename="{entry["name"]}"'
    assert int(answer.headers["content-length"]) == entry["size_bytes"] == len(answer.content)
    (tmp_path / "a.parquet").write_bytes(answer.content)
    capture = load(tmp_path / "a.parquet")
    assert (capture.meta.reason, capture.meta.labels) == ("Before the update", {"trigger": "api", "job": "llama"})
    assert capture.meta.trigger_ns == (EPOCH + 999 + 6) * INTERVAL_NS + 1
    assert (await client.delete(entry["url"])).status_code == 204
    assert (await client.get(PATH)).json()["captures"] == []
    assert "No such capture: '" in problem(await client.get(entry["url"]), 404)["detail"]
    assert "No such capture: '" in problem(await client.delete(entry["url"]), 404)["detail"]


async def test_a_capture_that_is_completed_while_the_list_is_made_is_in_it(
    client: httpx.AsyncClient, recorder: FlightRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    refresh = recorder.refresh

    async def read_early() -> Sequence[Stored]:
        stored = await refresh()
        task = asyncio.current_task()
        while recorder.pending() and task and not task.get_name().startswith("capture"):
            await asyncio.sleep(0)
        return stored

    name = (await client.post(PATH, json={"after": "10ms", "before": "1s"})).json()["name"]
    monkeypatch.setattr(recorder, "refresh", read_early)
    listing = (await client.get(PATH)).json()
    assert [each["name"] for each in listing["captures"] + listing["pending"]] == [name]


async def test_the_list_has_the_jobs_of_each_capture_with_their_ports_and_times(node: Node, tmp_path: Path) -> None:
    events, job = EventLog(), placed("42", "mlx5_0")
    events.add(job_event(node, EPOCH + 950, "job-began", job))
    view = JobsView((job,))
    async with (
        recorder_of(node, tmp_path, events=events, jobs=GivenJobs(lambda: view)) as recorder,
        client_of(node, recorder) as client,
    ):
        assert (await taken(client))["jobs"] == [
            {
                "job_id": "42",
                "scheduler": "slurm",
                "name": "llama",
                "namespace": "team",
                "ports": ["mlx5_0:1"],
                "began_ms": (EPOCH + 950) * 10,
                "began_uncertainty_ms": 200,
                "ended_ms": None,
                "ended_uncertainty_ms": 0,
            }
        ]


async def test_a_request_without_a_body_uses_the_settings(client: httpx.AsyncClient) -> None:
    answer = await client.post(PATH)
    assert answer.status_code == 202
    assert answer.headers["location"] == answer.json()["url"] == f"{PATH}/{answer.json()['name']}"
    assert (await client.get(PATH)).json()["pending"] == [answer.json()]
    pending = problem(await client.get(answer.json()["url"]), 404)
    assert pending["detail"] == f"Capture {answer.json()['name']} is not finished yet; try again in a few seconds."
    assert "is not finished yet" in problem(await client.delete(answer.json()["url"]), 404)["detail"]


async def test_captures_are_listed_newest_first_unless_they_are_still_pending(
    client: httpx.AsyncClient, recorder: FlightRecorder
) -> None:
    pending = (await client.post(PATH, json={"before": "1s", "after": "5s"})).json()
    for name in (*(make_name(number * SECOND_NS, "x") for number in (1, 3, 2)), find_name(pending["name"])):
        recorder.store.path(name).write_bytes(b"PAR1")
    listing = (await client.get(PATH)).json()
    assert [each["trigger_ms"] for each in listing["captures"]] == [3000, 2000, 1000]
    assert (listing["pending"], listing["stored_bytes"], listing["problem"]) == ([pending], 12, "")


@pytest.mark.parametrize(("method", "path"), WRITES)
async def test_writing_needs_a_user(node: Node, recorder: FlightRecorder, method: str, path: str) -> None:
    async with client_of(node, recorder, allow_unauthenticated=False) as client:
        assert problem(await client.request(method, path, content=b"{"), 403)["type"] == "/api/docs#writing-needs-user"
        assert (await client.get(PATH)).json()["pending"] == []
    async with client_of(node, recorder, allow_unauthenticated=False, user="alice") as client:
        assert (await client.request(method, path, content=b"{}")).status_code != 403


INVALID = {
    b"[1]": "body: '[1]' is not an object",
    b"\xff": "body: is not JSON: ",
    b'{"why":"x"}': "why: no such name; use reason, labels, before or after",
    b'{"reason":""}': "reason: '' is too short; use 1 or more characters",
    b'{"labels":{"a":1}}': "a: '1' is not a text",
    b'{"before":"0s"}': "before: '0s' is zero; give more than 0",
    b'{"after":"1h"}': "before: 1h5s together with after exceeds the history, 40s960ms; shorten one of them",
}


async def test_an_invalid_body_is_refused(client: httpx.AsyncClient) -> None:
    for body, sentence in INVALID.items():
        assert sentence in problem(await client.post(PATH, content=body), 422)["detail"]


async def test_more_captures_than_can_wait_are_refused(client: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(*[client.post(PATH, json={"labels": {"n": str(number)}}) for number in range(40)])
    statuses = [answer.status_code for answer in answers]
    assert (statuses.count(202), statuses.count(503)) == (4, 36)
    refused = next(answer for answer in answers if answer.status_code == 503)
    assert problem(refused, 503)["type"] == "/api/docs#too-many-captures"
    assert refused.headers["retry-after"] == "1"


async def test_a_firing_alert_of_this_node_takes_a_capture_once(client: httpx.AsyncClient) -> None:
    body = {"version": "4", "status": "firing", "alerts": [alert(), alert(status="resolved", fingerprint="g")]}
    answer = (await client.post(ALERTS, json=body)).json()
    assert answer["alerts"] == 1
    assert answer["capture"].startswith("20251121T000005.000Z-Stalled-")
    assert (await client.post(ALERTS, json=body)).json() == {"capture": None, "alerts": 0}
    # alerts without fingerprints are distinguished by their labels
    for name, expected in (("Stalled", 1), ("Slower", 1), ("Stalled", 0)):
        labels = {"alertname": name, "instance": "node7:10055"}
        body = {"version": "4", "alerts": [alert(labels=labels, fingerprint="")]}
        assert (await client.post(ALERTS, json=body)).json()["alerts"] == expected


async def test_parts_of_a_capture_are_sent_as_asked_for(client: httpx.AsyncClient) -> None:
    entry = await taken(client)
    url, size = entry["url"], entry["size_bytes"]
    whole = (await client.get(url)).content
    for wanted, begin, end in (("0-3", 0, 4), ("10-", 10, size), ("-4", size - 4, size), ("4-9999999", 4, size)):
        answer = await client.get(url, headers={"Range": f"bytes={wanted}"})
        assert (answer.status_code, answer.content) == (206, whole[begin:end])
        assert answer.headers["content-range"] == f"bytes {begin}-{end - 1}/{size}"
    beyond = await client.get(url, headers={"Range": "bytes=99999999-"})
    assert problem(beyond, 416)["type"] == "/api/docs#bad-range"
    assert beyond.headers["content-range"] == f"bytes */{size}"
    for headers in ({"Range": "lines=1-2"}, {"Range": "bytes=1-2,4-5"}, {"Range": "bytes=0-3", "If-Range": '"other"'}):
        answer = await client.get(url, headers=headers)
        assert (answer.status_code, answer.content) == (200, whole)
    head = await client.head(url)
    assert (head.status_code, head.content, int(head.headers["content-length"])) == (200, b"", size)


@pytest.mark.real("process")
async def test_a_capture_is_downloaded_for_perfetto(client: httpx.AsyncClient, tmp_path: Path) -> None:
    url = (await taken(client))["url"]
    answer = await client.get(url, params={"format": "perfetto"})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/vnd.perfetto.trace"
    assert answer.headers["content-disposition"].endswith('.perfetto"')
    (tmp_path / "a.parquet").write_bytes((await client.get(url)).content)
    recording = load(tmp_path / "a.parquet")
    tracks = read_trace(answer.content)
    for row, port in enumerate(recording.meta.ports):
        if not port.rail:
            continue
        values = [value * 1e9 for _, value in tracks["node7", str(port.id), f"{port.id} transmit"].samples]
        expected = recording.bytes_per_second[row, 0]
        np.testing.assert_allclose([value for value in values if value == value], expected[~np.isnan(expected)], atol=1)
    head = await client.head(url, params={"format": "perfetto"})
    assert (head.headers["content-type"], head.content) == ("application/vnd.perfetto.trace", b"")


@pytest.mark.real("process")
async def test_a_capture_that_cannot_be_converted_is_refused(
    client: httpx.AsyncClient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entry = await taken(client)
    file = tmp_path / "captures" / entry["name"]
    file.write_bytes(file.read_bytes()[:100])
    answer = await client.get(entry["url"], params={"format": "perfetto"})
    assert problem(answer, 503)["type"].endswith("no-captures")
    assert "cannot be converted: recording /proc/self/fd/0 is cut off or damaged" in caplog.text
    missing = await client.get(MISSING, params={"format": "perfetto"})
    assert missing.status_code == 404
    assert problem(await client.get(entry["url"], params={"format": "zip"}), 422)


async def test_a_disk_that_fails_is_for_the_log(
    client: httpx.AsyncClient, recorder: FlightRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    directory = recorder.store.directory
    directory.rmdir()
    directory.write_text("")
    others = [MISSING.replace("missing", f"missing-{number}") for number in range(3)]
    for method, path in (("GET", PATH), ("GET", PATH), *(("GET", other) for other in others), ("DELETE", MISSING)):
        assert problem(await client.request(method, path), 503)["type"] == "/api/docs#no-captures"
    # no client can fill the log
    assert caplog.text.count(f"capture.dir: {directory} cannot be read: Not a directory") == 1
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) <= 3
    directory.unlink()
    directory.mkdir()


async def test_links_and_pipes_are_not_captures(client: httpx.AsyncClient, recorder: FlightRecorder) -> None:
    elsewhere = recorder.store.directory.parent / "secret"
    elsewhere.write_text("secret")
    link, pipe = (recorder.store.path(make_name(0, reason)) for reason in ("link", "pipe"))
    link.symlink_to(elsewhere)
    os.mkfifo(pipe)
    for path in (link, pipe):
        async with asyncio.timeout(HANG_SECONDS):
            found = problem(await client.get(f"{PATH}/{path.name}"), 404)
        assert found["detail"] == f"No such capture: {path.name!r}. See {PATH} for the list."


async def test_every_download_closes_its_file(client: httpx.AsyncClient, tmp_path: Path) -> None:
    url = (await taken(client))["url"]
    before = set(os.listdir("/proc/self/fd"))
    for headers in ({}, {"Range": "bytes=0-3"}, {"Range": "bytes=99999999-"}):
        await client.get(url, headers=headers)
        await client.head(url, headers=headers)
    assert set(os.listdir("/proc/self/fd")) == before


@pytest.fixture
def hung(recorder: FlightRecorder, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Semaphore]:
    """A disk of captures that answers nothing; counts the threads that wait for it."""
    begun, end = threading.Semaphore(0), threading.Event()

    def wait(*_: object) -> None:
        begun.release()
        assert end.wait(HANG_SECONDS)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(recorder.store, "open", wait)
    monkeypatch.setattr(recorder.store, "scan", wait)
    yield begun
    end.set()


async def test_a_hung_disk_of_captures_delays_nothing_else(
    client: httpx.AsyncClient, hung: threading.Semaphore
) -> None:
    # more than the default executor, or the threads that serve static files, could take
    waiting = [asyncio.create_task(client.get(path)) for path in (MISSING, PATH) for _ in range(30)]
    for _ in range(DISK_THREADS):
        assert await asyncio.to_thread(hung.acquire, True, HANG_SECONDS)
    async with asyncio.timeout(HANG_SECONDS):
        for path in ("/", "/static/main.js", "/metrics", "/api/v1/window", "/api/v1/summary?last=5s", "/-/healthy"):
            assert (await client.get(path)).status_code == 200, path
        await asyncio.gather(*(asyncio.to_thread(os.getpid) for _ in range(50)))
    assert not any(task.done() for task in waiting)
    assert not hung.acquire(blocking=False)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
