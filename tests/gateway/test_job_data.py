"""A job across real daemons on simulated nodes: list, stream, window, summary, events and captures."""

from __future__ import annotations

import asyncio
import io
import json
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi import FastAPI

from ibpulse.gateway.job_stream import job_router
from ibpulse.web.problems import install_problem_handlers
from ibpulse.web.server import serve
from tests.gateway.gateways import Gateway
from tests.running import eventually

NODES = ("node1", "node2", "node3", "node4")


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The addresses of four nodes with one job; node3 is the straggler."""
    log = tmp_path_factory.mktemp("demo") / "log"
    command = [sys.executable, "-m", "ibpulse", "demo", "--nodes=4", "--ports=4"]
    command += ["--web.listen-address=127.0.0.1:0", "--capture.allow-unauthenticated=true"]
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            listed = eventually(lambda: re.search(r"the nodes are listed in (\S+)", log.read_text()), 60)
            eventually(lambda: re.search(r"node4: http", log.read_text()), 60)
            targets = json.loads(Path(listed[1]).read_text())
            time.sleep(12)
            yield {target["labels"]["node"]: f"http://{target['targets'][0]}" for target in targets}
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


@pytest.fixture
async def gateway(tmp_path: Path, urls: dict[str, str]) -> AsyncIterator[Gateway]:
    """A gateway over the nodes, and over one that does not answer, with the right to capture for anyone."""
    made = Gateway(tmp_path)
    await made.list(**urls)
    made.app = FastAPI(redirect_slashes=False)
    install_problem_handlers(made.app)
    made.app.include_router(job_router(replace(made.parts, allow_unauthenticated=True)))
    made.client = httpx.AsyncClient(transport=httpx.ASGITransport(app=made.app), base_url="http://gateway")
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
    for _ in range(3):
        await gateway.table.poll_all()
    found = await ask(gateway, f"/{await job_id(gateway)}/summary?window=10s")
    job = found["job"]
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


async def test_a_notification_takes_one_capture_of_the_job_of_its_alerts(gateway: Gateway) -> None:
    job = await job_id(gateway)
    alerts = [
        {"status": "firing", "labels": {"alertname": "Stalled", "job_id": job, "instance": node}, "fingerprint": node}
        for node in NODES
    ]
    body = {"version": "4", "alerts": [*alerts, {"status": "firing", "labels": {"alertname": "Other"}}]}
    found = (await gateway.client.post("/api/v1/captures/alertmanager", json=body)).json()
    assert found["ignored"] == 1
    assert [len(each["nodes"]) for each in found["captures"]] == [4]
    again = (await gateway.client.post("/api/v1/captures/alertmanager", json=body)).json()
    assert again["captures"] == []


async def test_reading_gives_no_right_to_capture(gateway: Gateway) -> None:
    app = FastAPI()
    install_problem_handlers(app)
    app.include_router(job_router(gateway.parts))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://gateway") as client:
        for path in (f"/api/v1/jobs/{await job_id(gateway)}/captures", "/api/v1/captures/alertmanager"):
            answer = await client.post(path, json={"version": "4", "alerts": []})
            assert answer.status_code == 403
