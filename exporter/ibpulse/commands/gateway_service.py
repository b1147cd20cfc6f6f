"""The running gateway: discovery, the table of nodes and the web server in one event loop."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from functools import partial
from typing import Any

import uvloop

from ibpulse import __version__, exposition
from ibpulse.config import Settings
from ibpulse.deadline import DaemonThreads
from ibpulse.fleet.discovery import REFRESH_SECONDS, Discovery
from ibpulse.fleet.node_table import NodeTable
from ibpulse.fleet.nodes import Nodes
from ibpulse.gateway.app import create_gateway
from ibpulse.gateway.parts import GatewayParts
from ibpulse.metrics.web import WebCounts
from ibpulse.sampler.scheduling import allow_open_files
from ibpulse.web.auth.reload import WebConfigReloader
from ibpulse.web.host_names import HostCheck
from ibpulse.web.server import plain, serve

log = logging.getLogger(__name__)
# 320 connections of clients, and 8 of each of some hundred nodes
OPEN_FILES = 8192
MAX_LOOKUPS = 16


class LookupLoop(uvloop.Loop):
    """An event loop that resolves host names in daemon threads: the end of no other pool waits for hung lookups."""

    def __init__(self) -> None:
        super().__init__()
        self._lookups = DaemonThreads(MAX_LOOKUPS, "lookup")

    async def getaddrinfo(self, host: Any, port: Any, **hints: int) -> Any:
        """The addresses of a host."""
        return await self.run_in_executor(self._lookups, partial(socket.getaddrinfo, host, port, **hints))


def run_gateway(settings: Settings, discovery: Discovery) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code."""
    allow_open_files(OPEN_FILES)
    with asyncio.Runner(loop_factory=LookupLoop) as runner:
        return runner.run(Gateway(settings, discovery).run())


class Gateway:
    """One gateway over the nodes of a discovery."""

    def __init__(self, settings: Settings, discovery: Discovery) -> None:
        self._address = settings.web.listen_address
        self._discovery, self._nodes = discovery, Nodes()
        self._table = NodeTable(discovery, self._nodes)
        counts = WebCounts()
        web_config = settings.web.config_file
        self._web_config = WebConfigReloader(web_config, counts) if web_config else None
        self._parts = GatewayParts(
            discovery=discovery,
            nodes=self._nodes,
            table=self._table,
            version=__version__,
            registry=exposition.process_registry(),
            counts=counts,
            web_config=self._web_config,
            hosts=HostCheck(self._address.host, settings.web.hosts),
            allow_unauthenticated=settings.capture.allow_unauthenticated,
        )
        self._problems: tuple[str, ...] = ()

    async def run(self) -> int:
        """Run all parts until a signal arrives or one of them fails."""
        asked = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, asked.set)
        tasks = [
            asyncio.create_task(self._watch_nodes(), name="nodes"),
            asyncio.create_task(self._serve(), name="web"),
        ]
        if self._web_config:
            tasks.append(asyncio.create_task(self._web_config.watch(), name="web configuration"))
        waiting = asyncio.create_task(asked.wait())
        done, _ = await asyncio.wait([*tasks, waiting], return_when=asyncio.FIRST_COMPLETED)
        for task in (waiting, *reversed(tasks)):
            task.cancel()
        await asyncio.gather(*tasks, waiting, return_exceptions=True)
        await self._nodes.close()
        await self._discovery.close()
        for task in done - {waiting}:
            task.result()
        log.info("stopped")
        return 0

    async def _watch_nodes(self) -> None:
        """Read the sources, then poll their nodes while the sources are read again and again."""
        await self._discover()
        polling = asyncio.create_task(self._table.run(), name="table")
        try:
            while not polling.done():
                await asyncio.wait([polling], timeout=REFRESH_SECONDS)
                if not polling.done():
                    await self._discover()
            polling.result()
        finally:
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)

    async def _discover(self) -> None:
        await self._discovery.refresh()
        for problem in self._discovery.problems:
            if problem not in self._problems:
                log.warning("%s", problem)
        self._problems = self._discovery.problems

    async def _serve(self) -> None:
        tls = self._web_config.tls if self._web_config else plain
        server = await serve(create_gateway(self._parts), self._address.host, self._address.port, tls=tls)
        host = "localhost" if server.host in ("::", "0.0.0.0") else server.host
        shown = f"[{host}]" if ":" in host else host
        scheme = "https" if tls() else "http"
        log.info("ibpulse %s gateway, serving %s://%s:%d/", __version__, scheme, shown, server.port)
        try:
            await server.wait()
        finally:
            self._parts.ending.set()
            await server.stop()
