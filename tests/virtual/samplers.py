"""Sampler processes as threads that take turns, and a supervisor of them over files that do not change."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from ibpulse.agent.sampler.plan import Plan
from ibpulse.agent.sampler.process import EXIT_NO_RING, NOT_ASKED, SamplerProcess
from ibpulse.agent.sampler.supervisor import Supervisor, SupervisorOptions
from ibpulse.base.errors import IbpulseError
from ibpulse.base.internal_errors import InternalErrors
from ibpulse.core.events import EventLog
from ibpulse.core.model import Fabric, Port
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.reader import RingReader
from tests.sampler.tree import ListedInventory, Tree, port
from tests.virtual.clock import NodeClock, VirtualLoop
from tests.virtual.world import SECOND, Actor, Gate, World

# A process starts in this time; no multiple of an interval, so that no rounding decides about a tick.
STARTING_NS = 43_000_000
INTERVAL_NS = 10_000_000


class _Sampler(SamplerProcess):
    """A sampler that asks the kernel for nothing, because it runs in a thread of the tests; no CPU can be pinned."""

    def _ask_kernel(self, plan: Plan) -> None:
        self._ring.words[self._words + at.L_PINNED] = NOT_ASKED if plan.cpu is None else errno.EINVAL
        self._ring.words[self._words + at.L_FIFO] = NOT_ASKED

    def _is_orphan(self) -> bool:
        return False

    def _settle_memory(self) -> None:
        pass

    def close(self) -> None:
        """Close all files, as the end of a process does."""
        self._loop.apply(Plan(0, 0))
        self._ring.close()


class Samplers:
    """The sampler processes of a node; `error` is the errno with which none can be started."""

    def __init__(self, world: World, clock: NodeClock) -> None:
        self._world, self._clock = world, clock
        self.by_lane: dict[int, Actor] = {}
        self.error = 0

    def start(self, ring: RingFile, lane: int) -> Actor:
        """What `start_sampler` does with a real process."""
        if self.error:
            raise OSError(self.error, os.strerror(self.error))

        inherited = os.dup(ring.descriptor)

        def run() -> int:
            try:
                file = RingFile(ring.path, clock=self._clock, descriptor=inherited)
                sampler = _Sampler(file, lane, self._clock, self._world.pread)
            except (IbpulseError, OSError, ValueError):
                return EXIT_NO_RING
            try:
                return sampler.run()
            finally:
                sampler.close()

        self.by_lane[lane] = self._world.start(run, f"sampler-{lane}", STARTING_NS)
        return self.by_lane[lane]

    def kill(self, lane: int = 0) -> None:
        """Kill the process of a lane, as SIGKILL does."""
        self.by_lane[lane].kill()

    def running(self) -> list[int]:
        """The lanes that have a process."""
        return [lane for lane, process in sorted(self.by_lane.items()) if process.is_alive()]


class Supervised:
    """A supervisor of real samplers in virtual time. Its ports are those that the test lists."""

    def __init__(
        self,
        folder: Path,
        devices: int = 2,
        options: SupervisorOptions | None = None,
        ring: RingFile | None = None,
        events: EventLog | None = None,
    ) -> None:
        self.world = World()
        self.clock = NodeClock(self.world)
        self.loop = VirtualLoop(self.world)
        self.samplers = Samplers(self.world, self.clock)
        self.ring = ring or RingFile.create(folder / "ring" / "ring", INTERVAL_NS, 6000, self.clock)
        self.ring.clock = self.clock
        self.tree = Tree(folder / "sys")
        self.names = [f"mlx5_{number}" for number in range(devices)]
        for number, name in enumerate(self.names):
            self.tree.write(name, number, number + 10)
        self.inventory = ListedInventory(Fabric(tuple(port(name, self.tree.source(name)) for name in self.names)))
        self.errors = InternalErrors(self.clock.monotonic)
        self._options = options or SupervisorOptions(scan_seconds=0.2)
        self._events = events
        self._task: asyncio.Task[None] | None = None
        self.supervisor = self.make()

    def make(self) -> Supervisor:
        return Supervisor(
            self.ring, self.inventory, self._options, self._events, None, self.errors, self.clock, self.samplers.start
        )

    def start(self, seconds: float = 1.0) -> None:
        """Start the supervisor, and let some time pass."""
        self.loop.run_until_complete(self.supervisor.start())
        self._task = self.loop.create_task(self.supervisor.run())
        self.run(seconds)

    def stop(self) -> None:
        """Stop it; what hangs may end later."""
        assert self._task is not None
        self._task.cancel()
        self.loop.run_until_complete(asyncio.wait([self._task]))

    def close(self) -> None:
        if self._task is not None and not self._task.done():
            self.stop()
        self.world.close()
        self.loop.close()
        self.ring.close()

    def run(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))
        assert self._task is not None
        assert not self._task.done()

    def list_ports(self, ports: Sequence[Port]) -> None:
        """From now on, the node has these ports."""
        self.inventory.fabric = Fabric(tuple(ports))

    # devices

    def gate(self, device: str) -> Gate:
        """What happens to reads of a device."""
        gates = self.world.gates.setdefault(device, [])
        if not gates:
            gates.append(Gate(f"{self.tree.root}/"))
        return gates[0]

    def hang(self, device: str) -> None:
        self.gate(device).closed = True

    def answer(self, device: str) -> None:
        self.world.open_gate(self.gate(device))

    # the ring

    def word(self, which: int, lane: int = 0) -> int:
        return self.ring.words[at.lane_at(lane) + which]

    def sampled(self, name: str, seconds: float) -> str:
        """The newest ticks of a port: `x` for one with a sample, `.` for one without."""
        last = self.ring.latest_tick()
        count = round(seconds * SECOND) // INTERVAL_NS
        slot = self.ring.slots()[f"{name}:1"]
        present = RingReader(self.ring).read([slot], last - count + 1, last).present[0]
        return "".join("x" if each else "." for each in present)

    def hole(self, name: str, seconds: float) -> int:
        """The length of the only run of missing samples in the newest ticks, 0 without one."""
        found = [run for run in self.sampled(name, seconds).split("x") if run]
        assert len(found) <= 1, found
        return len(found[0]) if found else 0


Make = Callable[..., Supervised]
