"""Where a recording's samples come from: a ring or a daemon, and its ports as the recording names them."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from ibpulse.client import DaemonConnection, RemotePorts, ask_ports
from ibpulse.errors import FabricError, SamplerError
from ibpulse.model import Fabric
from ibpulse.recordings import RecordedPort, Recording, RecordingMeta
from ibpulse.recordings.from_daemon import DaemonFollower
from ibpulse.recordings.from_ring import RingFollower
from ibpulse.recordings.recording import MAX_PORTS
from ibpulse.ring.reader import RingReader
from ibpulse.ring.window import widest_stride

FIRST_SAMPLE_SECONDS = 10.0
POLL_SECONDS = 0.05
MADE_BY = "record"
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class SampleSource:
    """Samples as they come: `read` gives the pieces since its last call, `check` raises when no more will come."""

    meta: RecordingMeta
    read: Callable[[], Iterator[Recording]]
    check: Callable[[], None]


async def ring_source(
    reader: RingReader, fabric: Fabric, slots: Mapping[str, int], check: Callable[[], None]
) -> SampleSource:
    """The ports of a fabric that is sampled into a ring, from the first sample on; `slots` gives each port's slot.

    Raises:
        IbpulseError: nothing is sampled, or whatever `check` raises.
    """

    def stride_of(name: str) -> int:
        slot = slots.get(name)
        return 1 if slot is None else reader.stride(slot)

    ports = describe_fabric(fabric, stride_of)
    meta = RecordingMeta(platform.node(), reader.interval_ns, ports, MADE_BY)
    first_tick = await _sampled_tick(reader, check) + widest_stride(port.stride for port in ports)
    return SampleSource(meta, RingFollower(reader, meta, first_tick).read, check)


async def _sampled_tick(reader: RingReader, check: Callable[[], None]) -> int:
    """A tick that was sampled, once there is one.

    Raises:
        SamplerError: nothing is sampled.
    """
    for _ in range(round(FIRST_SAMPLE_SECONDS / POLL_SECONDS)):
        check()
        tick = reader.ring.latest_tick()
        if tick:
            return tick
        await asyncio.sleep(POLL_SECONDS)
    raise SamplerError(f"no sample was taken in {FIRST_SAMPLE_SECONDS:g} s; the log above says why")


@asynccontextmanager
async def daemon_source(url: str) -> AsyncIterator[SampleSource]:
    """What the daemon at a URL samples.

    Raises:
        IbpulseError: it does not answer, or samples nothing.
    """
    connection = DaemonConnection(url)
    try:
        answer = await asyncio.to_thread(ask_ports, connection)
        ports = describe_remote(answer, connection.place)
        named = urlsplit(connection.place).hostname or ""
        host = platform.node() if named in LOOPBACK else named
        meta = RecordingMeta(host, answer.interval_ns, ports, MADE_BY, reason=f"from {connection.place}")
        yield SampleSource(meta, DaemonFollower(connection, meta).read, lambda: None)
    finally:
        connection.close()


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
