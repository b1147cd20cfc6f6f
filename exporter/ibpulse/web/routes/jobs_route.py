"""`/api/v1/jobs`: the jobs of the node, those that run and those that ended within the history."""

from __future__ import annotations

import math
from typing import Any

import orjson
from fastapi import APIRouter
from starlette.responses import Response

from ibpulse.instants import format_rfc3339
from ibpulse.jobs.job_history import JobRecord
from ibpulse.units import MILLISECOND_NS
from ibpulse.web.job_choice import describe_moment, known_jobs
from ibpulse.web.parts import WebParts
from ibpulse.web.schemas import JobsAnswer, operation


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
        return Response(orjson.dumps(describe_jobs(parts)), media_type="application/json")

    return router


def describe_jobs(parts: WebParts) -> dict[str, Any]:
    """The answer of the route as plain values."""
    view = parts.jobs()
    return {
        "known": view.known,
        "sources": list(view.sources),
        "jobs": [{**_describe(record), "traffic": _describe_traffic(parts, record)} for record in known_jobs(parts)],
        "pods": list(view.pods),
        "notices": list(view.notices),
    }


def _describe(record: JobRecord) -> dict[str, Any]:
    job = record.job
    claim = job.claim
    return {
        **claim.members,
        "ports": [str(port) for port in job.ports],
        "basis": job.basis,
        "gpus": [*claim.gpus, *map(str, claim.gpu_indexes)],
        "devices": list(claim.devices),
        "running": record.ended_ns is None,
        "began": _instant(record.began_ns),
        **describe_moment("began", record.began_ns, record.began_uncertainty_ns),
        "ended": _instant(record.ended_ns),
        **describe_moment("ended", record.ended_ns, record.ended_uncertainty_ns),
    }


def _describe_traffic(parts: WebParts, record: JobRecord) -> dict[str, Any] | None:
    """Until when a job moved bytes; None if that is not known."""
    snapshot = parts.snapshot()
    job = snapshot.statistics_of(record.job.claim.key) if snapshot and record.ended_ns is None else None
    if job is None:
        return None
    found: dict[str, Any] = {
        "since_ms": job.since_ns // MILLISECOND_NS,
        "known_until_ms": None if job.known_until_ns is None else job.known_until_ns // MILLISECOND_NS,
        "step_period_seconds": None if job.step_seconds is None or math.isnan(job.step_seconds) else job.step_seconds,
    }
    for name, last in zip(("last", "last_transmit", "last_receive"), job.silences, strict=True):
        # whole ms outwards, so that it is certain
        high_ms = None if last is None else -(-last.high_ns // MILLISECOND_NS)
        found[f"{name}_ms"] = high_ms
        found[f"{name}_uncertainty_ms"] = 0 if last is None else (high_ms or 0) - last.low_ns // MILLISECOND_NS
    return found


def _instant(time_ns: int | None) -> str | None:
    return None if time_ns is None else format_rfc3339(time_ns)
