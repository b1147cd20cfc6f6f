"""Nodes in this process, on real sockets: a ring in closed form to which an event loop with its own clock adds."""

from __future__ import annotations

import asyncio
import functools
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx

from ibpulse.agent.aggregator import Snapshot
from ibpulse.agent.flightrecorder.recorder import FlightRecorder
from ibpulse.agent.flightrecorder.store import CaptureOptions
from ibpulse.agent.web.app import create_app
from ibpulse.core.events import Event, EventLog
from ibpulse.core.http.server import serve
from ibpulse.core.metrics.text import process_registry
from ibpulse.core.metrics.web import WebCounts
from ibpulse.core.model import Fabric
from ibpulse.core.ring.reader import RingReader
from ibpulse.gateway.nodes.table import NodeTable
from tests.clocks import GivenClock
from tests.exposition.snapshots import node as snapshot_of_a_node
from tests.exposition.snapshots import simulated
from tests.loop_clock import pause
from tests.running import HANG_SECONDS
from tests.web.rings import EPOCH, INTERVAL_NS, Node, full_node, given_captures, port
from tests.web.test_stream import advance

# of the clock of every node and of the gateway, while the clock of the loop shows 0
BEGIN_NS = (EPOCH + 1005) * INTERVAL_NS + 1


def now_ns() -> int:
    """The wall clock, which goes on with the clock of the loop."""
    return BEGIN_NS + round(asyncio.get_running_loop().time() * 1e9)


async def poll_all(table: NodeTable) -> None:
    """Poll every node once, without spreading."""
    table.update()
    await asyncio.gather(*(table._poll(table._polled[node.name], node) for node in table._nodes.all()))


LOOP_CLOCK = GivenClock(lambda: asyncio.get_running_loop().time(), now_ns)


@functools.cache
def two_rails() -> Snapshot:
    """The statistics of a node with two rails."""
    with tempfile.TemporaryDirectory() as directory:
        return simulated(snapshot_of_a_node(Path(directory), 2))


@dataclass
class Daemon:
    """A node."""

    node: Node
    snapshot: Snapshot
    counts: WebCounts = field(default_factory=WebCounts)
    url: str = ""

    async def ports(self) -> bytes:
        """What it answers about its ports."""
        async with httpx.AsyncClient() as client:
            return (await client.get(f"{self.url}/api/v1/ports")).content

    async def sample(self) -> None:
        """Add the samples of each tenth of a second."""
        while True:
            await pause(0.1)
            advance(self.node, 10)
            # streams send statistics that are new
            self.snapshot = replace(self.snapshot)


@asynccontextmanager
async def serving(directory: Path, name: str, clock: Callable[[Node], int], **changes: Any) -> AsyncIterator[Daemon]:
    """A node with two ports on which no time passes; `changes` are those of its parts."""
    directory.mkdir()
    made = Daemon(full_node(directory), two_rails())
    events = EventLog()
    events.add(Event(BEGIN_NS - 10**9, "started", "", "ibpulse started"))
    options = CaptureOptions(directory / "captures", name, min_free_bytes=0, writer_seconds=HANG_SECONDS)
    recorder = FlightRecorder(RingReader(made.node.ring), options, GivenClock(time.monotonic, lambda: clock(made.node)))
    fabric = Fabric(tuple(port(each) for each in made.node.slots), simulated=True)
    recorder.note(replace(made.snapshot, fabric=fabric))
    parts = made.node.parts(
        fabric=lambda: fabric,
        registry=process_registry(),
        snapshot=lambda: made.snapshot,
        counts=made.counts,
        wall_clock_ns=lambda: clock(made.node),
        name=name,
        events=events,
        captures=given_captures(recorder, name, allow_unauthenticated=True),
        **changes,
    )
    await recorder.start()
    server = await serve(create_app(parts), "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.port}"
    try:
        yield made
    finally:
        parts.ending.set()
        await server.stop()
        await recorder.close()
        made.node.ring.close()


@asynccontextmanager
async def running(directory: Path, name: str, **changes: Any) -> AsyncIterator[Daemon]:
    """A node that goes on with the clock of the loop."""
    async with serving(directory, name, lambda _: now_ns(), **changes) as made:
        sampling = asyncio.create_task(made.sample())
        try:
            yield made
        finally:
            sampling.cancel()
            await asyncio.gather(sampling, return_exceptions=True)
