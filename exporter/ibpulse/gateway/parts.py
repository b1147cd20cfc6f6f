"""The values that the routes of the gateway get from the command."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from ibpulse.clocks import Clock
from ibpulse.defaults import CAPTURE_AFTER_NS, CAPTURE_BEFORE_NS
from ibpulse.fleet.discovery import Discovery
from ibpulse.fleet.node_table import NodeTable
from ibpulse.fleet.nodes import Nodes
from ibpulse.flightrecorder.alertmanager import COOLDOWN_NS
from ibpulse.metrics.web import WebCounts
from ibpulse.units import SECOND_NS
from ibpulse.web.auth.reload import WebConfigReloader
from ibpulse.web.host_names import HostCheck
from ibpulse.web.stream.hub import Viewer, make_room


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """Limits on the cost of requests; `max_viewers` is that of all streams together, of nodes and of jobs."""

    max_query_bytes: int = 16_384
    max_body_bytes: int = 1_048_576
    max_viewers: int = 64


@dataclass(frozen=True, slots=True)
class GatewayCaptures:
    """Captures through the gateway: their default span, and the least time between two of the same alert."""

    before_ns: int = CAPTURE_BEFORE_NS
    after_ns: int = CAPTURE_AFTER_NS
    cooldown_ns: int = COOLDOWN_NS


class Viewers:
    """The viewers of all streams, of nodes and of jobs: up to `limit`, the oldest first; `counts` has their number."""

    def __init__(self, counts: WebCounts, limit: int, ending: asyncio.Event) -> None:
        self._counts, self._limit, self._ending = counts, limit, ending
        self._viewers: dict[Viewer, None] = {}

    def make_room(self, client: str) -> None:
        """Make room for a viewer of a client: if there is none, the newest of the client with most viewers ends.

        Raises:
            ProblemError: the gateway ends, or no client has more viewers than this one.
        """
        make_room(self._viewers, client, self._limit, ending=self._ending.is_set())

    def add(self, client: str, first: Iterator[bytes]) -> Viewer:
        """Add a viewer, for which there is room; it gets `first` before all that it is offered."""
        viewer = Viewer(client, SECOND_NS, first, self._count_dropped)
        self._viewers[viewer] = None
        self._counts.stream_viewers = len(self._viewers)
        return viewer

    def remove(self, viewer: Viewer) -> None:
        """Remove a viewer, however it ended."""
        self._viewers.pop(viewer, None)
        self._counts.stream_viewers = len(self._viewers)

    def _count_dropped(self) -> None:
        self._counts.stream_dropped_events += 1


@dataclass(frozen=True, slots=True)
class GatewayParts:
    """The gateway, as the routes see it.

    `registry` has the metrics of the process. Streams end when `ending` is set. `web_config` is the loaded web
    configuration file, if any, and `hosts` the host names that are served. Captures are taken for anyone if
    `allow_unauthenticated`, else for requests with a user.
    """

    discovery: Discovery
    nodes: Nodes
    table: NodeTable
    version: str
    registry: CollectorRegistry
    counts: WebCounts = field(default_factory=WebCounts)
    limits: GatewayLimits = field(default_factory=GatewayLimits)
    captures: GatewayCaptures = field(default_factory=GatewayCaptures)
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    web_config: WebConfigReloader | None = None
    hosts: HostCheck = field(default_factory=HostCheck)
    allow_unauthenticated: bool = False
    clock: Clock = time
    viewers: Viewers = field(init=False)

    def __post_init__(self) -> None:
        """All routes share the places of the viewers."""
        object.__setattr__(self, "viewers", Viewers(self.counts, self.limits.max_viewers, self.ending))
