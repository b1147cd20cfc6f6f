"""`/api/v1/topology`: where devices and GPUs are plugged in, as the last scan saw it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import orjson
from fastapi import APIRouter
from starlette.responses import Response

from ibpulse.model import Topology
from ibpulse.web.parts import WebParts
from ibpulse.web.schemas import TopologyAnswer


def topology_router(parts: WebParts) -> APIRouter:
    """The route of the topology."""
    router = APIRouter()

    @router.get("/api/v1/topology", responses={200: {"model": TopologyAnswer, "description": "The node's topology."}})
    async def topology() -> Response:
        """Every RDMA device with its PCIe links, every GPU, and the distances between them."""
        return Response(orjson.dumps(describe_topology(parts.fabric().topology)), media_type="application/json")

    return router


def describe_topology(topology: Topology) -> dict[str, Any]:
    """The answer of the route as plain values."""
    addresses = [gpu.address for gpu in topology.gpus]
    return {
        "devices": [asdict(place) for place in topology.devices],
        "gpus": [asdict(gpu) for gpu in topology.gpus],
        "distances": {
            place.device: dict(zip(addresses, row, strict=True))
            for place, row in zip(topology.devices, topology.distances, strict=True)
        },
    }
