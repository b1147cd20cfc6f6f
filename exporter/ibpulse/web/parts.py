"""What the web room is given by the command that serves: plain values and callables. It must not import other parts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from ibpulse.aggregator.summary import Summary
from ibpulse.model import Fabric
from ibpulse.ring.reader import RingReader


@dataclass(frozen=True, slots=True)
class WebLimits:
    """Bounds of what one request, and all of them at once, may cost.

    A request is wide when it reads or returns more than `wide_values` values. `max_values` bounds one answer.
    """

    max_wide_requests: int = 2
    wide_values: int = 100_000
    max_values: int = 1_000_000
    max_query_bytes: int = 16_384
    max_ports: int = 256


@dataclass(frozen=True, slots=True)
class WebParts:
    """Everything that the routes read.

    `slots` gives the ring slot of each port name (`mlx5_0:1`). `metrics` gives body and content type for an Accept
    header and a choice of names. `ready` gives the state and a sentence. `summarize` gives the summary of whole seconds
    that end at a wall time (ns), or now. The server's own metrics go into `registry`.
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
    registry: CollectorRegistry | None = None
    wall_clock_ns: Callable[[], int] = time.time_ns
