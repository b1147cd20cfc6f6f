"""The metrics of the gateway, and `/metrics`; those of the nodes are at the nodes."""

from __future__ import annotations

from collections import Counter
from typing import get_args

from fastapi import APIRouter, Request
from starlette.responses import Response

from ibpulse.base.errors import DaemonFault
from ibpulse.base.units import SECOND_NS
from ibpulse.core.http.problems import operation, text
from ibpulse.core.metrics.row import Labels, Subject, labelled
from ibpulse.core.metrics.text import render_page
from ibpulse.core.statistics.lateness import ClockOffset
from ibpulse.gateway.nodes.discovery import SourceState
from ibpulse.gateway.nodes.requests import ANSWERED
from ibpulse.gateway.nodes.table import STATES
from ibpulse.gateway.parts import GatewayParts
from ibpulse.gateway.push import OUTCOMES as OUTCOMES_OF_PUSHES

OUTCOMES = (ANSWERED, *get_args(DaemonFault))


def _states(parts: GatewayParts) -> list[tuple[str, int]]:
    found = Counter(row.state for row in parts.table.rows())
    return [(state, found[state]) for state in STATES]


def _clocks(parts: GatewayParts) -> list[tuple[str, ClockOffset]]:
    return [(row.name, row.offset) for row in parts.table.rows() if row.offset]


def _pushes(parts: GatewayParts) -> list[tuple[Labels, int]]:
    """By the host of the receiver: several may be at one."""
    found: Counter[Labels] = Counter()
    for receiver in parts.push.receivers:
        for outcome in OUTCOMES_OF_PUSHES:
            found[receiver.name, outcome] += receiver.outcomes[outcome]
    return list(found.items())


VERSION: Subject[GatewayParts, None] = labelled("version", lambda parts: [(parts.version, None)])
STATE = labelled("state", _states)
OUTCOME: Subject[GatewayParts, int] = labelled(
    "outcome", lambda parts: [(outcome, parts.nodes.outcomes[outcome]) for outcome in OUTCOMES]
)
NODE_CLOCK = labelled("node", _clocks)
SOURCE: Subject[GatewayParts, SourceState] = labelled(
    "source", lambda parts: [(source.name, source) for source in parts.discovery.sources()]
)
PUSHED = Subject(("receiver", "outcome"), _pushes)
GIVEN: Subject[GatewayParts, int] = labelled("verdict", lambda parts: parts.verdicts.given.items())
WITHDRAWN: Subject[GatewayParts, int] = labelled("verdict", lambda parts: parts.verdicts.withdrawn.items())
FAILED: Subject[GatewayParts, int] = labelled("source", lambda parts: parts.discovery.failures().items())

ROWS = (
    VERSION.info("ibpulse_gateway_build_info", "Version of the gateway."),
    STATE.gauge(
        "ibpulse_gateway_nodes",
        "Nodes by state: up, degraded (it answers, but rails are down or an answer is missing), down (no usable "
        "answer), waiting (not asked yet).",
        float,
    ),
    OUTCOME.counter(
        "ibpulse_gateway_node_requests_total",
        "Requests to nodes by outcome: answered, no-answer, refused (password or certificate), bad-answer (too large, "
        "or an unexpected status or type). Answers whose members are wrong count as answered.",
        float,
    ),
    NODE_CLOCK.gauge(
        "ibpulse_gateway_node_clock_offset_seconds",
        "Clock of the node minus that of the gateway, by the quickest request and reply of the last minutes.",
        lambda offset: offset.offset_ns / SECOND_NS,
    ),
    NODE_CLOCK.gauge(
        "ibpulse_gateway_node_clock_uncertainty_seconds",
        "By how much ibpulse_gateway_node_clock_offset_seconds may be wrong, at most, either way.",
        lambda offset: offset.uncertainty_ns / SECOND_NS,
    ),
    SOURCE.gauge(
        "ibpulse_gateway_source_nodes",
        "Nodes that a source listed in its last good answer.",
        lambda source: float(source.nodes),
    ),
    GIVEN.counter("ibpulse_gateway_verdicts_total", "Verdicts on silent jobs.", float),
    WITHDRAWN.counter(
        "ibpulse_gateway_verdicts_withdrawn_total", "Verdicts that ended because the job had traffic again.", float
    ),
    PUSHED.counter(
        "ibpulse_gateway_pushes_total", "Requests with alerts to Alertmanagers and webhooks, by outcome.", float
    ),
    FAILED.counter("ibpulse_gateway_discovery_failures_total", "Failed attempts to read a source of nodes.", float),
)


def gateway_metrics_router(parts: GatewayParts) -> APIRouter:
    """The metrics route."""
    router = APIRouter()

    @router.get("/metrics", **operation("get_metrics", text("The metrics of the gateway.")))
    async def metrics(request: Request) -> Response:
        """Metrics for Prometheus."""
        body, media_type = render_page(ROWS, parts, parts.registry, parts.counts, request.headers.get("accept"))
        return Response(body, headers={"Content-Type": media_type})

    return router
