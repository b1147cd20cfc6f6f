"""`/api/v1/jobs`: the jobs of the node, those that run and those that ended within the history."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import APIRouter
from starlette.responses import Response

from ibpulse.instants import format_rfc3339
from ibpulse.jobs.job_history import JobRecord
from ibpulse.units import MILLISECOND_NS
from ibpulse.web.job_choice import known_jobs
from ibpulse.web.parts import WebParts
from ibpulse.web.schemas import JobsAnswer


def jobs_router(parts: WebParts) -> APIRouter:
    """The jobs route."""
    router = APIRouter()

    @router.get("/api/v1/jobs", responses={200: {"model": JobsAnswer, "description": "Jobs of the node."}})
    async def jobs() -> Response:
        """Jobs that run, and those that ended within the history, with their ports, begin and end."""
        return Response(orjson.dumps(describe_jobs(parts)), media_type="application/json")

    return router


def describe_jobs(parts: WebParts) -> dict[str, Any]:
    """The answer of the route as plain values."""
    view = parts.jobs()
    return {
        "known": view.jobs is not None,
        "sources": list(view.sources),
        "jobs": list(map(_describe, known_jobs(parts))),
        "pods": list(view.pods),
        "notices": list(view.notices),
    }


def _describe(record: JobRecord) -> dict[str, Any]:
    job = record.job
    claim = job.claim
    return {
        "job_id": claim.id,
        "scheduler": claim.scheduler,
        "source": claim.source,
        "name": claim.name,
        "namespace": claim.namespace,
        "ports": [str(port) for port in job.ports],
        "basis": job.basis,
        "gpus": [*claim.gpus, *map(str, claim.gpu_indexes)],
        "devices": list(claim.devices),
        "running": record.ended_ns is None,
        "began": _instant(record.began_ns),
        "began_ms": None if record.began_ns is None else record.began_ns // MILLISECOND_NS,
        "began_uncertainty_ms": -(-record.began_uncertainty_ns // MILLISECOND_NS),
        "ended": _instant(record.ended_ns),
        "ended_ms": None if record.ended_ns is None else record.ended_ns // MILLISECOND_NS,
        "ended_uncertainty_ms": -(-record.ended_uncertainty_ns // MILLISECOND_NS),
    }


def _instant(time_ns: int | None) -> str | None:
    return None if time_ns is None else format_rfc3339(time_ns)
