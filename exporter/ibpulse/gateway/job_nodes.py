"""The jobs of all nodes: which nodes a job has, and since when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ibpulse.base.text import first_names, natural_key
from ibpulse.core.answers.jobs import JobAnswer
from ibpulse.core.http.problems import ProblemError, bad_parameter
from ibpulse.core.jobs import Key
from ibpulse.gateway.nodes.node_table import NodeState

NAMED_JOBS, MAX_KNOWN = 20, 256


@dataclass(slots=True)
class FleetJob:
    """A job of a scheduler, with what each of its nodes says of it last."""

    key: Key
    nodes: dict[str, JobAnswer] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The job as a parameter of the API of a node."""
        return ":".join(self.key)

    @property
    def name(self) -> str:
        """Its name, empty if no node gives it."""
        return next((each.name for each in self.nodes.values() if each.name), "")

    @property
    def began(self) -> tuple[int | None, int]:
        """When its first node saw it begin, in ms, and how much earlier that may have been; None if it is unknown."""
        found = [
            (each.began_ms, each.began_uncertainty_ms) for each in self.nodes.values() if each.began_ms is not None
        ]
        return min(found) if len(found) == len(self.nodes) and found else (None, 0)

    @property
    def ended(self) -> tuple[int | None, int]:
        """When its last node saw it end, in ms, and how much earlier that may have been; None while it runs."""
        found = [
            (each.ended_ms, each.ended_uncertainty_ms) for each in self.nodes.values() if each.ended_ms is not None
        ]
        return max(found) if len(found) == len(self.nodes) and found else (None, 0)

    def about(self) -> dict[str, Any]:
        """The members of `job` in the event `rows`."""
        return {
            "job_id": self.key[1],
            "scheduler": self.key[0],
            "name": self.name,
            "began_ms": self.began[0],
            "ended_ms": self.ended[0],
        }


def list_jobs(states: Iterable[NodeState]) -> dict[Key, FleetJob]:
    """The jobs of all nodes, by scheduler and id. A node that had one several times gives its last time."""
    found: dict[Key, FleetJob] = {}
    for state in sorted(states, key=lambda one: natural_key(one.name)):
        for job in state.jobs.jobs if state.jobs else ():
            nodes = found.setdefault((job.scheduler, job.job_id), FleetJob((job.scheduler, job.job_id))).nodes
            known = nodes.get(state.name)
            if known is None or _newness(job) > _newness(known):
                nodes[state.name] = job
    return found


def _newness(job: JobAnswer) -> tuple[bool, int]:
    return job.running, job.ended_ms or 0


def choose_job(states: Iterable[NodeState], text: str) -> FleetJob:
    """The job of some nodes with an id, or with a scheduler and an id (`slurm:42`).

    Raises:
        ProblemError: there is no such job, or several schedulers have one.
    """
    return pick_job(list_jobs(states), text)


def pick_job(jobs: Mapping[Key, FleetJob], text: str) -> FleetJob:
    """The same of jobs that are listed already."""
    found = [job for key, job in jobs.items() if text in (key[1], job.text)]
    if not found:
        ids = list(dict.fromkeys(identity for _, identity in jobs))
        reason = f"No such job: {text[:64]!r}. Known jobs: {first_names(ids, NAMED_JOBS) or 'none'}."
        raise ProblemError("unknown-job", 404, reason, known_jobs=ids[:MAX_KNOWN])
    if len(found) > 1:
        names = sorted(job.text for job in found)
        raise bad_parameter("job", f"{text[:64]!r} is the id of several jobs; use {' or '.join(names[:NAMED_JOBS])}")
    return found[0]
