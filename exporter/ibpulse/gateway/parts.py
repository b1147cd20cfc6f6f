"""The gateway, as its routes see it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from ibpulse.base.clocks import Clock
from ibpulse.core.defaults import CAPTURE_AFTER_NS, CAPTURE_BEFORE_NS
from ibpulse.core.http.application import RequestLimits, ServerParts
from ibpulse.core.http.stream import Viewers
from ibpulse.gateway.nodes.discovery import Discovery
from ibpulse.gateway.nodes.requests import Nodes
from ibpulse.gateway.nodes.table import NodeTable
from ibpulse.gateway.push import AlertPush, PushOptions
from ibpulse.gateway.verdicts import Verdicts

LIMITS = RequestLimits(max_viewers=64)


@dataclass(frozen=True, slots=True)
class GatewayCaptures:
    """The default span of captures through the gateway."""

    before_ns: int = CAPTURE_BEFORE_NS
    after_ns: int = CAPTURE_AFTER_NS


@dataclass(slots=True, kw_only=True)
class GatewayParts(ServerParts):
    """The gateway, as the routes see it.

    Captures are taken for anyone if `allow_unauthenticated`, else for requests with a user.
    """

    discovery: Discovery
    nodes: Nodes
    table: NodeTable
    limits: RequestLimits = LIMITS
    captures: GatewayCaptures = field(default_factory=GatewayCaptures)
    allow_unauthenticated: bool = False
    clock: Clock = time
    push: AlertPush = field(default_factory=lambda: AlertPush(PushOptions()))
    verdicts: Verdicts = field(default_factory=Verdicts)
    viewers: Viewers = field(init=False)

    def __post_init__(self) -> None:
        """All routes share the places of the viewers."""
        self.viewers = Viewers(self.counts, self.limits.max_viewers, self.ending)
