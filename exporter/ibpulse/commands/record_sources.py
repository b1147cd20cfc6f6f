"""Where a recording's samples come from: this node, or a running daemon. It must not write them."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from ibpulse.client import DaemonConnection, ask_ports
from ibpulse.commands.wiring import Sampling, sampling
from ibpulse.config import Settings
from ibpulse.errors import SamplerError
from ibpulse.recordings import Recording, RecordingMeta
from ibpulse.recordings.from_daemon import DaemonFollower
from ibpulse.recordings.from_ring import RingFollower
from ibpulse.recordings.recorded_ports import describe_fabric, describe_remote
from ibpulse.ring.window import widest_stride

# what may be lost while the disk does not take anything
HISTORY_SECONDS = 30
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


@asynccontextmanager
async def from_node(settings: Settings) -> AsyncIterator[SampleSource]:
    """The ports of this node, sampled while the block runs.

    Raises:
        IbpulseError: nothing can be sampled.
    """
    async with sampling(settings, HISTORY_SECONDS) as running:
        supervisor = running.supervisor

        def stride_of(name: str) -> int:
            slot = supervisor.slots.get(name)
            return 1 if slot is None else running.reader.stride(slot)

        ports = describe_fabric(supervisor.fabric, stride_of)
        meta = RecordingMeta(platform.node(), running.reader.interval_ns, ports, MADE_BY)
        first_tick = await _sampled_tick(running) + widest_stride(port.stride for port in ports)
        yield SampleSource(meta, RingFollower(running.reader, meta, first_tick).read, running.check)


@asynccontextmanager
async def from_daemon(url: str) -> AsyncIterator[SampleSource]:
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


async def _sampled_tick(running: Sampling) -> int:
    """A tick that was sampled, once there is one.

    Raises:
        SamplerError: nothing is sampled.
    """
    for _ in range(round(FIRST_SAMPLE_SECONDS / POLL_SECONDS)):
        running.check()
        tick = running.reader.ring.latest_tick()
        if tick:
            return tick
        await asyncio.sleep(POLL_SECONDS)
    raise SamplerError(f"no sample was taken in {FIRST_SAMPLE_SECONDS:g} s; the log above says why")
