"""A node of 8 GPUs and 8 rails, to which jobs are added as real directories and files. It asserts nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from ibpulse.agent.aggregator.snapshot import PortSnapshot, Snapshot
from ibpulse.agent.jobs.watch import JobsView, Source, choose_sources
from ibpulse.agent.metrics.node import JOB_ROWS
from ibpulse.agent.sysfs.inventory import Inventory
from ibpulse.agent.web.jobs import describe_jobs
from ibpulse.core.jobs import Found
from ibpulse.core.metrics.text import TextFormat, table_text
from ibpulse.core.model import Fabric, Port
from tests.exposition.snapshots import node as make_snapshot
from tests.running import HANG_SECONDS
from tests.sysfs.machines import Machine
from tests.web.rings import Node, full_node

GPUS = 8
ADDRESSES = tuple(f"0000:{number + 1}9:00.0" for number in range(GPUS))
RAILS = tuple(f"mlx5_{number}" for number in range(GPUS))
UID = "0b3f8c1e-5d2a-4c3b-9e7f-1a2b3c4d5e6f"
OTHER_UID = "7f3d9a10-0c4e-4d5f-8a6b-9c0d1e2f3a4b"
STATIC_UID = "5f1b2c3d4e5f60718293a4b5c6d7e8f9"


def under(uid: str) -> str:
    """A UID in the names of systemd."""
    return uid.replace("-", "_")


class NodeTree:
    """The directories of one node: `sys`, `mapping` and `owners`; the last two do not exist until they are used."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.machine = Machine(root / "sys")
        self.cgroup, self.mapping, self.owners = root / "sys/fs/cgroup", root / "mapping", root / "owners"

    def add_rails(self) -> Fabric:
        """Eight rails, each below a switch with a GPU, as found by a scan."""
        for number, name in enumerate(RAILS):
            root = f"{number + 1}0"
            switch = f"{root}/{root}:01.0/{root[0]}1:00.0"
            self.machine.add_nic(name, f"{switch}/{root[0]}2:00.0/{root[0]}3:00.0", number // 4)
            self.machine.add_gpu(f"{switch}/{root[0]}2:01.0/{root[0]}9:00.0", number // 4)
        return Inventory(self.machine.root, timeout_seconds=HANG_SECONDS).scan()

    def group(self, path: str, **files: str) -> Path:
        """A cgroup with files; a double underscore in a name stands for a dot."""
        folder = self.cgroup / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name.replace("__", ".")).write_text(text)
        return folder

    def slurm(self, *paths: str, scope: str = "system.slice/slurmstepd.scope") -> None:
        """Cgroups of version 2 below Slurm's scope, all with processes."""
        self.group(f"{scope}/system", cgroup__events="populated 1\nfrozen 0\n")
        for path in paths:
            self.group(f"{scope}/{path}", cgroup__events="populated 1\nfrozen 0\n")

    def slurm_1(self, *paths: str, first: str = "slurm") -> None:
        """Cgroups of version 1 in each controller that Slurm uses."""
        for controller in ("cpuset", "devices", "freezer", "memory"):
            for path in paths:
                self.group(f"{controller}/{first}/{path}", tasks="")

    def map(self, **files: str) -> None:
        """Mapping files; `gpu0_1` stands for `0.1`."""
        self.mapping.mkdir(exist_ok=True)
        for name, text in files.items():
            (self.mapping / name.removeprefix("gpu").replace("_", ".")).write_text(text)

    def document(self, **members: object) -> Path:
        """A document about a job."""
        self.owners.mkdir(exist_ok=True)
        path = self.owners / f"{members['id']}.json"
        path.write_text(json.dumps(members))
        return path

    def sources(self) -> Mapping[str, Source]:
        """The sources of this node."""
        return choose_sources(self.cgroup, self.mapping, self.owners)

    def read(self) -> Mapping[str, Found]:
        """What each source finds."""
        return {name: source() for name, source in self.sources().items()}


@dataclass(frozen=True)
class CaseView:
    """What a daemon finds on the node of a case."""

    jobs: JobsView
    ports: tuple[Port, ...]
    node: NodeTree


@dataclass(frozen=True)
class Pages:
    """Writes the pages; only the ports and the jobs of the snapshot matter, and these are replaced."""

    base: Snapshot
    ring: Node

    def samples(self, view: CaseView) -> list[str]:
        """The samples of the families of jobs in `/metrics`."""
        ports = tuple(map(PortSnapshot, view.ports))
        snapshot = replace(self.base, ports=ports, jobs=view.jobs.jobs, jobs_known=view.jobs.whole, job_statistics=())
        text = table_text(JOB_ROWS, snapshot, TextFormat.PROMETHEUS, ())
        return [line for line in text.splitlines() if not line.startswith("#")]

    def answer(self, view: CaseView) -> dict[str, Any]:
        """The answer of `/api/v1/jobs`, as a client parses it."""
        found: dict[str, Any] = orjson.loads(describe_jobs(self.ring.parts(jobs=lambda: view.jobs)).encode())
        return found


@contextmanager
def pages_in(folder: Path) -> Iterator[Pages]:
    """Pages around a ring in a directory."""
    (folder / "snapshot").mkdir()
    (folder / "ring").mkdir()
    ring = full_node(folder / "ring")
    try:
        yield Pages(make_snapshot(folder / "snapshot", 1), ring)
    finally:
        ring.ring.close()
