"""A daemon sees jobs come and go in documents, and knows their past."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.daemon.fabrics import simulated
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


def put(directory: Path, job: str, gpus: list[str]) -> None:
    """A document, renamed to its place as a prolog does it."""
    fresh = directory / f".{job}.json.new"
    fresh.write_text(json.dumps({"id": job, "scheduler": "slurm", "gpus": gpus}))
    fresh.rename(directory / f"{job}.json")


def test_two_jobs_with_half_of_the_gpus_each_have_half_of_the_rails(tmp_path: Path) -> None:
    directory = tmp_path / "owners"
    directory.mkdir(mode=0o755)
    flags = ("--slow.interval=1s", f"--jobs.owners-dir={directory}")
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
