"""A node sees jobs come and go in documents, and knows their past."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ibpulse.cli import main
from ibpulse.core.recordings import load
from ibpulse.core.recordings.recording import trace_holdings
from tests.virtual.node import Node


def check_window(node: Node, job: str, devices: set[str]) -> None:
    """A window of the job has samples of these devices, and of no others."""
    answer = node.get("/api/v1/window", last="1m", job=job)
    assert {port.partition(":")[0] for each in answer["job"]["had"] for port in each["ports"]} == devices
    shown = [each["port"].partition(":")[0] for each in answer["series"]]
    assert sorted(shown) == sorted([*devices, *devices])
    assert all(any(value is not None for value in each["values"]) for each in answer["series"])


def check_capture(node: Node, path: Path, owners: Mapping[str, set[str]], capsys: pytest.CaptureFixture[str]) -> None:
    """A capture has the jobs with these devices, which they had last; so has the list, and a report of it."""
    taken = node.post("/api/v1/captures", {"before": "1s", "after": "10ms"})
    node.run(2)
    (listed,) = (each for each in node.get("/api/v1/captures")["captures"] if each["name"] == taken["name"])
    assert {job["job_id"] for job in listed["jobs"]} == owners.keys()
    assert all(job["ports"] and job["began_ms"] is not None for job in listed["jobs"])
    path.write_bytes(node.ask(listed["url"]).content)
    meta = load(path).meta
    held = {record.job.claim.id: record.holdings[-1].ports for record in trace_holdings(meta.jobs, meta.events)}
    assert {job: {port.device for port in ports} for job, ports in held.items()} == owners
    assert main(["report", str(path)]) == 0
    text = capsys.readouterr().out
    assert all(f"job {job} (slurm) has mlx5_" in text for job in owners)


def put(directory: Path, job: str, gpus: list[str]) -> None:
    (directory / f"{job}.json").write_text(json.dumps({"id": job, "scheduler": "slurm", "gpus": gpus}))


def ask_jobs(node: Node) -> dict[str, Any]:
    return {job["job_id"]: job for job in node.get("/api/v1/jobs")["jobs"]}


def test_two_jobs_with_half_of_the_gpus_each_have_half_of_the_rails(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = folder / "owners"
    directory.mkdir(mode=0o755)
    flags = ("--slow.interval=1s", f"--jobs.owners-dir={directory}", "--capture.allow-unauthenticated=true")
    halves = {"a": {"mlx5_0", "mlx5_1"}, "b": {"mlx5_2", "mlx5_3"}}
    with Node(folder, *flags, rails=4, workload="constant") as node:
        node.run(4.5)
        assert node.metrics().value("ibpulse_node_jobs") == 0
        by_device = {place["device"]: place["gpus"] for place in node.get("/api/v1/topology")["devices"]}
        for job, devices in halves.items():
            put(directory, job, [gpu for device in sorted(devices) for gpu in by_device[device]])
        begun_ms = node.clock.time_ns() / 1e6
        node.run(5)
        assert node.metrics().owners() == halves
        assert node.metrics().find("ibpulse_node_last_traffic_timestamp_seconds")
        before = ask_jobs(node)
        for event in node.events("job-began"):
            # noticed with the next reading of the documents, or the one after it
            assert 0 <= event.time_ns / 1e6 - begun_ms <= 2000
            assert event.time_ns / 1e6 - event.uncertainty_ns / 1e6 <= begun_ms
        for job, devices in halves.items():
            check_window(node, job, devices)
        check_capture(node, folder / "capture.parquet", halves, capsys)
        # jobs continue without the daemon
        node.restart(after=2)
        node.run(4.5)
        assert node.metrics().owners() == halves
        assert {name: job["began"] for name, job in ask_jobs(node).items()} == {
            name: job["began"] for name, job in before.items()
        }
        (directory / "a.json").unlink()
        (directory / "c.json").write_text('{"id": "d"}')
        node.run(4)
        assert set(node.metrics().owners()) == {"b"}
        assert f"{directory}: c.json: ignored: scheduler is missing." in node.get("/api/v1/ports")["notices"]
        # what has ended keeps its past
        check_window(node, "a", halves["a"])
        answer = node.ask("/api/v1/window", job="c")
        assert (answer.status_code, answer.json()["known_jobs"]) == (404, ["b", "a"])
