"""Measures commands that have a budget of their own: `ibpulse model`, and `ibpulse fleet report` on a large dataset."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from statistics import median

from bench.bench import Bench
from bench.report import Budget, Section, Table
from bench.synthetic_dataset import write_dataset
from bench.synthetic_fleet import FleetPlan, SyntheticFleet

MODEL = ("model", "--job=mixtral-8x7b-fsdp")
MODEL_LIMIT_SECONDS, REPORT_LIMIT_SECONDS, REPORT_LIMIT_BYTES = 0.3, 8.0, 250e6
NODES, QUICK_NODES, RAILS, MINUTES = 64, 8, 8, 10
KIBIBYTE = 1024
# A small process starts the command, because `ru_maxrss` of a process includes the memory of the one that started it.
LAUNCHER = """
import json, resource, subprocess, sys, time
begun = time.perf_counter()
command = subprocess.run([sys.executable, "-m", "ibpulse", *sys.argv[1:]], stdout=subprocess.DEVNULL)
took, usage = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([command.returncode, took, usage.ru_utime + usage.ru_stime, usage.ru_maxrss]))
"""
METHOD = f"""\
From the start of a process to its end, medians of the rounds; memory is the highest of the process (`ru_maxrss`).
`ibpulse {" ".join(MODEL)}` predicts a published job. `ibpulse fleet report` reads a dataset of {NODES} synthetic nodes
with {RAILS} rails and {MINUTES} minutes of samples every 10 ms, {NODES * RAILS * MINUTES * 6000 / 1e6:.0f} million
rows."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a command took."""

    seconds: float
    cpu_seconds: float
    memory_bytes: float


def run(bench: Bench) -> Section:
    """Measure both commands."""
    nodes = QUICK_NODES if bench.quick else NODES
    plan = FleetPlan(
        nodes=nodes, rails=RAILS, period_ms=315.0, steps=MINUTES * 60_000 // 315, late_ms={nodes // 2: 20.0}
    )
    dataset = write_dataset(bench.new_folder("dataset"), [SyntheticFleet(plan)])
    model = _typical([_measure(*MODEL) for _ in range(bench.rounds(9))])
    report = _typical([_measure("fleet", "report", str(dataset)) for _ in range(bench.rounds(3))])
    named = {" ".join(MODEL): model, f"fleet report, {nodes} nodes": report}
    rows = [
        [f"`ibpulse {name}`", f"{cost.seconds:.2f} s", f"{cost.cpu_seconds:.2f} s", f"{cost.memory_bytes / 1e6:.0f} MB"]
        for name, cost in named.items()
    ]
    whole = not bench.quick
    small, quick = report.memory_bytes <= REPORT_LIMIT_BYTES, report.cpu_seconds <= REPORT_LIMIT_SECONDS
    budgets = [
        Budget(
            "`ibpulse model`, with its start", "≤ 0.3 s", f"{model.seconds:.2f} s", model.seconds <= MODEL_LIMIT_SECONDS
        ),
        Budget(f"`fleet report`, {NODES} nodes: CPU", "≤ 8 s", f"{report.cpu_seconds:.1f} s", quick if whole else None),
        Budget(
            f"`fleet report`, {NODES} nodes: memory",
            "≤ 250 MB",
            f"{report.memory_bytes / 1e6:.0f} MB",
            small if whole else None,
        ),
    ]
    return Section("Commands", METHOD, [Table(["command", "took", "CPU", "memory"], rows)], (), budgets)


def _typical(costs: list[Cost]) -> Cost:
    return Cost(
        *(median(values) for values in zip(*((c.seconds, c.cpu_seconds, c.memory_bytes) for c in costs), strict=True))
    )


def _measure(*words: str) -> Cost:
    launched = subprocess.run([sys.executable, "-c", LAUNCHER, *words], capture_output=True, text=True, check=True)
    code, took, cpu_seconds, memory = json.loads(launched.stdout)
    if code:
        raise RuntimeError(f"ibpulse {' '.join(words)} ended with exit code {code}")
    return Cost(took, cpu_seconds, memory * KIBIBYTE)
