"""Runs the sampler process on its own, and reads a sampler's statistics from its ring."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench import processes
from bench.bench import NS_PER_SECOND
from bench.trees import RECEIVE, STATISTICS, TRANSMIT
from ibpulse.agent.sampler.plan import STOP, Plan, PlannedPort, PlannedSignals, plan_path, write_plan
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.reader import RingReader
from ibpulse.core.signals import MAX_FIRMWARE_READS, MAX_SIGNALS, MEANINGS, Signal

HISTORY_SECONDS = 302
CLOCK_TRIES = 20


@dataclass(frozen=True, slots=True)
class SamplerRun:
    """Statistics of a sampler over a span: samples, CPU time, and the wake-up delay of each sample."""

    ticks: int
    missed: int
    cpu_ns_per_tick: float
    lateness_ns: npt.NDArray[np.float64]

    @property
    def kept(self) -> float:
        """Fraction of samples captured."""
        return self.ticks / (self.ticks + self.missed)

    def late_ns(self, part: float) -> float:
        """A percentile of the wake-up delay; `part` is 0..1."""
        return float(np.quantile(self.lateness_ns, part))


def plan_signals(ring: RingFile, slot: int) -> PlannedSignals:
    """As many signals as a port can have, in files of the loopback interface."""
    files = tuple(map(str, sorted(STATISTICS.iterdir())[:MAX_SIGNALS]))
    asked = MAX_SIGNALS - MAX_FIRMWARE_READS
    number = ring.assign_signals(slot, [Signal(name, 64) for name in list(MEANINGS)[:MAX_SIGNALS]], asked)
    return PlannedSignals(number, files, asked, refresh=RECEIVE)


@contextmanager
def running_sampler(folder: Path, interval_ns: int, ports: int, signal_ticks: int = 0) -> Iterator[RingReader]:
    """The ring of a sampler process that runs inside the block and reads this number of ports.

    Their signals are read every `signal_ticks`, or not at all.
    """
    capacity = HISTORY_SECONDS * NS_PER_SECOND // interval_ns
    readings = capacity // signal_ticks if signal_ticks else 0
    ring = RingFile.create(folder / "ring", interval_ns, capacity, signal_capacity=readings)
    planned = []
    for number in range(ports):
        slot = ring.assign(f"mlx5_{number}:1", 4, 1)
        signals = plan_signals(ring, slot) if signal_ticks else None
        planned.append(PlannedPort(slot, f"mlx5_{number}", (TRANSMIT,), (RECEIVE,), signals=signals))
    write_plan(plan_path(ring.path, 0), Plan(1, os.getpid(), ports=tuple(planned), signal_ticks=signal_ticks))
    ring.words[at.lane_at(0) + at.L_PLAN_WANTED] = 1
    command = [sys.executable, "-m", "ibpulse.agent.sampler.process", str(ring.path), "0", str(ring.descriptor)]
    with processes.running(command, folder / "sampler.log", inherited=(ring.descriptor,)):
        processes.wait_for(lambda: ring.words[at.lane_at(0) + at.L_TICKS] > 10, "the sampler's first ticks")
        yield RingReader(ring)
        # the sampler ignores signals and ends when the ring asks it to
        ring.words[at.lane_at(0) + at.L_PLAN_WANTED] = STOP


class SamplerWatch:
    """Measures the sampler of a ring from its creation to `stop`."""

    def __init__(self, reader: RingReader) -> None:
        self._reader = reader
        self._pid = reader.ring.words[at.lane_at(0) + at.L_PID]
        self._offset_ns = wall_offset_ns()
        self._first = reader.newest_tick() + 1
        self._ticks, self._cpu_ns = self._word(at.L_TICKS), processes.cpu_ns(self._pid)

    def _word(self, which: int) -> int:
        return self._reader.ring.words[at.lane_at(0) + which]

    def stop(self) -> SamplerRun:
        """Statistics of the sampler since the creation."""
        cpu_ns, counted = processes.cpu_ns(self._pid) - self._cpu_ns, self._word(at.L_TICKS) - self._ticks
        last = self._reader.newest_tick()
        block = self._reader.read([0], self._first, last)
        ticks = np.arange(self._first, last + 1)[block.present[0]]
        before = block.records[0, block.present[0], at.R_BEFORE].astype(np.int64)
        # the sampler follows a slewed wall clock, so its deadlines lie between the two offsets
        offsets = np.linspace(self._offset_ns, wall_offset_ns(), last + 1 - self._first)[block.present[0]]
        deadlines = self._reader.wall_ns(ticks) - offsets.astype(np.int64)
        late = (before - deadlines).astype(np.float64)
        return SamplerRun(len(ticks), int((~block.present[0]).sum()), cpu_ns / max(1, counted), late)


def watch(reader: RingReader, seconds: float) -> SamplerRun:
    """Measure the sampler of a ring for this number of seconds."""
    watching = SamplerWatch(reader)
    time.sleep(seconds)
    return watching.stop()


def wall_offset_ns() -> int:
    """Wall clock minus monotonic clock in ns, from the best of several tries."""
    tries = []
    for _ in range(CLOCK_TRIES):
        before, wall, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        tries.append((after - before, wall - (before + after) // 2))
    return min(tries)[1]
