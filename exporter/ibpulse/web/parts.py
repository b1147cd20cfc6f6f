"""What the web package gets from the command that serves: plain values and callables."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ibpulse.aggregator.snapshot import Snapshot
from ibpulse.aggregator.summary import Summary
from ibpulse.flightrecorder.alertmanager import AlertReceiver
from ibpulse.flightrecorder.recorder import FlightRecorder
from ibpulse.metrics.web import WebCounts
from ibpulse.model import Fabric
from ibpulse.ring.reader import RingReader
from ibpulse.web.auth.reload import WebConfigReloader


@dataclass(frozen=True, slots=True)
class WebLimits:
    """Bounds of what one request, and all of them at once, may cost.

    A request is wide when it reads or returns more than `wide_values` values. `max_values` bounds one answer.
    """

    max_wide_requests: int = 2
    wide_values: int = 100_000
    max_values: int = 1_000_000
    max_query_bytes: int = 16_384
    max_body_bytes: int = 1_048_576
    max_ports: int = 256
    max_viewers: int = 16


@dataclass(frozen=True, slots=True)
class CaptureParts:
    """The flight recorder and who may ask it: everybody if `open_to_all`, else those whom the front door knows.

    `usual_ns` is what a capture holds of the time before and after its trigger.
    """

    recorder: FlightRecorder
    desk: AlertReceiver
    usual_ns: tuple[int, int]
    open_to_all: bool = False


@dataclass(frozen=True, slots=True)
class WebParts:
    """Everything that the routes read.

    `slots` gives the ring slot of each port name (`mlx5_0:1`). `metrics` gives body and content type for an Accept
    header and a choice of names. `ready` gives the state and a sentence. `summarize` gives the summary of whole seconds
    that end at a wall time (ns), or now. The server counts what it does in
    `counts`. `snapshot` gives the finished
    numbers of the last second, None before the first. Streams end when `ending` is set. `door` has the rules of the web
    configuration file, if there is one.
    """

    reader: RingReader
    fabric: Callable[[], Fabric]
    slots: Callable[[], Mapping[str, int]]
    metrics: Callable[[str | None, Sequence[str]], tuple[bytes, str]]
    heartbeat_age_seconds: Callable[[], float | None]
    ready: Callable[[], tuple[bool, str]]
    summarize: Callable[[int, int | None], Summary]
    version: str
    limits: WebLimits = field(default_factory=WebLimits)
    counts: WebCounts = field(default_factory=WebCounts)
    wall_clock_ns: Callable[[], int] = time.time_ns
    snapshot: Callable[[], Snapshot | None] = lambda: None
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    door: WebConfigReloader | None = None
    captures: CaptureParts | None = None
