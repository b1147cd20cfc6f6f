"""Measures the cost of the traffic analysis per second in the main process, and its growth with the ports."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import fmean, median

import numpy as np

from bench.bench import PORTS, Bench
from bench.report import Budget, Section, Table, milliseconds
from bench.snapshots import INTERVAL_NS, build_fabric, build_snapshot
from ibpulse.agent.aggregator import Aggregator, AggregatorOptions
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.reader import RingReader
from ibpulse.workbench.simulate.timeline import Schedule
from ibpulse.workbench.simulate.workloads import DENSE

SIZES = (1, 2, 4, 8, 16, 32)
SECOND_TICKS = 100
HISTORY_SECONDS = 150
WORD_BYTES = 4
LIMIT_SECONDS = 5e-3
# the step period is searched for every five seconds
ROUND_SECONDS = 5
METHOD = f"""\
A ring with {HISTORY_SECONDS} s of the simulated dense run, every 10 ms, is aggregated second by second, as in the
daemon: CPU time of this process per second of samples, over whole rounds of {ROUND_SECONDS} s. The longest second
includes the search for the step period. A line is fitted to the means."""


def run(bench: Bench) -> Section:
    """Aggregate the seconds of rings with more and more ports."""
    costs = [_measure(bench, ports) for ports in SIZES]
    rows = [
        [str(ports), *map(milliseconds, (middle, mean, longest))]
        for ports, (middle, mean, longest) in zip(SIZES, costs, strict=True)
    ]
    means = np.array([mean for _, mean, _ in costs])
    slope, base = np.polyfit(SIZES, means, 1)
    correlation = float(np.corrcoef(SIZES, means)[0, 1] ** 2)
    per_port = f"{milliseconds(float(slope))} per port"
    note = f"The line: {milliseconds(float(base))} with no ports, {per_port}, R² {correlation:.3f}."
    at_node = costs[SIZES.index(PORTS)][1]
    what = f"whole analysis at {PORTS} rails, per second at 10 ms"
    budget = Budget(what, "≤ 5 ms of CPU", milliseconds(at_node), at_node <= LIMIT_SECONDS)
    table = Table(["ports", "median second", "mean second", "longest second"], rows)
    return Section("Analysis of the traffic", METHOD, [table], [note], [budget])


def _measure(bench: Bench, ports: int) -> tuple[float, float, float]:
    """Median, mean and longest CPU time of a second."""
    reader = _fill(bench.new_folder("ring"), ports)
    seconds = 4 * ROUND_SECONDS if bench.quick else 12 * ROUND_SECONDS
    end = reader.ring.latest_tick()
    first = end - (seconds + 1) * SECOND_TICKS
    # the counters begin at the start of the process, before the measured seconds
    reader.ring.words[at.lane_at(0) + at.L_TICK] = first
    aggregator = Aggregator(reader, AggregatorOptions())
    build_snapshot(reader, aggregator, ports, first)
    times = []
    for left in range(seconds, 0, -1):
        begun = time.process_time()
        build_snapshot(reader, aggregator, ports, end - left * SECOND_TICKS)
        times.append(time.process_time() - begun)
    return median(times), fmean(times), max(times)


def _fill(folder: Path, ports: int) -> RingReader:
    """A ring with the dense run on this number of rails, in which all seconds are complete."""
    ticks = np.arange(1, HISTORY_SECONDS * SECOND_TICKS + 1)
    ring = RingFile.create(folder / "ring", INTERVAL_NS, len(ticks) + SECOND_TICKS)
    ring.begin_segment(1, 0)
    moved = Schedule(DENSE, rails=ports).cumulative_bytes(ticks * INTERVAL_NS) // WORD_BYTES
    words = np.frombuffer(ring.words, dtype=np.uint64)
    for rail, port in enumerate(build_fabric(ports).ports):
        begin = at.records_at(ring.assign(str(port.id), WORD_BYTES, 1), ring.capacity)
        view = words[begin : begin + ring.capacity * at.RECORD_WORDS].reshape(ring.capacity, at.RECORD_WORDS)
        stamps = np.repeat(ticks[:, None] * INTERVAL_NS, 3, axis=1)
        rows = np.concatenate([stamps, moved[:, rail], ticks[:, None] | 1 << at.STRIDE_SHIFT], axis=1)
        view[ticks % ring.capacity] = rows.astype(np.uint64)
    ring.words[at.lane_at(0) + at.L_TICK] = len(ticks)
    return RingReader(ring)
