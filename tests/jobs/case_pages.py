"""The jobs of a node as the program shows them: the families of jobs in `/metrics`, and `/api/v1/jobs`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from ibpulse.agent.aggregator.snapshot import PortSnapshot, Snapshot
from ibpulse.agent.jobs.owners import place_jobs
from ibpulse.agent.jobs.sources import merge
from ibpulse.agent.jobs.watch import JobsView
from ibpulse.agent.metrics import job_rows
from ibpulse.agent.web.routes.jobs_route import describe_jobs
from ibpulse.core.metrics.text import TextFormat, table_text
from ibpulse.core.model import Port
from tests.exposition.snapshots import node as make_snapshot
from tests.jobs.job_nodes import NodeTree
from tests.jobs.job_trees import Case
from tests.web.rings import Node, full_node


@dataclass(frozen=True)
class CaseView:
    """What a daemon finds on the node of a case."""

    jobs: JobsView
    ports: tuple[Port, ...]
    node: NodeTree


def view_case(case: Case, root: Path) -> CaseView:
    """Build the node of a case below a directory and read it."""
    node = NodeTree(root)
    case.build(node)
    fabric = node.add_rails()
    merged = merge(node.read())
    placement = place_jobs(merged.claims or (), fabric.ports, fabric.topology, whole=merged.known)
    jobs = None if merged.claims is None else placement.jobs
    notices = (*merged.remarks, *placement.remarks)
    view = JobsView(jobs, merged.present, merged.pods, notices, whole=merged.known)
    return CaseView(view, fabric.ports, node)


@dataclass(frozen=True)
class Pages:
    """Writes the pages; only the ports and the jobs of the snapshot matter, and these are replaced."""

    base: Snapshot
    ring: Node

    def samples(self, view: CaseView) -> list[str]:
        """The samples of the families of jobs in `/metrics`."""
        ports = tuple(map(PortSnapshot, view.ports))
        snapshot = replace(self.base, ports=ports, jobs=view.jobs.jobs, jobs_known=view.jobs.whole, job_statistics=())
        text = table_text(job_rows.ROWS, snapshot, TextFormat.PROMETHEUS, ())
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
