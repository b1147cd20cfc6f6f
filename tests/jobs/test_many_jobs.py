"""A node on which short jobs come and go beside a long one: memory and events are bounded and right.

The clock is simulated; the mapping directory, its readings, the events and their file are real.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ibpulse.agent.jobs.sources import JobSources, choose_sources
from ibpulse.agent.jobs.watch import JobWatch
from ibpulse.core.events import EventLog
from ibpulse.core.events.log import EventFile, read_events
from ibpulse.core.jobs import trace_jobs
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.layout import H_CREATED_WALL_NS
from ibpulse.core.ring.reader import RingReader
from tests.clocks import GivenClock
from tests.jobs.job_nodes import GPUS, NodeTree
from tests.jobs.test_watch import wait_for

SECONDS = 5.0
# each of the last four GPUs runs one short job after another
TURN_READINGS = 4
# events of a kind that a smaller log keeps
KEPT = 50


class BusyNode:
    """A node with a long job on four GPUs, and short ones on one GPU each; it counts the short ones that began."""

    def __init__(self, root: Path) -> None:
        self.tree, self.now, self.readings, self.began = NodeTree(root / "node"), 0.0, 0, 0
        self.fabric = self.tree.add_rails()
        self.tree.mapping.mkdir()
        self.ring = RingFile.open_or_create(root / "ring", 10_000_000, 30_000)
        self.ring.begin_segment(1, 0)
        self.reader = RingReader(self.ring)
        self.path = root / "events"
        self.start()
        self.read()
        self.tree.map(**{f"gpu{gpu}": "long-1" for gpu in range(4)})

    def start(self) -> None:
        """A new daemon."""
        self.log = EventLog(EventFile(self.path))
        self.log.load(self.ring.words[H_CREATED_WALL_NS])
        sources = JobSources(
            choose_sources(None, self.tree.mapping, None), clock=GivenClock(lambda: self.now, time.time_ns)
        )
        self.watch = JobWatch(sources, self.log, self.reader, SECONDS, clock=GivenClock(lambda: self.now, time.time_ns))

    def read(self) -> None:
        """One reading, whose jobs are followed."""
        self.now += SECONDS
        self.watch.update(self.fabric)
        wait_for("jobs-slurm-map")
        self.watch.update(self.fabric)

    def turn(self) -> None:
        """The next reading, before which short jobs began and ended."""
        for gpu in range(4, GPUS):
            at = (self.readings + (gpu - 4) * TURN_READINGS // 4) % TURN_READINGS
            path = self.tree.mapping / str(gpu)
            if at == 0:
                self.began += 1
                self.tree.map(**{f"gpu{gpu}": f"short-{self.began}"})
            elif at == TURN_READINGS - 2:
                path.unlink(missing_ok=True)
        self.readings += 1
        self.read()

    def running(self) -> set[str]:
        """The jobs of the mapping files."""
        return {path.read_text() for path in self.tree.mapping.iterdir()}

    def records(self) -> Counter[str]:
        """How often each job of the events is running, and ended."""
        states = Counter[str]()
        for record in trace_jobs(self.log.events()):
            states[f"{record.job.claim.id} {'running' if record.ended_ns is None else 'ended'}"] += 1
        return states


@pytest.fixture
def node(tmp_path: Path) -> Iterator[BusyNode]:
    made = BusyNode(tmp_path)
    yield made
    made.log.close()
    made.ring.close()


def test_memory_and_events_are_bounded_however_many_jobs_there_were(
    node: BusyNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs that take ten seconds each, one after another on each GPU: more than the log keeps."""
    monkeypatch.setattr("ibpulse.core.events.log.MAX_PER_KIND", KEPT)
    tracemalloc.start()
    for _ in range(KEPT * 3 // 2):
        node.turn()
    gc.collect()
    memory, size = tracemalloc.get_traced_memory()[0], node.path.stat().st_size
    for _ in range(KEPT):
        node.turn()
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - memory
    tracemalloc.stop()
    assert grown < 200_000
    assert node.path.stat().st_size < 3 * size
    kinds = Counter(event.kind for event in node.log.events())
    assert max(kinds.values()) <= KEPT
    assert kinds["job-began"] > KEPT - GPUS
    # the file was written anew, without those that were forgotten
    assert len(read_events(node.path)) < node.log.added
    # every job that is kept is kept whole
    running, states = node.running(), node.records()
    assert {job.removesuffix(" running") for job in states if job.endswith(" running")} == running
    assert max(states.values()) == 1
    assert all(record.began_ns for record in trace_jobs(node.log.events()))
    # and so it is for a daemon that starts now
    before = node.log.events()
    node.log.close()
    node.start()
    node.read()
    assert {job.claim.id for job in node.watch.view.jobs or ()} == running
    assert node.log.events() == before
