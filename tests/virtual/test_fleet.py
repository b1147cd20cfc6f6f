"""A gateway over nodes in virtual time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from tests.virtual.fleet import Fleet

NAMES = ("node-0", "node-1", "node-2")


@pytest.fixture
def fleet(folder: Path) -> Iterator[Fleet]:
    """Three nodes with a job on all of them; the clock of the last one is 12 ms ahead."""
    owners = folder / "owners"
    owners.mkdir(mode=0o755)
    job = {"id": "7", "scheduler": "slurm", "devices": ["mlx5_0", "mlx5_1"]}
    (owners / "7.json").write_text(json.dumps(job))
    flags = (f"--jobs.owners-dir={owners}", "--slow.interval=1s", "--capture.allow-unauthenticated=true")
    with Fleet(folder, 3, *flags, rails=2, workload="dense") as fleet:
        fleet.nodes[2].clock.step(0.012)
        fleet.run(12)
        yield fleet


def test_the_gateway_lists_its_nodes_with_their_clocks(fleet: Fleet) -> None:
    rows = {row["node"]: row for row in fleet.rows()}
    assert tuple(rows) == NAMES
    assert {row["problem"] for row in rows.values()} == {""}
    assert {name: row["clock"]["offset_ms"] for name, row in rows.items()} == {"node-0": 0, "node-1": 0, "node-2": 12}
    assert {name: row["rails"] for name, row in rows.items()} == dict.fromkeys(NAMES, 2)


def test_a_node_that_cannot_be_reached_is_down_until_it_answers(fleet: Fleet) -> None:
    fleet.unreachable.add("node-1")
    # each node is polled every five seconds
    fleet.run(6)
    (row,) = fleet.rows("node-1")
    assert (row["problem"], row["rails"]) == ("no-answer", 2)
    assert [row["problem"] for row in fleet.rows("node-0", "node-2")] == ["", ""]
    fleet.unreachable.clear()
    fleet.run(6)
    assert [row["problem"] for row in fleet.rows()] == ["", "", ""]


def test_a_rail_that_goes_down_is_in_the_list(fleet: Fleet) -> None:
    begin_ms = fleet.clock.time_ns() / 1e6
    fleet.nodes[0].fault({"link-flap": ["mlx5_1"]})
    fleet.run(8)
    (row,) = fleet.rows("node-0")
    assert 0 <= row["down_since_ms"] - begin_ms <= 1500
    assert row["rails_down"] == ["mlx5_1:1"]
    assert row["problem_text"] == "mlx5_1:1 is not ACTIVE"


def test_only_the_node_itself_answers_with_csv(fleet: Fleet) -> None:
    answer = fleet.ask("/node/node-0/api/v1/window", last="2s", format="csv")
    assert (answer.status_code, answer.json()["detail"]) == (
        422,
        "format: only the node itself answers with csv; choose json, npy or grafana",
    )


def test_a_viewer_that_does_not_read_loses_the_oldest_batches_and_delays_nobody(fleet: Fleet) -> None:
    slow, quick = fleet.view("/api/v1/jobs/7/stream"), fleet.view("/api/v1/jobs/7/stream")
    fleet.run(2)
    slow.reads.clear()
    fleet.run(20)
    batches = len(quick.events("batch"))
    slow.reads.set()
    fleet.run(1)
    assert quick.events("dropped") == []
    (dropped,) = (orjson.loads(data)["events"] for data in slow.events("dropped"))
    # each event is dropped or delivered
    kept = sum(len(slow.events(name)) for name in ("batch", "summary"))
    assert kept + dropped == sum(len(quick.events(name)) for name in ("batch", "summary"))
    assert len(slow.events("batch")) < batches


def test_two_runs_of_a_fleet_say_the_same(folder: Path) -> None:
    def play(directory: Path) -> list[bytes]:
        directory.mkdir()
        with Fleet(directory, 2, rails=2, workload="moe") as fleet:
            viewer = fleet.view("/node/node-1/api/v1/stream")
            fleet.run(8)
            fleet.unreachable.add("node-0")
            fleet.run(8)
            asked = [fleet.ask(path).content for path in ("/metrics", "/api/v1/nodes", "/api/v1/jobs")]
            # the gateway names the file that lists its nodes
            return [answer.replace(bytes(directory), b"") for answer in (*asked, bytes(viewer.received))]

    assert play(folder / "first") == play(folder / "second")
