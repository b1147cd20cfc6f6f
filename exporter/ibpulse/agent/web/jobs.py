"""`/api/v1/jobs`, `/api/v1/silences` and `/api/v1/verdicts`: the jobs of the node; and the job that a query names."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter
from pydantic import Field, WithJsonSchema
from starlette.responses import Response

from ibpulse.agent.web.parts import WebParts
from ibpulse.base.errors import RequestError
from ibpulse.base.instants import format_rfc3339
from ibpulse.base.units import MILLISECOND_NS, whole_ms
from ibpulse.core.answers.jobs import (
    HoldingAnswer,
    JobAnswer,
    JobPortsAnswer,
    JobsAnswer,
    SilencesAnswer,
    VerdictsAnswer,
)
from ibpulse.core.http.problems import model, operation
from ibpulse.core.http.requests import choose_key
from ibpulse.core.jobs import MAX_TEXT, ChosenJob, Holding, JobPorts, JobRecord, Key, list_jobs
from ibpulse.core.ring import layout as at

# in a description, which is also in the header of an NPY answer, of which clients read at most 64 KiB
MAX_HOLDINGS, MAX_PORT_NAMES = 32, 512

OptionalJob = Annotated[
    str | None,
    Field(max_length=2 * MAX_TEXT),
    WithJsonSchema({"type": "string", "maxLength": 2 * MAX_TEXT}),
]
JOB_HELP = (
    "Id of a job: only the ports that it had in the span are included, and only while it had them. If two schedulers "
    "have a job with this id, put the scheduler in front: slurm:42."
)


def describe_job_ports(job: ChosenJob, from_ns: int, to_ns: int) -> JobPortsAnswer:
    """The ports of a job between two wall times; if they are very many, the newest."""
    found = [holding for record in job.records for holding in record.holdings]
    newest = [each for each in found if each.ports and each.overlaps(from_ns, to_ns)][: -MAX_HOLDINGS - 1 : -1]
    named = np.cumsum([len(each.ports) for each in newest])
    kept = newest[: max(1, int(np.searchsorted(named, MAX_PORT_NAMES, side="right")))]
    return JobPortsAnswer.model_construct(
        job_id=job.id,
        scheduler=job.key[0],
        running=any(record.ended_ns is None for record in job.records),
        had=[_describe_holding(each) for each in reversed(kept)],
    )


def _describe_holding(holding: Holding) -> HoldingAnswer:
    since, until = holding.since, holding.until
    return HoldingAnswer.model_construct(
        ports=[str(port) for port in holding.ports],
        from_ms=None if since is None else since.time_ns // MILLISECOND_NS,
        from_uncertainty_ms=0 if since is None else -(-since.uncertainty_ns // MILLISECOND_NS),
        to_ms=None if until is None else until.time_ns // MILLISECOND_NS,
        to_uncertainty_ms=0 if until is None else -(-until.uncertainty_ns // MILLISECOND_NS),
    )


def known_jobs(parts: WebParts) -> tuple[JobRecord, ...]:
    """The jobs that are running, and those that ended within the history of the ring, the last one first."""
    reader, view = parts.node.reader, parts.node.jobs.view
    oldest_ns = reader.wall_of(reader.oldest_tick(parts.node.clock.time_ns()))
    return list_jobs(view.records, view.jobs or (), oldest_ns)


def choose_job(parts: WebParts, text: str | None) -> ChosenJob | None:
    """The job of a query, by its id or by its scheduler and its id (`slurm:42`); None for None."""
    if text is None:
        return None
    records = known_jobs(parts)
    return job_of(parts, choose_key((record.job.claim.key for record in records), text), records)


def job_of(parts: WebParts, key: Key, records: Iterable[JobRecord] | None = None) -> ChosenJob:
    """A job of a scheduler, without records if it is not known any more; `records` are those of all jobs."""
    every = known_jobs(parts) if records is None else records
    # the order in which they ran
    mine = tuple(record for record in every if record.job.claim.key == key)[::-1]
    return ChosenJob(key, mine, JobPorts.of(mine, parts.node.reader.ring.words[at.H_CREATED_WALL_NS]))


UNKNOWN_SILENCES = "They are unknown after an internal error."


def add_jobs(router: APIRouter, parts: WebParts) -> None:
    """The routes of jobs, of their silences, and of the verdicts on these."""

    @router.get("/api/v1/jobs", **operation("list_jobs", model(JobsAnswer, "Jobs of the node.")))
    async def jobs() -> Response:
        """Jobs that run, and those that ended within the history, with their ports, begin and end."""
        return Response(describe_jobs(parts).encode(), media_type="application/json")

    answer, reasons = model(SilencesAnswer, "The silences of the jobs that run."), {503: UNKNOWN_SILENCES}

    @router.get("/api/v1/silences", **operation("list_silences", answer, 503, reasons=reasons))
    async def silences() -> Response:
        """Until when each running job moved bytes, by rail, with lost links and lost packets."""
        return Response(describe_silences(parts).encode(), media_type="application/json")

    @router.get("/api/v1/verdicts", **operation("list_verdicts", model(VerdictsAnswer, "The watched jobs.")))
    async def verdicts() -> Response:
        """The jobs that are watched for silence, with the verdicts of this node alone on their last stalls."""
        found = VerdictsAnswer.model_construct(jobs=parts.node.silences.verdicts())
        return Response(found.encode(), media_type="application/json")


def describe_silences(parts: WebParts) -> SilencesAnswer:
    """The answer of the route; a node that cannot tell has not lost its jobs."""
    jobs, state = parts.current.silences(), parts.clock_state()
    if jobs is None:
        raise RequestError(
            503, "Internal error", "The silences of jobs are unknown after an internal error; see the log."
        )
    known = state is not None and state.synchronised
    return SilencesAnswer.model_construct(
        time_ms=parts.node.clock.time_ns() // MILLISECOND_NS,
        clock_error_ms=math.ceil(1000 * state.max_error_seconds) if state and known else None,
        jobs=jobs,
    )


def describe_jobs(parts: WebParts) -> JobsAnswer:
    """The answer of the route."""
    view = parts.node.jobs.view
    return JobsAnswer.model_construct(
        known=view.known,
        sources=list(view.sources),
        jobs=[_describe_job(record) for record in known_jobs(parts)],
        pods=list(view.pods),
        notices=list(view.notices),
    )


def describe_record(record: JobRecord) -> dict[str, Any]:
    """The members that are in all answers about a job."""
    claim = record.job.claim
    return {
        "job_id": claim.id,
        "scheduler": claim.scheduler,
        "name": claim.name,
        "namespace": claim.namespace,
        "ports": [str(port) for port in record.job.ports],
        "began_ms": whole_ms(record.began_ns),
        "began_uncertainty_ms": -(-record.began_uncertainty_ns // MILLISECOND_NS),
        "ended_ms": whole_ms(record.ended_ns),
        "ended_uncertainty_ms": -(-record.ended_uncertainty_ns // MILLISECOND_NS),
    }


def _describe_job(record: JobRecord) -> JobAnswer:
    job = record.job
    claim = job.claim
    return JobAnswer.model_construct(
        **describe_record(record),
        source=claim.source,
        basis=job.basis,
        gpus=[*claim.gpus, *map(str, claim.gpu_indexes)],
        devices=list(claim.devices),
        running=record.ended_ns is None,
        began=_instant(record.began_ns),
        ended=_instant(record.ended_ns),
    )


def _instant(time_ns: int | None) -> str | None:
    return None if time_ns is None else format_rfc3339(time_ns)
