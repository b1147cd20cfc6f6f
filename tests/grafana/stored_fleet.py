"""Ten minutes of two nodes of a job, with something wrong on each, in a Prometheus with the recordings."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.grafana.documents import fill
from tests.grafana.stored import Stored
from tests.virtual.node import Node
from tests.virtual.openmetrics import INTERVAL_SECONDS, Scrapes
from tests.virtual.world import SECOND, START_NS, World

NAMES = ("dense", "moe")
SCRAPES = 40
BEGIN = START_NS / SECOND
END = BEGIN + SCRAPES * INTERVAL_SECONDS
FAULTS = {
    "dense": {"slow-rail": {"mlx5_1": 0.4}, "congested": ["mlx5_0"], "bit-errors": ["mlx5_2"]},
    "moe": {"link-flap": ["mlx5_3"]},
}
JOB = {"id": "4711", "scheduler": "slurm"}
"""The job that both nodes run, as a prolog describes it."""
VALUES = {
    **dict.fromkeys(("job", "instance", "device", "job_id", "job_b", "instance_b", "job_id_b"), ".+"),
    "cluster": ".*",
    "__rate_interval": "1m",
    "__range": "5m",
    "shift": "2m",
}
"""Those of the variables of the boards."""


class StoredFleet(Stored):
    """The series of the two, asked as of their last scrape."""

    def has_data(self, expr: str, instant: bool = True) -> bool:
        """Whether a query brings at least one number."""
        query = fill(expr, VALUES)
        if instant:
            series = self.ask("query", query=query, time=str(END))["result"]
            return any(math.isfinite(float(each["value"][1])) for each in series)
        span = {"start": str(END - 300), "end": str(END), "step": str(INTERVAL_SECONDS)}
        series = self.ask("query_range", query=query, **span)["result"]
        return any(math.isfinite(float(value)) for each in series for _, value in each["values"])


@contextmanager
def stored_fleet(folder: Path) -> Iterator[StoredFleet]:
    """A dense node with a slow rail and an MoE node with a port that is down, both with a capture."""
    owners = folder / "owners"
    owners.mkdir(mode=0o755)
    (owners / "4711.json").write_text(json.dumps(JOB))
    write_series(folder, owners)
    stored = StoredFleet(folder)
    stored.store(folder / "series")
    stored.record(BEGIN, END)
    with stored.running():
        yield stored


def write_series(folder: Path, owners: Path) -> None:
    """What Prometheus would scrape."""
    flags = (f"--jobs.owners-dir={owners}", "--slow.xmit-wait-tick=8", "--capture.allow-unauthenticated=true")
    world, series = World(), Scrapes()
    nodes = [Node(folder / name, *flags, rails=4, workload=name, name=name, world=world) for name in NAMES]
    try:
        series.follow(nodes, SCRAPES // 2)
        for node in nodes:
            node.fault(FAULTS[node.name])
            node.post("/api/v1/captures", {"after": "1s"})
        series.follow(nodes, SCRAPES - SCRAPES // 2)
    finally:
        for node in nodes:
            node.close()
        world.close()
    series.write(folder / "series")
