"""Measures how the costs grow from 1 to 64 ports, and whether the growth is linear."""

from __future__ import annotations

import time
from statistics import median

import numpy as np
from prometheus_client import CollectorRegistry

from bench.bench import Bench
from bench.report import Budget, Panel, Picture, Section, Table, microseconds, milliseconds, percent
from bench.sampler import running_sampler, watch
from bench.served import cpu_shares, memory_bytes, running_daemon
from bench.snapshots import INTERVAL_NS, build_snapshot, open_aggregator
from ibpulse.agent.metrics.page import render

SIZES = (1, 2, 4, 8, 16, 32, 64)
HISTORY_SECONDS = 60
SECOND_TICKS = 100
SETTLE_SECONDS = 4.0
# A quadratic cost would exceed the line fitted to the smaller half of the sizes by 80 %.
LIMIT = 1.25
METHOD = f"""\
The sampler reads 1 to 64 ports every 10 ms. In this process, the aggregator processes one second after another of a
ring with {HISTORY_SECONDS} s of history, and each snapshot is rendered. A line is fitted up to 32 ports; the last
column of the second table is the cost of 64 ports divided by its prediction. Main process and memory are those of a
daemon that is not scraped."""


def run(bench: Bench) -> Section:
    """Measure each size."""
    rounds = [[_tick_seconds(bench, ports) for ports in SIZES] for _ in range(bench.rounds(4))]
    ticks = [median(times) for times in zip(*rounds, strict=True)]
    costs = [(tick, *_measure(bench, ports)) for tick, ports in zip(ticks, SIZES, strict=True)]
    daemons = [_measure_daemon(bench, ports) for ports in SIZES]
    names = ("CPU of one sample", "aggregator update", "`/metrics`")
    rows = [
        [
            str(ports),
            microseconds(tick * 1e9),
            milliseconds(update),
            milliseconds(rendering),
            percent(main),
            f"{memory / 1e6:.1f} MB",
        ]
        for ports, (tick, update, rendering), (main, memory) in zip(SIZES, costs, daemons, strict=True)
    ]
    fits, worst = [], 0.0
    for name, column in zip(names, np.array(costs).T, strict=True):
        slope, base = np.polyfit(SIZES[:-1], column[:-1], 1)
        beyond = float(column[-1] / (base + slope * SIZES[-1]))
        correlation = float(np.corrcoef(SIZES, column)[0, 1] ** 2)
        worst = max(worst, beyond)
        fits.append([name, microseconds(base * 1e9), microseconds(slope * 1e9), f"{correlation:.3f}", f"{beyond:.2f}"])
    tables = [
        Table(["ports", *names, "main process, of one core", "memory"], rows),
        Table(["line", "at no port", "per port", "R² over all", "64 ports / line"], fits),
    ]
    result = f"64 ports cost at most {worst:.2f} × the line"
    budget = Budget("growth, 1 to 64 ports", f"linear: 64 ports ≤ {LIMIT} × the line", result, worst <= LIMIT)
    panels = (
        Panel("CPU of one sample, µs", {"": [1e6 * tick for tick, _, _ in costs]}),
        Panel(
            "main process, ms",
            {
                "aggregation of a second": [1e3 * one for _, one, _ in costs],
                "/metrics": [1e3 * one for *_, one in costs],
            },
        ),
        Panel("memory, MB", {"": [memory / 1e6 for _, memory in daemons]}),
    )
    picture = Picture("growth-ports", "ports", SIZES, panels)
    return Section("Growth with the ports", METHOD, tables, (), [budget], picture)


def _measure_daemon(bench: Bench, ports: int) -> tuple[float, float]:
    """Share of a core of the main process, and memory of both processes in bytes."""
    with running_daemon(bench, ports=ports, history_seconds=300) as daemon:
        time.sleep(SETTLE_SECONDS)
        return cpu_shares(daemon, 5.0)["main"], memory_bytes(daemon)["both"]


def _tick_seconds(bench: Bench, ports: int) -> float:
    """CPU time of one sample in seconds."""
    with running_sampler(bench.new_folder("sampler"), INTERVAL_NS, ports) as reader:
        return watch(reader, bench.seconds(1.5)).cpu_ns_per_tick / 1e9


def _measure(bench: Bench, ports: int) -> tuple[float, float]:
    """Seconds per aggregator update and per rendering."""
    reader, aggregator = open_aggregator(bench.new_folder("ring"), ports, HISTORY_SECONDS)
    updates, renderings = [], []
    registry = CollectorRegistry()
    seconds = 10 if bench.quick else 40
    end = reader.ring.latest_tick()
    build_snapshot(reader, aggregator, ports, end - (seconds + 1) * SECOND_TICKS)
    for left in range(seconds, -1, -1):
        begun = time.perf_counter()
        snapshot = build_snapshot(reader, aggregator, ports, end - left * SECOND_TICKS)
        middle = time.perf_counter()
        render(snapshot, registry)
        renderings.append(time.perf_counter() - middle)
        updates.append(middle - begun)
    return median(updates), median(renderings)
