"""The running gateway: discovery, the table of nodes and the web server in one event loop, and its own metrics."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

import uvloop
from fastapi import APIRouter, FastAPI, Request
from starlette.responses import Response

from ibpulse import __version__
from ibpulse.base.deadline import DaemonThreads
from ibpulse.base.errors import DaemonFault
from ibpulse.base.internal_errors import GATEWAY_PARTS, InternalErrors
from ibpulse.base.limits import allow_open_files
from ibpulse.base.units import SECOND_NS
from ibpulse.core.http.access import HostCheck
from ibpulse.core.http.application import REFUSALS, make_app
from ibpulse.core.http.problems import operation, text
from ibpulse.core.http.server import serve
from ibpulse.core.http.web_config import WebConfigReloader
from ibpulse.core.metrics.row import Labels, Subject, labelled
from ibpulse.core.metrics.text import render_page
from ibpulse.core.metrics.web import WebCounts
from ibpulse.core.statistics.lateness import ClockOffset
from ibpulse.gateway.alerts import alert_router
from ibpulse.gateway.job_api import job_router
from ibpulse.gateway.node_proxy import node_router, node_stream_router
from ibpulse.gateway.nodes.discovery import SourceState, make_discovery
from ibpulse.gateway.nodes.requests import ANSWERED, Nodes
from ibpulse.gateway.nodes.table import STATES, NodeTable
from ibpulse.gateway.pages import node_list_router, page_router, probe_router
from ibpulse.gateway.parts import GatewayCaptures, GatewayParts
from ibpulse.gateway.push import OUTCOMES as OUTCOMES_OF_PUSHES
from ibpulse.gateway.push import AlertPush, PushOptions
from ibpulse.gateway.watch import StallWatch

DESCRIPTION = "Traffic of many nodes at one address. Answers about a node are those of its daemon."
# 320 connections of clients, and 8 of each of some hundred nodes
OPEN_FILES = 8192
# names whose lookups may hang before others have to wait
MAX_LOOKUPS = 64
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


def create_gateway(parts: GatewayParts) -> FastAPI:
    """The application with all routes."""
    app = make_app("ibpulse gateway", DESCRIPTION, parts, parts.clock.monotonic_ns)
    data = (node_list_router, job_router, alert_router, node_router, node_stream_router, gateway_metrics_router)
    for router in data:
        app.include_router(router(parts), responses=REFUSALS)
    app.include_router(probe_router(parts))
    app.include_router(page_router(parts, app.openapi))
    return app


log = logging.getLogger(__name__)


class LookupLoop(uvloop.Loop):
    """An event loop that resolves host names in daemon threads: the end of no other pool waits for hung lookups.

    Those who ask for the same host at a time share a lookup, so a name that hangs takes one thread, however often it is
    asked for.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lookup_threads = DaemonThreads(MAX_LOOKUPS, "lookup")
        self._lookups: dict[Hashable, asyncio.Future[Any]] = {}

    async def getaddrinfo(self, host: Any, port: Any, **hints: int) -> Any:
        """The addresses of a host."""
        key = (host, port, *sorted(hints.items()))
        lookup = self._lookups.get(key)
        if lookup is None:
            call = partial(socket.getaddrinfo, host, port, **hints)
            lookup = self._lookups[key] = asyncio.ensure_future(self.run_in_executor(self._lookup_threads, call))
            lookup.add_done_callback(partial(self._forget, key))
        # others may wait for the same lookup
        return await asyncio.shield(lookup)

    def close(self) -> None:
        """Close the loop; lookups that hang are abandoned."""
        for lookup in self._lookups.values():
            lookup.cancel()
        super().close()

    def _forget(self, key: Hashable, lookup: asyncio.Future[Any]) -> None:
        del self._lookups[key]
        if not lookup.cancelled():
            # if all callers have left, asyncio would log an exception that was never retrieved
            lookup.exception()


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions:
    """Options of a gateway: its address, the sources of its nodes, and its configuration files."""

    host: str
    port: int
    sources: Sequence[str]
    node_config: Path | None
    web_config: Path | None
    hosts: tuple[str, ...]
    captures: GatewayCaptures
    allow_unauthenticated: bool
    push: PushOptions
    unexplained_ns: int


def run_gateway(options: GatewayOptions) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code.

    Raises:
        ConfigError: a source of nodes is invalid, or the address cannot be bound.
    """
    allow_open_files(OPEN_FILES)
    with asyncio.Runner(loop_factory=LookupLoop) as runner:
        return runner.run(Gateway(options).run())


class Gateway:
    """One gateway over the nodes of all sources."""

    def __init__(self, options: GatewayOptions) -> None:
        """Put its parts together.

        Raises:
            ConfigError: a source of nodes or a configuration file is invalid.
        """
        self._options = options
        self.errors = InternalErrors(parts=GATEWAY_PARTS)
        discovery = make_discovery(options.sources, options.node_config, self.errors)
        counts, nodes = WebCounts(internal_errors=self.errors), Nodes()
        self._web_config = WebConfigReloader(options.web_config, counts) if options.web_config else None
        self._parts = GatewayParts(
            discovery=discovery,
            nodes=nodes,
            table=NodeTable(discovery, nodes, self.errors),
            counts=counts,
            captures=options.captures,
            web_config=self._web_config,
            hosts=HostCheck(options.host, options.hosts),
            allow_unauthenticated=options.allow_unauthenticated,
            push=AlertPush(options.push, self.errors),
        )
        self._watch = StallWatch(self._parts, options.unexplained_ns, self.errors)

    async def run(self) -> int:
        """Run all parts until a signal arrives or one of them fails."""
        asked = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, asked.set)
        tasks = [
            asyncio.create_task(self._parts.discovery.run(), name="discovery"),
            asyncio.create_task(self._parts.table.run(), name="nodes"),
            asyncio.create_task(self._watch.run(), name="stalls"),
            asyncio.create_task(self._parts.push.run(), name="push"),
            asyncio.create_task(self._serve(), name="web"),
        ]
        if self._web_config:
            tasks.append(asyncio.create_task(self._web_config.watch(self.errors), name="web configuration"))
        waiting = asyncio.create_task(asked.wait())
        done, _ = await asyncio.wait([*tasks, waiting], return_when=asyncio.FIRST_COMPLETED)
        for task in (waiting, *reversed(tasks)):
            task.cancel()
        await asyncio.gather(*tasks, waiting, return_exceptions=True)
        await self._parts.nodes.close()
        await self._parts.discovery.close()
        for task in done - {waiting}:
            task.result()
        if failed := self.errors.summary():
            log.warning("%s", failed)
        log.info("stopped")
        return 0

    async def _serve(self) -> None:
        server = await serve(
            create_gateway(self._parts), self._options.host, self._options.port, web_config=self._web_config
        )
        host = "localhost" if server.host in ("::", "0.0.0.0") else server.host
        shown = f"[{host}]" if ":" in host else host
        scheme = "https" if self._web_config and self._web_config.rules.tls else "http"
        log.info("ibpulse %s gateway, serving %s://%s:%d/", __version__, scheme, shown, server.port)
        try:
            await server.wait()
        finally:
            self._parts.ending.set()
            await server.stop()
