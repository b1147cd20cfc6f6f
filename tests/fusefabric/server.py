"""The file system: every read of a counter computes it from the schedule, after the device's rule has had its way."""

from __future__ import annotations

import errno
import itertools
import random
import stat
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

import mfusepy

from ibpulse.workbench.simulate.fabric import START_WORDS, SimulatedCounters
from ibpulse.workbench.simulate.timeline import Schedule
from ibpulse.workbench.simulate.tree import Device, status_files
from tests.fusefabric.nodes import Node, plant
from tests.fusefabric.rule import Rule

SIZE = 4096
HEALTHY = Rule()
DATA = {"port_xmit_data": 0, "port_rcv_data": 1}


class DeviceState:
    """One device as it is now.

    The lock makes "what time is it" and "what is the counter then" one act, so a change of the rule can never make a
    counter fall. No read waits for a hang while it holds the lock.
    """

    def __init__(self, device: Device, schedule: Schedule) -> None:
        self.device = device
        self.schedule = schedule
        self.rail = device.rail or 0
        self.rule = HEALTHY
        self.life = 0
        self.released = threading.Event()
        self.hung_reads = 0
        # for how long a slow read lasts
        self.random = random.Random(device.index)
        self.lock = threading.Lock()
        self.counters = SimulatedCounters((START_WORDS[0] + device.index, START_WORDS[1] + device.index))

    def flowed(self, at_ns: int) -> tuple[int, int]:
        port_bytes = self.schedule.port_bytes
        return port_bytes(at_ns, self.rail, 0), port_bytes(at_ns, self.rail, 1)

    def apply(self, rule: Rule) -> int:
        """Puts the rule in place of the old one; the monotonic instant from which it holds."""
        with self.lock:
            at_ns = time.monotonic_ns()
            before, flowed = self.rule, self.flowed(at_ns)
            if before.vanished and not rule.vanished:
                self.counters = SimulatedCounters((0, 0), flowed)
            if rule.vanished and not before.vanished:
                self.life += 1
            if rule.flapped:
                self.counters.apply(replace(rule.faults, down=True), flowed)
            self.counters.apply(rule.faults, flowed)
            self.rule = rule
            released, self.released = self.released, threading.Event()
        released.set()
        return at_ns

    def renamed(self) -> dict[str, str]:
        """The paths that have another name, and that name."""
        names = {f"/class/infiniband/{self.device.name}": self.rule.name, f"/{self.device.port_path}": self.rule.port}
        return {path: name for path, name in names.items() if name}

    def read(self, node: Node, name: str) -> str:
        """The text of a file now. Raises FuseOSError as the rule says."""
        rule = self.rule
        if rule is not HEALTHY and rule.touches(name, node.counter != ""):
            if rule.hang_seconds:
                self.hang(rule)
            if rule.errno:
                raise mfusepy.FuseOSError(rule.errno)
            if rule.value is not None:
                return f"{rule.value}\n"
            if rule.delay_seconds and node.counter:
                slower = rule.delay_seconds / rule.quickest_seconds if rule.quickest_seconds else 1.0
                return self.count_slowly(node.counter, rule.delay_seconds / slower ** self.random.random())
        # a read that hung shows what is in force after it
        rule = self.rule
        if name in rule.texts:
            return rule.texts[name]
        if node.counter:
            return f"{self.count(node.counter)}\n"
        return status_files(self.device, up=not rule.down).get(name, node.text)

    def hang(self, rule: Rule) -> None:
        """Waits until the hang of this rule is over."""
        with self.lock:
            if self.rule is not rule:
                return
            self.hung_reads += 1
            released = self.released
        released.wait(rule.hang_seconds)
        with self.lock:
            self.hung_reads -= 1

    def count_slowly(self, counter: str, seconds: float) -> str:
        """The text of a counter at some moment of a read that takes so long."""
        before = self.random.random() * seconds
        time.sleep(before)
        text = f"{self.count(counter)}\n"
        time.sleep(seconds - before)
        return text

    def count(self, counter: str) -> int:
        """The value of a file of `counters/` at this moment."""
        with self.lock:
            at_ns = time.monotonic_ns()
            if self.rule.refresh_ns:
                at_ns -= at_ns % self.rule.refresh_ns
            if counter in DATA:
                direction = DATA[counter]
                return self.counters.words(direction, self.schedule.port_bytes(at_ns, self.rail, direction))
            return self.counters.value(counter, self.flowed(at_ns))


@dataclass(frozen=True)
class Handle:
    """An open file: it dies with the life of the device in which it was opened."""

    node: Node
    name: str
    state: DeviceState | None
    life: int


class FabricOperations(mfusepy.Operations):
    """What the kernel asks."""

    use_ns = True

    def __init__(self, devices: tuple[Device, ...], schedules: dict[str, Schedule], cgroup: str = "") -> None:
        self.states = {device.name: DeviceState(device, schedules[device.name]) for device in devices}
        self.nodes = plant(devices, cgroup)
        # the paths that have another name, and that name
        self.renamed: dict[str, str] = {}
        self.handles: dict[int, Handle] = {}
        self.numbers = itertools.count(1)
        self.ready = threading.Event()

    def apply(self, rule: Rule, devices: Iterable[str]) -> int:
        """Puts the rule in place of the old ones of devices; the monotonic instant from which it holds for all."""
        at_ns = max(self.states[device].apply(rule) for device in devices)
        self.renamed = {path: name for state in self.states.values() for path, name in state.renamed().items()}
        return at_ns

    def init(self, path: str) -> None:
        self.ready.set()

    def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
        node = self._node(path)
        return {"st_mode": node.mode, "st_nlink": 1, "st_size": SIZE if stat.S_ISREG(node.mode) else 0}

    def readlink(self, path: str) -> str:
        return self._node(path).target

    def readdir(self, path: str, fh: int) -> list[str]:
        node = self._node(path)
        base = self._own_path(path).rstrip("/")
        standing = [name for name in node.children if self._stands(self.nodes[f"{base}/{name}"])]
        return [".", ".."] + [self.renamed.get(f"{base}/{name}", name) for name in standing]

    def open(self, path: str, flags: int) -> int:
        node = self._node(path)
        state = self.states.get(node.device or "")
        number = next(self.numbers)
        self.handles[number] = Handle(node, path.rpartition("/")[2], state, state.life if state else 0)
        return number

    def release(self, path: str, fh: int) -> int:
        self.handles.pop(fh, None)
        return 0

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        handle = self.handles[fh]
        state = handle.state
        if state is None:
            text = handle.node.text
        else:
            self._check_life(handle, state)
            text = state.read(handle.node, handle.name)
            self._check_life(handle, state)
        return text.encode()[offset : offset + size]

    def _check_life(self, handle: Handle, state: DeviceState) -> None:
        if handle.life != state.life:
            raise mfusepy.FuseOSError(errno.ENODEV)

    def _stands(self, node: Node) -> bool:
        return node.device is None or not self.states[node.device].rule.vanished

    def _own_path(self, path: str) -> str:
        """The path in the tree of what has this path now; empty for the old path of what was renamed."""
        for own, name in self.renamed.items():
            shown = f"{own.rpartition('/')[0]}/{name}"
            if f"{path}/".startswith(f"{shown}/"):
                return own + path[len(shown) :]
            if f"{path}/".startswith(f"{own}/"):
                return ""
        return path

    def _node(self, path: str) -> Node:
        node = self.nodes.get(self._own_path(path))
        if node is None or not self._stands(node):
            raise mfusepy.FuseOSError(errno.ENOENT)
        return node
