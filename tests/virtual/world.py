"""Virtual time: threads that take turns, so that exactly one runs, and time that passes only while all of them wait.

An actor is a thread of the program, or a process of it that runs as a thread. Every wait ends at a known time or is
ended by another actor; the one whose wait ends first runs next. So two runs of the same test are the same.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from ibpulse.agent.sampler import supervisor
from ibpulse.agent.sysfs import files
from ibpulse.base import deadline
from ibpulse.workbench.simulate.fabric import SimulatedFabric
from ibpulse.workbench.simulate.replay import Replay

T = TypeVar("T")
SECOND = 1_000_000_000
# 2025-11-21T00:00:00Z
START_NS = 1_763_683_200 * SECOND
MONOTONIC_NS = 1_000_000 * SECOND


class KilledError(BaseException):
    """Ends the thread of a killed process."""


class Actor:
    """A thread that runs when it is its turn; it offers what the program uses of a thread and of a process."""

    def __init__(self, world: World, run: Callable[[], object] | None, name: str, begins_ns: int) -> None:
        self.world, self.name = world, name
        self.wakes_ns: int | None = begins_ns
        self.number = world.count_actor()
        self.status: int | None = None
        self.killed = self.hangs = False
        self.awaited_by: list[Actor] = []
        self.turn = threading.Semaphore(0)
        self._run = run
        self._thread: threading.Thread | None = None

    def resume(self) -> None:
        """Let the thread go on, or begin."""
        if self._thread is None and self._run is not None:
            self._thread = threading.Thread(target=self._live, name=self.name, daemon=True)
            self._thread.start()
        self.turn.release()

    def _live(self) -> None:
        self.turn.acquire()
        try:
            self.status = -9 if self.killed or self._run is None else int(self._run() or 0)  # type: ignore[call-overload]
        except KilledError:
            self.status = -9
        except BaseException as error:
            self.status = 1
            self.world.failure = error
        self.world.end(self)

    # what the program uses of a thread

    def is_alive(self) -> bool:
        return self.status is None

    def join(self, seconds: float) -> None:
        if self.status is None:
            self.world.await_end(self, round(seconds * SECOND))

    # what the program uses of a process

    def poll(self) -> int | None:
        return self.status

    def wait(self, seconds: float) -> None:
        self.join(seconds)

    def kill(self) -> None:
        """End it the next time it would run; a read that hangs ends first, as in the kernel."""
        self.killed = True
        if not self.hangs and self.status is None:
            self.wakes_ns = self.world.monotonic_ns


@dataclass
class Gate:
    """What happens to reads of a device's files: an error, or a delay, or no end while it is closed.

    The files are all of them, or those with these names.
    """

    tree: str
    files: tuple[str, ...] = ()
    error: int = 0
    delay_ns: int = 0
    closed: bool = False
    waiting: list[Actor] = field(default_factory=list)


class World:
    """The time of a test, and everything that waits in it. Close it, because it replaces parts of the program."""

    def __init__(self) -> None:
        self.monotonic_ns = MONOTONIC_NS
        self.suspended_ns = 0
        self.loop: asyncio.AbstractEventLoop | None = None
        self.failure: BaseException | None = None
        self.gates: dict[str, list[Gate]] = {}
        """Those of each device."""
        self.trees: list[SimulatedFabric | Replay] = []
        self._shown_ns = self._count = 0
        self._main = Actor(self, None, "main", self.monotonic_ns)
        self._actors = [self._main]
        self._current = self._main
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(deadline, "start_thread", self.start)
        self._patch.setattr(deadline, "time", SimpleNamespace(monotonic=lambda: self.monotonic_ns / SECOND))
        gated = SimpleNamespace(**{**vars(os), "open": self._open, "pread": self.pread})
        self._patch.setattr(files, "os", gated)
        # the machine of the tests may have a quota, or no cgroups
        self._patch.setattr(supervisor, "throttled_periods", lambda: 0)

    @property
    def true_ns(self) -> int:
        """The time that the traffic follows; nothing changes it but a suspended machine, which has no traffic."""
        return START_NS + self.monotonic_ns - MONOTONIC_NS

    @property
    def wall_ns(self) -> int:
        """The wall time of a clock that nobody sets."""
        return self.true_ns + self.suspended_ns

    def count_actor(self) -> int:
        self._count += 1
        return self._count

    def patch(self, module: object, name: str, value: object) -> None:
        """Replace a member of a module until the world is closed."""
        self._patch.setattr(module, name, value)

    def close(self) -> None:
        """End all actors and give the program its parts back."""
        for gate in itertools.chain(*self.gates.values()):
            self.open_gate(gate)
        for actor in self._actors[1:]:
            actor.kill()
        while len(self._actors) > 1:
            self.pause(0)
        self._patch.undo()

    # actors

    def start(self, run: Callable[[], object], name: str, after_ns: int = 0) -> Actor:
        """An actor that begins after this time, or as soon as this one waits."""
        actor = Actor(self, run, name, self.monotonic_ns + after_ns)
        self._actors.append(actor)
        return actor

    def pause(self, ns: int | None) -> None:
        """Let time pass for the current actor, until another one ends its wait if `ns` is None."""
        me = self._current
        me.wakes_ns = None if ns is None else self.monotonic_ns + ns
        if self._run_next() is not me:
            me.turn.acquire()
        if me is self._main and self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        if me.killed and me is not self._main:
            raise KilledError

    def wake_main(self) -> None:
        """End the wait of the event loop."""
        self._main.wakes_ns = self.monotonic_ns

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine, which the event loop runs while the current actor waits."""
        me, loop = self._current, self.loop
        assert me is not self._main
        assert loop is not None
        tasks: list[asyncio.Task[T]] = []

        def begin() -> None:
            tasks.append(loop.create_task(work))
            tasks[0].add_done_callback(end)

        def end(_: object) -> None:
            me.wakes_ns = self.monotonic_ns

        loop.call_soon(begin)
        self.wake_main()
        self.pause(None)
        return tasks[0].result()

    def await_end(self, actor: Actor, ns: int) -> None:
        """Wait until an actor has ended, but at most this long."""
        me = self._current
        actor.awaited_by.append(me)
        try:
            self.pause(ns)
        finally:
            actor.awaited_by.remove(me)

    def end(self, actor: Actor) -> None:
        self._actors.remove(actor)
        for waiting in actor.awaited_by:
            waiting.wakes_ns = self.monotonic_ns
        self._run_next()

    def _run_next(self) -> Actor:
        """Give the turn to the actor whose wait ends first."""
        ready = [actor for actor in self._actors if actor.wakes_ns is not None]
        assert ready, "everything waits for something else"
        # the event loop runs last, so that it can wait for what needs no time
        following = min(ready, key=lambda actor: (actor.wakes_ns, actor is self._main, actor.number))
        self.monotonic_ns = max(self.monotonic_ns, following.wakes_ns or 0)
        before, self._current = self._current, following
        if following is not before:
            following.resume()
        return following

    # files

    def hang(self, device: str, tree: Path, *files: str) -> Gate:
        """Let no read of a device, or of these files in a tree, return until it answers."""
        gate = Gate(f"{tree}/", files, closed=True)
        self.gates[device] = [gate]
        return gate

    def answer(self, device: str) -> None:
        """Let all reads of a device return, and those that hang before anything else happens."""
        for gate in self.gates.pop(device):
            self.open_gate(gate)
        self.pause(0)

    def hold(self, path: str) -> int:
        """Do to a read of this path what the gates say; returns how long it still takes (ns)."""
        rest_ns = 0
        device = path.partition("/infiniband/")[2].partition("/")[0]
        for gate in self.gates.get(device, ()):
            if path.startswith(gate.tree) and (not gate.files or path.rpartition("/")[2] in gate.files):
                if gate.error:
                    raise OSError(gate.error, os.strerror(gate.error), path)
                if gate.delay_ns:
                    self.pause(gate.delay_ns // 2)
                    rest_ns += gate.delay_ns // 2
                while gate.closed:
                    self._hang(gate)
        return rest_ns

    def _hang(self, gate: Gate) -> None:
        me = self._current
        assert me is not self._main, f"the event loop itself would hang in {gate.tree}"
        gate.waiting.append(me)
        me.hangs = True
        try:
            self.pause(None)
        finally:
            me.hangs = False

    def open_gate(self, gate: Gate) -> None:
        """Let the reads that hang return."""
        gate.closed = False
        for actor in gate.waiting:
            actor.wakes_ns = self.monotonic_ns
        gate.waiting.clear()

    def show(self) -> None:
        """Write the counters of now, as hardware would answer now."""
        if self.true_ns != self._shown_ns:
            self._shown_ns = self.true_ns
            for tree in self.trees:
                tree.write(self.true_ns)

    def _open(self, path: str | Path, flags: int, mode: int = 0o777) -> int:
        self.show()
        if self.gates:
            self.hold(str(path))
        return os.open(path, flags, mode)

    def pread(self, descriptor: int, length: int, offset: int) -> bytes:
        """Read as sysfs does: a file whose device is gone fails.

        It takes no time unless a gate says so, and then has the value of the middle of it, as the program assumes.
        """
        rest_ns = self.hold(str(Path(f"/proc/self/fd/{descriptor}").readlink())) if self.gates else 0
        self.show()
        if not os.fstat(descriptor).st_nlink:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        text = os.pread(descriptor, length, offset)
        if rest_ns:
            self.pause(rest_ns)
        return text
