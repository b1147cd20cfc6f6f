"""The values that the routes of the gateway get from the command."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from ibpulse.fleet.discovery import Discovery
from ibpulse.fleet.node_table import NodeTable
from ibpulse.fleet.nodes import Nodes
from ibpulse.metrics.web import WebCounts
from ibpulse.web.auth.reload import WebConfigReloader
from ibpulse.web.host_names import HostCheck


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """Limits on the cost of requests; `max_viewers` is that of all streams of nodes together."""

    max_query_bytes: int = 16_384
    max_body_bytes: int = 1_048_576
    max_viewers: int = 64


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
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    web_config: WebConfigReloader | None = None
    hosts: HostCheck = field(default_factory=HostCheck)
    allow_unauthenticated: bool = False
