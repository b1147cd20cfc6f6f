"""Compares every traffic statistic with its truth, for known signals sampled well and badly.

The samples are written to real ring files. The values are those of `/api/v1/summary`, which come from the same code as
`/metrics`.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.signals import (
    RAILS,
    SECONDS,
    TICK_NS,
    Signal,
    everywhere,
    find_truth,
    played,
    poisson,
    ramp,
    shifted,
    wave,
)
from bench.snapshots import build_fabric
from ibpulse.agent.aggregator import AggregatorOptions
from ibpulse.agent.aggregator.summary import summarize
from ibpulse.core.answers.summary import Summary
from ibpulse.core.events import PortHistory
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.reader import RingReader
from ibpulse.workbench.simulate.fsdp import DENSE, MOE
from ibpulse.workbench.simulate.workloads import ExpertParallel

BEGIN_SECOND, WINDOW_SECONDS = 10, 60
SCALE = 4
# as in the runs that they are modelled on
IDLE = (6,)
REFRESH_NS = 10_000_000


@dataclass(frozen=True)
class Sampling:
    """Imperfections of the sampling; lost and late ticks are fractions of all ticks, chosen at random.

    The reads of a tick follow each other, each for `read_ns`, so that their mean time is that of the tick.
    """

    lost: float = 0.0
    jitter_ns: int = 0
    late: float = 0.0
    late_ns: tuple[int, int] = (2_000_000, 4_900_000)
    resets: int = 0
    stride: int = 1
    cached: bool = False
    read_ns: int = 0


# in the order of the columns of the page
SAMPLINGS = (
    Sampling(),
    Sampling(lost=0.01),
    Sampling(lost=0.1),
    Sampling(jitter_ns=1_000_000),
    Sampling(late=0.05),
    Sampling(resets=20),
    Sampling(stride=4, cached=True),
    Sampling(read_ns=100_000),
    Sampling(read_ns=200_000),
)

SIGNALS = (
    Signal(everywhere(lambda seconds: 20e9 * seconds)),
    Signal(everywhere(wave(0.1, 0.4)), 0.1),
    Signal(everywhere(wave(0.37, 0.25)), 0.37),
    Signal(everywhere(wave(2.0, 0.75)), 2.0),
    Signal(shifted(0.8, 0.3), 0.1),
    Signal(everywhere(ramp(1.0)), 1.0),
    Signal(everywhere(poisson(0.03, 0.08))),
    played(DENSE, idle=IDLE),
    played(MOE, idle=IDLE),
    played(ExpertParallel()),
)

ABSOLUTE = ("duty cycle", "CV", "Jain index")


def measure() -> dict[str, list[str]]:
    """The largest error of each statistic over all signals, per sampling."""
    columns = [find_errors(sampling) for sampling in SAMPLINGS]
    return {
        name if name in ABSOLUTE else f"{name}, %": [shown(name, column[name]) for column in columns]
        for name in columns[0]
    }


def find_errors(sampling: Sampling) -> dict[str, list[float]]:
    """The errors of each statistic, one per signal with a value; infinite where there is nothing to find."""
    found = defaultdict(list)
    for signal in SIGNALS:
        truth = find_truth(signal, BEGIN_SECOND * 10**9, (BEGIN_SECOND + WINDOW_SECONDS) * 10**9)
        for key, value in statistics(sample(signal, sampling)).items():
            name, true = key.partition(" at ")[0], truth[key]
            if name in ABSOLUTE:
                error = value - true
            elif true > 0:
                error = value / true - 1
            else:
                error = np.inf if value > 0 else np.nan
            if not np.isnan(error):
                found[name].append(error)
    return found


def shown(name: str, errors: list[float]) -> str:
    """The largest error as text, in per cent for relative ones."""
    if not errors:
        return "-"
    worst = max(map(abs, errors))
    return f"{worst:.3f}" if name in ABSOLUTE else f"{100 * worst:.2f}"


def sample(signal: Signal, sampling: Sampling) -> Summary:
    """The summary of a window of a signal with a given sampling."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        ticks = SECONDS * 10**9 // TICK_NS
        ring = RingFile.create(Path(folder) / "ring", TICK_NS, ticks + 100)
        ring.begin_segment(1, 0)
        fill(ring, signal, sampling, ticks)
        reader = RingReader(ring)
        ports = build_fabric(RAILS).ports
        end_ns = (BEGIN_SECOND + WINDOW_SECONDS) * 10**9
        now_ns = SECONDS * 10**9
        try:
            return summarize(reader, ports, PortHistory(), AggregatorOptions(), WINDOW_SECONDS, end_ns, now_ns)
        finally:
            del reader
            ring.close()


def fill(ring: RingFile, signal: Signal, sampling: Sampling, ticks: int) -> None:
    """Write the records of every rail."""
    rng = np.random.default_rng(11)
    numbers = np.arange(1, ticks + 1)
    times = numbers * TICK_NS + rng.integers(0, sampling.jitter_ns + 1, ticks)
    times += np.where(rng.random(ticks) < sampling.late, rng.integers(*sampling.late_ns, ticks), 0)
    begun = times[:, None, None] + sampling.read_ns * (np.arange(2 * RAILS).reshape(RAILS, 2) - RAILS)
    # a counter has its value at any moment of its read
    read = begun + np.random.default_rng(12).integers(0, sampling.read_ns + 1, begun.shape)
    if sampling.cached:
        read -= (read - 3_000_000) % REFRESH_NS
    moved = np.empty(read.shape, dtype=np.uint64)
    for place in np.ndindex(RAILS, 2):
        moved[:, *place] = signal.flowed(np.maximum(read[:, *place], 0))[:, *place] // SCALE
    kept = (rng.random(ticks) >= sampling.lost) & (numbers % sampling.stride == 0)
    words = np.frombuffer(ring.words, dtype=np.uint64)
    for rail, port in enumerate(build_fabric(RAILS).ports):
        slot = ring.assign(str(port.id), SCALE, sampling.stride)
        counters = moved[:, rail].copy()
        for reset in rng.choice(ticks, sampling.resets, replace=False):
            counters[reset:] = moved[reset:, rail] - moved[reset, rail]
        begin = at.records_at(slot, ring.capacity)
        records = words[begin : begin + ring.capacity * at.RECORD_WORDS].reshape(ring.capacity, at.RECORD_WORDS)
        mine = numbers[kept] % ring.capacity
        records[mine, at.R_BEFORE], records[mine, at.R_BETWEEN] = begun[kept, rail, 0], begun[kept, rail, 1]
        records[mine, at.R_AFTER] = begun[kept, rail, 1] + sampling.read_ns
        records[mine, at.R_TRANSMIT], records[mine, at.R_RECEIVE] = counters[kept, 0], counters[kept, 1]
        records[mine, at.R_TICK] = numbers[kept] | sampling.stride << at.STRIDE_SHIFT
    ring.words[at.lane_at(0) + at.L_TICK] = ticks


def statistics(summary: Summary) -> dict[str, float]:
    """The statistics of a summary, by their names on the page."""
    node = summary.node
    numbers: dict[str, float | None] = {
        "mean": (node.transmit_bytes_per_second or 0.0) + (node.receive_bytes_per_second or 0.0),
        "mean when active": node.bandwidth_active_mean_bytes_per_second,
        "peak": node.bandwidth_peak_bytes_per_second,
        "duty cycle": node.duty_cycle_ratio,
        "burst length": node.bursts.mean_seconds,
        "gap length": node.gaps.mean_seconds,
        "bursts": float(node.bursts.count),
        "Jain index": node.rail_fairness_ratio,
        "step period": node.step_period_seconds,
    }
    for scale in ("10ms", "50ms", "100ms", "1s"):
        name = f"CV at {1000 if scale == '1s' else scale.removesuffix('ms')} ms"
        numbers[name] = node.burstiness_cv[scale]
    return {name: float("nan") if value is None else value for name, value in numbers.items()}
