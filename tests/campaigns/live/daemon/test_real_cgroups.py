"""A daemon without any privilege sees jobs and pods come and go in hierarchies of cgroups that the kernel keeps."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.campaigns.live.daemon.test_other_users import RunningAs
from tests.fabrics import simulated
from tests.other_users import as_user, needs_other_users, python, shared_directory
from tests.running import Running, eventually

# the user of the image
USER = 65532
UID = "0b3f8c1e-5d2a-4c3b-9e7f-1a2b3c4d5e6f"
MOUNTED = Path("/sys/fs/cgroup")
RAILS = {f"mlx5_{number}" for number in range(4)}


@dataclass
class Hierarchy:
    """A part of a hierarchy that stands for its root, and the programs in it; `places` are for a job and a pod."""

    base: Path
    places: tuple[str, str]
    programs: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def begin(self, path: str) -> None:
        """Make a cgroup with a program in it, and those above it that are missing."""
        below = Path(path)
        for folder in (*reversed(below.parents[:-1]), below):
            (self.base / folder).mkdir(exist_ok=True)
        self.programs[path] = subprocess.Popen(["sleep", "600"])
        (self.base / path / "cgroup.procs").write_text(str(self.programs[path].pid))

    def end(self, path: str) -> None:
        """End the program of a cgroup and remove both, and the cgroup above."""
        program = self.programs.pop(path)
        program.kill()
        program.wait()
        for folder in (self.base / path, (self.base / path).parent):
            eventually(partial(remove, folder))

    def job(self, number: int) -> str:
        """The path of a step of a job."""
        return f"{self.places[0]}/job_{number}/step_0"

    def pod(self) -> str:
        """The path of a container of a pod."""
        return f"{self.places[1]}/cri-containerd-0123456789abcdef.scope"


def remove(folder: Path) -> bool:
    """Whether a cgroup could be removed; it is busy until the kernel has buried its processes."""
    try:
        folder.rmdir()
    except OSError:
        return False
    return True


VERSION_1 = (
    "slurm/uid_1000",
    f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice",
)
VERSION_2 = ("system.slice/slurmstepd.scope", f"kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice")


@contextmanager
def hierarchy(tree: Path, version: int) -> Iterator[Hierarchy]:
    """A hierarchy as the cgroups of a tree; skips where the kernel has none of that version, or root may not write."""
    # with both versions mounted, that of version 2 is `unified`
    second = next((root for root in (MOUNTED, MOUNTED / "unified") if (root / "cgroup.controllers").exists()), None)
    root = MOUNTED / "freezer" if version == 1 else second
    if root is None or not (root / "cgroup.procs").exists():
        pytest.skip(f"no hierarchy of cgroups of version {version}")
    made = Hierarchy(root / f"ibpulse-test-{os.getpid()}", VERSION_1 if version == 1 else VERSION_2)
    try:
        made.base.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made: {error}")
    (tree / "fs").mkdir()
    if version == 2:
        (tree / "fs/cgroup").symlink_to(made.base)
    else:
        (tree / "fs/cgroup").mkdir()
        (tree / "fs/cgroup/freezer").symlink_to(made.base)
    try:
        yield made
    finally:
        for program in made.programs.values():
            program.kill()
            program.wait()
        for name, _, _ in os.walk(made.base, topdown=False):
            eventually(partial(remove, Path(name)))


def ask_jobs(daemon: Running) -> Any:
    return daemon.ask("/api/v1/jobs").json()


def is_unprivileged(daemon: Running) -> bool:
    """Whether the daemon runs as the user, without capabilities."""
    status = Path(f"/proc/{daemon.pid}/status").read_text()
    return f"\nUid:\t{USER}\t{USER}\t" in status and "\nCapEff:\t0000000000000000\n" in status


@needs_other_users
@pytest.mark.parametrize("version", [1, 2])
def test_an_unprivileged_daemon_sees_jobs_and_pods_at_the_next_reading(version: int) -> None:
    with (
        shared_directory() as shared,
        simulated(shared / "tree", "constant", ports=4) as tree,
        hierarchy(tree, version) as cgroups,
        RunningAs(as_user(USER), tree, shared / "ring", "--slow.interval=1s", "--jobs.owners-dir=") as daemon,
    ):
        assert is_unprivileged(daemon)
        assert not daemon.metrics().find("ibpulse_node_jobs")
        # Slurm is there, without a job; version 2 has its daemon's own cgroup beside those of jobs
        cgroups.begin(cgroups.places[0] if version == 1 else f"{cgroups.places[0]}/system")
        eventually(lambda: daemon.metrics().find("ibpulse_node_jobs"))
        assert daemon.metrics().value("ibpulse_node_jobs") == 0
        cgroups.begin(cgroups.job(11))
        eventually(lambda: daemon.metrics().owners() == {"11": RAILS})
        cgroups.begin(cgroups.job(12))
        # nothing says which rails belong to which of them
        eventually(lambda: daemon.metrics().value("ibpulse_node_jobs") == 2)
        assert daemon.metrics().owners() == {}
        cgroups.end(cgroups.job(11))
        eventually(lambda: daemon.metrics().owners() == {"12": RAILS})
        cgroups.begin(cgroups.pod())
        eventually(lambda: ask_jobs(daemon)["pods"] == [UID])
        cgroups.end(cgroups.pod())
        eventually(lambda: ask_jobs(daemon)["pods"] == [])
        answer = ask_jobs(daemon)
        assert [(job["job_id"], job["running"]) for job in answer["jobs"]] == [("12", True), ("11", False)]
        assert all(job["began"] is not None for job in answer["jobs"])
        # only root makes cgroups at these places
        make = "import os, sys\ntry: os.mkdir(sys.argv[1])\nexcept PermissionError: print('refused')"
        for place in (cgroups.base, cgroups.base / cgroups.places[0]):
            assert python(USER, make, place / "job_99") == "refused\n"
