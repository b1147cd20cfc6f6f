"""Snapshots of a job that was played into a ring faster than real time, as the aggregator of a daemon makes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ibpulse.aggregator import Aggregator, AggregatorOptions, Snapshot
from ibpulse.ring import layout as at
from ibpulse.simulate.timeline import Schedule, Workload
from ibpulse.simulate.workloads import Idle
from tests.aggregator.rings import Ring, port

RAILS = 8
TICKS = 100
INTERVAL_NS = 10_000_000
IDLE = Idle()


@dataclass(frozen=True)
class Act:
    """So many seconds of a workload; `flow` is the part of it that a rail carries, `down` and `gone` name rails."""

    workload: Workload
    seconds: int
    flow: Mapping[int, float] = field(default_factory=dict)
    down: tuple[int, ...] = ()
    gone: tuple[int, ...] = ()


def play(path: Path, *acts: Act, seed: int = 0, every: int = 1) -> Iterator[Snapshot]:
    """A snapshot `every` so many seconds, and at the end.

    A rail that is gone is not in the fabric, and has no records.
    """
    seconds = sum(act.seconds for act in acts)
    names = [f"mlx5_{rail}:1" for rail in range(RAILS)]
    ring = Ring.create(path, *map(port, names), seconds=seconds + 10)
    slots = [ring.file.assign(name, 4, 1) for name in names]
    aggregator = Aggregator(ring.reader, AggregatorOptions())
    flowed, second = np.zeros((RAILS, 2)), 0
    for act in acts:
        factors = np.array([0.0 if rail in act.down else act.flow.get(rail, 1.0) for rail in range(RAILS)])
        schedule = Schedule(act.workload, seed, RAILS)
        moved = schedule.cumulative_bytes(np.arange(1, act.seconds * TICKS + 1) * INTERVAL_NS)
        counters = flowed + moved * factors[:, None]
        for rail in set(range(RAILS)) - set(act.gone):
            write(ring, slots[rail], second * TICKS, np.floor(counters[:, rail] / 4).astype(np.uint64))
        flowed = counters[-1]
        here = [port(names[rail], active=rail not in act.down) for rail in range(RAILS) if rail not in act.gone]
        for _ in range(act.seconds):
            second += 1
            ring.file.words[at.lane_at(0) + at.L_TICK] = second * TICKS
            ring.change(*here)
            if second % every == 0 or second == seconds:
                yield aggregator.update(ring.fabric, ring.now_after(second))


def write(ring: Ring, slot: int, before: int, counters: np.ndarray) -> None:
    """Records of a port from the tick after `before` on."""
    ticks = before + np.arange(1, len(counters) + 1)
    records = np.zeros((len(ticks), at.RECORD_WORDS), dtype=np.uint64)
    for word in (at.R_BEFORE, at.R_BETWEEN, at.R_AFTER):
        records[:, word] = ticks * INTERVAL_NS
    records[:, at.R_TRANSMIT], records[:, at.R_RECEIVE] = counters[:, 0], counters[:, 1]
    records[:, at.R_TICK] = ticks
    words = np.frombuffer(ring.file.words, dtype=np.uint64)
    begin = at.records_at(slot, ring.file.capacity)
    mine = words[begin : begin + ring.file.capacity * at.RECORD_WORDS].reshape(-1, at.RECORD_WORDS)
    mine[ticks % ring.file.capacity] = records
