"""Kineto traces with known overlap, and the traffic of a simulated node that plays their communication."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ibpulse.core.model import PortIdentity
from ibpulse.core.recordings import RecordedPort, Recording, RecordingMeta
from ibpulse.workbench.simulate.timeline import Schedule, Step, build_step, even_weights

BEGIN_NS = 1_763_683_200 * 10**9
MS = 1_000_000
GROUP = {
    "Process Group Name": "7",
    "Process Group Description": "EXPERT_DATA_PARALLEL_GROUP",
    "Group size": 4,
    "Process Group Ranks": "[0, 4, 8, 12]",
    "Collective name": "_allgather_base",
    "In msg nelems": 1000,
    "Out msg nelems": 4000,
    "dtype": "BFloat16",
}
INSIDE = {**GROUP, "Process Group Name": "3", "Process Group Description": "TP", "Process Group Ranks": "[0, 1, 2, 3]"}


def event(name: str, kind: str, start_ns: int, lasts_ns: int, stream: int = 7, **details: Any) -> dict[str, Any]:
    """An event of a trace; times are relative to its base."""
    return {
        "ph": "X",
        "cat": kind,
        "name": name,
        "pid": 0,
        "tid": stream,
        "ts": start_ns / 1000,
        "dur": lasts_ns / 1000,
        "args": {"stream": stream, "device": 0, **details},
    }


def compute(start_ns: int, lasts_ns: int) -> dict[str, Any]:
    """A kernel of computation."""
    return event("ampere_bf16_s16816gemm_bf16_128x128", "kernel", start_ns, lasts_ns)


def collective(start_ns: int, lasts_ns: int, group: dict[str, Any] | None = None, stream: int = 20) -> dict[str, Any]:
    """A kernel of NCCL."""
    name = "ncclDevKernel_AllGather_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"
    return event(name, "kernel", start_ns, lasts_ns, stream, **(GROUP if group is None else group))


def step(number: int, start_ns: int, lasts_ns: int) -> dict[str, Any]:
    """A step of the profiler."""
    return event(f"ProfilerStep#{number}", "user_annotation", start_ns, lasts_ns, 1)


def document(events: Sequence[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    """A whole trace."""
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": number, "name": "NVIDIA H100"} for number in range(4)],
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 16},
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": BEGIN_NS,
        "traceEvents": list(events),
        "traceName": "/home/secret-user/trace.json",
        **changes,
    }


def write_trace(path: Path, events: Sequence[dict[str, Any]], **changes: Any) -> Path:
    """The file of a trace, compressed if its name ends in gz."""
    text = json.dumps(document(events, **changes)).encode()
    path.write_bytes(gzip.compress(text, 1) if path.suffix == ".gz" else text)
    return path


@dataclass(frozen=True, slots=True)
class PlayedTrace:
    """A timeline of collectives that wait and then move bytes, some of them behind computation.

    `moving` and `waiting` are the true exposed times in nanoseconds; `spans` the traffic: begin, end in seconds, rate.
    """

    steps: int = 12
    seed: int = 1
    rate: float = 40e9
    name: str = field(default="played", init=False)

    def timeline(self) -> tuple[list[dict[str, Any]], list[tuple[float, float, float]], int, int]:
        """Events, traffic, exposed moving and exposed waiting."""
        rng = np.random.default_rng(self.seed)
        events, spans, now = [], [], 200 * MS
        moving = waiting = 0
        for number in range(self.steps):
            begin = now
            for _ in range(3):
                works, waits, moves = (
                    int(x) for x in rng.integers([40, 5, 40], [160, 60, 160]) * MS + rng.integers(0, MS, 3)
                )
                hidden = int(rng.integers(0, waits + moves))
                # computation goes on behind the first part of the collective
                events += [compute(now, works + hidden), collective(now + works, waits + moves)]
                spans.append(((now + works + waits) / 1e9, (now + works + waits + moves) / 1e9, self.rate))
                waiting += max(0, waits - hidden)
                moving += moves - max(0, hidden - waits)
                now += works + waits + moves
            now += int(rng.integers(10, 40)) * MS
            events.append(step(number, begin, now - begin))
        return events, spans, moving, waiting

    def step(self, rng: np.random.Generator) -> Step:
        """The traffic of the whole timeline."""
        _, spans, _, _ = self.timeline()
        return build_step(spans, spans[-1][1] + 1.0)

    def weights(self, rails: int) -> npt.NDArray[np.float64]:
        """All rails alike."""
        return even_weights(rails)


def record(trace: PlayedTrace, rails: int = 2, shift_ns: int = 0, interval_ns: int = 10 * MS) -> Recording:
    """What a sampler that wakes up a little late records of the node; its clock is ahead by `shift_ns`."""
    schedule = Schedule(trace, rails=rails, start_ns=BEGIN_NS)
    _, spans, _, _ = trace.timeline()
    count = int(spans[-1][1] * 1e9 + 500 * MS) // interval_ns
    grid = BEGIN_NS + interval_ns * np.arange(count + 1)
    read = grid - shift_ns + np.random.default_rng(2).integers(20_000, 80_000, grid.size)
    counted = np.moveaxis(schedule.cumulative_bytes(read), 0, -1).astype(np.float64)
    seconds = np.broadcast_to(np.diff(read) / 1e9, (rails, 2, count)).copy()
    ports = tuple(RecordedPort(f"mlx5_{n}", 1, 50e9, source="counters", identity=PortIdentity()) for n in range(rails))
    meta = RecordingMeta("node7", interval_ns, ports, "record", simulated=True)
    return Recording(meta, int(grid[1]), np.diff(counted, axis=-1) / seconds, seconds)
