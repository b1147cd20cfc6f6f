"""`/api/v1/ports` and `/api/v1/topology`: ports, devices and GPUs, as of the last scan."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import orjson
from fastapi import APIRouter
from starlette.responses import Response

from ibpulse.agent.web.parts import WebParts
from ibpulse.base.instants import format_rfc3339
from ibpulse.base.units import SECOND_NS
from ibpulse.core.answers.ports import Identity, PortAnswer, PortsAnswer, Source, TopologyAnswer
from ibpulse.core.events.watch import KnownPort
from ibpulse.core.http.schemas import operation
from ibpulse.core.model import Port, Topology


def ports_router(parts: WebParts) -> APIRouter:
    """The ports route."""
    router = APIRouter()

    @router.get(
        "/api/v1/ports",
        **operation("list_ports"),
        responses={200: {"model": PortsAnswer, "description": "All ports of the node."}},
    )
    async def ports() -> Response:
        """Every port of the node: identity, state, and files of its byte counters."""
        return Response(describe_ports(parts).encode(), media_type="application/json")

    return router


def describe_ports(parts: WebParts) -> PortsAnswer:
    """The answer of the route."""
    fabric = parts.node.fabric()
    return PortsAnswer.model_construct(
        interval_seconds=parts.node.reader.interval_ns / SECOND_NS,
        ports=[_describe(port, parts) for port in parts.node.supervisor.known_ports()],
        notices=list(fabric.notices),
        stuck_devices=list(fabric.stuck_devices),
        simulated=fabric.simulated,
    )


def _describe(known: KnownPort, parts: WebParts) -> PortAnswer:
    port = known.port
    return PortAnswer.model_construct(
        name=str(port.id),
        device=port.id.device,
        port=port.id.port,
        state=known.word,
        since=None if known.since_ns is None else format_rfc3339(known.since_ns),
        active=known.state is not None and port.active,
        rate_bytes_per_second=port.rate_bytes_per_second,
        rail=port.rail,
        role=port.role,
        source=_source(port, parts),
        problem=known.problem,
        identity=Identity.model_construct(**asdict(port.identity)),
    )


def _source(port: Port, parts: WebParts) -> Source | None:
    if port.source is None:
        return None
    slot = parts.node.supervisor.slots.get(str(port.id))
    stride = 1 if slot is None else parts.node.reader.stride(slot)
    return Source.model_construct(
        name=port.source.name,
        resolution_seconds=stride * parts.node.reader.interval_ns / SECOND_NS,
        note=port.source.note,
    )


def topology_router(parts: WebParts) -> APIRouter:
    """The topology route."""
    router = APIRouter()

    @router.get(
        "/api/v1/topology",
        **operation("get_topology"),
        responses={200: {"model": TopologyAnswer, "description": "The node's topology."}},
    )
    async def topology() -> Response:
        """Every RDMA device with its PCIe links, every GPU, and the distances between them."""
        return Response(orjson.dumps(describe_topology(parts.node.fabric().topology)), media_type="application/json")

    return router


def describe_topology(topology: Topology) -> dict[str, Any]:
    """The members of a `TopologyAnswer`: the values of the scan have the same ones."""
    addresses = [gpu.address for gpu in topology.gpus]
    return {
        "devices": topology.devices,
        "gpus": topology.gpus,
        "distances": {
            place.device: dict(zip(addresses, row, strict=True))
            for place, row in zip(topology.devices, topology.distances, strict=True)
        },
    }
