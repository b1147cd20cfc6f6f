"""A gateway over several nodes in the same virtual time."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from prometheus_client import CollectorRegistry

from ibpulse.base.units import SECOND_NS
from ibpulse.core.client.transport import HttpPeer
from ibpulse.gateway.nodes.discovery import Discovery, parse_source
from ibpulse.gateway.nodes.requests import Nodes
from ibpulse.gateway.nodes.table import NodeTable
from ibpulse.gateway.parts import GatewayParts
from ibpulse.gateway.push import AlertPush, PushOptions
from ibpulse.gateway.service import create_gateway
from ibpulse.gateway.watch import StallWatch
from ibpulse.workbench.simulate.jobs import JOBS_FOLDER, share_job
from ibpulse.workbench.simulate.workloads import make_workload
from tests.virtual.asgi import App, AppTransport, Viewer
from tests.virtual.clock import NodeClock, VirtualLoop
from tests.virtual.node import Node
from tests.virtual.world import World


def share(folder: Path, **members: Any) -> str:
    """The flag of nodes that share the job 7, which holds whatever it does not say in `members`."""
    owners = folder / "owners"
    owners.mkdir(mode=0o755)
    (owners / "7.json").write_text(json.dumps({"id": "7", "scheduler": "slurm", **members}))
    return f"--jobs.owners-dir={owners}"


class Fleet:
    """Nodes `node-0`, `node-1`, … of one world, and a gateway that lists them.

    `options` are those of each node, `intervals` their sampling intervals if these differ. With a `straggler`, all
    nodes share a job, of which it is the late one. `others` are applications that answer for these hosts, listed or
    not. With `watched`, the gateway watches its jobs for silence, and pushes alerts to the host `alertmanager`.
    """

    def __init__(
        self,
        path: Path,
        count: int,
        *flags: str,
        straggler: int | None = None,
        watched: bool = False,
        rails: int = 2,
        intervals: Sequence[str] = (),
        **options: Any,
    ) -> None:
        self.world = World()
        shared: Sequence[Any] = [None] * count
        if straggler is not None:
            workload = make_workload(options["workload"])
            shared = share_job(workload, straggler, [0] * count, 1, rails, self.world.true_ns)
        options |= {"world": self.world, "rails": rails}
        self.nodes = []
        for number in range(count):
            own = {"name": f"node-{number}", "seed": number + 1, "traffic": shared[number]}
            own |= {"interval": intervals[number]} if intervals else {}
            place = path / own["name"]
            jobs = () if straggler is None else (f"--jobs.owners-dir={place / 'sys' / JOBS_FOLDER}",)
            self.nodes.append(Node(place, *flags, *jobs, **own, **options))
        self.others: dict[str, App] = {}
        self.loop = VirtualLoop.of(self.world)
        self.clock = NodeClock(self.world)
        self.unreachable: set[str] = set()
        self._listed = path / "nodes.json"
        self._write(*(node.name for node in self.nodes))
        self.transport = AppTransport(self._find)
        self._watched, self._tasks = watched, []
        self.viewers: list[Viewer] = []
        self.parts = self.start_gateway()
        self.app = create_gateway(self.parts)

    def start_gateway(self) -> GatewayParts:
        """A gateway that runs from now on, besides those that do."""
        peer = partial(HttpPeer, clock=self.clock, make_transport=lambda **_: AppTransport(self._find))
        push = AlertPush(PushOptions(("http://alertmanager",)), None, self.clock, peer)
        parts = GatewayParts(
            discovery=(discovery := Discovery([parse_source(str(self._listed))], clock=self.clock)),
            nodes=(nodes := Nodes(peer)),
            table=(table := NodeTable(discovery, nodes, clock=self.clock)),
            version="1.2.3",
            registry=CollectorRegistry(),
            clock=self.clock,
            allow_unauthenticated=True,
            push=push,
        )
        watch = (StallWatch(parts, 6 * SECOND_NS), push) if self._watched else ()
        self._tasks += [self.loop.create_task(each.run()) for each in (discovery, table, *watch)]
        return parts

    def restart_gateway(self) -> None:
        """End the gateway, and start one that knows nothing."""
        self.loop.run_until_complete(self._close())
        self._tasks = []
        self.parts = self.start_gateway()
        self.app = create_gateway(self.parts)

    def list(self, *names: str) -> None:
        """From now on, the gateway has the hosts of these names."""
        self._write(*names)
        self.loop.run_until_complete(self.parts.discovery.refresh())

    def _write(self, *names: str) -> None:
        targets = [{"targets": [f"{name}:80"], "labels": {"node": name}} for name in names]
        self._listed.write_text(json.dumps(targets))
        # two writes within one tick of the kernel's clock are two
        os.utime(self._listed, ns=(self.world.wall_ns, self.world.wall_ns))

    def _find(self, host: str) -> App | None:
        if host == "gateway":
            return self.app
        if host in self.others:
            return self.others[host]
        found = [node for node in self.nodes if node.name == host and host not in self.unreachable]
        return found[0].daemon.app if found else None

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.parts.ending.set()
        for viewer in self.viewers:
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

    def ask(self, url: str, **params: Any) -> httpx.Response:
        """The answer to a GET request of the gateway, or of another host, for which no time passes."""
        return self.loop.run_frozen(self.request("GET", url, params=params or None))  # type: ignore[no-any-return]

    def wait_for(self, path: str, **params: Any) -> httpx.Response:
        """The answer of the gateway to a GET request that needs time, as of a node that hangs."""
        return self.loop.run_until_complete(self.request("GET", path, params=params or None))

    async def request(self, method: str, path: str, **given: Any) -> httpx.Response:
        async with httpx.AsyncClient(transport=self.transport, base_url="http://gateway") as client:
            return await client.request(method, path, **given)

    def get(self, path: str, **params: Any) -> Any:
        """The JSON of an answer that is no refusal."""
        answer = self.ask(path, **params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, body: object) -> httpx.Response:
        """The answer of the gateway to a POST request, for which no time passes."""
        return self.loop.run_frozen(self.request("POST", path, json=body))  # type: ignore[no-any-return]

    def view(self, path: str) -> Viewer:
        """A client of a stream of the gateway."""
        self.viewers.append(Viewer(self.loop, self.transport, f"http://gateway{path}"))
        return self.viewers[-1]

    def rows(self, *names: str) -> Sequence[dict[str, Any]]:
        """What the gateway lists of these nodes, or of all."""
        found = self.get("/api/v1/nodes")["nodes"]
        return [row for row in found if not names or row["node"] in names]
