"""A daemon sees jobs come and go, in real cgroups under the names of Slurm and in documents, and knows their past."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from ibpulse.recordings import load
from ibpulse.recordings.recorded_jobs import trace_holdings
from tests.daemon.fabrics import simulated
from tests.running import Metrics, Running, eventually

CGROUP = Path("/sys/fs/cgroup")
SCOPE = "system.slice/slurmstepd.scope"


@contextmanager
def real_cgroups(tree: Path) -> Iterator[tuple[Callable[[int], None], Callable[[int], None]]]:
    """How to begin and to end a job in a hierarchy of the kernel, which is the tree's; skips where none is writable."""
    version_2 = (CGROUP / "cgroup.controllers").exists()
    base = (CGROUP if version_2 else CGROUP / "freezer") / f"ibpulse-test-{os.getpid()}"
    parent = base / SCOPE if version_2 else base / "slurm" / "uid_1000"
    try:
        base.mkdir()
        for folder in (*reversed(parent.relative_to(base).parents[:-1]), parent.relative_to(base)):
            (base / folder).mkdir()
    except OSError as error:
        pytest.skip(f"no writable hierarchy of cgroups: {error}")
    (tree / "fs").mkdir()
    if version_2:
        (tree / "fs/cgroup").symlink_to(base)
    else:
        (tree / "fs/cgroup").mkdir()
        (tree / "fs/cgroup/freezer").symlink_to(base)
    processes: dict[int, subprocess.Popen[bytes]] = {}

    def begin(job: int) -> None:
        folder = parent / f"job_{job}" / "step_0"
        folder.parent.mkdir()
        folder.mkdir()
        processes[job] = subprocess.Popen(["sleep", "600"])
        (folder / "cgroup.procs").write_text(str(processes[job].pid))

    def end(job: int) -> None:
        process = processes.pop(job)
        process.kill()
        process.wait()
        folder = parent / f"job_{job}"
        eventually(lambda: remove(folder / "step_0"))
        eventually(lambda: remove(folder))

    try:
        yield begin, end
    finally:
        for job in list(processes):
            end(job)
        for folder in (parent, *parent.parents[: len(parent.relative_to(base).parts)]):
            folder.rmdir()


def remove(folder: Path) -> bool:
    """Whether a cgroup could be removed; it is busy until the kernel has buried its processes."""
    try:
        folder.rmdir()
    except OSError:
        return False
    return True


def owners(metrics: Metrics) -> dict[str, set[str]]:
    """The devices of each job."""
    found: dict[str, set[str]] = {}
    for labels in metrics.find("ibpulse_port_job_info"):
        words = dict(labels)
        found.setdefault(words["job_id"], set()).add(words["device"])
    return found


def ask_jobs(daemon: Running) -> Any:
    return daemon.ask("/api/v1/jobs").json()


def test_jobs_of_slurm_come_and_go_in_real_cgroups(tmp_path: Path) -> None:
    rails = {f"mlx5_{number}" for number in range(4)}
    with (
        simulated(tmp_path / "tree", "constant", ports=4) as tree,
        real_cgroups(tree) as (begin, end),
        Running(tree, tmp_path / "ring", "--slow.interval=1s", "--jobs.owners-dir=") as daemon,
    ):
        eventually(lambda: daemon.metrics().find("ibpulse_node_jobs"))
        assert daemon.metrics().value("ibpulse_node_jobs") == 0
        begin(11)
        eventually(lambda: owners(daemon.metrics()) == {"11": rails})
        begin(12)
        # nothing says which rails belong to which of them
        eventually(lambda: daemon.metrics().value("ibpulse_node_jobs") == 2)
        assert owners(daemon.metrics()) == {}
        end(11)
        eventually(lambda: owners(daemon.metrics()) == {"12": rails})
        answer = ask_jobs(daemon)
        assert [(job["job_id"], job["running"]) for job in answer["jobs"]] == [("12", True), ("11", False)]
        assert all(job["began"] is not None for job in answer["jobs"])
        kinds = [event["kind"] for event in daemon.ask("/api/v1/events").json()["events"]]
        assert [kind for kind in kinds if kind.startswith("job-")] == [
            *("job-began", "job-began", "job-change", "job-ended", "job-change"),
        ]


def check_window(daemon: Running, job: str, devices: set[str]) -> None:
    """A window of the job has samples of these devices, which it had last, and no newer ones of others."""

    def ask() -> Any:
        answer = daemon.ask("/api/v1/window", last="1m", job=job).json()
        had = {port.partition(":")[0] for port in answer["job"]["had"][-1]["ports"]}
        own = [each["values"] for each in answer["series"] if each["port"].partition(":")[0] in devices]
        found = had == devices and len(own) == 2 * len(devices)
        return answer if found and all(any(value is not None for value in values) for values in own) else None

    answer = eventually(ask)
    # a job that was alone at first had all rails
    others = [each for each in answer["series"] if each["port"].partition(":")[0] not in devices]
    assert all(each["values"][-1] is None for each in others)


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
