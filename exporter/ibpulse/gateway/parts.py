"""The values that the routes of the gateway get from the command."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from ibpulse.clocks import Clock
from ibpulse.defaults import CAPTURE_AFTER_NS, CAPTURE_BEFORE_NS
from ibpulse.fleet.discovery import Discovery
from ibpulse.fleet.node_table import NodeTable
from ibpulse.fleet.nodes import Nodes
from ibpulse.flightrecorder.alertmanager import COOLDOWN_NS
from ibpulse.metrics.web import WebCounts
from ibpulse.web.admission import Viewers
from ibpulse.web.auth.reload import WebConfigReloader
from ibpulse.web.host_names import HostCheck
from ibpulse.web.stream.hub import Viewer


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
    viewers: Viewers[Viewer] = field(init=False)

    def __post_init__(self) -> None:
        """All routes share the places of the viewers."""
        object.__setattr__(self, "viewers", Viewers(self.counts, self.limits.max_viewers, self.ending))
