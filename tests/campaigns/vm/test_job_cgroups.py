"""Jobs in cgroups of version 2 of a real kernel whose controller `rdma` is on: a pod with an open device, and Slurm.

Their queue pairs are the kernel's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.campaigns.vm.daemon import UNPRIVILEGED, Daemon
from tests.campaigns.vm.link import RECEIVER, SENDER, SLOWLY, Link, Traffic
from tests.campaigns.vm.machine import Machine

pytestmark = [pytest.mark.timeout(600)]

ROOT = "/sys/fs/cgroup"
UID = "0b3f8c1e-5d2a-4c3b-9e7f-1a2b3c4d5e6f"
POD = f"{ROOT}/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice"
CONTAINER = f"{POD}/cri-containerd-0123456789abcdef.scope"
TASK = f"{ROOT}/system.slice/slurmstepd.scope/job_42/step_0/user/task_0"
# it opens its device, then waits for a client that never comes
HOLD_DEVICE = f"ib_write_bw -x 1 -F -p 18600 -d {SENDER}"


@pytest.fixture
def cgroups(machine: Machine) -> Iterator[None]:
    """The hierarchy at its usual place, with the controller on for pods."""
    machine.run(
        f"mount -t cgroup2 cgroup2 {ROOT} && echo +rdma >{ROOT}/cgroup.subtree_control && mkdir -p {CONTAINER} {TASK}"
        f" && echo +rdma >{ROOT}/kubepods.slice/cgroup.subtree_control"
    )
    yield
    machine.run(f"find {ROOT} -mindepth 1 -depth -type d -exec rmdir {{}} + ; umount {ROOT}")


def jobs(daemon: Daemon) -> dict[str, list[str]]:
    """The ports of each running job."""
    listed = daemon.fetch_json("/api/v1/jobs")["jobs"]
    return {job["job_id"]: job["ports"] for job in listed if job["running"]}


def test_a_pod_with_an_open_device_and_a_job_of_slurm_come_and_go(daemon: Daemon, link: Link, cgroups: None) -> None:
    machine = daemon.machine
    daemon.wait_for_samples(SENDER, RECEIVER)
    machine.wait_until(lambda: daemon.fetch_json("/api/v1/jobs")["pods"] == [UID], "the pod is seen")
    assert jobs(daemon) == {}
    both = [f"{SENDER}:1", f"{RECEIVER}:1"]
    holder = machine.start(["sh", "-c", f"echo $$ >{CONTAINER}/cgroup.procs; exec {HOLD_DEVICE}"], "/tmp/holder.log")
    machine.wait_until(lambda: jobs(daemon) == {UID: both[:1]}, "the pod has the device that it opened")
    assert machine.run(f"cat {POD}/rdma.current").stdout.startswith(f"{SENDER} hca_handle=1 ")
    task = machine.start(["sh", "-c", f"echo $$ >{TASK}/cgroup.procs; exec sleep 600"], "/tmp/task.log")
    machine.wait_until(lambda: jobs(daemon) == {UID: both[:1], "42": []}, "nothing is known of the ports of the job")
    holder.kill()
    machine.wait_until(lambda: jobs(daemon) == {"42": both}, "the job of Slurm is alone on the node")
    # its cgroup stays, without a process in it
    task.kill()
    machine.wait_until(lambda: jobs(daemon) == {}, "no job is left")
    assert daemon.fetch_json("/api/v1/jobs")["known"]
    machine.wait_until(lambda: daemon.read_metric("ibpulse_node_jobs") == 0, "the metrics have no job either")


def count_queue_pairs(machine: Machine) -> int:
    """The queue pairs of the sender, as iproute2 counts them."""
    (device,) = json.loads(machine.run(f"rdma -j resource show {SENDER}").stdout)
    return int(device["qp"])


def rails(daemon: Daemon) -> list[dict[str, Any]]:
    """The rails of the only job."""
    return [rail for job in daemon.fetch_json("/api/v1/silences")["jobs"] for rail in job["rails"]]


def test_queue_pairs_that_go_with_their_processes_are_noticed(daemon: Daemon, link: Link, cgroups: None) -> None:
    machine = daemon.machine
    daemon.wait_for_samples(SENDER, RECEIVER)
    task = machine.start(["sh", "-c", f"echo $$ >{TASK}/cgroup.procs; exec sleep 600"], "/tmp/task.log")
    machine.wait_until(lambda: list(jobs(daemon)) == ["42"], "the job of Slurm has the devices")
    before = count_queue_pairs(machine)
    programs = link.start(Traffic(messages=10_000_000, message_bytes=4096), options=(*SLOWLY, "-q", "8"))
    machine.wait_until(lambda: count_queue_pairs(machine) == before + 8, "the sender has its queue pairs")
    code = f"from ibpulse.agent.sysfs.netlink import count_queue_pairs as count; print(count({SENDER!r}))"
    assert int(machine.run(f'{" ".join(UNPRIVILEGED)} python3 -c "{code}"').stdout) == before + 8
    machine.wait_until(
        lambda: any(rail["connected_until_ms"] and rail["sent"] for rail in rails(daemon)), "it moves bytes"
    )
    machine.run("sleep 5")
    assert {rail["closed"] for rail in rails(daemon)} == {None}
    from_ms = int(machine.run("date +%s%3N").stdout)
    for program in programs:
        program.kill()
    machine.wait_until(lambda: count_queue_pairs(machine) == before, "the kernel has destroyed them")
    to_ms = int(machine.run("date +%s%3N").stdout)
    machine.wait_until(lambda: all(rail["closed"] for rail in rails(daemon)), "the daemon knows")
    for rail in rails(daemon):
        assert rail["closed"]["ms"] >= from_ms
        assert rail["closed"]["ms"] - rail["closed"]["uncertainty_ms"] <= to_ms
    task.kill()
