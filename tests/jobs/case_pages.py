"""The jobs of a case as the program shows them: the families of jobs in `/metrics`, and `/api/v1/jobs`.

Golden files hold both for each case. `python -m tests.jobs.case_pages write` keeps what the program shows now; read
every line that changes, because an operator of such a node sees it. It asserts nothing.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from ibpulse.agent.aggregator.snapshot import PortSnapshot, Snapshot
from ibpulse.agent.jobs.job_sources import merge
from ibpulse.agent.jobs.job_watch import JobsView
from ibpulse.agent.jobs.owners import place_jobs
from ibpulse.agent.metrics.node import JOB_ROWS
from ibpulse.agent.web.jobs import describe_jobs
from ibpulse.core.metrics.text import TextFormat, table_text
from ibpulse.core.model import Port
from tests.exposition.snapshots import node as make_snapshot
from tests.jobs.job_nodes import NodeTree
from tests.jobs.job_trees import CASES, Case
from tests.web.rings import Node, full_node

FOLDER = Path(__file__).with_name("golden")


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
        text = table_text(JOB_ROWS, snapshot, TextFormat.PROMETHEUS, ())
        return [line for line in text.splitlines() if not line.startswith("#")]

    def answer(self, view: CaseView) -> dict[str, Any]:
        """The answer of `/api/v1/jobs`, as a client parses it."""
        found: dict[str, Any] = orjson.loads(describe_jobs(self.ring.parts(jobs=lambda: view.jobs)).encode())
        return found

    def text(self, view: CaseView) -> str:
        """Both as the text of a golden file."""
        answer = orjson.dumps(self.answer(view), option=orjson.OPT_INDENT_2).decode()
        shown = answer.replace(f"{view.node.root}/", "")
        return "\n".join(["# /metrics", *self.samples(view), "", "# /api/v1/jobs", shown, ""])


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


def golden_path(case: Case) -> Path:
    """The golden file of a case."""
    return FOLDER / f"{re.sub('[^a-z0-9]+', '-', case.name.lower())}.txt"


def main(arguments: list[str]) -> None:
    """Write the golden files of all cases, and remove those of no case."""
    if arguments != ["write"]:
        raise SystemExit("usage: python -m tests.jobs.case_pages write")
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.iterdir():
        path.unlink()
    with tempfile.TemporaryDirectory() as name, pages_in(Path(name)) as pages:
        for number, case in enumerate(CASES):
            golden_path(case).write_text(pages.text(view_case(case, Path(name) / str(number))))


if __name__ == "__main__":
    main(sys.argv[1:])
