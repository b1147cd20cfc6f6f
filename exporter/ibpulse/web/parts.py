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
    """The flight recorder, and who may write to it: everybody if `allow_unauthenticated`, else requests with a user.

    `default_span_ns` is how long before and after its trigger a capture reaches, unless the request says otherwise.
    """

    recorder: FlightRecorder
    alert_receiver: AlertReceiver
    default_span_ns: tuple[int, int]
    allow_unauthenticated: bool = False


@dataclass(frozen=True, slots=True)
class WebParts:
    """Everything that the routes read.

    `slots` returns the ring slot of each port by its name (`mlx5_0:1`). `metrics` returns body and content type for an
    Accept header and a choice of names. `ready` returns the state and a sentence. `summarize` returns the summary of so
    many whole seconds that end at a wall time (ns), or now. The server counts what it does in `counts`. `snapshot`
    returns the statistics of the last second, None before the first. Streams end when `ending` is set. `web_config` is
    the web configuration file in force, if there is one.
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
    web_config: WebConfigReloader | None = None
    captures: CaptureParts | None = None
