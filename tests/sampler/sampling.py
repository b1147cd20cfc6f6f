"""A sampling loop in the test's own process, driven tick by tick."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

from ibpulse.agent.sampler.loop import Loop
from ibpulse.agent.sampler.plan import Plan, PlannedPort
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.reader import Block, RingReader
from tests.virtual.clock import NodeClock
from tests.virtual.world import World


class Sampling:
    """A loop on a ring, driven tick by tick; in virtual time if there is a world."""

    running: ClassVar[list[Sampling]] = []

    def __init__(self, ring: RingFile, *ports: PlannedPort, world: World | None = None) -> None:
        self.running.append(self)
        self.ring = ring
        self.loop = Loop(ring, 0, NodeClock(world), world.pread) if world else Loop(ring, 0)
        self.generation = 0
        self.tick = 1000
        self.apply(*ports)

    def apply(self, *ports: PlannedPort) -> None:
        self.generation += 1
        self.loop.apply(Plan(self.generation, os.getpid(), ports=ports))

    def sample(self, ticks: int = 1) -> None:
        for _ in range(ticks):
            self.tick += 1
            # the test's ticks follow each other at once, where those of a sampler are an interval apart
            for port in self.loop._ports.values():
                port.read_ns = 0
            self.loop.sample(self.tick, 0)

    def block(self, slot: int, ticks: int) -> Block:
        return RingReader(self.ring).read([slot], self.tick - ticks + 1, self.tick)

    def last(self, slot: int) -> list[int] | None:
        """The counters of the last tick, None if missing."""
        block = self.block(slot, 1)
        return block.counters()[0, :, 0].tolist() if block.present[0, 0] else None

    def word(self, slot: int, which: int) -> int:
        return self.ring.slot_word(slot, which)


def open_files(root: Path) -> dict[str, str]:
    """Descriptors of this process that look at counter files of a tree, by number."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            target = str(Path("/proc/self/fd", name).readlink())
        except OSError:
            continue
        if target.startswith(f"{root}/") and "/counters/" in target:
            found[name] = target
    return found
