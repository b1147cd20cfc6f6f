"""A whole node in virtual time: simulated ports, sampler processes, the daemon and its web application.

Everything is the program itself, except for the clock, the processes (threads that take turns) and the connections.

    with Node(tmp_path, workload="moe") as node:
        node.run(60)
        node.hang("mlx5_3")
        node.run(5)
        node.metrics().port("transmit_bytes_total", "mlx5_3")
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
from prometheus_client import CollectorRegistry

from ibpulse.agent.config.loading import load
from ibpulse.agent.daemon import Daemon, HeldDirectory
from ibpulse.agent.flightrecorder.writer import Job, parse_job, write_capture
from ibpulse.agent.web.app import create_app
from ibpulse.base.units import WORD_BYTES
from ibpulse.core import captures
from ibpulse.core.client.connection import DaemonConnection
from ibpulse.core.events import Event
from ibpulse.workbench.simulate.fabric import SimulatedCounters, SimulatedFabric
from ibpulse.workbench.simulate.faults import parse_faults
from ibpulse.workbench.simulate.jobs import Traffic
from ibpulse.workbench.simulate.replay import Replay
from ibpulse.workbench.simulate.timeline import Schedule, Workload
from ibpulse.workbench.simulate.tree import replace_text
from ibpulse.workbench.simulate.workloads import make_workload
from tests.running import Metrics
from tests.virtual.asgi import AppTransport, BlockingTransport, Viewer
from tests.virtual.clock import NodeClock, VirtualLoop
from tests.virtual.samplers import Samplers
from tests.virtual.world import SECOND, Gate, World


class _Daemon(Daemon):
    """A daemon that listens nowhere."""

    app: Any = None

    async def _serve(self) -> None:
        # neither this process nor the clock of this machine
        self.app = create_app(replace(self.parts, registry=CollectorRegistry(), clock_state=lambda: None))
        try:
            await asyncio.Event().wait()
        finally:
            self.parts.ending.set()


async def _write(job: Job, seconds: float) -> None:
    write_capture(parse_job(job.dump()))


class Node:
    """A node whose daemon runs while `run` does. `flags` are those of `ibpulse serve`.

    Its ports are simulated ones with this workload or its part of a job that nodes share, those of a replay, or those
    of a tree whose files never change.
    """

    def __init__(
        self,
        path: Path,
        *flags: str,
        rails: int = 8,
        management: bool = False,
        workload: str | Workload = "dense",
        interval: str = "10ms",
        name: str = "node-0",
        seed: int = 1,
        world: World | None = None,
        faults: Mapping[str, object] | None = None,
        tree: Replay | Path | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        self.path, self.name, self.world = path, name, world or World()
        path.mkdir(exist_ok=True)
        self._owns_world = world is None
        self.loop = VirtualLoop.of(self.world)
        self.clock = NodeClock(self.world)
        self.tree = tree.directory if isinstance(tree, Replay) else tree or path / "sys"
        self.captures = path / "captures"
        asked = [
            *(f"--path.sysfs={self.tree}", f"--ring.dir={path / 'ring'}", f"--sampler.interval={interval}"),
            *(f"--capture.dir={self.captures}", "--capture.rules=none", f"--capture.node={name}"),
            *flags,
        ]
        given: dict[str, list[str]] = {}
        for setting, _, text in (flag.removeprefix("--").partition("=") for flag in asked):
            given[setting] = [text]
        self._settings = load(given, {})
        self.interval_ns = self._settings.sampler.interval
        if tree is None:
            traffic = traffic or self._make_schedule(workload, seed, rails)
            jobs = int(not isinstance(traffic, Schedule))
            self.fabric = SimulatedFabric(self.tree, traffic, self.interval_ns, management, jobs=jobs)
            self.fabric.build(self.world.true_ns, faults)
        self._tree = None if isinstance(tree, Path) else tree or self.fabric
        if self._tree:
            self.world.trees.append(self._tree)
        ids = itertools.count(1)
        self.world.patch(captures, "secrets", SimpleNamespace(token_hex=lambda count: f"{next(ids):0{2 * count}x}"))
        self.samplers = Samplers(self.world, self.clock)
        self._gates: dict[str, Gate] = {}
        self._transport = AppTransport(lambda _: self.daemon.app if self.is_running() else None)
        self._viewers: list[Viewer] = []
        self._asked = asyncio.Event()
        self._ring_dir = path / "ring"
        self._ring_dir.mkdir(mode=0o700)
        self.start()

    def _make_schedule(self, workload: str | Workload, seed: int, rails: int) -> Schedule:
        chosen = make_workload(workload) if isinstance(workload, str) else workload
        return Schedule(chosen, seed, rails=rails, start_ns=self.world.true_ns)

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop everything."""
        for viewer in self._viewers:
            viewer.leave()
        self.stop()
        self.daemon.node.reader.ring.close()
        if self._tree:
            # the other nodes of a world go on
            self.world.trees.remove(self._tree)
            self._tree.close()
        if self._owns_world:
            self.world.close()
            self.loop.close()

    # the daemon

    def start(self) -> None:
        """Start a daemon, which continues the ring of the last one."""
        self._asked = asyncio.Event()
        self._directory = HeldDirectory(self._ring_dir)
        self.daemon = _Daemon(
            self._settings,
            self._directory,
            SimpleNamespace(arm=lambda code: None),  # type: ignore[arg-type]
            self.clock,
            self.samplers.start,
            _write,
        )
        self._task = self.loop.create_task(self.daemon.run_until(self._asked))

    def is_running(self) -> bool:
        """Whether a daemon runs."""
        return not self._task.done()

    def stop(self) -> None:
        """Stop the daemon, as SIGTERM does."""
        if self.is_running():
            self._asked.set()
            self.loop.run_until_complete(self._task)
            self._directory.close()

    def kill(self) -> None:
        """Kill the daemon and its samplers, as SIGKILL does."""
        for lane in self.samplers.running():
            self.samplers.kill(lane)
        # nothing may tidy up
        self.daemon.node.supervisor._stop = lambda: None  # type: ignore[method-assign]
        self._task.cancel()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.wait([self._task]))
        self._directory.close()

    def restart(self, after: float = 0.0) -> None:
        """Stop the daemon, and start another one later."""
        self.stop()
        self.run(after)
        self.start()

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.loop.run_until_complete(asyncio.sleep(seconds))
        if self._task.done() and not self._task.cancelled():
            self._task.result()

    # what happens to it

    def late_by(self, late: Mapping[int, int] | Callable[[int], int]) -> None:
        """Let the sampler wake late: nanoseconds by the number of the wall tick for which it sleeps."""
        at_tick = late if callable(late) else lambda tick: late.get(tick, 0)
        # it asks after it has read the clock, so the time until its deadline is less than an interval
        self.clock.late = lambda: at_tick(-(-self.clock.time_ns() // self.interval_ns))

    def suspend(self, seconds: float) -> None:
        """Suspend the machine: only the wall clock continues."""
        self.world.suspended_ns += round(seconds * SECOND)

    def fault(self, faults: Mapping[str, object] = {}) -> None:
        """From now on, the ports have exactly these faults of `ibpulse simulate`."""
        names = [device.name for device in self.fabric.devices]
        self.world.show()
        self.fabric.apply(parse_faults(json.dumps(faults), names, "faults"), self.world.true_ns)

    def play(self, workload: str | Workload) -> None:
        """From now on, the rails carry this workload."""
        chosen = make_workload(workload) if isinstance(workload, str) else workload
        self.fabric.play(chosen, self.world.true_ns)

    def jump(self, device: str, more: int) -> None:
        """The transmit counter of a device increases at once by so many bytes."""
        (nic,) = (nic for nic in self.fabric._rails if nic.device.name == device)
        flowed = nic.flowed(self.world.true_ns)
        words = nic.counters.words(0, flowed[0]) + more // WORD_BYTES, nic.counters.words(1, flowed[1])
        nic.counters = SimulatedCounters(words, flowed)

    def vanish(self, *devices: str) -> None:
        self.fault({"vanish": list(devices)})

    def rename(self, device: str, name: str) -> None:
        """Give a device another name; it can have no other fault afterwards."""
        link = self.tree / "class" / "infiniband" / device
        folder = link.resolve()
        folder.rename(folder.with_name(name))
        target = link.readlink().with_name(name)
        link.unlink()
        link.with_name(name).symlink_to(target)

    def put(self, device: str, file: str, text: str) -> None:
        """Let a file of a port hold this text, whatever the traffic."""
        port = self.tree / "class" / "infiniband" / device / "ports" / "1"
        (path,) = (found for found in port.rglob(file) if found.is_file())
        replace_text(path, f"{text}\n")

    def hang(self, device: str, *files: str) -> None:
        """Reads of the device, or of these files, do not return until it answers."""
        self._gate(device, files).closed = True

    def slow(self, device: str, seconds: float, *files: str) -> None:
        """Each read of the device, or of these files, takes this long."""
        self._gate(device, files).delay_ns = round(seconds * SECOND)

    def fail(self, device: str, error: int, *files: str) -> None:
        """Each read of the device, or of these files, fails with this errno."""
        self._gate(device, files).error = error

    def answer(self, *devices: str) -> None:
        """The files of these devices can be read again, or those of all if none is named."""
        for device in devices or tuple(self._gates):
            gate = self._gates.pop(device)
            self.world.gates[device].remove(gate)
            if not self.world.gates[device]:
                del self.world.gates[device]
            self.world.open_gate(gate)

    def _gate(self, device: str, files: tuple[str, ...]) -> Gate:
        self._gates[device] = gate = Gate(f"{self.tree}/", files)
        self.world.gates.setdefault(device, []).append(gate)
        return gate

    # what it says

    def ask(self, path: str, **params: Any) -> httpx.Response:
        """The answer to a GET request, for which no time passes."""
        # httpx drops the query of the path where it gets empty parameters
        return self.send("GET", path, params=params or None)

    def send(self, method: str, path: str, **given: Any) -> httpx.Response:
        """The answer to any request, for which no time passes."""
        return self.loop.run_frozen(self._request(method, path, **given))  # type: ignore[no-any-return]

    async def _request(self, method: str, path: str, **given: Any) -> httpx.Response:
        async with httpx.AsyncClient(transport=self._transport, base_url="http://127.0.0.1") as client:
            return await client.request(method, path, **given)

    def connect(self, url: str) -> DaemonConnection:
        """A connection of a program on another machine, whose threads wait for this node while it runs."""
        return DaemonConnection(url, make_transport=lambda **_: BlockingTransport(self.world, self._transport))

    def view(self, path: str) -> Viewer:
        """A client of a stream, which reads while the node runs."""
        self._viewers.append(Viewer(self.loop, self._transport, f"http://127.0.0.1{path}"))
        return self._viewers[-1]

    def get(self, path: str, **params: Any) -> Any:
        """The JSON of an answer that is no refusal."""
        answer = self.ask(path, **params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, body: Mapping[str, object]) -> Any:
        """The JSON of the answer to a POST request that is accepted."""
        answer = self.send("POST", path, json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def metrics(self) -> Metrics:
        return Metrics.parse(self.ask("/metrics").text)

    def window(self, last: str | None, ports: Sequence[str] = (), **params: Any) -> dict[str, list[float | None]]:
        """Mean rates of each series, named `mlx5_0:1 transmit`; those of single samples in a short window."""
        span = {} if last is None else {"last": last}
        answer = self.get("/api/v1/window", port=list(ports), format="json", statistic="mean", **span, **params)
        return {f"{series['port']} {series['direction']}": series["values"] for series in answer["series"]}

    def events(self, *kinds: str) -> list[Event]:
        """The events of these kinds, or all."""
        return [event for event in self.daemon.node.events.events() if not kinds or event.kind in kinds]
