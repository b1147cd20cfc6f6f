"""Logs of events in closed form, for a node at the time of `full_node`."""

from __future__ import annotations

from ibpulse.agent.jobs.watch import JobsView
from ibpulse.core.events import Event, EventLog
from ibpulse.core.jobs import Claim, PlacedJob, job_details, trace_jobs
from ibpulse.core.model import PortId, PortState
from ibpulse.core.ring import layout as at
from tests.web.rings import EPOCH, INTERVAL_NS, Node

NOW_NS = (EPOCH + 1005) * 10**7 + 1
UP = PortState("ACTIVE", "LinkUp", True, 5e10, True)
DOWN = PortState("DOWN", "Polling", False, 5e10, True)
KINDS_USED = ("link-down", "link-up", "quarantined")
SUBJECTS = ("mlx5_0:1", "mlx5_1:1", "mlx5_0", "mlx5_7:1", "")


def make_log(count: int) -> EventLog:
    """An event every 2 s, the newest 1 s ago, with kinds and subjects in turn, added oldest first."""
    log = EventLog()
    for number in range(count):
        time_ns = NOW_NS - 10**9 * (2 * (count - number) - 1)
        kind, subject = KINDS_USED[number % 3], SUBJECTS[number % 5]
        states = (UP, DOWN) if kind == "link-down" else (None, None)
        log.add(Event(time_ns, kind, subject, f"event {number}", 1_500_001, *states, details={"number": number}))
    return log


def placed(job: str, *devices: str, scheduler: str = "slurm") -> PlacedJob:
    """A job on the first ports of devices."""
    claim = Claim(job, scheduler, "file", "llama", "team")
    return PlacedJob(claim, tuple(PortId(device, 1) for device in devices), "gpus" if devices else "")


def view_jobs(log: EventLog, *running: PlacedJob) -> JobsView:
    """The jobs that a daemon with this log knows while these run."""
    return JobsView(running, records=trace_jobs(log.events()))


def job_event(node: Node, tick: int, kind: str, job: PlacedJob, *, known: bool = True, uncertain: int = 20) -> Event:
    """An event about a job, noticed at a tick of the node's ring, at most `uncertain` ticks late."""
    return Event(
        tick * INTERVAL_NS,
        kind,
        "",
        f"job {job.claim.id}: {kind}",
        uncertain * INTERVAL_NS,
        details=job_details(job, known=known),
        tick=tick,
        ring=node.ring.words[at.H_CREATED_WALL_NS],
    )
