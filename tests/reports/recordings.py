"""Recordings of simulated workloads, whose bytes are known at every instant."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ibpulse.core.events import Event
from ibpulse.core.model import PortState
from ibpulse.core.recordings import RecordedPort, Recording, RecordingMeta
from ibpulse.workbench.reports.comparison import Report, assemble
from ibpulse.workbench.reports.run import Run, describe_run
from ibpulse.workbench.reports.span import ReportOptions
from ibpulse.workbench.simulate.timeline import Schedule, Workload

SECOND_NS = 1_000_000_000
TICK_NS = 10_000_000
START_NS = 1_763_683_200 * SECOND_NS
LINE = 50e9


def play(workload: Workload, seconds: float, seed: int = 0, rails: int = 8, tick_ns: int = TICK_NS) -> Recording:
    """A workload from its start on, every counter read at its tick."""
    edges = np.arange(int(seconds * SECOND_NS) // tick_ns + 1) * tick_ns
    moved = Schedule(workload, seed, rails).cumulative_bytes(edges)
    return record(np.diff(moved, axis=0).transpose(1, 2, 0) / (tick_ns / SECOND_NS), tick_ns)


def record(
    rates: np.ndarray, tick_ns: int = TICK_NS, events: tuple[Event, ...] = (), line: float | None = LINE
) -> Recording:
    """Rates (ports, 2, ticks), NaN in holes, as a recording that begins with a whole second."""
    ports = tuple(RecordedPort(f"mlx5_{number}", 1, line, state="ACTIVE") for number in range(len(rates)))
    meta = RecordingMeta("node7", tick_ns, ports, "record", events=events)
    seconds = np.where(np.isnan(rates), 0.0, tick_ns / SECOND_NS)
    return Recording(meta, START_NS + tick_ns, rates.astype(np.float64), seconds)


UP = PortState("ACTIVE", "LinkUp", True, LINE, True)
DOWN = PortState("DOWN", "Polling", False, LINE, True)


def change(seconds: float, before: PortState | None, after: PortState | None, subject: str = "mlx5_1:1") -> Event:
    """A change that was noticed at the sample so many seconds after the first one."""
    kind = "link-up" if after and after.active else "link-down"
    time_ns = START_NS + TICK_NS + round(seconds * SECOND_NS)
    return Event(time_ns, kind, subject, f"{subject}: {kind}", SECOND_NS, before, after, {"n": 1})


def wave(high: float, busy: int, silent: int, times: int, ports: int = 1) -> np.ndarray:
    """Rates (ports, 2, ticks): `high` for some ticks, silence for others, by turns."""
    one = np.tile(np.repeat([high, 0.0], [busy, silent]), times)
    return np.broadcast_to(one, (ports, 2, len(one))).copy()


def run_of(recording: Recording, options: ReportOptions | None = None, name: str = "a", place: int = 0) -> Run:
    """What a report says of one recording."""
    return describe_run(Path(f"/recordings/{name}.parquet"), recording, options or ReportOptions(), place)


def report_of(*recordings: Recording, options: ReportOptions | None = None) -> Report:
    """A report of recordings named a, b, c."""
    chosen = options or ReportOptions()
    runs = [
        run_of(one, chosen, name, place) for place, (name, one) in enumerate(zip("abcdefgh", recordings, strict=False))
    ]
    return assemble(runs, chosen)
