"""The ports of a node as a recording names them, from a scan or from a daemon's answer. It must not read samples."""

from __future__ import annotations

from collections.abc import Callable

from ibpulse.client import RemotePorts
from ibpulse.errors import FabricError
from ibpulse.model import Fabric
from ibpulse.recordings import RecordedPort
from ibpulse.recordings.recording import MAX_PORTS

_NO_PORT = "has no port that counts bytes, so there is nothing to record; `ibpulse doctor` says why"


def describe_fabric(fabric: Fabric, stride_of: Callable[[str], int]) -> tuple[RecordedPort, ...]:
    """The ports of a fabric that count bytes; `stride_of` gives the ticks between two samples by a port's name.

    Raises:
        FabricError: there is none.
    """
    found = tuple(
        RecordedPort(
            device=port.id.device,
            port=port.id.port,
            rate_bytes_per_second=port.rate_bytes_per_second,
            rail=port.rail,
            active=port.active,
            state=port.state,
            source=port.source.name,
            stride=stride_of(str(port.id)),
            identity=port.identity,
        )
        for port in fabric.ports
        if port.source is not None
    )
    if not found:
        raise FabricError(f"this node {_NO_PORT}")
    return found[:MAX_PORTS]


def describe_remote(answer: RemotePorts, place: str) -> tuple[RecordedPort, ...]:
    """The ports of a daemon's node that count bytes.

    Raises:
        FabricError: there is none.
    """
    found = tuple(
        RecordedPort(
            device=port.device,
            port=port.port,
            rate_bytes_per_second=port.rate_bytes_per_second,
            rail=port.rail,
            active=port.active,
            state=port.state,
            source=port.source,
            stride=max(1, round(port.resolution_seconds * 1e9 / answer.interval_ns)),
            identity=port.identity,
        )
        for port in answer.ports
        if port.source
    )
    if not found:
        raise FabricError(f"the node of {place} {_NO_PORT}")
    return found[:MAX_PORTS]
