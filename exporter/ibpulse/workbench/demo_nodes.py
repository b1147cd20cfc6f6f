"""`ibpulse demo --nodes=COUNT`: a real daemon on each of several simulated nodes, with a wall clock of its own."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event

from ibpulse.agent.config import Settings
from ibpulse.agent.config.loading import DEFAULT
from ibpulse.agent.sampler.kernel import die_with_parent
from ibpulse.base.errors import DaemonError, FabricError
from ibpulse.base.text import split_lines
from ibpulse.core.http.server import bind
from ibpulse.core.http.web_config import read_rules
from ibpulse.workbench.simulate.fleet import SimulatedNode
from ibpulse.workbench.simulate.jobs import JOBS_FOLDER
from ibpulse.workbench.simulate.node_clock import node_environment

log = logging.getLogger(__name__)

NODES_FILE = "nodes.json"
FABRIC_SECONDS = 20.0
START_SECONDS = 60.0
# a daemon ends within 5 s
STOP_SECONDS = 8.0
POLL_SECONDS = 0.1
LAST_LINES = 5
EVERY_ADDRESS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
"""Hosts that stand for every address of the node, with the one to connect to."""


@dataclass(frozen=True, slots=True)
class DemoNode:
    """A simulated node with its daemon: where it listens, and its files."""

    node: SimulatedNode
    scheme: str
    host: str
    port: int
    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def target(self) -> str:
        """Host and port of the daemon."""
        if self.host in EVERY_ADDRESS:
            return f"localhost:{self.port}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The address of the daemon's page."""
        return f"{self.scheme}://{self.target}/"

    @property
    def log_path(self) -> Path:
        """The log of the daemon."""
        return self.folder / "log"

    def listens(self) -> bool:
        """Whether the daemon accepts connections."""
        try:
            socket.create_connection((EVERY_ADDRESS.get(self.host, self.host), self.port), POLL_SECONDS).close()
        except OSError:
            return False
        return True


@contextmanager
def demo_folder() -> Iterator[Path]:
    """A directory for all files of a demo, in memory if possible, which is removed at the end."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="ibpulse-demo-", dir=memory) as folder:
        yield Path(folder)


@contextmanager
def simulated(
    tree: Path, flags: Sequence[str], ports: int, last_tree: Path | None = None, stop: Event | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `ibpulse simulate`; the tree is complete when the block begins, unless `stop` is set.

    `last_tree` is the one that is written last; each has so many `ports`.
    """
    # its own process group, so that Ctrl-C stops the daemon first and the fabric after it
    process = subprocess.Popen(
        [sys.executable, "-m", "ibpulse", "simulate", str(tree), *flags],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + FABRIC_SECONDS
        # devices appear in order, each one complete
        while not ((last_tree or tree) / f"class/infiniband/mlx5_{ports - 1}").exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise FabricError("the simulated fabric failed to start; see the message above")
            if stop and stop.is_set():
                break
            time.sleep(0.02)
        yield process
    finally:
        # kills it if it does not end, for example because it is stopped
        end_processes([process])


@contextmanager
def demo_nodes(
    nodes: Sequence[SimulatedNode], trees: Path, scratch: Path, settings: Settings, origins: Mapping[str, str]
) -> Iterator[list[DemoNode]]:
    """Run a daemon on each node; `trees` has their trees by name, `scratch` is for everything else.

    They are listed in `nodes.json` of that directory, for Prometheus's file_sd. All of them end with the block.
    """
    address = settings.web.listen_address
    ports = find_ports(address.host, address.port, len(nodes))
    scheme = "https" if settings.web.config_file and read_rules(settings.web.config_file).tls else "http"
    running: list[DemoNode] = []
    try:
        for node, port in zip(nodes, ports, strict=True):
            folder = scratch / node.name
            folder.mkdir()
            own = node_settings(settings, origins, node, folder, trees / node.name, port)
            running.append(DemoNode(node, scheme, address.host, port, folder, start_daemon(own, node, folder)))
        write_targets(scratch / NODES_FILE, running)
        yield running
    finally:
        end_processes([each.process for each in running])


def demo_settings(settings: Settings, origins: Mapping[str, str], tree: Path, folder: Path) -> Settings:
    """The settings of the demo for the simulated node in `tree`, whose own files are in `folder`."""
    capture, jobs = settings.capture, settings.jobs
    if origins["capture.dir"] == DEFAULT:
        # a demo leaves no captures behind unless a directory is given
        capture = replace(capture, dir=folder / "captures")
    if origins["jobs.owners-dir"] == DEFAULT:
        # the jobs of this node do not run on a simulated fabric
        jobs = replace(jobs, owners_dir=tree / JOBS_FOLDER)
    path, ring = replace(settings.path, sysfs=tree), replace(settings.ring, dir=folder / "ring")
    return replace(settings, path=path, ring=ring, capture=capture, jobs=jobs)


def node_settings(
    settings: Settings, origins: Mapping[str, str], node: SimulatedNode, folder: Path, tree: Path, port: int
) -> Settings:
    """Those for one of several nodes, which has a name and a port of its own."""
    own = demo_settings(settings, origins, tree, folder)
    captures = own.capture.dir if origins["capture.dir"] == DEFAULT else Path(own.capture.dir) / node.name
    capture = replace(own.capture, dir=captures, node=(node.name,))
    web = replace(own.web, listen_address=own.web.listen_address._replace(port=port))
    return replace(own, capture=capture, web=web)


def start_daemon(settings: Settings, node: SimulatedNode, folder: Path) -> subprocess.Popen[bytes]:
    """Start a daemon with the clock of its node. It ends with this process, even if this one is killed.

    Call it in the main thread: the kernel ends the daemon with the thread that started it.
    """
    config = folder / "config.json"
    config.write_text(json.dumps(settings.written()))
    # the file has all settings
    environ = {name: value for name, value in os.environ.items() if not name.startswith("IBPULSE_")}
    parent = os.getpid()
    with (folder / "log").open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "ibpulse", "serve", f"--config.file={config}"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=node_environment(environ, folder / "python", node.clock_offset_ns),
            # Ctrl-C is for the demo, which ends the daemons first and the fabric after them
            start_new_session=True,
            preexec_fn=lambda: die_with_parent(parent) and os._exit(1),  # noqa: PLW1509 (no thread runs yet)
        )


def end_processes(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End processes, and kill those that take too long."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + STOP_SECONDS
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def find_ports(host: str, first: int, count: int) -> list[int]:
    """TCP ports from `first` on, or any if that is 0, that are free at this moment."""
    with ExitStack() as opened:
        sockets = [opened.enter_context(bind(host, first + number if first else 0)) for number in range(count)]
        return [each.getsockname()[1] for each in sockets]


def write_targets(path: Path, running: Sequence[DemoNode]) -> None:
    """Write the nodes as targets with labels, in the format of Prometheus's file_sd."""
    targets = []
    for each in running:
        labels = {"node": each.node.name, "rack": each.node.rack, "leaf": each.node.leaf}
        if each.scheme != "http":
            labels["__scheme__"] = each.scheme
        targets.append({"targets": [each.target], "labels": labels})
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(targets, indent=2) + "\n")
    fresh.rename(path)


def wait_until_serving(running: Sequence[DemoNode], stop: Event) -> None:
    """Wait until all daemons listen, and log where; returns early when `stop` is set."""
    for each in running:
        # they start at the same time, so each further one has less to do
        deadline = time.monotonic() + START_SECONDS
        while not each.listens():
            if each.process.poll() is not None or time.monotonic() > deadline:
                for line in split_lines(each.log_path.read_text(errors="replace"))[-LAST_LINES:]:
                    log.error("%s: %s", each.node.name, line)
                raise DaemonError(f"{each.node.name} failed to start; see the end of its log above")
            if stop.wait(POLL_SECONDS):
                return
        offset_ms = each.node.clock_offset_ns / 1e6
        log.info("%s: %s, clock %+g ms, %s, %s", each.node.name, each.url, offset_ms, each.node.rack, each.node.leaf)


def watch_nodes(running: Sequence[DemoNode], simulator: subprocess.Popen[bytes], stop: Event) -> int:
    """Wait until `stop` is set; a daemon that ends is logged, and the others go on. Returns the exit code."""
    ended: set[str] = set()
    while not stop.wait(POLL_SECONDS):
        if simulator.poll() is not None:
            log.error("the simulation ended (exit status %d)", simulator.returncode)
            return 1
        for each in running:
            status = each.process.poll()
            if status is not None and each.node.name not in ended:
                ended.add(each.node.name)
                log.warning("%s: its daemon ended (exit status %d); see %s", each.node.name, status, each.log_path)
        if len(ended) == len(running):
            return 1
    return 0
