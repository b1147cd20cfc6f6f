"""Runs known schedules under the real daemon and compares its metrics with the truth.

The counters are computed at the moment of each read (a FUSE tree), so the only errors are those of the exporter and of
the machine's clock. The truth is the exact integral of the schedule, computed by code independent of the exporter.
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.processes import compete
from ibpulse.units import format_duration
from tests.fusefabric.client import FuseFabric, why_not
from tests.running import Metrics, Running

SECONDS = 60
SETTLE_SECONDS = 3
WAYS = ("transmit", "receive")
BYTES = ("transmit_bytes", "receive_bytes")
SQUARE = {"rate_bytes_per_second": 20e9, "period_ns": 200_000_000, "duty": 0.4}
# its edges fall on all parts of a sample alike
WAVE = {"rate_bytes_per_second": 20e9, "period_ns": 187_300_000, "duty": 0.37}
# from 20 us to 0.9 ms, and what the server of the tree adds
SLOW = {"quickest_seconds": 20e-6, "delay_seconds": 0.9e-3}


@dataclass(frozen=True)
class Case:
    """A schedule to measure; `busy` if other processes compute without pause."""

    workload: str
    options: Mapping[str, Any] = field(default_factory=dict)
    interval_ms: int = 10
    ports: int = 8
    reads: Mapping[str, float] = field(default_factory=dict)
    busy: bool = False


# the cases of each column of the page
COLUMNS = (
    (
        Case("constant", {"rate_bytes_per_second": 20e9}),
        Case("square", SQUARE),
        Case("dense"),
        Case("moe"),
        Case("expert-parallel"),
        Case("constant", {"rate_bytes_per_second": 20e9}, 1, 2),
        Case("square", {**SQUARE, "period_ns": 20_000_000, "duty": 0.5}, 1, 2),
    ),
    (Case("square", WAVE, reads=SLOW),),
    (Case("square", WAVE, reads=SLOW, busy=True),),
)


def measure() -> dict[str, list[str]]:
    """The range of the errors in each column, by the name of the number."""
    if reason := why_not():
        raise SystemExit(f"the exact fabric cannot be mounted: {reason}")
    columns = [find_ranges(cases) for cases in COLUMNS]
    return {name: [column.get(name, "-") for column in columns] for name in columns[0]}


def find_ranges(cases: Iterable[Case]) -> dict[str, str]:
    """The least and the largest error of each number in some cases."""
    errors = defaultdict(list)
    for case in cases:
        for name, error in run(case):
            errors[name].append(error)
    return {
        name: " to ".join(dict.fromkeys(shown(name, error) for error in (min(found), max(found))))
        for name, found in errors.items()
    }


def shown(name: str, error: float) -> str:
    """An error as text, relative for rates and bytes."""
    if name == "time observed":
        return f"{error:.0%}".replace("%", " %")
    if name in ("duty cycle", "CV at 10 ms"):
        return signed(error, 3)
    return f"{signed(100 * error, 3 if name == 'bytes' else 2)} %"


def signed(value: float, digits: int) -> str:
    """A number with its sign, which is + for 0."""
    return f"{round(value, digits) + 0.0:+.{digits}f}"


def run(case: Case) -> Iterator[tuple[str, float]]:
    """Run a schedule under the daemon; yields the error of each number."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch, ExitStack() as stack:
        place = Path(scratch)
        fabric = stack.enter_context(FuseFabric(place / "sys", case.workload, case.options, ports=case.ports))
        set_all(fabric, factor=0.0)
        daemon = stack.enter_context(Running(fabric.root, place / "ring", interval=f"{case.interval_ms}ms"))
        if case.busy:
            stack.enter_context(compete())
        # byte totals are read in silence, because a scrape does not say at which sample they end
        before = daemon.metrics()
        begins_ns = set_all(fabric, **case.reads)
        time.sleep(SETTLE_SECONDS)
        settled = daemon.metrics()
        time.sleep(SECONDS)
        metrics = daemon.metrics()
        ends_ns = set_all(fabric, factor=0.0)
        time.sleep(SETTLE_SECONDS)
        after = daemon.metrics()
        spans = zip(begins_ns, ends_ns, strict=True)
        flowed = sum(
            fabric.truth(begin, end, end - begin, rails=[rail]).total_bytes for rail, (begin, end) in enumerate(spans)
        )
        yield "bytes", (total(after, *BYTES) - total(before, *BYTES)) / flowed - 1
        seen = total(metrics, "observed_seconds") - total(settled, "observed_seconds")
        yield "time observed", seen / case.ports / (until(metrics) - until(settled))
        yield from compare(case, fabric, metrics)


def set_all(fabric: FuseFabric, **rule: float) -> list[int]:
    """Give each device a rule; from when on it holds, in ns."""
    return [fabric.set(device.name, **rule) for device in fabric.devices]


def total(metrics: Metrics, *names: str) -> float:
    """The sum of counters over all ports."""
    return sum(sum(metrics.find(f"ibpulse_port_{name}_total").values()) for name in names)


def until(metrics: Metrics) -> int:
    """The wall second up to which the daemon has aggregated samples."""
    return int(metrics.value("ibpulse_aggregated_until_timestamp_seconds"))


def compare(case: Case, fabric: FuseFabric, metrics: Metrics) -> Iterator[tuple[str, float]]:
    """Compare the last window with the schedule's truth."""
    end_ns = until(metrics) * 10**9 - fabric.wall_offset_ns
    span = (end_ns - SECONDS * 10**9, end_ns, case.interval_ms * 1_000_000)
    window = format_duration(SECONDS * 10**9)
    truth = fabric.truth(*span)
    mean = sum(metrics.value(f"ibpulse_node_{way}_bytes_per_second", window=window) for way in WAYS)
    yield "mean", mean / truth.mean - 1
    active = metrics.value("ibpulse_node_bandwidth_active_mean_bytes_per_second", window=window)
    yield "mean when active", active / truth.active_mean - 1
    peak = metrics.value("ibpulse_node_bandwidth_peak_bytes_per_second", window=window)
    yield "peak of the node", peak / truth.peak - 1
    for rail in range(case.ports):
        for number, way in enumerate(WAYS):
            peak = metrics.port(f"{way}_peak_bytes_per_second", f"mlx5_{rail}", window=window)
            yield "peak of a port", peak / fabric.truth(*span, rails=[rail], directions=[number]).peak - 1
    yield "duty cycle", metrics.value("ibpulse_node_duty_cycle_ratio", window=window) - truth.duty
    # not published where too few samples were captured
    for cv in metrics.find("ibpulse_node_burstiness_cv", window=window, timescale=f"{case.interval_ms}ms").values():
        yield f"CV at {case.interval_ms} ms", cv - truth.cv
