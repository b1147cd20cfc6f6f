"""A gateway over several nodes in the same virtual time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from prometheus_client import CollectorRegistry

from ibpulse.fleet.discovery import Discovery
from ibpulse.fleet.http_peer import HttpPeer
from ibpulse.fleet.node_config import NodeConfigFile
from ibpulse.fleet.node_table import NodeTable
from ibpulse.fleet.nodes import Nodes
from ibpulse.fleet.target_sources import parse_source
from ibpulse.gateway.app import create_gateway
from ibpulse.gateway.parts import GatewayParts
from tests.virtual.asgi import AppTransport, Viewer
from tests.virtual.clock import NodeClock, VirtualLoop
from tests.virtual.node import Node
from tests.virtual.world import World


class Fleet:
    """Nodes `node-0`, `node-1`, … of one world, and a gateway that lists them. `options` are those of each node."""

    def __init__(self, path: Path, count: int, *flags: str, **options: Any) -> None:
        self.world = World()
        self.nodes = [
            Node(path / f"node-{number}", *flags, name=f"node-{number}", seed=number + 1, world=self.world, **options)
            for number in range(count)
        ]
        self.loop = VirtualLoop.of(self.world)
        self.clock = NodeClock(self.world)
        self.unreachable: set[str] = set()
        listed = path / "nodes.json"
        targets = [{"targets": [f"{node.name}:80"], "labels": {"node": node.name}} for node in self.nodes]
        listed.write_text(json.dumps(targets))
        self._transport = AppTransport(self._find)
        peer = partial(HttpPeer, clock=self.clock, make_transport=lambda **_: AppTransport(self._find))
        self.parts = GatewayParts(
            discovery=(discovery := Discovery([(parse_source(str(listed)), NodeConfigFile())], clock=self.clock)),
            nodes=(nodes := Nodes(peer)),
            table=(table := NodeTable(discovery, nodes, clock=self.clock)),
            version="1.2.3",
            registry=CollectorRegistry(),
            clock=self.clock,
            allow_unauthenticated=True,
        )
        self.app = create_gateway(self.parts)
        self._tasks = [self.loop.create_task(each.run()) for each in (discovery, table)]
        self._viewers: list[Viewer] = []

    def _find(self, host: str) -> Any:
        if host == "gateway":
            return self.app
        found = [node for node in self.nodes if node.name == host and host not in self.unreachable]
        return found[0].daemon.app if found else None

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.parts.ending.set()
        for viewer in self._viewers:
            viewer.leave()
        self.loop.run_until_complete(self._close())
        for node in self.nodes:
            node.close()
        self.world.close()
        self.loop.close()

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.parts.nodes.close()
        await self.parts.discovery.close()

    def run(self, seconds: float) -> None:
        """Let time pass for all nodes and the gateway."""
        self.nodes[0].run(seconds)

    def ask(self, path: str, **params: Any) -> httpx.Response:
        """The answer of the gateway to a GET request; meanwhile, time passes if it needs some."""
        return self.loop.run_until_complete(self._request("GET", path, params=params))

    async def _request(self, method: str, path: str, **given: Any) -> httpx.Response:
        async with httpx.AsyncClient(transport=self._transport, base_url="http://gateway") as client:
            return await client.request(method, path, **given)

    def get(self, path: str, **params: Any) -> Any:
        """The JSON of an answer that is no refusal."""
        answer = self.ask(path, **params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, body: object) -> httpx.Response:
        return self.loop.run_until_complete(self._request("POST", path, json=body))

    def view(self, path: str) -> Viewer:
        """A client of a stream of the gateway."""
        self._viewers.append(Viewer(self.loop, self._transport, f"http://gateway{path}"))
        return self._viewers[-1]

    def rows(self, *names: str) -> Sequence[dict[str, Any]]:
        """What the gateway lists of these nodes, or of all."""
        found = self.get("/api/v1/nodes")["nodes"]
        return [row for row in found if not names or row["node"] in names]
