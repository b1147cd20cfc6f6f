"""Nodes of which some fail in every way that nodes fail, and servers that answer what no daemon would."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path

import bcrypt
import httpx

from tests.fleet.hostile import Hostile, drip, endless, hostile
from tests.gateway.gateway_process import GatewayProcess
from tests.running import Running, eventually

MARK = b"pwned-7141"
HTML = b"<html><script>" + MARK + b"</script></html>"
ASKING, VIEWING = ("gateway", "secret-of-the-nodes"), ("ops", "secret-of-the-gateway")
PORTS = 2
# servers that are listed as nodes, and two that are not: one gives a list, and one is what a redirect names
SERVERS = ("huge", "slow", "types", "html", "redirects", "liar", "list", "trap")
JOB_PATHS = ("window", "summary", "events", "captures", "stream")


class HostileServers:
    """Servers by name, in a thread."""

    def __enter__(self) -> HostileServers:
        self.by_name: dict[str, Hostile] = {}
        self._ready, self._loop = threading.Event(), asyncio.new_event_loop()
        self._ending = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)
        self._thread.start()
        assert self._ready.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(20)
        self._loop.close()

    def __getitem__(self, name: str) -> Hostile:
        return self.by_name[name]

    async def _serve(self) -> None:
        async with AsyncExitStack() as stack:
            for name in SERVERS:
                self.by_name[name] = await stack.enter_async_context(hostile())
            self._ready.set()
            await self._ending.wait()

    def lie(self) -> None:
        """Answer as no daemon would, but for `liar`, which does later or seldom."""
        self["huge"].handlers["/api/v1/ports"] = endless
        self["slow"].handlers["/api/v1/ports"] = drip
        self["types"].answer("/api/v1/ports", b'{"interval_seconds": "0.01", "ports": {"name": ["' + MARK + b'"]}}')
        self["html"].answer("/api/v1/ports", HTML, "text/html")
        trap = f"Location: {self['trap'].url}/api/v1/ports"
        self["redirects"].answer("/api/v1/ports", HTML, "text/html", "302 Found", trap)

    def pretend(self, daemon: Running) -> None:
        """Let `liar` answer like a daemon about its ports and jobs."""
        for path in ("ports", "jobs", "clock"):
            self["liar"].answer(f"/api/v1/{path}", daemon.ask(f"/api/v1/{path}").content)
        self["liar"].answer("/metrics", b'ibpulse_build_info{version="0.2.0"} 1\n', "text/plain")
        for path in JOB_PATHS:
            self["liar"].answer(f"/api/v1/{path}", HTML, "text/html")

    def passwords(self, name: str) -> set[str]:
        """What a server was sent to identify its clients."""
        found = (re.search(r"^authorization: (.*)\r$", head, re.MULTILINE | re.IGNORECASE) for head in self[name].asked)
        return {match[1] if match else "" for match in found}


class HostileFleet:
    """Real daemons on simulated nodes of one job, `node1` and so on, of which the last four fail; and such servers."""

    def __init__(self, directory: Path, count: int, interval: str = "50ms") -> None:
        self.directory, self.interval = directory, interval
        self.names = [f"node{number}" for number in range(1, count + 1)]
        *self.healthy, self.gone, self.changed, self.stopped, self.killed = self.names
        self.daemons: dict[str, Running] = {}
        self.targets = directory / "nodes.json"

    @contextmanager
    def running(self) -> Iterator[GatewayProcess]:
        """All of them, and a gateway that knows them."""
        with ExitStack() as stack:
            trees = stack.enter_context(simulated_nodes(self.directory / "sys", len(self.names), self.interval))
            for name in self.names:
                write_users(self.directory / f"{name}.yml", *ASKING)
            for name in self.names:
                self.daemons[name] = self._daemon(name, trees / name)
                self.daemons[name].launch()
                stack.callback(self._stop, name)
            for daemon in self.daemons.values():
                eventually(lambda daemon=daemon: daemon.ask("/api/v1/jobs").json().get("jobs"), 60)
            self.servers = stack.enter_context(HostileServers())
            self.servers.lie()
            self.servers.pretend(self.daemons[self.healthy[0]])
            yield stack.enter_context(self._gateway())

    def _daemon(self, name: str, tree: Path) -> Running:
        own = self.directory / name
        own.mkdir()
        daemon = Running(
            tree,
            own / "ring",
            f"--jobs.owners-dir={tree / 'jobs'}",
            "--slow.interval=1s",
            f"--capture.node={name}",
            f"--web.config.file={self.directory / name}.yml",
            interval=self.interval,
        )
        daemon.http = {"auth": ASKING}
        return daemon

    def _stop(self, name: str) -> None:
        daemon = self.daemons[name]
        if name == self.stopped:
            daemon.signal(signal.SIGCONT)
        daemon.stop(signal.SIGKILL if name == self.killed else signal.SIGTERM)

    def _gateway(self) -> GatewayProcess:
        access, users = self.directory / "access.yml", self.directory / "gateway.yml"
        access.write_text(f"basic_auth: {{username: {ASKING[0]}, password: {ASKING[1]}}}\n")
        write_users(users, *VIEWING)
        self.list_nodes(self.names)
        # its server gets no password, but the node that it lists does
        listed = [{"targets": [self.servers["html"].url], "labels": {"node": "listed"}}]
        self.servers["list"].answer("/nodes", json.dumps(listed).encode())
        sources = f"{self.targets},{self.servers['list'].url}/nodes"
        return GatewayProcess(
            self.directory,
            f"--nodes.sources={sources}",
            f"--nodes.config.file={access}",
            f"--web.config.file={users}",
            auth=VIEWING,
        )

    def list_nodes(self, names: list[str]) -> None:
        """List these nodes, and the servers that are listed as nodes."""
        urls = {name: self.daemons[name].url for name in names}
        urls |= {name: server.url for name, server in self.servers.by_name.items() if name not in ("list", "trap")}
        entries = [{"targets": [url], "labels": {"node": name, "rack": "r1"}} for name, url in urls.items()]
        new = self.targets.with_suffix(".new")
        new.write_text(json.dumps(entries))
        new.replace(self.targets)

    def fail(self) -> None:
        """Let the last four nodes fail: one is not listed any more, and three do not answer."""
        write_users(self.directory / f"{self.changed}.yml", ASKING[0], "another password")
        self.list_nodes([name for name in self.names if name != self.gone])
        self.daemons[self.stopped].signal(signal.SIGSTOP)
        self.daemons[self.killed].signal(signal.SIGKILL)
        eventually(lambda: self._refuses(self.changed), 30)

    def _refuses(self, name: str) -> bool:
        return httpx.get(self.daemons[name].url + "/api/v1/ports", auth=ASKING, timeout=20).status_code == 401


@contextmanager
def simulated_nodes(directory: Path, count: int, interval: str) -> Iterator[Path]:
    """`ibpulse simulate` with nodes that share a job."""
    command = [sys.executable, "-m", "ibpulse", "simulate", str(directory), f"--nodes={count}", f"--ports={PORTS}"]
    with subprocess.Popen([*command, f"--interval={interval}"], env={**os.environ}) as process:
        try:
            last = directory / f"node{count}/class/infiniband/mlx5_{PORTS - 1}/ports/1/counters/port_rcv_data"
            eventually(lambda: process.poll() is not None or last.exists(), 60)
            assert process.poll() is None
            yield directory
        finally:
            process.terminate()
            process.wait(20)


def write_users(path: Path, user: str, password: str) -> None:
    """A web configuration file with one user."""
    hashed = bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()
    new = path.with_suffix(".new")
    new.write_text(f"basic_auth_users: {{{user}: '{hashed}'}}\n")
    new.replace(path)
