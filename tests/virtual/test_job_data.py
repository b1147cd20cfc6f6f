"""A job across nodes: list, stream, window, summary, events and captures of the gateway."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from ibpulse.core.http.problems import ProblemError
from ibpulse.gateway import live
from ibpulse.gateway.live import JobHub, ViewKey
from tests.virtual.fleet import Fleet

NODES = ("node-0", "node-1", "node-2", "node-3")
RAILS = [f"mlx5_{number}:1" for number in range(4)]
# the one that the simulated fabric gives to its job
JOB = "1001"
JOBS = "/api/v1/jobs"


@pytest.fixture(scope="module")
def fleet(shared_folder: Path) -> Iterator[Fleet]:
    """Four nodes with one job, twelve seconds after its begin; node-2 is the straggler."""
    flags = ("--slow.interval=1s", "--capture.allow-unauthenticated=true")
    with Fleet(shared_folder, 4, *flags, straggler=2, rails=4, workload="dense") as made:
        made.run(12)
        yield made


def of_job(fleet: Fleet, path: str, **params: Any) -> Any:
    return fleet.get(f"{JOBS}/{JOB}/{path}", **params)


def past(fleet: Fleet, seconds: int) -> dict[str, str]:
    """Parameters of a span that ended two seconds ago."""
    end_ms = fleet.clock.time_ns() // 1_000_000_000 * 1000 - 2000
    return {"from": str(end_ms - 1000 * seconds), "to": str(end_ms)}


def values_of(series: list[dict[str, Any]], direction: str) -> np.ndarray:
    return np.array([one["values"] for one in series if one["direction"] == direction], dtype=float)


def test_jobs_and_nodes_that_do_not_exist_are_refused_with_those_that_do(fleet: Fleet) -> None:
    unknown = fleet.ask(f"{JOBS}/none/window")
    assert (unknown.status_code, unknown.json()["known_jobs"]) == (404, [JOB])
    for path in ("stream", "window", "summary"):
        answer = fleet.ask(f"{JOBS}/{JOB}/{path}", node="node-9")
        assert answer.status_code == 404
        assert answer.json()["detail"].endswith(f"has no node 'node-9'. It has {', '.join(NODES)}.")
    # one of them is enough, as on a page whose other nodes have left the job
    window = of_job(fleet, "window", last="1s", node=["node-9", "node-1"])
    assert {one["row"] for one in window["series"]} == {"node-1"}


def test_a_row_of_a_window_is_the_sum_of_the_rails_of_its_node(fleet: Fleet) -> None:
    span = past(fleet, 2)
    nodes = of_job(fleet, "window", **span)
    rails = of_job(fleet, "window", rows="rails", node="node-0", **span)
    assert [one["row"] for one in nodes["series"]][::2] == list(NODES)
    assert (nodes["missing"], nodes["resolution_ms"], nodes["points"]) == ([], 10, 200)
    assert [one["row"] for one in rails["series"]][::2] == [f"node-0 {rail}" for rail in RAILS]
    for direction in ("transmit", "receive"):
        total = values_of(rails["series"], direction).sum(axis=0)
        np.testing.assert_allclose(values_of(nodes["series"], direction)[0], total, rtol=1e-5)
        assert total.max() > 0


def test_the_straggler_is_late_and_the_hot_rail_is_found(fleet: Fleet) -> None:
    found = of_job(fleet, "summary", last="10s")
    job = found["job"]
    assert (job["nodes"], job["answering"], job["missing"]) == (4, 4, [])
    assert job["hot_rail"]["port"] == "mlx5_1:1"
    assert (job["lateness_nodes"], job["late"]["row"]) == (4, "node-2")
    assert [row["row"] for row in found["rows"] if row["late"]] == ["node-2"]


def test_a_stream_has_rows_batches_without_gaps_and_a_summary_each_second(fleet: Fleet) -> None:
    viewers = [fleet.view(f"{JOBS}/{JOB}/stream") for _ in range(2)]
    fleet.run(6)
    for viewer in viewers:
        layout = orjson.loads(viewer.events("rows")[-1])
        assert [row["row"] for row in layout["rows"]] == list(NODES)
        assert layout["batch_ms"] == 10
        ends = [orjson.loads(data)["end_ms"] for data in viewer.events("summary")]
        assert {later - earlier for earlier, later in pairwise(ends)} == {1000}
        batches = [orjson.loads(data) for data in viewer.events("batch")]
        assert len(batches) > 10
        for each, following in pairwise(batches):
            lines = each["megabytes_per_second"]
            assert len(lines) == 2 * len(NODES)
            assert following["start_ms"] == each["start_ms"] + 10 * len(lines[0])
        assert any(value for each in batches for line in each["megabytes_per_second"] for value in line)
        viewer.leave()
    assert viewers[0].events("batch") == viewers[1].events("batch")


def unpack(content: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return {name: archive.extractfile(name).read() for name in archive.getnames()}  # type: ignore[union-attr]


def test_an_archive_names_the_nodes_without_a_file(fleet: Fleet) -> None:
    group = f"job{hashlib.sha256(f'simulated:{JOB}'.encode()).hexdigest()[:5]}00000"
    for node, after in zip(fleet.nodes, ("10ms", "20s"), strict=False):
        node.post("/api/v1/captures", {"reason": group, "before": "1s", "after": after})
    fleet.run(2)
    capture, missing = unpack(fleet.ask(f"{JOBS}/{JOB}/captures/{group}").content).items()
    assert capture[0].split("/")[1] == "node-0"
    assert missing[0] == f"{group}/missing.txt"
    assert missing[1].decode().splitlines() == [
        "node-1: its file is not complete yet",
        "node-2: it has no file of this capture",
        "node-3: it has no file of this capture",
    ]


def test_rows_that_nobody_else_views_are_limited(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MAX_VIEWED_ROWS", 9)
    whole: ViewKey = (False, ())
    one, other, others_rails = ((False, ("node-1",)), (True, ("node-0",)), (True, ("node-1",)))

    async def join() -> None:
        hub = JobHub(fleet.parts)
        first = hub.join("a", hub.check(JOB, whole), whole, None)
        second = hub.join("a", hub.check(JOB, other), other, None)
        assert hub.check(JOB, whole) == hub.check(JOB, one)
        with pytest.raises(ProblemError, match="Others view 8 rows of jobs, and 9 is the maximum"):
            hub.check(JOB, others_rails)
        for viewer in (first, second):
            hub.leave(viewer)
        hub.check(JOB, others_rails)

    fleet.loop.run_until_complete(join())


def test_who_views_other_rows_of_a_job_later_knows_its_events_and_its_past(fleet: Fleet) -> None:
    # what other tests changed is over
    fleet.run(12)
    begin_ms = fleet.clock.time_ns() // 1_000_000 - 5000
    first = fleet.view(f"{JOBS}/{JOB}/stream?from={begin_ms}")
    fleet.run(3)
    second = fleet.view(f"{JOBS}/{JOB}/stream?rows=rails&node=node-0&from={begin_ms}")
    fleet.run(3)
    for viewer in (first, second):
        # the sample in which that instant is
        assert 0 <= begin_ms - orjson.loads(viewer.events("batch")[0])["start_ms"] < 10
    known, told = ([orjson.loads(data)["events"] for data in viewer.events("events")] for viewer in (first, second))
    texts = [(event["node"], event["text"]) for events in known for event in events]
    assert {node for node, _ in texts} == set(NODES)
    assert [(event["node"], event["text"]) for event in told[0]] == texts
    for viewer in (first, second):
        viewer.leave()


def test_ratios_of_the_past_are_those_to_the_line_rates_of_the_past(fleet: Fleet) -> None:
    node = fleet.nodes[0]
    node.put("mlx5_0", "rate", "100 Gb/sec (2X HDR)")
    fleet.run(10)
    (changed,) = (event for event in node.events("rate-change") if event.subject == "mlx5_0:1")
    node.put("mlx5_0", "rate", "400 Gb/sec (4X NDR)")
    changed_ms = changed.time_ns // 1_000_000
    span = {"from": str(changed_ms - 1500), "to": str(changed_ms + 1500)}
    rails = of_job(fleet, "window", rows="rails", node="node-0", unit="ratio", **span)
    direct = node.get("/api/v1/window", job=JOB, unit="ratio", **span)
    values = {f"node-0 {one['port']} {one['direction']}": one["values"] for one in direct["series"]}
    assert len(rails["series"]) == len(values)
    for one in rails["series"]:
        expected = np.array(values[f"{one['row']} {one['direction']}"], dtype=float)
        np.testing.assert_allclose(np.array(one["values"], dtype=float), expected, rtol=1e-5)
    whole, plain = (
        of_job(fleet, "window", node="node-0", direction="transmit", **span, **unit) for unit in ({"unit": "ratio"}, {})
    )
    ratios, rates = (np.array(each["series"][0]["values"], dtype=float) for each in (whole, plain))
    lines = rates[ratios > 0] / ratios[ratios > 0]
    # four rails of 50 GB/s, of which one has 12.5 GB/s from then on
    assert sorted({round(float(line) / 1e8) for line in lines}) == [1625, 2000]


def test_a_row_is_a_part_of_its_line_rate_for_who_looks_after_a_link_was_lost(fleet: Fleet) -> None:
    fleet.nodes[1].put("mlx5_1", "state", "1: DOWN")
    fleet.run(12)
    viewer = fleet.view(f"{JOBS}/{JOB}/stream")
    fleet.run(2)
    rows = orjson.loads(viewer.events("rows")[-1])["rows"]
    assert [row["rate_bytes_per_second"] for row in rows] == [200e9] * len(NODES)
    viewer.leave()
