"""A job across real daemons on simulated nodes: list, stream, window, summary, events and captures."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from ibpulse.gateway import job_hub
from ibpulse.gateway.job_hub import JobHub, ViewKey
from ibpulse.web.problems import ProblemError
from ibpulse.web.server import serve
from tests.gateway.gateways import Gateway
from tests.gateway.test_shared_streams import take
from tests.running import eventually

NODES = ("node1", "node2", "node3", "node4")


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The file that lists four nodes with one job; node3 is the straggler."""
    log = tmp_path_factory.mktemp("demo") / "log"
    command = [sys.executable, "-m", "ibpulse", "demo", "--nodes=4", "--ports=4"]
    command += ["--web.listen-address=127.0.0.1:0", "--capture.allow-unauthenticated=true"]
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            said = eventually(lambda: re.search(r"the nodes are listed in (\S+)", log.read_text()), 60)
            eventually(lambda: re.search(r"node4: http", log.read_text()), 60)
            time.sleep(12)
            yield Path(said[1])
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


@pytest.fixture(scope="module")
def urls(listed: Path) -> dict[str, str]:
    """The addresses of the nodes."""
    targets = json.loads(listed.read_text())
    return {target["labels"]["node"]: f"http://{target['targets'][0]}" for target in targets}


@pytest.fixture(scope="module")
def trees(listed: Path) -> Path:
    """Where the trees of the nodes are."""
    return listed.parent / "sys"


@pytest.fixture
async def gateway(tmp_path: Path, urls: dict[str, str]) -> AsyncIterator[Gateway]:
    """A gateway over the nodes, with the right to capture for anyone."""
    made = Gateway(tmp_path, allow_unauthenticated=True)
    await made.list(**urls)
    yield made
    await made.close()


async def ask(gateway: Gateway, path: str, status: int = 200) -> dict[str, Any]:
    answer = await gateway.client.get(f"/api/v1/jobs{path}")
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def job_id(gateway: Gateway) -> str:
    (job,) = (await ask(gateway, ""))["jobs"]
    return str(job["job_id"])


async def events_of(url: str, enough: int, **query: str) -> list[tuple[str, dict[str, Any]]]:
    """The first events of a stream."""
    found: list[tuple[str, dict[str, Any]]] = []
    async with httpx.AsyncClient() as client, client.stream("GET", url, params=query, timeout=20) as answer:
        assert answer.status_code == 200
        kind = ""
        async for line in answer.aiter_lines():
            name, _, text = line.partition(": ")
            if name == "event":
                kind = text
            elif name == "data":
                found.append((kind, json.loads(text)))
                if len(found) >= enough:
                    return found
    return found


async def test_the_job_has_all_nodes_with_begin_and_uncertainty(gateway: Gateway) -> None:
    (job,) = (await ask(gateway, ""))["jobs"]
    assert [node["node"] for node in job["nodes"]] == list(NODES)
    assert job["running"] is True
    assert all(len(node["ports"]) == 4 and node["began_uncertainty_ms"] >= 0 for node in job["nodes"])


async def test_an_unknown_job_is_refused_by_name(gateway: Gateway) -> None:
    found = await ask(gateway, "/none/window", 404)
    assert found["known_jobs"] == [await job_id(gateway)]


async def test_nodes_that_a_job_does_not_have_are_refused_with_those_that_it_has(gateway: Gateway) -> None:
    job = await job_id(gateway)
    for path in ("stream", "window", "summary"):
        answer = await gateway.client.get(f"/api/v1/jobs/{job}/{path}?node=node9")
        assert answer.status_code == 404
        assert answer.json()["detail"].endswith("has no node 'node9'. It has node1, node2, node3, node4.")
    # one of them is enough, as on a page whose other nodes have left the job
    window = await ask(gateway, f"/{job}/window?last=1s&node=node9&node=node2")
    assert {one["row"] for one in window["series"]} == {"node2"}


async def test_a_row_of_a_window_is_the_sum_of_the_rails_of_its_node(gateway: Gateway) -> None:
    job = await job_id(gateway)
    end = int(time.time() * 1000) - 2000
    query = f"from={end - 2000}&to={end}"
    nodes = await ask(gateway, f"/{job}/window?{query}")
    rails = await ask(gateway, f"/{job}/window?{query}&rows=rails&node=node1")
    assert [one["row"] for one in nodes["series"]][::2] == list(NODES)
    assert nodes["missing"] == []
    assert nodes["resolution_ms"] == 10
    total = np.array([one["values"] for one in rails["series"] if one["direction"] == "transmit"], dtype=float)
    assert total.shape[0] == 4
    own = np.array(nodes["series"][0]["values"], dtype=float)
    assert own.shape[0] >= 200
    np.testing.assert_allclose(own, total.sum(axis=0), rtol=1e-5)
    assert np.nanmax(own) > 0


async def test_a_node_that_does_not_answer_is_missing_with_the_reason_and_null(
    gateway: Gateway, urls: dict[str, str]
) -> None:
    job = await job_id(gateway)
    node = gateway.nodes.get("node2")
    assert node is not None
    await node.close()
    found = await ask(gateway, f"/{job}/window?last=1s")
    assert found["missing"] == ["node2"]
    assert list(found["reasons"]) == ["node2"]
    for one in found["series"]:
        assert (set(one["values"]) == {None}) == (one["row"] == "node2")
    answer = await gateway.client.get(f"/api/v1/jobs/{job}/window?last=1s&format=npy")
    head = json.loads(answer.headers["X-Ibpulse-Window"])
    values = np.load(io.BytesIO(answer.content))
    assert head["missing"] == ["node2"]
    assert values.shape == (8, head["points"])
    assert np.isnan(values[2:4]).all()
    assert "node2" in [each["node"] for each in (await ask(gateway, f"/{job}/summary"))["job"]["missing"]]


async def test_the_straggler_is_late_and_the_hot_rail_is_found(gateway: Gateway) -> None:
    job_path = f"/{await job_id(gateway)}/summary?last=10s"
    # on a busy machine, some windows of ten seconds have too few bursts to compare
    for _ in range(10):
        await gateway.table.poll_all()
        found = await ask(gateway, job_path)
        job = found["job"]
        if job["late"] and job["hot_rail"]:
            break
        await asyncio.sleep(3)
    assert (job["nodes"], job["answering"], job["missing"]) == (4, 4, [])
    assert job["hot_rail"] is not None
    assert job["hot_rail"]["port"] == "mlx5_1:1"
    assert job["lateness_nodes"] == 4
    assert job["late"]["row"] == "node3"
    assert [row["row"] for row in found["rows"] if row["late"]] == ["node3"]


async def test_a_stream_has_rows_batches_without_gaps_and_a_summary_each_second(gateway: Gateway) -> None:
    job = await job_id(gateway)
    server = await serve(gateway.app, "127.0.0.1", 0)
    try:
        url = f"http://127.0.0.1:{server.port}/api/v1/jobs/{job}/stream"
        first, second = await asyncio.gather(events_of(url, 30), events_of(url, 30))
    finally:
        gateway.parts.ending.set()
        await server.stop()
    for found in (first, second):
        assert found[0][0] == "rows"
        layouts = [data for kind, data in found if kind == "rows"]
        assert [row["row"] for row in layouts[-1]["rows"]] == list(NODES)
        assert layouts[-1]["batch_ms"] == 10
        batches = [data for kind, data in found if kind == "batch"]
        assert any(value for data in batches for line in data["megabytes_per_second"] for value in line)
        assert any(kind == "summary" for kind, _ in found)
        ends: list[int] = []
        for data in batches:
            count = len(data["megabytes_per_second"][0])
            assert len(data["megabytes_per_second"]) == 8
            if not ends or data["start_ms"] >= ends[-1]:
                assert not ends or data["start_ms"] == ends[-1]
                ends.append(data["start_ms"] + count * layouts[-1]["batch_ms"])


async def test_a_capture_of_the_job_is_on_all_nodes_and_one_archive(gateway: Gateway) -> None:
    job = await job_id(gateway)
    answer = await gateway.client.post(
        f"/api/v1/jobs/{job}/captures", json={"reason": "Slow steps!", "before": "2s", "after": "500ms"}
    )
    assert answer.status_code == 202, answer.text
    taken = answer.json()
    assert [each["node"] for each in taken["nodes"]] == list(NODES)
    for _ in range(50):
        await asyncio.sleep(0.5)
        listed = (await ask(gateway, f"/{job}/captures"))["captures"]
        mine = next(each for each in listed if each["id"] == taken["id"])
        if all(each["size_bytes"] for each in mine["nodes"]):
            break
    assert mine["reason"] == "slow-steps"
    content = (await gateway.client.get(mine["url"])).content
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        names = archive.getnames()
        parts = [archive.extractfile(name).read() for name in names]  # type: ignore[union-attr]
    assert [name.split("/")[1] for name in names] == list(NODES)
    assert all(part[:4] == part[-4:] == b"PAR1" for part in parts)


async def test_an_archive_names_the_nodes_without_a_file(gateway: Gateway, urls: dict[str, str]) -> None:
    job = await job_id(gateway)
    group = f"job{hashlib.sha256(f'simulated:{job}'.encode()).hexdigest()[:5]}00000"
    async with httpx.AsyncClient() as client:
        for node, after in (("node1", "10ms"), ("node2", "20s")):
            body = {"reason": group, "before": "1s", "after": after}
            (await client.post(f"{urls[node]}/api/v1/captures", json=body)).raise_for_status()
    for _ in range(50):
        answer = await gateway.client.get(f"/api/v1/jobs/{job}/captures/{group}")
        if answer.status_code == 200:
            break
        await asyncio.sleep(0.2)
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        capture, missing = archive.getnames()
        text = archive.extractfile(missing)
        assert text is not None
        assert text.read().decode().splitlines() == [
            "node2: its file is not complete yet",
            "node3: it has no file of this capture",
            "node4: it has no file of this capture",
        ]
    assert (capture.split("/")[1], missing) == ("node1", f"{group}/missing.txt")


async def test_reading_gives_no_right_to_capture(tmp_path: Path, urls: dict[str, str]) -> None:
    gateway = Gateway(tmp_path)
    await gateway.list(**urls)
    job = await job_id(gateway)
    assert (await ask(gateway, f"/{job}/captures"))["missing"] == []
    for path in (f"/api/v1/jobs/{job}/captures", "/api/v1/captures/alertmanager"):
        answer = await gateway.client.post(path, json={"version": "4", "alerts": []})
        assert answer.status_code == 403
    await gateway.close()


async def test_rows_that_nobody_else_views_are_limited(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_hub, "MAX_VIEWED_ROWS", 9)
    hub, job = JobHub(gateway.parts), await job_id(gateway)
    nodes: ViewKey = (False, ())
    first = hub.join("a", hub.check(job, nodes), nodes, None)
    second = hub.join("a", hub.check(job, (True, ("node1",))), (True, ("node1",)), None)
    assert hub.check(job, nodes) == hub.check(job, (False, ("node2",)))
    with pytest.raises(ProblemError, match="Others view 8 rows of jobs, and 9 is the maximum"):
        hub.check(job, (True, ("node2",)))
    for viewer in (first, second):
        hub.leave(viewer)
    hub.check(job, (True, ("node2",)))


async def test_who_views_other_rows_of_a_job_later_knows_its_events_and_its_past(gateway: Gateway) -> None:
    hub, job = JobHub(gateway.parts), await job_id(gateway)
    begin_ms = int(time.time() * 1000) - 5000
    first = hub.join("a", hub.check(job, (False, ())), (False, ()), begin_ms)
    before = await take(first, "events", "batch", "summary")
    rails: ViewKey = (True, ("node1",))
    second = hub.join("b", hub.check(job, rails), rails, begin_ms)
    events = await take(second, "events", "batch")
    for found in (before, events):
        batch = next(data for name, data, _ in found if name == "batch")
        assert abs(batch["start_ms"] - begin_ms) <= 100
    known, told = ([data for name, data, _ in found if name == "events"] for found in (before, events))
    texts = [(event["node"], event["text"]) for data in known for event in data["events"]]
    assert texts
    assert [(event["node"], event["text"]) for event in told[0]["events"]][: len(texts)] == texts
    for viewer in (first, second):
        hub.leave(viewer)


async def test_ratios_of_the_past_are_those_to_the_line_rates_of_the_past(
    gateway: Gateway, urls: dict[str, str], trees: Path
) -> None:
    job = await job_id(gateway)
    rate = trees / "node1/class/infiniband/mlx5_0/ports/1/rate"
    usual = rate.read_text()
    begin = int(time.time() * 1000)
    try:
        rate.write_text("100 Gb/sec (2X HDR)\n")
        changed = await until_changed(urls["node1"], begin)
        await asyncio.sleep(3)
        await gateway.table.poll_all()
        span = f"from={changed - 1500}&to={changed + 1500}&unit=ratio"
        rails = await ask(gateway, f"/{job}/window?{span}&rows=rails&node=node1")
        of_node = httpx.get(f"{urls['node1']}/api/v1/window?{span}&job={job}", timeout=20).json()
        values = {f"{one['port']} {one['direction']}": one["values"] for one in of_node["series"]}
        for one in rails["series"]:
            np.testing.assert_allclose(
                np.array(one["values"], dtype=float),
                np.array(values[f"{one['row'].removeprefix('node1 ')} {one['direction']}"], dtype=float),
                rtol=1e-5,
            )
        whole = await ask(gateway, f"/{job}/window?{span}&node=node1&direction=transmit")
        plain = await ask(gateway, f"/{job}/window?{span.replace('unit=ratio', '')}&node=node1&direction=transmit")
        ratios, rates = (np.array(each["series"][0]["values"], dtype=float) for each in (whole, plain))
        lines = rates[ratios > 0] / ratios[ratios > 0]
        assert lines.min() < 0.9 * lines.max()
    finally:
        rate.write_text(usual)
    await until_changed(urls["node1"], changed + 1)


async def until_changed(url: str, from_ms: int) -> int:
    """When the line rate of a rail of a node changed since then."""
    async with httpx.AsyncClient() as client, asyncio.timeout(20):
        while True:
            answer = (await client.get(f"{url}/api/v1/events?kind=rate-change&from={from_ms}")).json()
            if answer["events"]:
                return int(answer["events"][0]["time_ms"])
            await asyncio.sleep(0.2)
