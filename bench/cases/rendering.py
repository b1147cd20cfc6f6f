"""Rendering of `/metrics`, compared with the client library's generic renderer on the same samples."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from bench.bench import PORTS, Bench
from bench.report import Budget, Section, Table, milliseconds
from bench.snapshots import build_snapshot, open_aggregator
from ibpulse.agent.metrics.page import render
from ibpulse.core.metrics.text import compress, process_registry

LIMIT_SECONDS, FASTER = 1e-3, 10
METHOD = f"""\
A snapshot of {PORTS} ports with traffic. Both renderers write its samples in this process, alternately; the client
library receives them as ready families, so it is only charged for formatting. The whole of `/metrics` also has the
metrics of the process."""


@dataclass(frozen=True, slots=True, eq=False)
class Ready:
    """A collector with ready-made families."""

    families: list[Metric]

    def collect(self) -> list[Metric]:
        return self.families


def run(bench: Bench) -> Section:
    """Render repeatedly with both."""
    folder = bench.new_folder("ring")
    reader, aggregator = open_aggregator(folder, PORTS, history_seconds=300)
    snapshot = build_snapshot(reader, aggregator, PORTS, reader.ring.latest_tick())
    empty, own = CollectorRegistry(), process_registry()
    text, _ = render(snapshot, empty)
    families = list(text_string_to_metric_families(text.decode()))
    generic = CollectorRegistry(auto_describe=False)
    generic.register(Ready(families))
    rounds = 40 if bench.quick else 200
    ours, theirs, whole, squeezed = _times(
        rounds,
        lambda: render(snapshot, empty),
        lambda: generate_latest(generic),
        lambda: render(snapshot, own),
        lambda: compress(text),
    )
    samples = sum(len(family.samples) for family in families)
    rows = [
        ["ibpulse's renderer", milliseconds(ours), f"{len(text) / 1e3:.0f} kB"],
        ["client library's renderer", milliseconds(theirs), f"{len(generate_latest(generic)) / 1e3:.0f} kB"],
        ["ibpulse's `/metrics` with the process's own metrics", milliseconds(whole), ""],
        ["gzip of it", milliseconds(squeezed), f"{len(compress(text)) / 1e3:.0f} kB"],
    ]
    budgets = [
        Budget(f"`/metrics` at {PORTS} ports", "≤ 1 ms to render", milliseconds(whole), whole <= LIMIT_SECONDS),
        Budget(
            "`/metrics` against the client library's renderer",
            f"≥ {FASTER} × faster",
            f"{theirs / ours:.1f} ×",
            theirs / ours >= FASTER,
        ),
    ]
    return Section("Rendering", METHOD, [Table([f"{samples} samples", "time", "size"], rows)], (), budgets)


def _times(rounds: int, *tasks: Callable[[], object]) -> list[float]:
    """Median time of each task in seconds; the tasks alternate, so that all see the same load."""
    times: list[list[float]] = [[] for _ in tasks]
    for _ in range(rounds):
        for task, taken in zip(tasks, times, strict=True):
            begun = time.perf_counter()
            task()
            taken.append(time.perf_counter() - begun)
    return [median(taken) for taken in times]
