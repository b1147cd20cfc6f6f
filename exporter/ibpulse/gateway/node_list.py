"""`/api/v1/nodes`: all nodes as of their last answers, and where they are listed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import orjson
from fastapi import APIRouter
from starlette.responses import Response

from ibpulse.base.units import MILLISECOND_NS
from ibpulse.core.http.problems import operation
from ibpulse.gateway.nodes.discovery import SourceState
from ibpulse.gateway.nodes.node_table import NodeState
from ibpulse.gateway.parts import GatewayParts

_ANSWER = {"description": "The nodes and their sources."}


def node_list_router(parts: GatewayParts) -> APIRouter:
    """The route of all nodes."""
    router = APIRouter()

    @router.get("/api/v1/nodes", **operation("list_nodes"), responses={200: _ANSWER}, response_class=Response)
    async def nodes() -> Response:
        """All nodes, those with problems first."""
        document = {
            "version": parts.version,
            "sources": [_describe_source(source) for source in parts.discovery.sources()],
            "nodes": [describe_node(row) for row in parts.table.rows()],
        }
        return Response(orjson.dumps(document), media_type="application/json")

    return router


def _describe_source(source: SourceState) -> dict[str, Any]:
    members = asdict(source)
    return {"source": members.pop("name"), **members}


def describe_node(row: NodeState) -> dict[str, Any]:
    """A node as plain values; its last answers stay while it does not answer."""
    rails = None if row.ports is None else [port for port in row.ports.ports if port.rail]
    running = [job for job in row.jobs.jobs if job.running] if row.jobs else []
    return {
        "node": row.name,
        "labels": dict(row.target.labels),
        "problem": row.kind or "",
        "problem_text": row.problem,
        "since_ms": None if row.since_ns is None else row.since_ns // MILLISECOND_NS,
        "version": row.figures.version or "",
        "jobs": [{"job_id": job.job_id, "scheduler": job.scheduler, "name": job.name} for job in running],
        "clock": describe_clock(row),
        "rails": None if rails is None else len(rails),
        "rails_down": [port.name for port in rails or () if not port.active],
        "rails_idle": list(row.figures.idle),
        "rails_slow": list(row.figures.slow),
        "down_since_ms": _down_since_ms(row),
        "idle_since_ms": None if row.idle_since_ns is None else row.idle_since_ns // MILLISECOND_NS,
        "simulated": row.ports is not None and row.ports.simulated,
    }


def _down_since_ms(row: NodeState) -> int | None:
    """When the first of its rails that are down went down; None if that is not known."""
    down = [port.since_ms for port in row.ports.ports if port.rail and not port.active] if row.ports else []
    return min((each for each in down if each is not None), default=None)


def describe_clock(row: NodeState) -> dict[str, Any] | None:
    """How far the clock of a node is ahead of this one; None if that is unknown."""
    if row.offset is None:
        return None
    return {
        "offset_ms": row.offset.offset_ns / MILLISECOND_NS,
        "uncertainty_ms": row.offset.uncertainty_ns / MILLISECOND_NS,
        "synchronised": row.clock.synchronised if row.clock else None,
    }
