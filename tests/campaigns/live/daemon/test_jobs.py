"""A daemon sees jobs come and go in documents, and knows their past."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from ibpulse.recordings import load
from ibpulse.recordings.recorded_jobs import trace_holdings
from tests.fabrics import simulated
from tests.running import Metrics, Running, eventually


def owners(metrics: Metrics) -> dict[str, set[str]]:
    """The devices of each job."""
    found: dict[str, set[str]] = {}
    for labels in metrics.find("ibpulse_port_job_info"):
        words = dict(labels)
        found.setdefault(words["job_id"], set()).add(words["device"])
    return found


def ask_jobs(daemon: Running) -> Any:
    return daemon.ask("/api/v1/jobs").json()


def check_window(daemon: Running, job: str, devices: set[str]) -> None:
    """A window of the job has samples of these devices, and of no others."""

    def is_whole() -> bool:
        answer = daemon.ask("/api/v1/window", last="1m", job=job).json()
        had = {port.partition(":")[0] for each in answer["job"]["had"] for port in each["ports"]}
        shown = [each["port"].partition(":")[0] for each in answer["series"]]
        sampled = all(any(value is not None for value in each["values"]) for each in answer["series"])
        return had == devices and sorted(shown) == sorted([*devices, *devices]) and sampled

    eventually(is_whole)


def check_capture(daemon: Running, path: Path, owners: dict[str, set[str]]) -> None:
    """A capture has the jobs with these devices, which they had last; so has the list, and a report of it."""
    taken = httpx.post(f"{daemon.url}/api/v1/captures", json={"before": "1s", "after": "10ms"}, timeout=20)
    assert taken.status_code == 202, taken.text

    def find() -> Any:
        found = daemon.ask("/api/v1/captures").json()["captures"]
        return next((each for each in found if each["name"] == taken.json()["name"]), None)

    listed = eventually(find, 60)
    assert {job["job_id"] for job in listed["jobs"]} == owners.keys()
    assert all(job["ports"] and job["began_ms"] is not None for job in listed["jobs"])
    path.write_bytes(daemon.ask(listed["url"]).content)
    meta = load(path).meta
    held = {record.job.claim.id: record.holdings[-1].ports for record in trace_holdings(meta.jobs, meta.events)}
    assert {job: {port.device for port in ports} for job, ports in held.items()} == owners
    command = [sys.executable, "-m", "ibpulse", "report", str(path)]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    assert all(f"job {job} (slurm) has mlx5_" in text for job in owners)


def put(directory: Path, job: str, gpus: list[str]) -> None:
    """A document, renamed to its place as a prolog does it."""
    fresh = directory / f".{job}.json.new"
    fresh.write_text(json.dumps({"id": job, "scheduler": "slurm", "gpus": gpus}))
    fresh.rename(directory / f"{job}.json")


def test_two_jobs_with_half_of_the_gpus_each_have_half_of_the_rails(tmp_path: Path) -> None:
    directory = tmp_path / "owners"
    directory.mkdir(mode=0o755)
    flags = ("--slow.interval=1s", f"--jobs.owners-dir={directory}", "--capture.allow-unauthenticated=true")
    with simulated(tmp_path / "tree", "constant", ports=4) as tree:
        with Running(tree, tmp_path / "ring", *flags) as daemon:
            eventually(lambda: daemon.metrics().find("ibpulse_node_jobs"))
            topology = daemon.ask("/api/v1/topology").json()
            by_device = {place["device"]: place["gpus"] for place in topology["devices"]}
            put(directory, "a", by_device["mlx5_0"] + by_device["mlx5_1"])
            put(directory, "b", by_device["mlx5_2"] + by_device["mlx5_3"])
            halves = {"a": {"mlx5_0", "mlx5_1"}, "b": {"mlx5_2", "mlx5_3"}}
            eventually(lambda: owners(daemon.metrics()) == halves)
            before = {job["job_id"]: job for job in ask_jobs(daemon)["jobs"]}
            assert daemon.metrics().find("ibpulse_node_last_traffic_timestamp_seconds")
            for job, devices in halves.items():
                check_window(daemon, job, devices)
            check_capture(daemon, tmp_path / "capture.parquet", halves)
        # jobs go on without the daemon
        with Running(tree, tmp_path / "ring", *flags) as daemon:
            eventually(lambda: owners(daemon.metrics()) == halves)
            after = {job["job_id"]: job for job in ask_jobs(daemon)["jobs"]}
            assert {name: job["began"] for name, job in after.items()} == {
                name: job["began"] for name, job in before.items()
            }
            (directory / "a.json").unlink()
            (directory / "c.json").write_text('{"id": "d"}')
            eventually(lambda: set(owners(daemon.metrics())) == {"b"})
            notice = f"{directory}: c.json: ignored: scheduler is missing."
            eventually(lambda: notice in daemon.ask("/api/v1/ports").json()["notices"])
            # what has ended keeps its past
            check_window(daemon, "a", halves["a"])
            answer = daemon.ask("/api/v1/window", job="c")
            assert (answer.status_code, answer.json()["known_jobs"]) == (404, ["b", "a"])


def test_two_simulated_jobs_have_their_own_steps_and_siblings_and_one_outlives_the_other(tmp_path: Path) -> None:
    first, second = ([f"mlx5_{number}" for number in numbers] for numbers in (range(4), range(4, 8)))
    tree = tmp_path / "tree"
    flags = ("--slow.interval=1s", f"--jobs.owners-dir={tree / 'jobs'}", "--analysis.traffic-window=10s")

    def run(**jobs: dict[str, object]) -> None:
        fresh = tree / "faults.new"
        fresh.write_text(json.dumps({"jobs": jobs}))
        fresh.rename(tree / "faults.json")

    def is_well(devices: list[str], job: str, seconds: float) -> bool:
        """Whether a job has this step, and each of its rails an equal share of its traffic."""
        metrics = daemon.metrics()
        steps = list(metrics.find("ibpulse_job_step_period_seconds", job_id=job).values())
        rails = [metrics.find("ibpulse_port_rail_share_ratio", device=device) for device in devices]
        shares = [share for rail in rails for share in rail.values()]
        return (
            steps == pytest.approx([seconds], rel=0.1)
            and shares == pytest.approx([0.25] * 4, abs=0.02)
            and not are_idle(metrics, devices)
        )

    def are_idle(metrics: Metrics, devices: list[str]) -> bool:
        return any(
            value for device in devices for value in metrics.find("ibpulse_port_rail_idle", device=device).values()
        )

    dense = {"workload": "dense", "devices": first}
    with simulated(tree, "constant"), Running(tree, tmp_path / "ring", *flags) as daemon:
        run(a=dense, b={"workload": {"name": "dense", "stretch": 3}, "devices": second})
        eventually(lambda: owners(daemon.metrics()) == {"a": set(first), "b": set(second)})
        # steps of the run are 315 ms long, or three times that
        eventually(lambda: is_well(first, "a", 0.315) and is_well(second, "b", 0.945), 60.0)
        run(a=dense)
        eventually(lambda: owners(daemon.metrics()) == {"a": set(first)})
        eventually(lambda: not daemon.metrics().find("ibpulse_job_step_period_seconds", job_id="b"))
        eventually(lambda: is_well(first, "a", 0.315), 60.0)
        assert not are_idle(daemon.metrics(), second)
