"""What the routes of the gateway get, and its limits."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from ibpulse.base.clocks import Clock
from ibpulse.core.alerts import COOLDOWN_NS
from ibpulse.core.defaults import CAPTURE_AFTER_NS, CAPTURE_BEFORE_NS
from ibpulse.core.http.application import RequestLimits, ServerParts
from ibpulse.core.http.stream import Viewers
from ibpulse.gateway.nodes.discovery import Discovery
from ibpulse.gateway.nodes.node_table import NodeTable
from ibpulse.gateway.nodes.nodes import Nodes


@dataclass(frozen=True, slots=True)
class GatewayLimits(RequestLimits):
    """The limits of a gateway; its streams are those of nodes and of jobs."""

    max_viewers: int = 64


@dataclass(frozen=True, slots=True)
class GatewayCaptures:
    """Captures through the gateway: their default span, and the least time between two of the same alert."""

    before_ns: int = CAPTURE_BEFORE_NS
    after_ns: int = CAPTURE_AFTER_NS
    cooldown_ns: int = COOLDOWN_NS


@dataclass(slots=True, kw_only=True)
class GatewayParts(ServerParts):
    """The gateway, as the routes see it.

    Captures are taken for anyone if `allow_unauthenticated`, else for requests with a user.
    """

    discovery: Discovery
    nodes: Nodes
    table: NodeTable
    limits: GatewayLimits = field(default_factory=GatewayLimits)
    captures: GatewayCaptures = field(default_factory=GatewayCaptures)
    allow_unauthenticated: bool = False
    clock: Clock = time
    viewers: Viewers = field(init=False)

    def __post_init__(self) -> None:
        """All routes share the places of the viewers."""
        self.viewers = Viewers(self.counts, self.limits.max_viewers, self.ending)
