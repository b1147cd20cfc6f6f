"""The nodes of a job, as a gateway knows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated
from urllib.parse import quote

from pydantic import Field

from ibpulse.base.errors import DaemonError
from ibpulse.base.text import first_names
from ibpulse.base.units import MILLISECOND_NS
from ibpulse.core.answers.members import MAX_JOBS, MAX_PORTS, AnswerPart, Name, at_most
from ibpulse.core.client.connection import DaemonConnection
from ibpulse.core.events.event import MAX_INTEGER
from ibpulse.core.statistics.lateness import ClockOffset

MAX_NODES, NAMED_JOBS = 5000, 8
MAX_MS = MAX_INTEGER // MILLISECOND_NS


class _Clock(AnswerPart):
    offset_ms: Annotated[float, Field(ge=-MAX_MS, le=MAX_MS, allow_inf_nan=False)]
    uncertainty_ms: Annotated[float, Field(ge=0, le=MAX_MS, allow_inf_nan=False)]


class _Node(AnswerPart):
    node: Name
    labels: dict[Name, Name] = Field(default_factory=dict)
    clock: _Clock | None = None


class GatewayNodes(AnswerPart):
    """`/api/v1/nodes` of a gateway."""

    nodes: Annotated[list[_Node], at_most(MAX_NODES)]


class _NodeOfJob(AnswerPart):
    node: Name
    ports: Annotated[list[Name], at_most(MAX_PORTS)]


class _Job(AnswerPart):
    job_id: Name
    scheduler: Name
    # a daemon has jobs without nodes
    nodes: Annotated[list[_NodeOfJob], at_most(MAX_NODES)] = Field(default_factory=list)


class _Jobs(AnswerPart):
    jobs: Annotated[list[_Job], at_most(MAX_JOBS * 100)] = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class JobPlace:
    """A node of a job: its name, the path of its daemon at the gateway, its ports, and its clock; None if unknown."""

    node: str
    path: str
    ports: tuple[str, ...]
    clock: ClockOffset | None


def ask_job(connection: DaemonConnection, text: str) -> list[JobPlace]:
    """The nodes of a job with an id, or with a scheduler and an id (`slurm:42`)."""
    jobs = connection.ask(_Jobs, "/api/v1/jobs").jobs
    found = [job for job in jobs if text in (job.job_id, f"{job.scheduler}:{job.job_id}")]
    if any(not job.nodes for job in found):
        raise DaemonError(
            f"{connection.place} is a daemon, not a gateway; omit the job, or give the address of a gateway"
        )
    if len(found) != 1:
        several = " or ".join(f"{job.scheduler}:{job.job_id}" for job in found)
        known = first_names([job.job_id for job in jobs], NAMED_JOBS) or "none"
        raise DaemonError(
            f"job {text!r} of {connection.place}: {f'use {several}' if found else f'not known; it has {known}'}"
        )
    clocks = {each.node: each.clock for each in connection.ask(GatewayNodes, "/api/v1/nodes").nodes}
    return [
        JobPlace(each.node, f"/node/{quote(each.node, safe='')}", tuple(each.ports), _offset(clocks.get(each.node)))
        for each in found[0].nodes
    ]


def _offset(clock: _Clock | None) -> ClockOffset | None:
    if clock is None:
        return None
    return ClockOffset(round(clock.offset_ms * MILLISECOND_NS), round(clock.uncertainty_ms * MILLISECOND_NS))
