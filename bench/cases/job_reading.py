"""The cost of reading which jobs run on the node, from no job to as many as are considered."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from statistics import median

from bench.bench import PORTS, Bench
from bench.history import filled_ring
from bench.report import Budget, Section, Table, milliseconds, percent
from bench.snapshots import INTERVAL_NS
from ibpulse.agent.jobs.watch import JobSources, JobWatch, choose_sources
from ibpulse.base.units import SECOND_NS
from ibpulse.core.events import EventLog
from ibpulse.core.model import Fabric
from ibpulse.core.ring.reader import RingReader
from tests.clocks import GivenClock
from tests.jobs.job_nodes import GPUS, UID, NodeTree

INTERVAL_SECONDS = 5.0
LIMIT = 0.001
MAX_JOBS, MAX_DOCUMENTS, MAX_MAPPED, PODS = 256, 64, 256, 110
METHOD = f"""\
All four sources are read in their threads, merged, placed on the ports of a node with {GPUS} GPUs and {PORTS} rails and
compared with the reading before, as every `slow.interval` ({INTERVAL_SECONDS:g} s). Cgroups and files are on tmpfs."""


def run(bench: Bench) -> Section:
    """Measure nodes with more and more jobs."""
    reader = filled_ring(bench.new_folder("ring") / "ring", INTERVAL_NS, PORTS, 1)
    costs = {what: _measure(bench, reader, build) for what, build in NODES.items()}
    rows = [[what, milliseconds(cost), percent(cost / INTERVAL_SECONDS, 3)] for what, cost in costs.items()]
    share = costs[BUSY] / INTERVAL_SECONDS
    budget = Budget("reading jobs, eight jobs on 8 ports", "≤ 0.1 % of one core", percent(share, 3), share <= LIMIT)
    return Section("Jobs", METHOD, [Table(["node", "CPU per reading", "of one core"], rows)], (), [budget])


def _measure(bench: Bench, reader: RingReader, build: Callable[[NodeTree], None]) -> float:
    """CPU seconds of one reading."""
    node = NodeTree(bench.new_folder("node"))
    fabric = node.add_rails()
    build(node)
    clock = _Clock()
    given = GivenClock(lambda: clock.now, lambda: round(clock.now * SECOND_NS))
    sources = JobSources(choose_sources(node.cgroup, node.mapping, node.owners), clock=given)
    watch = JobWatch(sources, EventLog(), reader, INTERVAL_SECONDS, clock=given)
    _read(watch, fabric, clock)
    return median(_read(watch, fabric, clock) for _ in range(bench.rounds(60)))


class _Clock:
    """Seconds that pass only when the benchmark lets them."""

    now = 0.0


def _read(watch: JobWatch, fabric: Fabric, clock: _Clock) -> float:
    clock.now += INTERVAL_SECONDS
    begun = time.process_time()
    watch.update(fabric)
    for thread in threading.enumerate():
        if thread.name.startswith("jobs-"):
            thread.join()
    watch.update(fabric)
    return time.process_time() - begun


def _eight_jobs(node: NodeTree) -> None:
    node.slurm(*(f"job_{number}/step_0" for number in range(1, GPUS + 1)))
    node.map(**{f"gpu{number}": str(number + 1) for number in range(GPUS)})


def _pods(node: NodeTree) -> None:
    for number in range(PODS):
        uses = f"mlx5_{number % PORTS} hca_handle={int(number < GPUS)} hca_object=0\n"
        node.group(f"kubepods/burstable/pod{number:08x}{UID[8:]}", rdma__current=uses)


def _documents(node: NodeTree) -> None:
    for number in range(MAX_DOCUMENTS):
        node.document(id=str(number), scheduler="slurm", devices=[f"mlx5_{number % PORTS}"])


def _everything(node: NodeTree) -> None:
    _documents(node)
    _pods(node)
    node.slurm(*(f"job_{number}/step_0" for number in range(1, 2 * MAX_JOBS)))
    node.map(**{f"gpu{number % GPUS}_{number // GPUS}": str(number) for number in range(MAX_MAPPED)})
    for number in range(10_000 - MAX_DOCUMENTS):
        (node.owners / f"odd {number}").touch()


BUSY = "eight jobs of Slurm, each on a GPU"
NODES: dict[str, Callable[[NodeTree], None]] = {
    "no source": lambda node: None,
    "one job of Slurm": lambda node: node.slurm("job_1/step_0"),
    BUSY: _eight_jobs,
    f"{PODS} pods, eight of them with a device": _pods,
    f"{MAX_DOCUMENTS} documents": _documents,
    "all sources beyond their limits, 10,000 files": _everything,
}
