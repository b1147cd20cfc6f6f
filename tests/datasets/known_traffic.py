"""Recordings of jobs whose steps are known to the nanosecond."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ibpulse.core.arrays import Floats
from ibpulse.core.jobs import Claim, Holding, JobRecord, PlacedJob
from ibpulse.core.recordings import RecordedPort, Recording, RecordingMeta

START_NS = 1_763_683_200 * 10**9
INTERVAL_NS = 10_000_000
LINE_RATE, RATE = 50e9, 45e9


@dataclass(frozen=True)
class Pipeline:
    """Steps of some ports: each `period` seconds, silent up to `begins`, then bursts with pauses of 40 ms.

    It transmits `late` seconds later than it receives.
    """

    ports: tuple[int, ...]
    period: float = 0.7
    begins: float = 0.2537
    busy: float = 0.4
    bursts: int = 4
    late: float = 0.0
    first: float = 0.0

    def edges(self, steps: int) -> tuple[Floats, Floats, Floats]:
        """First transmission, first receipt and end of each step, in seconds after the beginning of the recording."""
        receives = self.first + self.begins + self.period * np.arange(steps)
        return receives + self.late, receives, receives + self.busy


@dataclass(frozen=True)
class Node:
    """A node with its pipelines and what is missing: (port, first sample, end)."""

    name: str = "node1"
    pipelines: tuple[Pipeline, ...] = (Pipeline((0, 1)),)
    ports: int = 2
    missing: tuple[tuple[int, int, int], ...] = ()
    jobs: tuple[JobRecord, ...] = ()
    noise: float = 0.0
    start_ns: int = START_NS + INTERVAL_NS
    rails: tuple[int, ...] = field(default=())

    def record(self, ticks: int) -> Recording:
        """The samples; the first one ends at `start_ns`, so it begins one interval before."""
        rates = np.zeros((self.ports, 2, ticks))
        for pipeline in self.pipelines:
            for port in pipeline.ports:
                rates[port] = bursts(pipeline, ticks)
        if self.noise:
            rates *= 1 + self.noise * np.random.default_rng(len(self.name)).uniform(-1, 1, rates.shape)
        for port, first, end in self.missing:
            rates[port, :, first:end] = np.nan
        described = tuple(
            RecordedPort(f"mlx5_{port}", 1, LINE_RATE, rail=not self.rails or port in self.rails, source="counters")
            for port in range(self.ports)
        )
        meta = RecordingMeta(self.name, INTERVAL_NS, described, "record", jobs=self.jobs)
        return Recording(meta, self.start_ns, rates, np.where(np.isnan(rates), 0, INTERVAL_NS / 1e9))


def bursts(pipeline: Pipeline, ticks: int) -> Floats:
    """Rates of one port, (2, samples): the exact mean over each sample of bursts at a constant rate."""
    edges = np.arange(ticks + 1) * INTERVAL_NS / 1e9
    steps = int(edges[-1] / pipeline.period) + 1
    part = pipeline.busy / pipeline.bursts
    ways = []
    for late in (pipeline.late, 0.0):
        begins = pipeline.edges(steps)[1][:, np.newaxis] + part * np.arange(pipeline.bursts)
        ends = begins + part - 0.04
        ends[:, -1] += 0.04
        begins[:, 0] += late
        flat_begins, lengths = begins.ravel(), (ends - begins).ravel()
        done = np.concatenate(([0.0], np.cumsum(lengths)))
        place = np.searchsorted(flat_begins, edges, side="right")
        last = np.maximum(place - 1, 0)
        unfinished = np.maximum(0, (flat_begins + lengths)[last] - edges)
        sent = done[place] - np.where(place > 0, unfinished, 0)
        ways.append(RATE * np.diff(sent) / (INTERVAL_NS / 1e9))
    return np.maximum(0, np.stack(ways))


def job(name: str, *ports: int) -> JobRecord:
    """A job that has these ports all the time."""
    ids = tuple(RecordedPort(f"mlx5_{port}", 1).id for port in ports)
    return JobRecord(PlacedJob(Claim(name, "slurm", "file", "", ""), ids, "gpus"), None, 0, None, 0, (Holding(ids),))


def save_nodes(directory: Path, *nodes: Node, ticks: int = 1000) -> list[Path]:
    """The recordings of nodes as files."""
    from ibpulse.core.recordings import save

    paths = []
    for node in nodes:
        paths.append(directory / f"{node.name}.parquet")
        save(paths[-1], node.record(ticks))
    return paths
