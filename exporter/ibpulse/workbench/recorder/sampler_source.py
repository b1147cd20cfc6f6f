"""This node as the source of a recording, sampled while a command runs."""

from __future__ import annotations

import platform
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

from ibpulse.agent.config import Settings
from ibpulse.agent.node.node import make_temporary_sampler
from ibpulse.agent.sampler.lane import StartProcess, start_sampler
from ibpulse.agent.sampler.temporary_sampler import TemporarySampler
from ibpulse.base.clocks import Clock
from ibpulse.core.events import Event
from ibpulse.core.recordings import RecordedPort, Recording, RecordingMeta
from ibpulse.core.recordings.from_ring import (
    MADE_BY,
    LogEvents,
    RecordedTicks,
    RingFollower,
    SampleSource,
    describe_fabric,
    ports_at_begin,
)
from ibpulse.core.ring.spans import widest_stride

# samples survive a stalled disk for this long
HISTORY_SECONDS = 30
# ticks; longer than any recording
FOREVER = 2**62


class SamplerSource(SampleSource):
    """The samples and events of a temporary sampler from `first_tick` on."""

    def __init__(self, sampler: TemporarySampler, ports: Sequence[RecordedPort], first_tick: int) -> None:
        reader, events = sampler.reader, sampler.events
        ticks = RecordedTicks(first_tick, first_tick + FOREVER, reader.wall_of(first_tick))
        begun, simulated = ports_at_begin(ports, events.history, ticks), sampler.supervisor.fabric.simulated
        self.meta = RecordingMeta(platform.node(), reader.interval_ns, begun, MADE_BY, simulated=simulated)
        self._sampler = sampler
        self._follower = RingFollower(reader, self.meta, first_tick, reader.ring.clock.time_ns, events.history)
        self._events = LogEvents(events, reader, ticks, begun)

    def read(self) -> Iterator[Recording]:
        """The pieces since the last call."""
        return self._follower.read()

    async def read_events(self) -> Sequence[Event]:
        """The events since the last call."""
        return await self._events.read()

    def check(self) -> None:
        """Raise the error of the sampler if it has stopped."""
        self._sampler.check()


@asynccontextmanager
async def node_source(
    settings: Settings, clock: Clock = time, start_process: StartProcess = start_sampler
) -> AsyncIterator[SamplerSource]:
    """The ports of this node, sampled while the block runs."""
    async with make_temporary_sampler(settings, HISTORY_SECONDS, clock, start_process) as sampler:
        yield await follow_sampler(sampler)


async def follow_sampler(sampler: TemporarySampler) -> SamplerSource:
    """The ports of a sampler, from its first sample on."""
    slots = sampler.supervisor.slots

    def stride_of(name: str) -> int:
        slot = slots.get(name)
        return 1 if slot is None else sampler.reader.stride(slot)

    ports = describe_fabric(sampler.supervisor.fabric, stride_of)
    first_tick = await sampler.sampled_tick() + widest_stride(port.stride for port in ports)
    return SamplerSource(sampler, ports, first_tick)
