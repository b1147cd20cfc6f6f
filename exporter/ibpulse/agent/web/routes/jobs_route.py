"""`/api/v1/jobs`: the jobs of the node, those that run and those that ended within the history."""

from __future__ import annotations

import math

from fastapi import APIRouter
from starlette.responses import Response

from ibpulse.agent.aggregator.snapshot import LastTraffic
from ibpulse.agent.web.job_choice import known_jobs
from ibpulse.agent.web.parts import WebParts
from ibpulse.base.instants import format_rfc3339
from ibpulse.base.units import MILLISECOND_NS
from ibpulse.core.answers.jobs import JobAnswer, JobsAnswer, JobTrafficAnswer
from ibpulse.core.http.schemas import operation
from ibpulse.core.jobs import JobRecord


def jobs_router(parts: WebParts) -> APIRouter:
    """The jobs route."""
    router = APIRouter()

    @router.get(
        "/api/v1/jobs",
        **operation("list_jobs"),
        responses={200: {"model": JobsAnswer, "description": "Jobs of the node."}},
    )
    async def jobs() -> Response:
        """Jobs that run, and those that ended within the history, with their ports, begin and end."""
        return Response(describe_jobs(parts).encode(), media_type="application/json")

    return router


def describe_jobs(parts: WebParts) -> JobsAnswer:
    """The answer of the route."""
    view = parts.node.jobs.view
    return JobsAnswer.model_construct(
        known=view.known,
        sources=list(view.sources),
        jobs=[_describe(record, _describe_traffic(parts, record)) for record in known_jobs(parts)],
        pods=list(view.pods),
        notices=list(view.notices),
    )


def _describe(record: JobRecord, traffic: JobTrafficAnswer | None) -> JobAnswer:
    job = record.job
    claim = job.claim
    return JobAnswer.model_construct(
        job_id=claim.id,
        scheduler=claim.scheduler,
        source=claim.source,
        name=claim.name,
        namespace=claim.namespace,
        ports=[str(port) for port in job.ports],
        basis=job.basis,
        gpus=[*claim.gpus, *map(str, claim.gpu_indexes)],
        devices=list(claim.devices),
        running=record.ended_ns is None,
        began=_instant(record.began_ns),
        began_ms=_whole_ms(record.began_ns),
        began_uncertainty_ms=-(-record.began_uncertainty_ns // MILLISECOND_NS),
        ended=_instant(record.ended_ns),
        ended_ms=_whole_ms(record.ended_ns),
        ended_uncertainty_ms=-(-record.ended_uncertainty_ns // MILLISECOND_NS),
        traffic=traffic,
    )


def _describe_traffic(parts: WebParts, record: JobRecord) -> JobTrafficAnswer | None:
    """Until when a job moved bytes; None if that is not known."""
    snapshot = parts.current.get()
    job = snapshot.statistics_of(record.job.claim.key) if snapshot and record.ended_ns is None else None
    if job is None:
        return None
    (last, last_unsure), (sent, sent_unsure), (received, received_unsure) = map(_outwards, job.silences)
    return JobTrafficAnswer.model_construct(
        since_ms=job.since_ns // MILLISECOND_NS,
        known_until_ms=_whole_ms(job.known_until_ns),
        step_period_seconds=None if job.step_seconds is None or math.isnan(job.step_seconds) else job.step_seconds,
        last_ms=last,
        last_uncertainty_ms=last_unsure,
        last_transmit_ms=sent,
        last_transmit_uncertainty_ms=sent_unsure,
        last_receive_ms=received,
        last_receive_uncertainty_ms=received_unsure,
    )


def _outwards(last: LastTraffic | None) -> tuple[int | None, int]:
    """A moment in whole ms and its uncertainty, rounded so that it is certain; None for no traffic."""
    if last is None:
        return None, 0
    high_ms = -(-last.high_ns // MILLISECOND_NS)
    return high_ms, high_ms - last.low_ns // MILLISECOND_NS


def _whole_ms(time_ns: int | None) -> int | None:
    return None if time_ns is None else time_ns // MILLISECOND_NS


def _instant(time_ns: int | None) -> str | None:
    return None if time_ns is None else format_rfc3339(time_ns)
