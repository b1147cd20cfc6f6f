"""Measures the time of `ibpulse report` for a long recording, from process start to exit."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np

from bench.bench import PORTS, Bench
from bench.report import Budget, Section, Table
from ibpulse.core.recordings import RecordedPort, Recording, RecordingMeta, save
from ibpulse.workbench.simulate.timeline import Schedule
from ibpulse.workbench.simulate.workloads import DENSE

TICK_NS = 10_000_000
IDLE = 6
FULL_SECONDS, QUICK_SECONDS = 3600, 360
LIMIT_SECONDS = 3.0
METHOD = """\
An hour of the simulated dense run at 10 ms on 8 rails. `ibpulse report` reads it and prints the table with all
intervals; the time is that of the whole process."""


def run(bench: Bench) -> Section:
    """Report on one recording, and on two side by side."""
    seconds = QUICK_SECONDS if bench.quick else FULL_SECONDS
    path = bench.new_folder("recording") / "hour.parquet"
    save(path, _record(seconds))
    files = [path], [path, path]
    found = [median(_measure(one) for _ in range(bench.rounds(5))) for one in files]
    size = f"{path.stat().st_size / 1e6:.0f} MB"
    rows = [[f"{len(one)} x {seconds} s", size, f"{took:.2f} s"] for one, took in zip(files, found, strict=True)]
    met = None if bench.quick else found[0] <= LIMIT_SECONDS
    budget = Budget(f"report of an hour at 10 ms, {PORTS} ports", "≤ 3 s", f"{found[0]:.2f} s", met)
    return Section("Report of a recording", METHOD, [Table(["recordings", "size of each", "took"], rows)], [], [budget])


def _record(seconds: int) -> Recording:
    rng = np.random.default_rng(0)
    ticks = np.arange(seconds * 10**9 // TICK_NS + 1) * TICK_NS
    schedule = Schedule(DENSE, rails=1)
    rates, measured = [], []
    for rail in range(PORTS):
        times = ticks + rng.integers(0, 200_000, len(ticks))
        moved = schedule.cumulative_bytes(times)[:, 0] * (rail != IDLE)
        lasted = np.diff(times) / 1e9
        rates.append(np.diff(moved, axis=0).T / lasted)
        measured.append(np.broadcast_to(lasted, (2, len(lasted))))
    ports = tuple(RecordedPort(f"mlx5_{rail}", 1, 50e9) for rail in range(PORTS))
    meta = RecordingMeta("simulated", TICK_NS, ports, "record")
    return Recording(meta, 10**18, np.array(rates), np.array(measured))


def _measure(paths: list[Path]) -> float:
    begun = time.perf_counter()
    words = [sys.executable, "-m", "ibpulse", "report", *map(str, paths)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun
